"""verify.tree_sampling: sampling verification of a draft tree by the target alone.

Definition. At node c (first the root) the target gives the distribution p_c of the
next token; the children of c hold proposals for it. One coin u_c decides among
them all: go through the children in sibling order, add up the mass of their
tokens, and accept the first child with

    u_c < (mass so far, this token included) / threshold_acc   or   p_c(token) >= threshold_single

whose token has mass. A token that an earlier sibling proposed already is no second
proposal: its mass counts once, and the node is passed over. The accepted child is
the next node. The walk ends at a node without children, when no child is accepted,
or when the path holds ``width`` nodes. There the bonus token is drawn with a coin
of its own, the smallest token whose cumulated mass exceeds coin x total, from

* p_c without the tokens of the rejected siblings, if there were any, else
* p_c as it is (also where the width ended the walk: nothing was tried there).

With both thresholds at 1 every emitted token is distributed as the target says,
whatever the tree. A threshold below 1 trades that for longer acceptance, single
for a token that is likely by itself, accumulated by scaling the mass.

When rejected siblings held all of p_c, which only rounding can bring about, the
residual is empty and any token with mass under p_c is legal.

Rounding model (``draws``): the edge of the m-th token tried lies within m - 1 ULP
(its additions), one more for a threshold_acc that is no power of two; the edges of
a draw within n ULP at 1 for n tokens with mass. Where nothing is rounded, a coin
on the edge is not below it.

Defensive domain: a row that is no distribution, a draft token outside the
vocabulary. The accepted tokens and the bonus token are then any that lie in the
vocabulary and have mass where the row has any.

Source: SpecInfer (arXiv 2305.09781) for verification of trees; thresholds as
SGLang documents ``speculative_accept_threshold_single`` and ``_acc``.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Between, OneOf
from oracle.trace import Trace
from oracle.verify import sampled_tree as tree
from oracle.verify.draws import below, draw, draw_edge_ulp, sum_edge_ulp
from oracle.verify.edges import Branch, Decide, branched, explore
from oracle.verify.links import children
from oracle.verify.rows import Mass, Row
from oracle.verify.sampled_tree import Node, Request, TreeSamplingCase, masses_of
from oracle.verify.tree_safety import safe_outcome
from oracle.verify.tree_words import BEHAVIOURS, narrate, say

FINAL = "final"  # name of the coin of the bonus token; the others are node numbers
FIELDS = ("path", "accepted", "accepted_tokens", "bonus_token")


def walk(
    case: TreeSamplingCase, nodes: tuple[Node, ...], decide: Decide, note: Callable = lambda *_, **__: None,
    rounding: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """One request: the outcome fields. ``note`` is told every decision."""
    single, acc = Fraction(case.threshold_single), Fraction(case.threshold_acc)
    path, used = [0], {}
    while len(path) < case.width:
        at, used = path[-1], {}
        target = masses_of(nodes[at].row, case.vocabulary)
        for child in children(nodes, at):
            token = nodes[child].token
            mass = target.get(token, Fraction(0))
            if token in used or not mass:
                note("passed", node=at, child=child, token=token, repeated=token in used)
                continue
            used[token] = mass
            tried = list(used.values())
            within = sum_edge_ulp(tried, acc)
            accepted = mass >= single or below(decide, at, sum(tried) / acc, within, rounding)
            note("tried", node=at, child=child, token=token, mass=mass, tried=tried, edge=sum(tried) / acc,
                 within_ulp=within, single=mass >= single, accepted=accepted)  # fmt: skip
            if accepted:
                path.append(child)
                break
        if path[-1] == at:
            break  # no child was accepted, or there is none
        used = {}
    last = path[-1]
    target = masses_of(nodes[last].row, case.vocabulary)
    left = {t: m for t, m in target.items() if t not in used}
    bonus = draw(decide, FINAL, left, lambda **found: note("drawn", node=last, **found))
    if bonus is None:
        note("empty", node=last, tokens=list(target))
        bonus = OneOf(tuple(target))
    return {
        "path": path,
        "accepted": len(path) - 1,
        "accepted_tokens": [nodes[n].token for n in path[1:]],
        "bonus_token": bonus,
    }


def coins_of(request: Request) -> dict[Any, Fraction]:
    """The coins by the names under which ``walk`` asks for them."""
    return {n: Fraction(node.coin) for n, node in enumerate(request.nodes)} | {FINAL: Fraction(request.final_coin)}


def _in_order(branches: list[Branch]) -> list[Branch]:
    """The exact one, then by distance: not by the order in which a walk asks."""
    return [branches[0], *sorted(branches[1:], key=lambda b: (b.margin_ulp, b.excess_ulp, repr(b.result)))]


def _legal(case: TreeSamplingCase, request: Request, walk_: Callable[[Decide], dict[str, Any]]) -> dict[str, Any]:
    if tree.hostile(request, case.vocabulary):
        return safe_outcome(case, request)
    return branched(_in_order(explore(walk_, coins_of(request))))


def reference(case: TreeSamplingCase, trace: Trace) -> Outcome:
    """Walk every tree; both sides of a decision that rounding may turn."""
    results = []
    for i, request in enumerate(case.requests):
        result = _legal(case, request, lambda decide, nodes=request.nodes: walk(case, nodes, decide))
        narrate(case, request, i, result, walk, trace)
        results.append(result)
    if len({repr(r["path"]) for r in results}) > 1:
        trace.behaviour("mixed_paths")
    return {name: [r[name] for r in results] for name in FIELDS} | {"outside_writes": 0}


def second(case: TreeSamplingCase) -> Outcome:
    """From parents instead of lists of children, with all edges of a node worked out
    before its coin is looked at, and the draw token by token."""
    results = []
    for request in case.requests:
        places = _places(request.nodes)
        result = _legal(case, request, lambda d, r=request, p=places: _by_edges(case, r.nodes, p, d))
        results.append(result)
    return {name: [r[name] for r in results] for name in FIELDS} | {"outside_writes": 0}


def _places(nodes: tuple[Node, ...]) -> dict[int, tuple[int, int]]:
    """Parent and rank among the siblings of every node that has a parent."""
    return {child: (n, rank) for n in range(len(nodes)) for rank, child in enumerate(children(nodes, n))}


def _by_edges(
    case: TreeSamplingCase, nodes: tuple[Node, ...], places: dict[int, tuple[int, int]], decide: Decide
) -> dict[str, Any]:
    path: list[int] = [0]
    acc = Fraction(case.threshold_acc)
    while True:
        p = masses_of(nodes[path[-1]].row, case.vocabulary)
        here = [n for n, (parent, _) in places.items() if parent == path[-1]] if len(path) < case.width else []
        proposals = sorted(here, key=lambda n: places[n][1])
        first = {nodes[n].token: n for n in reversed(proposals)}
        tokens = [t for t, n in sorted(first.items(), key=lambda item: places[item[1]][1]) if t in p]
        edges = [edge / acc for edge in accumulate(p[t] for t in tokens)]
        errors = [sum_edge_ulp([p[t] for t in tokens[: k + 1]], acc) for k in range(len(tokens))]
        sure = [p[t] >= Fraction(case.threshold_single) for t in tokens]
        taken = (k for k in range(len(tokens)) if sure[k] or below(decide, path[-1], edges[k], errors[k]))
        k = next(taken, None)
        if k is None:
            break
        path.append(first[tokens[k]])
    rest = {t: m for t, m in p.items() if t not in tokens}
    return {
        "path": path,
        "accepted": len(path) - 1,
        "accepted_tokens": [nodes[n].token for n in path[1:]],
        "bonus_token": _scanned(decide, rest) if rest else OneOf(tuple(p)),
    }


def _scanned(decide: Decide, masses: dict[int, Fraction]) -> int:
    """The draw, token by token."""
    total, passed = sum(masses.values()), Fraction(0)
    within = draw_edge_ulp(list(masses.values()), total)
    *others, last = masses
    for token in others:
        passed += masses[token]
        if decide.below(FINAL, passed / total, within, at=Fraction(1)):
            return token
    return last


def kind(field: str, expected: Any, observed: Any) -> str:
    """Which way a path is wrong; whether a token is wrong or not even safe."""
    if field == "outside_writes":
        return "written_outside"
    if field == "bonus_token":
        return "unsafe_token" if isinstance(expected, (OneOf, Between)) else "wrong_token"
    if field == "accepted":
        return "unsafe_count" if isinstance(expected, Between) else "too_many" if observed > expected else "too_few"
    if isinstance(expected, OneOf):
        return "unsafe_path" if field == "path" else "unsafe_token"
    if field == "accepted_tokens":
        return "wrong_token"
    shared = min(len(expected), len(observed))
    if observed[:shared] != expected[:shared]:
        return "other_branch"
    return "too_long" if len(observed) > len(expected) else "too_short"


def _example() -> TreeSamplingCase:
    sure = Row((Mass(1, 0.5), Mass(2, 0.25), Mass(3, 0.25)))
    nodes = (
        Node(0, 1, -1, 0.625, sure),  # token 1 is rejected at 0.5, token 2 accepted at 0.75
        Node(1, -1, 2, 0.5, sure),
        Node(2, -1, -1, 0.5, sure),
    )
    return TreeSamplingCase(4, 3, 1.0, 1.0, (Request(nodes, 0.875),))


CONTRACT = Contract(
    name="verify.tree_sampling",
    version=1,
    case_type=TreeSamplingCase,
    reference=reference,
    second=second,
    domain=tree.domain,
    columns=tree.columns,
    kind=kind,
    fields=(
        Field("path", "request", "nodes of the accepted path, the root first"),
        Field("accepted", "request", "accepted draft tokens"),
        Field("accepted_tokens", "request", "the accepted draft tokens in order"),
        Field("bonus_token", "request", "the token drawn after the last accepted one"),
        Field("outside_writes", "case", "changed cells that were not the target's to change"),
    ),
    behaviours=BEHAVIOURS,
    padding=tree.padding,
    say=say,
    example=_example(),
)
