"""Cases of verify.draft_tree: what they hold, which are valid, and their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, INT32_MAX, MAX_CELLS, require, require_size
from oracle.verify.draft_tree_behaviours import MAX_NODES, NONE, ORPHAN, beams, depths

GIVEN = ("parents", "mask")
MASKS = ("full", "query", "bits", "full_bits")
LARGEST_WORD = 32  # bits of the widest packed word


@dataclass(frozen=True)
class Request:
    """``parents[n]`` is the parent of node n: -1 for the root, -2 for an orphan."""

    pre: int
    parents: tuple[int, ...]


@dataclass(frozen=True)
class DraftTreeCase:
    """One build (or reading back) of a batch of draft trees; all have one number of nodes."""

    given: str
    mask: str
    topk: int
    steps: int
    requests: tuple[Request, ...]


def domain(case: DraftTreeCase) -> str:
    """``defensive`` when a request has an orphan; raises InvalidCase outside the domain."""
    require(case.given in GIVEN, f"given: must be one of {', '.join(GIVEN)}")
    require(case.mask in MASKS, f"mask: must be one of {', '.join(MASKS)}")
    from_mask = case.given == "mask"
    require(not from_mask or case.mask in ("query", "full_bits"), "mask: a given mask is query or full_bits")
    require(not from_mask or case.topk == case.steps == 0, "topk, steps: must be 0 without a beam search")
    require(from_mask or 1 <= case.topk <= MAX_NODES, f"topk: must be 1 to {MAX_NODES}")
    require(from_mask or 1 <= case.steps <= MAX_NODES, f"steps: must be 1 to {MAX_NODES}")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_NODES * MAX_NODES)
    size = len(case.requests[0].parents)
    require(1 <= size <= MAX_NODES, f"requests[0].parents: must be 1 to {MAX_NODES}")
    require(case.mask != "bits" or size <= LARGEST_WORD, f"requests[0].parents: at most {LARGEST_WORD} in a word")
    for i, r in enumerate(case.requests):
        where = f"requests[{i}].parents"
        require(0 <= r.pre <= INT32_MAX - MAX_NODES, f"requests[{i}].pre: must be 0 to 2^31 - 1 - {MAX_NODES}")
        require(len(r.parents) == size, f"{where}: all trees of a batch have one number of nodes")
        require(r.parents[0] == NONE, f"{where}[0]: the root has no parent (-1)")
        for n, p in enumerate(r.parents[1:], 1):
            require(p == ORPHAN or 0 <= p < n, f"{where}[{n}]: must be a smaller node, or -2")
        needs = beams(r.parents)
        require(from_mask or case.topk >= needs[0], f"topk: this tree needs {needs[0]}")
        require(from_mask or case.steps >= needs[1], f"steps: this tree needs {needs[1]}")
    if case.mask.startswith("full"):
        require(sum(size * (r.pre + size) for r in case.requests) <= MAX_CELLS, "requests: the mask has too many cells")
    return DEFENSIVE if any(ORPHAN in r.parents for r in case.requests) else FUNCTIONAL


def columns(case: DraftTreeCase) -> dict[str, Any]:
    """``pre`` int64 [B], ``parents`` and ``depth`` int64 [B, N], ``sees`` bool [B, N, N]; the scalars."""
    parents = np.array([r.parents for r in case.requests], dtype=np.int64)
    sees = np.repeat(np.eye(parents.shape[1], dtype=bool)[None], len(parents), axis=0)
    for row, tree in enumerate(parents):
        for node, parent in enumerate(tree):
            if parent >= 0:
                sees[row, node] |= sees[row, parent]
    return {
        "given": case.given,
        "mask": case.mask,
        "topk": case.topk,
        "steps": case.steps,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "parents": parents,
        "depth": np.array([depths(r.parents) for r in case.requests], dtype=np.int64),
        "sees": sees,
    }


def padding(case: DraftTreeCase) -> Request:
    """A chain without a prefix where the beams allow one, else a copy of the first tree without its prefix."""
    size = len(case.requests[0].parents)
    chain = tuple(range(-1, size - 1))
    return Request(0, chain if case.given == "mask" or case.steps >= size - 1 else case.requests[0].parents)
