"""verify.draft_tree: what a tree asks of a beam search, and the semantic events of a case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.trace import Trace

MAX_NODES = 64
NONE = -1  # the root's parent; no child, no sibling
ORPHAN = -2  # the parent of a node whose parent was not selected
DEEP = 8  # depth from which on a tree counts as deep
LONG = 1000  # tokens of a prefix that spans several tiles of a kernel

BEHAVIOURS = {
    "links_from_mask": "the tree is given as a mask",
    "full_mask": "the mask covers the prefix",
    "query_mask": "the mask covers the nodes only",
    "word_of_1_byte": "packed, up to 8 nodes",
    "word_of_2_bytes": "packed, 9 to 16 nodes",
    "word_of_4_bytes": "packed, 17 to 32 nodes",
    "packed_prefix": "the whole mask as bits",
    "partial_byte": "the bits of a request end inside a byte",
    "root_only": "a tree without draft nodes",
    "chain": "three nodes or more, each the only child of the one before",
    "star": "three nodes or more, all children of the root",
    "branches_below_the_root": "a draft node has two children",
    "cousins": "two nodes of one depth have different parents",
    "deep": "a node at depth 8 or more",
    "not_level_by_level": "a node is followed by one of smaller depth",
    "parents_out_of_order": "nodes of one depth whose parents' numbers fall",
    "one_step": "the beam search ran one step",
    "topk_one": "the beam search kept one candidate",
    "spare_beams": "more candidates were kept than the tree uses",
    "spare_steps": "more steps were run than the tree is deep",
    "no_prefix": "no token before the root",
    "long_prefix": "a prefix of 1,000 tokens or more",
    "ragged_prefixes": "prefixes of different length in one batch",
    "largest_tree": "64 nodes",
    "orphan": "a node whose parent was not selected",
    "orphan_with_child": "such a node has a child",
}


def depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node; an orphan is a root of its own (0)."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def levels(parents: Sequence[int]) -> list[int]:
    """The step of the beam search that proposed each node, 0 for the root. An orphan
    came at step 2 or later, and not before the node in front of it."""
    found: list[int] = []
    for node, parent in enumerate(parents):
        found.append(max(2, found[-1]) if parent == ORPHAN else found[parent] + 1 if node else 0)
    return found


def beams(parents: Sequence[int]) -> tuple[int, int]:
    """``(topk, steps)`` that a beam search needs for this tree: as many candidates as a
    node has children, or a level has nodes that are expanded; as many steps as it is deep."""
    at = levels(parents)
    topk = max([1, *(sum(p == node for p in parents) for node in range(len(parents)))])
    for level in range(2, max(at) + 1):
        nodes = [n for n in range(len(parents)) if at[n] == level]
        lost = sum(parents[n] == ORPHAN for n in nodes)
        topk = max(topk, len({parents[n] for n in nodes}), lost)
        if lost and level == 2:  # its parent is a candidate of step 1 that was not selected
            topk = max(topk, sum(p == 0 for p in parents) + 1)
    return topk, max(1, *at)


def note(case: Any, r: Any, trace: Trace) -> None:
    """Name what one request shows."""
    parents, size = r.parents, len(r.parents)
    depth = depths(parents)
    families = [sum(p == n for p in parents) for n in range(size)]
    same = [(a, b) for a in range(1, size) for b in range(a + 1, size) if depth[a] == depth[b]]
    bits = size * (r.pre + size)
    topk, steps = beams(parents)
    by_beam = case.given == "parents"
    holds = {
        "links_from_mask": not by_beam,
        "full_mask": case.mask == "full",
        "query_mask": case.mask == "query",
        "word_of_1_byte": case.mask == "bits" and size <= 8,
        "word_of_2_bytes": case.mask == "bits" and 8 < size <= 16,
        "word_of_4_bytes": case.mask == "bits" and size > 16,
        "packed_prefix": case.mask == "full_bits",
        "partial_byte": case.mask == "full_bits" and bits % 8 != 0,
        "root_only": size == 1,
        "chain": size > 2 and all(parents[n] == n - 1 for n in range(1, size)),
        "star": size > 2 and not any(parents[1:]),
        "branches_below_the_root": any(f > 1 for f in families[1:]),
        "cousins": any(parents[a] != parents[b] for a, b in same),
        "deep": max(depth) >= DEEP,
        "not_level_by_level": any(depth[n] < depth[n - 1] for n in range(1, size)) and ORPHAN not in parents,
        "parents_out_of_order": any(parents[a] > parents[b] >= 0 for a, b in same),
        "one_step": by_beam and case.steps == 1,
        "topk_one": by_beam and case.topk == 1,
        "spare_beams": by_beam and case.topk > topk,
        "spare_steps": by_beam and case.steps > steps,
        "no_prefix": r.pre == 0,
        "long_prefix": r.pre >= LONG,
        "largest_tree": size == MAX_NODES,
        "orphan": ORPHAN in parents,
        "orphan_with_child": any(p > 0 and parents[p] == ORPHAN for p in parents),
    }
    for name, so in holds.items():
        if so:
            trace.behaviour(name)
