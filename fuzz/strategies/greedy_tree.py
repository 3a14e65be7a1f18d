"""Cases of verify.greedy_tree.

The tree comes first, then what the target predicts, then a token for each draft
node relative to the prediction it will be compared with: the wanted one, its
neighbour, a twin of the sibling before it, or any. Vocabularies are small, so that
matches off the path happen by themselves.
"""

from __future__ import annotations

import random

from fuzz.strategies import trees
from fuzz.strategies.source import Source, choice, flag
from oracle.verify.greedy_tree import GreedyTreeCase, Node, Request
from oracle.verify.greedy_tree_behaviours import MAX_NODES
from oracle.verify.links import NONE

VOCABULARIES = (8, 3, 2, 100, 32000, 151936)
WANTED, OTHER, TWIN, ANY, OUTSIDE = range(5)


def structure(source: Source) -> GreedyTreeCase:
    """One case; all rows have one number of nodes, as in a batch."""
    size = trees.size(source, MAX_NODES)
    relation = source.integer(0, 4)
    width = {0: size, 1: min(size + 1, MAX_NODES), 2: max(1, size // 2)}.get(relation)
    if width is None:
        width = source.integer(1, min(MAX_NODES, 2 * size))
    vocabulary = choice(source, VOCABULARIES)
    hostile = source.integer(0, 9) == 9

    def request(source: Source) -> Request:
        parents = trees.parents(source, size, lambda source: source.integer(0, 9) == 9)
        turned = source.integer(0, 3)  # the order of siblings: 0 and 1 as numbered, 2 reversed, 3 shuffled
        if size <= trees.SMALL:
            draws = [(source.integer(0, 3), choice(source, (0, 0, 0, 1, 2, 3))) for _ in range(size)]
        else:
            rng = random.Random(source.integer(0, 2**16))
            draws = [(rng.randrange(4), rng.choice((0, 0, 0, 1, 2, 3))) for _ in range(size)]
        if hostile and flag(source):
            draws = [(p, OUTSIDE if t == ANY else t) for p, t in draws]
        return expand(vocabulary, parents, turned, draws)

    return GreedyTreeCase(vocabulary, width, tuple(source.records(request, 1, 6)))


def expand(vocabulary: int, parents: list[int], turned: int, draws: list[tuple[int, int]]) -> Request:
    """Nodes from a tree, an order of siblings, and a prediction and a token kind for each node."""
    size = len(parents)
    edge = (1, 0, vocabulary - 1, min(2, vocabulary - 1))  # predictions: few ids, both ends among them
    predicted = [edge[p] for p, _ in draws]
    tokens, before = [0] * size, {}
    for node in range(1, size):
        kind, parent = draws[node][1], max(parents[node], 0)
        wanted = predicted[parent]
        tokens[node] = {
            WANTED: wanted,
            OTHER: (wanted + 1) % vocabulary,
            TWIN: tokens[before.get(parent, node)] or wanted,
            ANY: (node * 7 + size) % vocabulary,
            OUTSIDE: (NONE, vocabulary, vocabulary + wanted, NONE - wanted)[node % 4],
        }[kind]
        before[parent] = node
    child, sibling = [NONE] * size, [NONE] * size
    for parent in range(size):
        family = [n for n in range(1, size) if parents[n] == parent]
        if turned == 2:
            family.reverse()
        if turned == 3:
            random.Random(len(family)).shuffle(family)
        for at, node in enumerate(family):
            sibling[node] = family[at + 1] if at + 1 < len(family) else NONE
        child[parent] = family[0] if family else NONE
    return Request(tuple(Node(*fields) for fields in zip(tokens, child, sibling, predicted, strict=True)))
