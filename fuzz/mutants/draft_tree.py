"""Mutants of verify.draft_tree: each reads the tree wrongly, or lays its answer out wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.verify.draft_tree import second
from oracle.verify.draft_tree_behaviours import NONE, ORPHAN, depths
from oracle.verify.draft_tree_case import DraftTreeCase, Request
from oracle.verify.links import from_parents

Observed = dict[str, Any]


def _adopted(tree: tuple[int, ...]) -> tuple[int, ...]:
    """Orphans hang on the root: what a careful implementation may do."""
    return tuple(0 if p == ORPHAN else p for p in tree)


def right(case: DraftTreeCase) -> Observed:
    """A legal observation of every case."""
    tame = tuple(replace(r, parents=_adopted(r.parents)) for r in case.requests)
    return second(replace(case, requests=tame))


def _tree(change: Callable[[Request], list[int]]) -> Callable[[DraftTreeCase], Observed]:
    """Right about another tree."""

    def observe(case: DraftTreeCase) -> Observed:
        other = [replace(r, parents=tuple(change(replace(r, parents=_adopted(r.parents))))) for r in case.requests]
        return second(replace(case, requests=tuple(other)))

    return observe


def _field(name: str, change: Callable[[Request, list[int]], list[int]]) -> Callable[[DraftTreeCase], Observed]:
    """One field of each row rewritten."""

    def observe(case: DraftTreeCase) -> Observed:
        seen = right(case)
        tame = [replace(r, parents=_adopted(r.parents)) for r in case.requests]
        return seen | {name: [change(r, list(v)) for r, v in zip(tame, seen[name], strict=True)]}

    return observe


def _own(r: Request) -> list[int]:
    return [1 << n for n in range(len(r.parents))]


def _with_siblings(r: Request, sees: list[int]) -> list[int]:
    for n, p in enumerate(r.parents):
        sees[n] |= sum(1 << k for k in range(1, n) if r.parents[k] == p)
    return sees


def _transposed(r: Request, sees: list[int]) -> list[int]:
    size = len(sees)
    return [sum(1 << j for j in range(size) if sees[j] >> n & 1) for n in range(size)]


def _limited(r: Request, sees: list[int]) -> list[int]:
    """Ancestors two levels up at most, and the root."""
    found = []
    for node in range(len(sees)):
        bits, at = 1 << node | 1, node
        for _ in range(2):
            at = r.parents[at] if at > 0 else 0
            bits |= 1 << at
        found.append(bits)
    return found


def _cut(bits: int) -> Callable[[Request, list[int]], list[int]]:
    return lambda r, sees: [s & (1 << bits) - 1 for s in sees]


def _reversed_links(case: DraftTreeCase) -> Observed:
    """Children from the largest number down."""
    seen = right(case)
    for row, r in enumerate(case.requests):
        size, tree = len(r.parents), _adopted(r.parents)
        mirrored = [NONE] + [size - tree[n] if tree[n] else 0 for n in range(size - 1, 0, -1)]
        child, sibling = from_parents(mirrored)
        turn = lambda n, size=size: n if n < 1 else size - n  # noqa: E731
        seen["next_child"][row] = [turn(child[turn(n)]) for n in range(size)]
        seen["next_sibling"][row] = [turn(sibling[turn(n)]) for n in range(size)]
    return seen


def _cousins(r: Request, sibling: list[int]) -> list[int]:
    """The next node of the same depth, whoever its parent is."""
    depth = depths(r.parents)
    return [next((m for m in range(n + 1, len(depth)) if n and depth[m] == depth[n]), NONE) for n in range(len(depth))]


def _descendant(r: Request, child: list[int]) -> list[int]:
    """The node behind, when it is deeper: right for chains and depth-first numbers."""
    depth = depths(r.parents)
    return [n + 1 if n + 1 < len(depth) and depth[n + 1] > depth[n] else NONE for n in range(len(depth))]


def _rows(name: str, change: Callable[[DraftTreeCase, int, Any], Any]) -> Callable[[DraftTreeCase], Observed]:
    def observe(case: DraftTreeCase) -> Observed:
        seen = right(case)
        return seen | {name: [change(case, row, v) for row, v in enumerate(seen[name])]}

    return observe


def _orphan_of_nobody(case: DraftTreeCase) -> Observed | None:
    """Links an orphan to the place one behind the row."""
    if not any(ORPHAN in r.parents for r in case.requests):
        return None
    seen = right(case)
    for row, r in enumerate(case.requests):
        if ORPHAN in r.parents:
            seen["next_child"][row][r.parents.index(ORPHAN)] = len(r.parents)
    return seen


def _orphan_spills(case: DraftTreeCase) -> Observed:
    """Marks the cell behind the mask row of an orphan."""
    return right(case) | {"outside_writes": sum(p == ORPHAN for r in case.requests for p in r.parents)}


def _neighbour_of_an_orphan(case: DraftTreeCase) -> Observed:
    """Gives up on the whole batch when one tree has an orphan."""
    seen = right(case)
    if any(ORPHAN in r.parents for r in case.requests):
        seen["next_child"] = [[NONE] * len(r.parents) for r in case.requests]
    return seen


def _hides_by_first(case: DraftTreeCase) -> Observed:
    """Covers the prefix of the first request in every row."""
    hidden = [len(r.parents) * max(0, r.pre - case.requests[0].pre) for r in case.requests]
    return right(case) | {"hidden_prefix": hidden}


MUTANTS = (
    Mutant(
        "star_for_every_tree",
        "wrong_topology",
        "hangs every node on the root",
        _tree(lambda r: [NONE, *[0] * (len(r.parents) - 1)]),
    ),
    Mutant(
        "chain_for_every_tree",
        "wrong_topology",
        "hangs every node on the one before it",
        _tree(lambda r: list(range(-1, len(r.parents) - 1))),
    ),
    Mutant(
        "grandparent",
        "off_by_one",
        "hangs deeper nodes on their grandparent",
        _tree(lambda r: [NONE] + [r.parents[p] if p > 0 else 0 for p in r.parents[1:]]),
    ),
    Mutant(
        "last_node_unlinked",
        "off_by_one",
        "leaves the last node out of the links",
        lambda case: (
            right(case)
            | dict(
                zip(
                    ("next_child", "next_sibling"),
                    map(
                        list,
                        zip(
                            *(
                                from_parents([*_adopted(r.parents)[:-1], ORPHAN] if len(r.parents) > 1 else [NONE])
                                for r in case.requests
                            ),
                            strict=True,
                        ),
                    ),
                    strict=True,
                )
            )
        ),
    ),
    Mutant(
        "sees_parent_only",
        "mask",
        "sees itself, its parent and the root",
        _field("sees", lambda r, v: [_own(r)[n] | 1 | (1 << max(p, 0)) for n, p in enumerate(r.parents)]),
    ),
    Mutant("sees_two_levels", "mask", "stops two levels up", _field("sees", _limited)),
    Mutant("sees_siblings", "mask", "sees the siblings before it", _field("sees", _with_siblings)),
    Mutant(
        "sees_all_before",
        "mask",
        "a causal mask over the nodes",
        _field("sees", lambda r, v: [(2 << n) - 1 for n in range(len(v))]),
    ),
    Mutant(
        "not_itself",
        "mask",
        "does not see itself",
        _field("sees", lambda r, v: [s & ~(1 << n) for n, s in enumerate(v)]),
    ),
    Mutant(
        "not_the_root",
        "mask",
        "draft nodes do not see the root",
        _field("sees", lambda r, v: [v[0], *(s & ~1 for s in v[1:])]),
    ),
    Mutant("mask_transposed", "row_stride", "rows and columns swapped", _field("sees", _transposed)),
    Mutant("word_of_8_bits", "bounds", "packs the first 8 nodes only", _field("sees", _cut(8))),
    Mutant("word_of_16_bits", "bounds", "packs the first 16 nodes only", _field("sees", _cut(16))),
    Mutant(
        "mask_of_first_row",
        "wrong_row",
        "every row gets the first tree's mask",
        _rows("sees", lambda case, row, v: right(case)["sees"][0]),
    ),
    Mutant("first_prefix_for_all", "wrong_row", "covers the first request's prefix in every row", _hides_by_first),
    Mutant(
        "prefix_hidden",
        "mask",
        "draft nodes see no prefix",
        _rows("hidden_prefix", lambda case, row, v: (len(case.requests[row].parents) - 1) * case.requests[row].pre),
    ),
    Mutant(
        "position_is_node",
        "wrong_topology",
        "positions count nodes",
        _field("positions", lambda r, v: [r.pre + n for n in range(len(v))]),
    ),
    Mutant(
        "position_one_less",
        "off_by_one",
        "draft positions start on the root's",
        _field("positions", lambda r, v: [v[0], *(p - 1 for p in v[1:])]),
    ),
    Mutant(
        "position_without_prefix",
        "missing_offset",
        "positions are depths",
        _field("positions", lambda r, v: [p - r.pre for p in v]),
    ),
    Mutant(
        "position_of_first_row",
        "wrong_row",
        "every row starts at the first row's prefix",
        _rows("positions", lambda case, row, v: [p - case.requests[row].pre + case.requests[0].pre for p in v]),
    ),
    Mutant(
        "index_of_first_row",
        "wrong_row",
        "retrieve_index lacks the row's offset",
        _rows("retrieve_index", lambda case, row, v: [n - row * len(v) for n in v]),
    ),
    Mutant("largest_child_first", "sibling_order", "links children from the largest number down", _reversed_links),
    Mutant(
        "links_cousins",
        "wrong_topology",
        "the next node of the same depth is the sibling",
        _field("next_sibling", _cousins),
    ),
    Mutant(
        "child_is_next_node", "wrong_topology", "the first child is the node behind", _field("next_child", _descendant)
    ),
    Mutant(
        "no_siblings", "missing_link", "links first children only", _field("next_sibling", lambda r, v: [NONE] * len(v))
    ),
    Mutant(
        "root_has_sibling",
        "wrong_topology",
        "the root's sibling is its first child",
        _rows("next_sibling", lambda case, row, v: [1 if len(v) > 1 else NONE, *v[1:]]),
    ),
    Mutant(
        "tokens_shifted",
        "off_by_one",
        "the root's token stands last",
        _rows("token_nodes", lambda case, row, v: [*v[1:], 0]),
    ),
    Mutant("orphan_links_outside", "defensive", "an orphan's child is one behind the row", _orphan_of_nobody),
    Mutant("orphan_writes_outside", "defensive", "an orphan's mask row runs over its end", _orphan_spills),
    Mutant("orphan_spoils_batch", "defensive", "one orphan unlinks all trees of the batch", _neighbour_of_an_orphan),
)
