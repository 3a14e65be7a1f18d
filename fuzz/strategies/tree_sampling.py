"""Cases of verify.tree_sampling: a node at a time, each with its place in the tree, a
token that its parent's row gives mass (or not), a row and a coin.

Coins are planted on the edges of the node they decide at, and one or two float32
beside them; where they fall in the open, a uniform coin would never come near.
Rows over a large vocabulary hold few tokens: a sum of thousands of rounded terms
leaves every token near the coin legal and says nothing.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

from fuzz.strategies import rows
from fuzz.strategies.source import Source, choice, flag
from oracle.contract import MAX_CELLS
from oracle.verify.links import children, from_parents
from oracle.verify.rows import Mass, Row
from oracle.verify.sampled_tree import LAST_COIN, MAX_NODES, Node, Request, TreeSamplingCase, masses_of

VOCABULARIES = (4, 2, 3, 7, 16, 64, 4095, 4096, 4097, 8193, 151936)
SPARSE_KINDS = ("dyadic", "one_token", "few", "tail", "block_ends")
THRESHOLDS = (1.0, 1.0, 1.0, 0.5, 0.75, 0.25, 0.3125, 0.0)
HOSTILE_VALUES = (math.nan, math.inf, -0.25, -math.inf)
UNLINKED = -1


def structure(source: Source) -> TreeSamplingCase:
    """One case; all trees of a batch have one number of nodes."""
    vocabulary = choice(source, VOCABULARIES)
    size = source.integer(1, 6)
    if source.integer(0, 15) == 15 and vocabulary <= 64:
        size = choice(source, (16, MAX_NODES))
    width = source.integer(1, size + 1) if flag(source) else size + 1
    single = choice(source, THRESHOLDS)
    acc = choice(source, THRESHOLDS[:-1])
    most = max(1, min(4, MAX_CELLS // (8 * size * vocabulary)))

    def request(source: Source) -> Request:
        return _request(source, vocabulary, size, Fraction(acc))

    requests = tuple(source.records(request, 1, most))
    return TreeSamplingCase(vocabulary, min(width, MAX_NODES), single, acc, requests)


def _request(source: Source, vocabulary: int, size: int, acc: Fraction) -> Request:
    nodes: list[Node] = []
    parents: list[int] = []
    shape = source.integer(0, 3)  # free, chain, star, free with unlinked nodes
    for n in range(size):
        parent = _parent(source, n, shape)
        parents.append(parent)
        above = nodes[parent].row if parent >= 0 else None
        token = _token(source, vocabulary, above, [nodes[m].token for m in range(n) if parents[m] == parent])
        nodes.append(Node(token, -1, -1, 0.5, _row(source, vocabulary)))
    next_child, next_sibling = from_parents(parents) if source.integer(0, 7) < 7 else _backwards(parents)
    nodes = [
        replace(node, next_child=c, next_sibling=s)
        for node, c, s in zip(nodes, next_child, next_sibling, strict=True)
    ]  # fmt: skip
    for n in range(size):
        nodes[n] = replace(nodes[n], coin=_coin(source, _edges(nodes, n, vocabulary, acc)))
    end = source.integer(0, size - 1)
    request = Request(tuple(nodes), _coin(source, _draw_edges(nodes, end, vocabulary)))
    return _made_hostile(source, request, vocabulary) if source.integer(0, 15) == 15 else request


def _backwards(parents: list[int]) -> tuple[list[int], list[int]]:
    """Links that try the siblings with larger numbers first."""
    next_child, next_sibling = [-1] * len(parents), [-1] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            next_sibling[node], next_child[parent] = next_child[parent], node
    return next_child, next_sibling


def _parent(source: Source, n: int, shape: int) -> int:
    if n == 0:
        return UNLINKED
    if shape == 3 and source.integer(0, 3) == 3:
        return UNLINKED
    if shape == 1:
        return n - 1
    return 0 if shape == 2 else source.integer(0, n - 1)


def _row(source: Source, vocabulary: int) -> Row:
    if vocabulary > 64:
        kind, seed = choice(source, SPARSE_KINDS), source.integer(0, 2**16)
        return _block_ends(vocabulary, seed) if kind == "block_ends" else rows.expand(kind, vocabulary, seed)
    if source.integer(0, 7) == 7:
        return _short(vocabulary, source.integer(0, 63))
    return rows.distribution(source, vocabulary)


def _block_ends(vocabulary: int, seed: int) -> Row:
    """Four equal masses beside the ends of blocks of 1024, the last token among them."""
    ends = [t for b in range(1024, vocabulary - 1, 1024) for t in (b - 1, b)]
    tokens = {*random.Random(f"ends:{vocabulary}:{seed}").sample(ends, 3), vocabulary - 1}
    return Row(tuple(Mass(t, 0.25) for t in sorted(tokens)))


def _short(vocabulary: int, pick: int) -> Row:
    """All but 2^-24 of the mass, on one or two tokens: drafts can use it up."""
    if pick % 2 == 0:
        return Row((Mass(pick % vocabulary, LAST_COIN),))
    first = pick % (vocabulary - 1)
    return Row((Mass(first, 0.5), Mass(first + 1, 0.5 - 2.0**-24)))


def _token(source: Source, vocabulary: int, above: Row | None, siblings: list[int]) -> int:
    """Mostly a token of the parent's row, sometimes any; seldom one of a sibling."""
    how, pick = source.integer(0, 15), source.integer(0, 63)
    if how == 15 and siblings:
        return siblings[pick % len(siblings)]
    fresh = [] if above is None or how >= 13 else [t for t in masses_of(above, vocabulary) if t not in siblings]
    if fresh:
        return fresh[pick % len(fresh)]
    unused = (t % vocabulary for t in range(pick, pick + vocabulary) if t % vocabulary not in siblings)
    return next(unused, pick % vocabulary)


