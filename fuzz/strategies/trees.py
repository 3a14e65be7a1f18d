"""Shapes of draft trees.

A small tree is drawn node by node, so that it shrinks node by node; a large one is
a kind and a seed, because dozens of free choices a request shrink badly. Every
shape has parents with smaller numbers than their children; ``level_order`` makes
it a tree as a beam search leaves it: level by level, siblings together.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzz.strategies.source import Source, choice

SMALL = 8  # nodes of a tree that is drawn node by node
KINDS = ("star", "chain", "random", "bushy", "deep", "broom")
UNUSED = -2  # a node that hangs nowhere


def size(source: Source, largest: int = 64) -> int:
    """Nodes of a block: mostly few, the largest now and then."""
    if source.integer(0, 3):
        return source.integer(1, SMALL)
    return (
        choice(source, (largest, 1, 16, min(33, largest), largest - 1))
        if source.integer(0, 1)
        else source.integer(1, largest)
    )


def parents(source: Source, nodes: int, unused: Callable[[Source], bool] = lambda source: False) -> list[int]:
    """A parent for each node; the root has -1, a node that ``unused`` says has none -2."""
    if nodes <= SMALL:
        found = [-1]
        for node in range(1, nodes):
            parent = source.integer(0, node - 1)
            found.append(UNUSED if unused(source) else parent)
        return found
    kind, seed = choice(source, KINDS), source.integer(0, 2**16)
    found = grown(kind, nodes, seed)
    if unused(source):
        rng = random.Random(f"unused:{seed}")
        found = [p if n == 0 or rng.random() < 0.8 else UNUSED for n, p in enumerate(found)]
    return found


def grown(kind: str, nodes: int, seed: int) -> list[int]:
    """The tree of a kind; the same for the same arguments."""
    rng = random.Random(f"{kind}:{nodes}:{seed}")
    if kind == "star":
        return [-1, *[0] * (nodes - 1)]
    if kind == "chain":
        return list(range(-1, nodes - 1))
    if kind == "broom":  # a handle, then a star
        handle = rng.randint(1, nodes - 1)
        return [*range(-1, handle - 1), *[handle - 1] * (nodes - handle)]
    back = {"random": nodes, "bushy": nodes, "deep": 3}[kind]
    few = rng.randint(1, 4)  # bushy: only a few nodes have children
    return [-1] + [
        rng.randint(0, min(few, n) - 1) if kind == "bushy" else rng.randint(max(0, n - back), n - 1)
        for n in range(1, nodes)
    ]


def level_order(tree: list[int]) -> list[int]:
    """The same tree with its nodes numbered level by level, the children of a node together."""
    order, new = [0], {0: 0}
    for node in order:
        for child in (n for n, p in enumerate(tree) if p == node):
            new[child] = len(order)
            order.append(child)
    return [-1] + [new[tree[n]] for n in order[1:]]
