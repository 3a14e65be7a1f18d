"""A tree as the result of SGLang's beam search: which candidates were selected.

Step 1 proposes ``topk`` candidates, each later step ``topk`` for each of the ``topk``
beams that the step before kept, and all candidates are numbered through. A selected
candidate c belongs to beam ``parent_list[c // topk]``, itself a candidate number; the
root is meant by 0. Selected candidates are sorted, so nodes come level by level, the
nodes of one parent together, and at step 2 the parents in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.verify.draft_tree_behaviours import ORPHAN, levels


class NotABeamSearch(Exception):
    """No beam search leaves this tree with these node numbers."""


def refusal(case: Any) -> str | None:
    """Why a case cannot be shown as a beam search, or ``None``."""
    if case.given != "parents":
        return "the tree is given as a mask"
    try:
        encode(case)
    except NotABeamSearch as reason:
        return str(reason)
    return None


def encode(case: Any) -> tuple[np.ndarray, np.ndarray]:
    """``parent_list`` int64 [B, topk * (steps - 1) + 1] (no column for one step) and the
    selected candidates int64 [B, N - 1]."""
    rows = [_row(tree.tolist(), case.topk, case.steps, trailing=bool(r % 2)) for r, tree in enumerate(case.parents)]
    width = case.topk * (case.steps - 1) + 1 if case.steps > 1 else 0
    parent_list = np.array([p[:width] for p, _ in rows], dtype=np.int64).reshape(len(rows), width)
    return parent_list, np.array([s for _, s in rows], dtype=np.int64).reshape(len(rows), case.parents.shape[1] - 1)


def _row(tree: list[int], topk: int, steps: int, trailing: bool) -> tuple[list[int], list[int]]:
    """One request. With ``trailing``, siblings take the last ranks of their beam, not the first."""
    level = levels(tree)
    if any(a > b for a, b in zip(level, level[1:], strict=False)):
        raise NotABeamSearch("nodes are not numbered level by level")
    candidate: dict[int, int] = {}  # node -> candidate number
    beams = [list(range(topk))]  # of step 1; candidates of the later steps follow
    parent_list = [-1]
    for step in range(1, steps + 1):
        families = _families(tree, [n for n in range(1, len(tree)) if level[n] == step])
        if step > 1:
            first = _first(step - 1, topk)
            taken = {candidate[n] for n in candidate if level[n] == step - 1}
            beams.append(_kept(families, candidate, taken, range(first, first + _count(step - 1, topk)), topk))
            parent_list += beams[-1]
        for parent, family in families:
            beam = 0 if step == 1 else _beam(parent, candidate, beams[-1], taken)
            ranks = range(topk - len(family), topk) if trailing and ORPHAN not in tree else range(len(family))
            for node, rank in zip(family, ranks, strict=True):
                candidate[node] = _first(step, topk) + beam * topk + rank
    selected = [candidate[n] for n in range(1, len(tree))]
    if any(a >= b for a, b in zip(selected, selected[1:], strict=False)):
        raise NotABeamSearch("children of step 1 are not in the order of their parents")
    return parent_list, selected


def _first(step: int, topk: int) -> int:
    """Number of the first candidate of a step."""
    return 0 if step == 1 else topk + (step - 2) * topk * topk


def _count(step: int, topk: int) -> int:
    return topk if step == 1 else topk * topk


def _families(tree: list[int], nodes: list[int]) -> list[tuple[int, list[int]]]:
    """Nodes of one level by parent, in order of appearance; orphans share a lost parent."""
    found: list[tuple[int, list[int]]] = []
    for node in nodes:
        if not found or found[-1][0] != tree[node]:
            found.append((tree[node], []))
        found[-1][1].append(node)
    if len({parent for parent, _ in found}) < len(found):
        raise NotABeamSearch("the children of a node do not stand together")
    return found


def _kept(
    families: list[tuple[int, list[int]]], candidate: dict[int, int], taken: set[int], proposed: range, topk: int
) -> list[int]:
    """The beams that a step kept: at step 1 all candidates, later the expanded ones in order
    of their families, then others. An orphan's parent is one that was not selected."""
    if len(proposed) == topk:
        return list(proposed)
    free = [c for c in proposed if c not in taken]
    wanted = [candidate[p] if p != ORPHAN else free.pop() for p, _ in families]
    spare = [c for c in [*free, *sorted(taken)] if c not in wanted]
    return (wanted + spare)[:topk]


def _beam(parent: int, candidate: dict[int, int], beams: list[int], taken: set[int]) -> int:
    """Place among the kept beams of the one that ``parent`` is; for an orphan, of one not selected."""
    if parent != ORPHAN:
        return beams.index(candidate[parent])
    lost = [k for k, c in enumerate(beams) if c not in taken]
    if not lost:
        raise NotABeamSearch("every candidate of the step was selected, so none is lost")
    return lost[0]
