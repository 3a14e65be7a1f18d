"""verify.draft_tree: what a draft tree makes each of its nodes see, and how its nodes are linked.

Definition. The tree of a request has N nodes. Node 0 is the root (the current
token); every other node has a parent with a smaller number. ``pre`` tokens lie before
the root. Then

* **mask**: node i sees node j when j is i itself or an ancestor of i, and no other node;
  with a mask that covers the prefix it sees all ``pre`` tokens as well,
* **position** of a node is ``pre`` + its depth; the root has depth 0,
* ``retrieve_index`` of node n is n. Engines store r * N + n for row r; here r * N is
  taken off again,
* ``next_child`` is the child with the smallest number, -1 for a leaf,
* ``next_sibling`` is the node with the next larger number and the same parent, -1 when
  there is none; the root has none,
* the tokens handed to the target stand in node order.

The tree is ``given`` as *parents*, the result of a beam search that ran ``steps``
steps and kept ``topk`` candidates at each, or as a *mask* from which the links are
read back; both directions are one contract, because they must be each other's
inverse. ``mask`` says how the mask is laid out:

full       N rows of pre + N cells a request, requests one after another
query      N rows of N cells a request
bits       one word a node, bit j for node j; 1, 2 or 4 bytes, as N needs
full_bits  the cells of *full* as bits, lowest bit first, each request from a new byte on

A row of the mask is written here as an integer whose bit j says that node j is seen;
``hidden_prefix`` counts prefix cells that a node does not see.

Defensive: an *orphan* (parent -2), a node whose parent was not selected, as ties among
scores or NaN scores leave one behind. For a request that has one only safety is
promised: links are nodes of the row or -1, positions are at most N behind the prefix,
nothing outside is written, the call ends. Its neighbours are exact. A parent with a
larger number, or a ring, cannot be written down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Between, Each
from oracle.trace import Trace
from oracle.verify.draft_tree_behaviours import BEHAVIOURS, NONE, ORPHAN, note
from oracle.verify.draft_tree_case import DraftTreeCase, Request, columns, domain, padding
from oracle.verify.draft_tree_words import kind, say
from oracle.verify.links import from_parents


def reference(case: DraftTreeCase, trace: Trace) -> Outcome:
    """From each node upwards to the root."""
    rows = []
    for i, r in enumerate(case.requests):
        sees, positions = [], []
        for node in range(len(r.parents)):
            path, at = [node], r.parents[node]
            while at >= 0:
                path.append(at)
                at = r.parents[at]
            trace.step("upwards", i, node=node, path=path)
            sees.append(sum(1 << n for n in path))
            positions.append(r.pre + len(path) - 1)
        rows.append(_row(r, sees, positions, *from_parents(r.parents)))
        note(case, r, trace)
    outcome = _outcome(rows)
    names = {f.name: f.meaning for f in FIELDS if f.axis == "request"}
    for i in range(len(rows)):
        for name, meaning in names.items():
            trace.step(meaning, i, name, value=outcome[name][i])
    trace.step("cells changed outside the outputs", None, "outside_writes", value=0)
    if len({r.pre for r in case.requests}) > 1:
        trace.behaviour("ragged_prefixes")
    return outcome


def _row(r: Request, sees: list[int], positions: list[int], child: list[int], sibling: list[int]) -> dict[str, Any]:
    size = len(r.parents)
    exact = {
        "sees": sees,
        "hidden_prefix": 0,
        "positions": positions,
        "retrieve_index": list(range(size)),
        "next_child": child,
        "next_sibling": sibling,
        "token_nodes": list(range(size)),
    }
    if ORPHAN not in r.parents:
        return exact
    safe = {
        "sees": Between(0, 2**size - 1),
        "positions": Between(r.pre, r.pre + size),
        "retrieve_index": Between(0, size - 1),
        "next_child": Between(NONE, size - 1),
        "next_sibling": Between(NONE, size - 1),
    }
    lists = {name: Each((bounds,) * size) for name, bounds in safe.items()}
    return exact | lists | {"hidden_prefix": Between(0, size * r.pre)}


def _outcome(rows: list[dict[str, Any]]) -> Outcome:
    return {name: [row[name] for row in rows] for name in rows[0]} | {"outside_writes": 0}


def second(case: DraftTreeCase) -> Outcome:
    """By the transitive closure of the parent relation, and minima over it."""
    rows = []
    for r in case.requests:
        size = len(r.parents)
        parent = np.array(r.parents)
        sees = np.eye(size, dtype=bool)
        for node in range(1, size):
            if parent[node] >= 0:
                sees[node] |= sees[parent[node]]
        below = sees & ~np.eye(size, dtype=bool)
        child, sibling = [], []
        for node in range(size):
            child.append(int(np.argmax(below[:, node])) if below[:, node].any() else NONE)
            twins = [n for n in range(node + 1, size) if parent[n] == parent[node] >= 0]
            sibling.append(min(twins, default=NONE))
        numbers = [int("".join("01"[int(b)] for b in row[::-1]), 2) for row in sees]
        rows.append(_row(r, numbers, [r.pre + int(d) for d in below.sum(axis=1)], child, sibling))
    return _outcome(rows)


FIELDS = (
    Field("sees", "request", "nodes that each node sees, as bits"),
    Field("hidden_prefix", "request", "prefix cells that a node does not see"),
    Field("positions", "request", "positions of the nodes"),
    Field("retrieve_index", "request", "node numbers of the row"),
    Field("next_child", "request", "first child of each node"),
    Field("next_sibling", "request", "next sibling of each node"),
    Field("token_nodes", "request", "the node whose token stands at each place"),
    Field("outside_writes", "case", "cells changed outside the outputs"),
)

CONTRACT = Contract(
    name="verify.draft_tree",
    version=1,
    case_type=DraftTreeCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=say,
    padding=padding,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=DraftTreeCase("parents", "full", 2, 2, (Request(3, (-1, 0, 0, 1)),)),
)
