"""Verification by sampling: the coin on the distribution at the first divergent place."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle.verify import sampled_tree
from oracle.verify.chain_rejection_case import is_functional
from oracle.verify.chain_rejection_walk import Chain
from oracle.verify.links import children
from reports.html.pictures import plain
from reports.html.pictures.distribution import Stretch, bar, digits
from reports.html.pictures.scene import NOT_OBSERVED, Picture, Scene, exact
from reports.html.pictures.tree import draw_tree
from reports.html.svg import Canvas

WALKED = ("path", "accepted", "accepted_tokens", "accepted_drafts")
DRAWN = ("bonus_token",)
STOP = "nobody"
MAX_TOKENS = 300  # with mass; a longer row is no picture


def tree_sampling(scene: Scene) -> Picture | None:
    """verify.tree_sampling: the walked paths, and the coin where they part."""
    i = scene.request
    request, must = scene.case.requests[i], exact(scene.expected("path", i))
    if scene.field not in WALKED + DRAWN or sampled_tree.hostile(request, scene.case.vocabulary):
        return None
    nodes, seen = request.nodes, scene.saw_numbers("path", i)
    canvas = Canvas()
    title = f"request {i}: at each node one coin decides which child is accepted, if any"
    y = draw_tree(canvas, nodes, must, seen, lambda n: _says(nodes[n]), title)
    story = [f"The walk must visit {'node 0 only' if len(must) == 1 else f'nodes {must}'}, then one token is drawn."]
    if scene.field in DRAWN:
        made = _tree_draw(scene, request, must[-1])
    else:
        made = _tree_choice(scene, request, must, seen)
    if made is None:
        return Picture(canvas.markup(title), (*story, *plain.sentences(scene)))
    stretches, coin, right, wrong, words = made
    if len(stretches) <= MAX_TOKENS:
        bar(canvas, y + 16, stretches, coin, right, wrong, words)
    return Picture(canvas.markup(title), (*story, f"{words}.", *plain.sentences(scene)))


def _says(node: Any) -> tuple[str, str]:
    return f"token {node.token}", f"coin {digits(node.coin)}"


def _tree_choice(scene: Scene, request: Any, must: list[int], seen: list[int] | None) -> Any:
    """The interval of the node at which production leaves the path."""
    if seen is None:
        return None
    same = 0
    while same < min(len(must), len(seen)) and must[same] == seen[same]:
        same += 1
    at = must[max(same - 1, 0)]
    target = sampled_tree.masses_of(request.nodes[at].row, scene.case.vocabulary)
    stretches, used = [], set()
    for child in children(request.nodes, at):
        token = request.nodes[child].token
        mass = Fraction(0) if token in used else target.get(token, Fraction(0)) / Fraction(scene.case.threshold_acc)
        used.add(token)
        stretches.append(Stretch(child, min(mass, 1 - sum(s.mass for s in stretches)), f"node {child}"))
    stretches.append(Stretch(STOP, 1 - sum(s.mass for s in stretches), "no child"))
    right = must[same] if same < len(must) else STOP
    wrong = seen[same] if same < len(seen) else STOP
    said = (
        f"At node {at} the coin {digits(request.nodes[at].coin)} falls on what its children share of the target's mass"
    )
    return stretches, request.nodes[at].coin, right, wrong, said


def _tree_draw(scene: Scene, request: Any, last: int) -> Any:
    """The interval of the last draw: the target's masses without the rejected tokens."""
    target = sampled_tree.masses_of(request.nodes[last].row, scene.case.vocabulary)
    full = len(exact(scene.expected("path", scene.request))) >= scene.case.width
    tried = set() if full else {request.nodes[c].token for c in children(request.nodes, last)}
    left = {t: m for t, m in target.items() if t not in tried}
    words = (
        f"At node {last} the last token is drawn by the coin {digits(request.final_coin)} from what is left of the row"
    )
    return _drawn(scene, left, request.final_coin, words)


def chain_rejection(scene: Scene) -> Picture | None:
    """verify.chain_rejection: the accept test of the divergent position, or the draw."""
    i = scene.request
    request = scene.case.requests[i]
    if request.greedy or scene.field not in WALKED + DRAWN or not is_functional(request, scene.case.vocabulary):
        return None
    chain, must = Chain(request, scene.case.vocabulary, scene.case.rule), exact(scene.expected("accepted", i))
    story = [f"Under the {scene.case.rule} rule, {must} of {chain.count} draft tokens of request {i} must be accepted."]
    canvas = Canvas()
    if scene.field in DRAWN:
        left = chain.residual(must)
        weights = {
            t: Fraction(w, left.total) for t, w in zip(left.tokens, left.weights, strict=True) if left.total and w
        }
        words = f"The last token is drawn by the coin {digits(request.final_coin)} from the masses that are left"
        made = _drawn(scene, weights, request.final_coin, words)
        if made is None:
            return Picture(None, (*story, *plain.sentences(scene)))
        stretches, coin, right, wrong, _ = made
    else:
        seen = scene.saw_number("accepted", i)
        if seen is None or seen == must or not 0 <= min(must, seen) < chain.count:
            return Picture(None, (*story, *plain.sentences(scene)))
        at = min(must, seen) if scene.case.rule == "token" else max(must, seen) - 1
        if not 0 <= at < chain.count:
            return Picture(None, (*story, *plain.sentences(scene)))
        edge, coin = min(chain.accepting[at].exact, Fraction(1)), request.drafts[at].coin
        stretches = [Stretch(True, edge, "accepted"), Stretch(False, 1 - edge, "rejected")]
        right, wrong = must > at, seen > at
        words = f"Draft {at} (token {request.drafts[at].token}) is accepted when its coin is below {digits(edge)}"
    if len(stretches) <= MAX_TOKENS:
        bar(canvas, 0, stretches, coin, right, wrong, f"request {i}: {words[0].lower()}{words[1:]}")
    return Picture(canvas.markup(words), (*story, f"{words}; the coin is {digits(coin)}.", *plain.sentences(scene)))


def _drawn(scene: Scene, masses: dict[int, Fraction], coin: float, words: str) -> Any:
    """The interval of a draw by inverse cumulated mass."""
    total = sum(masses.values())
    if not total or len(masses) > MAX_TOKENS:
        return None
    stretches = [Stretch(t, m / total, f"token {t}") for t, m in masses.items()]
    right, wrong = exact(scene.expected(scene.field, scene.request)), scene.saw(scene.field, scene.request)
    return stretches, coin, right, None if wrong is NOT_OBSERVED else wrong, words
