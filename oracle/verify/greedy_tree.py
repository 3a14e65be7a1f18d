"""verify.greedy_tree: which path through a draft tree the target accepts.

Definition. A verify block of a request holds N nodes. Node 0 is the root: the
current token, emitted earlier. Every node has a token, links to its first child
and to its next sibling (-1 for none), and the target's prediction after it. The
children of a node are its first child, that one's next sibling, and so on. The
walk starts at the root. At node c it looks at the children of c in that order;
**the first whose token equals predicted[c]** is accepted and becomes c. When there
is none the walk ends. Nodes that no link from the root reaches take no part.

``width`` is the number of columns of ``accept_index``, the root included; it need
not be N. The walk also ends when ``width - 1`` drafts are accepted. Then, with
``path`` the nodes walked, the root first, and ``a = len(path) - 1``:

* ``accepted = a`` (the bonus token is not counted),
* ``accept_index`` is the path, filled up with -1 to ``width`` entries. Engines store
  node n of row r as r * N + n; here r * N is taken off again,
* ``predicts`` at a node of the path is the prediction after it. What stands at other
  nodes of the row is nobody's business,
* the emitted tokens are the tokens of the accepted nodes and then the bonus token,
  ``predicted[path[a]]``.

Defensive: a draft token outside the vocabulary (-1 as a placeholder, or an id too
large) equals no prediction, so it is never accepted; everything else holds. Links
must form a tree: what makes them is verify.draft_tree, and a ring of links is no
input of this contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, INT32_MAX, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace
from oracle.verify.greedy_tree_behaviours import BEHAVIOURS, MAX_NODES, note
from oracle.verify.greedy_tree_words import kind, say
from oracle.verify.links import NONE, children, greedy_path, require_tree


@dataclass(frozen=True)
class Node:
    """One node of a draft tree and the target's prediction after it."""

    token: int
    next_child: int
    next_sibling: int
    predicted: int


