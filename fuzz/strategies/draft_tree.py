"""Cases of verify.draft_tree.

A tree for a beam search is numbered level by level, with the nodes of a deeper level
in any order of their parents, as sorted candidate numbers leave them. A tree given as
a mask may be numbered any way that puts parents first. The beams fit the largest tree
of the batch, now and then with some to spare.
"""

from __future__ import annotations

import random

from fuzz.strategies import trees
from fuzz.strategies.source import Source, choice, flag
from oracle.verify.draft_tree_behaviours import MAX_NODES, ORPHAN, beams
from oracle.verify.draft_tree_case import LARGEST_WORD, DraftTreeCase, Request

FORMS = (
    ("parents", "full"),
    ("parents", "query"),
    ("parents", "bits"),
    ("mask", "query"),
    ("mask", "full_bits"),
    ("parents", "full_bits"),
)
LONGEST = 4000  # tokens of a prefix that the mask covers
FARTHEST = 2**31 - 1 - MAX_NODES


def structure(source: Source) -> DraftTreeCase:
    """One case; all trees have one number of nodes, as in a batch."""
    given, mask = choice(source, FORMS)
    size = trees.size(source, LARGEST_WORD if mask == "bits" else MAX_NODES)
    spare_topk, spare_steps = source.integer(0, 3) // 2, source.integer(0, 3) // 2
    hostile = source.integer(0, 9) == 9
    chains = source.integer(0, 7) == 7  # what one candidate a step leaves behind

    def request(source: Source) -> Request:
        tree = trees.grown("chain", size, 0) if chains else trees.parents(source, size)
        order = source.integer(0, 3)
        if given == "parents":
            tree = by_level(tree, order)
        if hostile and size > 2 and flag(source):
            tree[source.integer(2, size - 1)] = ORPHAN
        return Request(_prefix(source, mask.startswith("full")), tuple(tree))

    requests = tuple(source.records(request, 1, 4 if size <= trees.SMALL else 2))
    if given == "mask":
        return DraftTreeCase(given, mask, 0, 0, requests)
    needs = [beams(r.parents) for r in requests]
    topk, steps = max(k for k, _ in needs), max(s for _, s in needs)
    if not chains:
        topk, steps = min(topk + spare_topk, MAX_NODES), min(steps + spare_steps, MAX_NODES)
    return DraftTreeCase(given, mask, topk, steps, requests)


def _prefix(source: Source, covered: bool) -> int:
    """Mostly short; the ends of the range and the longest the mask can hold now and then."""
    where = source.integer(0, 7)
    if where < 6:
        return source.integer(0, 40)
    return source.integer(0, LONGEST) if covered else choice(source, (0, 4096, 131072, FARTHEST))


def by_level(tree: list[int], order: int) -> list[int]:
    """The tree numbered level by level; from depth 2 on the families of a level stand in
    an order that ``order`` shuffles (0: as their parents)."""
    rng = random.Random(order)
    new, level, parents = {0: 0}, [0], [-1]
    for depth in range(len(tree)):
        if order and depth >= 2:
            rng.shuffle(level)
        families = [(node, [n for n, p in enumerate(tree) if p == node]) for node in level]
        level = []
        for parent, family in families:
            for child in family:
                new[child] = len(parents)
                parents.append(new[parent])
                level.append(child)
    return parents