def _edges(nodes: list[Node], n: int, vocabulary: int, acc: Fraction) -> list[Fraction]:
    """Where the coin of a node decides among its children."""
    target, seen = masses_of(nodes[n].row, vocabulary), {}
    for child in children(nodes, n):
        seen.setdefault(nodes[child].token, target.get(nodes[child].token, Fraction(0)))
    return [edge / acc for edge in accumulate(seen.values())]


def _draw_edges(nodes: list[Node], n: int, vocabulary: int) -> list[Fraction]:
    """Edges of a draw at a node, when all its children are rejected or it has none."""
    target = masses_of(nodes[n].row, vocabulary)
    tried = {nodes[c].token for c in children(nodes, n)}
    left = {t: m for t, m in target.items() if t not in tried} or target
    if len(left) > 64:
        return []
    total = sum(left.values())
    return [edge / total for edge in accumulate(left.values())]


def _coin(source: Source, edges: list[Fraction]) -> float:
    if edges and source.integer(0, 2) == 2:
        return rows.beside(float(edges[source.integer(0, len(edges) - 1)]), source.integer(-2, 2))
    return min(rows.coin(source), LAST_COIN)


def _made_hostile(source: Source, request: Request, vocabulary: int) -> Request:
    """One node gets a row that is no distribution, or a token that is none."""
    n, how = source.integer(0, len(request.nodes) - 1), source.integer(0, 6)
    node = request.nodes[n]
    if how < len(HOSTILE_VALUES):
        token = source.integer(0, min(vocabulary, 64) - 1)
        kept = [m for m in node.row.masses if m.token != token]
        row = Row(tuple(sorted([*kept, Mass(token, HOSTILE_VALUES[how])], key=lambda m: m.token)), node.row.rest)
        node = replace(node, row=row)
    elif how == 4:
        node = replace(node, row=Row(()))
    else:
        node = replace(node, token=-1 if how == 5 else vocabulary + source.integer(0, 2))
    return replace(request, nodes=(*request.nodes[:n], node, *request.nodes[n + 1 :]))