@dataclass(frozen=True)
class Request:
    """The nodes of one row; all rows of a batch have the same number."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class GreedyTreeCase:
    """One greedy verify of a batch of draft trees; predictions are below ``vocabulary``."""

    vocabulary: int
    width: int
    requests: tuple[Request, ...]


def domain(case: GreedyTreeCase) -> str:
    """``defensive`` when a draft token is outside the vocabulary; raises InvalidCase outside the domain."""
    require(2 <= case.vocabulary <= INT32_MAX, "vocabulary: must be 2 to 2^31 - 1")
    require(1 <= case.width <= MAX_NODES, f"width: must be 1 to {MAX_NODES}")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_NODES)
    size = len(case.requests[0].nodes)
    require(1 <= size <= MAX_NODES, f"requests[0].nodes: must be 1 to {MAX_NODES}")
    hostile = False
    for i, r in enumerate(case.requests):
        require(len(r.nodes) == size, f"requests[{i}].nodes: all rows of a batch have one number of nodes")
        for j, node in enumerate(r.nodes):
            where = f"requests[{i}].nodes[{j}]"
            require(NONE <= node.next_child < size, f"{where}.next_child: must be -1 or a node")
            require(NONE <= node.next_sibling < size, f"{where}.next_sibling: must be -1 or a node")
            require(0 <= node.predicted < case.vocabulary, f"{where}.predicted: token outside vocabulary")
            require(-(2**31) <= node.token <= INT32_MAX, f"{where}.token: must be an int32")
            require(j > 0 or 0 <= node.token < case.vocabulary, f"{where}.token: token outside vocabulary")
            hostile |= not 0 <= node.token < case.vocabulary
        require_tree(r.nodes, f"requests[{i}].nodes")
    return DEFENSIVE if hostile else FUNCTIONAL


def outcome_of(case: GreedyTreeCase, paths: list[list[int]]) -> Outcome:
    """What follows from the accepted paths."""
    outcome: Outcome = {name: [] for name in ("path", "accepted", "accept_index", "predicts", "emitted")}
    for r, path in zip(case.requests, paths, strict=True):
        outcome["path"].append(path)
        outcome["accepted"].append(len(path) - 1)
        outcome["accept_index"].append(path + [NONE] * (case.width - len(path)))
        outcome["predicts"].append([r.nodes[n].predicted for n in path])
        outcome["emitted"].append([r.nodes[n].token for n in path[1:]] + [r.nodes[path[-1]].predicted])
    return outcome | {"outside_writes": 0}


def reference(case: GreedyTreeCase, trace: Trace) -> Outcome:
    """Walk from the root, child by child in sibling order."""
    paths = []
    for i, r in enumerate(case.requests):
        path = greedy_path(r.nodes, case.width)
        for at, step in zip(path, path[1:], strict=False):
            trace.step("accepted", i, node=at, predicted=r.nodes[at].predicted, child=step)
        last = path[-1]
        tokens = {c: r.nodes[c].token for c in children(r.nodes, last)}
        trace.step("the walk ends", i, node=last, predicted=r.nodes[last].predicted, tokens_of_children=tokens)
        note(case.vocabulary, case.width, r.nodes, path, trace)
        paths.append(path)
    outcome = outcome_of(case, paths)
    for i in range(len(paths)):
        trace.step("accepted path", i, "path", value=outcome["path"][i])
        trace.step("accepted draft tokens", i, "accepted", value=outcome["accepted"][i])
        trace.step("accept_index", i, "accept_index", value=outcome["accept_index"][i])
        trace.step("predictions along the path", i, "predicts", value=outcome["predicts"][i])
        trace.step("emitted tokens", i, "emitted", value=outcome["emitted"][i])
    trace.step("cells changed outside the outputs", None, "outside_writes", value=0)
    if len({len(p) for p in paths}) > 1:
        trace.behaviour("mixed_acceptance")
    return outcome


def second(case: GreedyTreeCase) -> Outcome:
    """By marking: parents and ranks first, then who may be accepted at all.

    A node is a winner when its token is what its parent's prediction asks for and no
    sibling of lower rank has the same token. The path is the chain of winners whose
    ancestors are all winners; at most one stands at each depth.
    """
    paths = []
    for r in case.requests:
        size = len(r.nodes)
        parent, rank = np.full(size, NONE), np.zeros(size, dtype=int)
        for p in range(size):
            for k, c in enumerate(children(r.nodes, p)):
                parent[c], rank[c] = p, k
        path = [0]
        depth = {0: 0}
        for _ in range(size):  # parents may have any number, so settle depth by depth
            depth |= {n: depth[int(parent[n])] + 1 for n in range(size) if n not in depth and int(parent[n]) in depth}
        for level in range(1, case.width):
            winners = [n for n, d in depth.items() if d == level and parent[n] == path[-1]]
            winners = [n for n in winners if r.nodes[n].token == r.nodes[path[-1]].predicted]
            if not winners:
                break
            path.append(min(winners, key=lambda n: rank[n]))
        paths.append(path)
    return outcome_of(case, paths)


def columns(case: GreedyTreeCase) -> dict[str, Any]:
    """``token``, ``next_child``, ``next_sibling``, ``predicted`` int64 [B, N]; ``width``, ``vocabulary``."""
    names = ("token", "next_child", "next_sibling", "predicted")
    arrays = {n: np.array([[getattr(x, n) for x in r.nodes] for r in case.requests], dtype=np.int64) for n in names}
    return {"vocabulary": case.vocabulary, "width": case.width, **arrays}


def padding(case: GreedyTreeCase) -> Request:
    """A root that predicts token 0, and nodes that nothing links."""
    return Request(tuple(Node(0, NONE, NONE, 0) for _ in case.requests[0].nodes))


CONTRACT = Contract(
    name="verify.greedy_tree",
    version=1,
    case_type=GreedyTreeCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=say,
    padding=padding,
    fields=(
        Field("path", "request", "accepted nodes, the root first"),
        Field("accepted", "request", "accepted draft tokens, without the bonus token"),
        Field("accept_index", "request", "the path, filled up with -1"),
        Field("predicts", "request", "the target's predictions at the nodes of the path"),
        Field("emitted", "request", "accepted tokens, then the bonus token"),
        Field("outside_writes", "case", "cells changed outside the outputs"),
    ),
    behaviours=BEHAVIOURS,
    example=GreedyTreeCase(
        vocabulary=16,
        width=3,
        requests=(Request((Node(9, 1, NONE, 2), Node(1, 3, 2, 3), Node(2, NONE, NONE, 5), Node(3, NONE, NONE, 7))),),
    ),
)
