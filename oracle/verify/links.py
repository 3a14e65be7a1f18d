"""Links of a draft tree: the first child and the next sibling of each node.

Node 0 is the root. The children of a node are its first child, that one's next
sibling, and so on; -1 ends both. The functions take anything that has
``next_child`` and ``next_sibling``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.contract import require

NONE = -1  # no child, no sibling, no node


def children(nodes: Sequence[Any], parent: int) -> list[int]:
    """Children of ``parent`` in sibling order."""
    found, child = [], nodes[parent].next_child
    while child != NONE:
        found.append(child)
        child = nodes[child].next_sibling
    return found


def reached(nodes: Sequence[Any], starts: Sequence[int] = (0,)) -> set[int]:
    """Nodes that links lead to from ``starts``, these included."""
    found: set[int] = set()
    pending = list(starts)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += [t for t in (nodes[node].next_child, nodes[node].next_sibling) if t != NONE]
    return found


def require_tree(nodes: Sequence[Any], where: str) -> None:
    """Raise InvalidCase unless the links (each in range) make a tree from the root
    on, and no ring among the nodes that the root does not reach."""
    targets = [t for n in nodes for t in (n.next_child, n.next_sibling) if t != NONE]
    require(0 not in targets, f"{where}: the root is nobody's child or sibling")
    require(nodes[0].next_sibling == NONE, f"{where}[0].next_sibling: the root has no sibling")
    require(len(set(targets)) == len(targets), f"{where}: two links lead to one node")
    heads = [n for n in range(len(nodes)) if n not in targets]
    require(len(reached(nodes, heads)) == len(nodes), f"{where}: links form a ring")


def from_parents(parents: Sequence[int]) -> tuple[list[int], list[int]]:
    """``(next_child, next_sibling)`` of a tree given by a parent for each node:
    children in the order of their numbers. A negative parent is none."""
    next_child, next_sibling = [NONE] * len(parents), [NONE] * len(parents)
    for node in reversed(range(len(parents))):
        parent = parents[node]
        if parent >= 0:
            next_sibling[node] = next_child[parent]
            next_child[parent] = node
    return next_child, next_sibling


def greedy_path(nodes: Sequence[Any], width: int, start: int = 0) -> list[int]:
    """At most ``width`` nodes from ``start`` on: after each node, the first of its
    children whose ``token`` is the node's ``predicted``."""
    path = [start]
    while len(path) < width:
        wanted = nodes[path[-1]].predicted
        match = next((c for c in children(nodes, path[-1]) if nodes[c].token == wanted), None)
        if match is None:
            break
        path.append(match)
    return path
