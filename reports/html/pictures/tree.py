"""A draft tree with the path that must be walked and the one that production walked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.verify.links import children
from reports.html.pictures import plain
from reports.html.pictures.scene import Picture, Scene
from reports.html.svg import Canvas
from reports.html.text import listed

ACROSS, DOWN, RADIUS = 152, 88, 20
TOP = 82
MAX_NODES = 24  # drawn; of a larger tree only the walked nodes and their children
NONE = -1


def greedy_tree(scene: Scene) -> Picture | None:
    """verify.greedy_tree: from each node to the first child whose token is predicted."""
    i = scene.request
    nodes = scene.case.requests[i].nodes
    must = scene.outcome["path"][i]
    seen = _path(scene, i, len(nodes))
    title = f"request {i}: from each node, go to the first child with the token that the target wants next"
    if scene.field == "outside_writes":
        return None
    canvas = Canvas()
    draw_tree(
        canvas, nodes, must, seen, lambda n: (f"token {nodes[n].token}", f"then wants {nodes[n].predicted}"), title
    )
    story = (*_story(nodes, must, seen), *(() if _is_path(scene) else plain.sentences(scene)))
    return Picture(canvas.markup(f"Draft tree; must walk {must}, production walked {seen}"), story)


def _is_path(scene: Scene) -> bool:
    return scene.field in ("path", "accept_index", "accepted")


def _path(scene: Scene, i: int, size: int) -> list[int] | None:
    """The nodes that production walked, as far as it was observed."""
    seen = scene.saw_numbers("path", i) or scene.saw_numbers("accept_index", i)
    return None if seen is None else [n for n in seen if n != NONE][:size]


def _story(nodes: Sequence[Any], must: list[int], seen: list[int] | None) -> list[str]:
    same = 0
    while seen is not None and same < min(len(must), len(seen)) and must[same] == seen[same]:
        same += 1
    nodes_of = "node 0 only" if len(must) == 1 else f"nodes {listed(must)}"
    story = [f"The walk must visit {nodes_of} and then stop: {len(must) - 1} draft tokens are accepted."]
    if seen is None:
        return story
    if seen == must:
        return [*story, "Production walks the same path."]
    at = must[max(same - 1, 0)]
    offered = listed(f"node {c} (token {nodes[c].token})" for c in children(nodes, at))
    story.append(
        f"At node {at} the target wants token {nodes[at].predicted}; the children in order are {offered or 'none'}."
    )
    went = f"goes to node {seen[same]}" if same < len(seen) else "stops there"
    right = f"node {must[same]} must follow" if same < len(must) else "the walk must stop there"
    return [*story, f"So {right}; production {went}."]


def draw_tree(
    canvas: Canvas, nodes: Sequence[Any], must: Sequence[int], seen: Sequence[int] | None, says: Any, title: str
) -> float:
    """Draw any tree with links from the root down and return the height below it.
    ``says`` gives two lines of text for a node. Nodes that nothing reaches are counted."""
    inside = [n for n in (*must, *(seen or ())) if 0 <= n < len(nodes)]
    chosen = set(_reached(nodes))
    if len(chosen) > MAX_NODES:
        chosen = {0, *(c for n in inside for c in children(nodes, n)[: MAX_NODES // 4]), *inside} & chosen
    at = _layout(nodes, chosen)
    strays = [n for n in inside if n not in at]
    for n in strays:  # production walked to a node that no link from the root leads to
        at[n] = (max((x for x, _ in at.values()), default=0) + 1, max(d for _, d in at.values()))
    canvas.text(0, 14, title, "strong", most=110)
    _legend(canvas, seen is not None)
    _edges(canvas, nodes, at, must, seen)
    for n, (column, depth) in at.items():
        x, y = _place(column, depth)
        wrong = seen is not None and (n in seen) != (n in must)
        look = "box wrong" if wrong and n in (seen or ()) else "box kept" if n in must else "box"
        canvas.circle(x, y, RADIUS, look)
        canvas.text(x, y + 5, n, "strong", "middle", 5)
        for line, words in enumerate(says(n)):
            canvas.text(x + RADIUS + 6, y - 2 + 15 * line, words, "note", most=16)
    bottom = TOP + max(d for _, d in at.values()) * DOWN + 34
    hidden = len(nodes) - len(at)
    if hidden:
        bottom += 28
        canvas.text(0, bottom, f"{hidden} more nodes take no part and are not drawn", "note")
    return bottom


def _legend(canvas: Canvas, observed: bool) -> None:
    canvas.line(0, 31, 34, 31, "line good wide")
    canvas.text(40, 36, "path that must be walked", "good")
    if observed:
        canvas.line(250, 31, 284, 31, "line bad dashed")
        canvas.text(290, 36, "path that production walked", "bad")


def _edges(canvas: Canvas, nodes: Sequence[Any], at: dict[int, Any], must: Sequence[int], seen: Any) -> None:
    good = set(zip(must, must[1:], strict=False))
    bad = set(zip(seen, seen[1:], strict=False)) if seen else set()
    tree = {(p, c) for p in at if 0 <= p < len(nodes) for c in children(nodes, p)}
    for p, c in sorted(tree | bad):
        if p not in at or c not in at:
            continue
        x, y, to_x, to_y = *_place(*at[p]), *_place(*at[c])
        y, to_y = y + RADIUS, to_y - RADIUS
        if (p, c) in good:
            canvas.line(x, y, to_x, to_y, "line good wide")
        elif (p, c) in tree:
            canvas.line(x, y, to_x, to_y, "line faint")
        if (p, c) in bad:
            canvas.line(x + 5, y, to_x + 5, to_y, "line bad dashed")


def _place(column: float, depth: int) -> tuple[float, float]:
    return 28 + column * ACROSS, TOP + depth * DOWN


def _reached(nodes: Sequence[Any], chosen: set[int] | None = None) -> list[int]:
    """Nodes in the order of a walk from the root, of ``chosen`` only."""
    order, pending = [], [0]
    while pending:
        node = pending.pop()
        order.append(node)
        pending += [c for c in reversed(children(nodes, node)) if chosen is None or c in chosen]
    return order


def _layout(nodes: Sequence[Any], chosen: set[int]) -> dict[int, tuple[float, int]]:
    """Column and depth of each chosen node: leaves side by side, parents above the
    middle of their children."""
    depth, order = {0: 0}, _reached(nodes, chosen)
    for n in order:
        depth |= {c: depth[n] + 1 for c in children(nodes, n) if c in chosen}
    column: dict[int, float] = {}
    leaves = 0
    for n in reversed(order):  # children come before their parents, from right to left
        below = [column[c] for c in children(nodes, n) if c in chosen]
        if below:
            column[n] = (below[0] + below[-1]) / 2
        else:
            column[n] = -leaves
            leaves += 1
    return {n: (column[n] + max(leaves - 1, 0), depth[n]) for n in order}
