"""What a hostile tree may lead to: only tokens of the vocabulary, with mass if any has."""

from __future__ import annotations

from typing import Any

from oracle.legal import Between, OneOf
from oracle.verify.links import children
from oracle.verify.rows import Row
from oracle.verify.sampled_tree import Node, Request, TreeSamplingCase, has_mass

MAX_LISTED = 64  # tokens that are written out one by one


def safe_outcome(case: TreeSamplingCase, request: Request) -> dict[str, Any]:
    """Every path through tokens that are in the vocabulary and have mass, and every
    bonus token that has mass at the end of one of them. The fields are judged
    each by itself: more is not promised."""
    nodes, paths = request.nodes, [[0]]
    for path in paths:  # grows while it is walked, a level at a time
        if len(path) < case.width:
            paths += [[*path, n] for n in children(nodes, path[-1]) if _safe(case, nodes[path[-1]].row, nodes[n])]
    return {
        "path": OneOf(tuple(paths)),
        "accepted": Between(0, max(map(len, paths)) - 1),
        "accepted_tokens": OneOf(tuple([nodes[n].token for n in path[1:]] for path in paths)),
        "bonus_token": _tokens(case, [nodes[path[-1]].row for path in paths]),
    }


def _safe(case: TreeSamplingCase, row: Row, node: Node) -> bool:
    if not 0 <= node.token < case.vocabulary:
        return False
    return has_mass(row, node.token) or not _any_mass(row, case.vocabulary)


def _any_mass(row: Row, vocabulary: int) -> bool:
    named = any(m.value > 0.0 for m in row.masses)
    return named or (row.rest > 0.0 and len(row.masses) < vocabulary)


def _tokens(case: TreeSamplingCase, rows: list[Row]) -> Any:
    anything = Between(0, case.vocabulary - 1)
    if not all(_any_mass(row, case.vocabulary) for row in rows):
        return anything
    listed: set[int] = set()
    for row in rows:
        if row.rest > 0.0:
            if case.vocabulary > MAX_LISTED:
                return anything
            listed |= {t for t in range(case.vocabulary) if has_mass(row, t)}
        else:
            listed |= {m.token for m in row.masses if m.value > 0.0}
    return OneOf(tuple(sorted(listed)))
