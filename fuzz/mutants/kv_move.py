"""Mutants of commit.kv_move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.kv_move import DIVIDED, OTHER, PARTS, second
from oracle.commit.kv_move_case import (
    SCALED,
    SCALED_LATENT,
    TILE_BYTES,
    KvMoveCase,
    Request,
    block_slots,
    kept_end,
)

Observed = dict[str, Any]
HELD = ("kv", "index", "window")  # fields that say what slots hold


def _changed(**fields: Callable[[KvMoveCase, int, Any], Any]) -> Callable[[KvMoveCase], Observed]:
    """The right outcome, with fields recomputed a request: (case, request, right value)."""

    def observe(case: KvMoveCase) -> Observed:
        right = second(case)
        return right | {n: [change(case, i, v) for i, v in enumerate(right[n])] for n, change in fields.items()}

    return observe


def _holding(held: Callable[[KvMoveCase, int, list[int]], list[int]], *fields: str) -> Callable[[KvMoveCase], Observed]:
    """Slots of the named buffers hold what ``held`` says, given what they should hold."""
    change = lambda case, i, right: held(case, i, right) if right else right  # noqa: E731
    return _changed(**{f: change for f in fields or HELD})


def _of_case(**fields: Callable[[KvMoveCase], int]) -> Callable[[KvMoveCase], Observed]:
    return lambda case: second(case) | {n: count(case) for n, count in fields.items()}


def _in_place(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    return list(range(case.draft_tokens))


def _one_by_one(case: KvMoveCase, i: int, right: list[int], *, backwards: bool) -> list[int]:
    """Copies that see what earlier copies wrote."""
    held, path = list(range(case.draft_tokens)), case.requests[i].path
    for j in reversed(range(len(path))) if backwards else range(len(path)):
        held[j] = held[path[j]]
    return held


def _last_forgotten(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    last = len(case.requests[i].path) - 1
    return [*right[:last], last, *right[last + 1 :]]


def _one_too_many(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    path = case.requests[i].path
    at, node = len(path), path[-1] + 1
    return [*right[:at], node, *right[at + 1 :]] if node < case.draft_tokens else right


def _whole_block(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    """Nodes behind the path follow it."""
    path = case.requests[i].path
    rest = range(path[-1] + 1, case.draft_tokens)
    return [*path, *rest, *right[len(path) + len(rest) :]]


def _first_only(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    return right if i == 0 else _in_place(case, i, right)


def _half(holds: int, when: Callable[[KvMoveCase], bool]) -> Callable[[KvMoveCase, int, list[int]], list[int]]:
    """Moved slots hold ``holds``."""

    def held(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
        return [holds if n != at else n for at, n in enumerate(right)] if when(case) else right

    return held


def _same_page(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    """Tokens that leave their page are left where they are."""
    r = case.requests[i]
    return [n if (r.pre + at) // case.page == (r.pre + n) // case.page else at for at, n in enumerate(right)]


def _wrong_stride(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    """Nodes of the batch, as if a row of the block were as long as a path can be."""
    batch = [s for r in case.requests for s in block_slots(case, r)]
    return [batch[i * case.path_width + node] for node in case.requests[i].path]


def _added_up(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    return [right[0] + j for j in range(len(right))]


def _late_targets(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    slots, count = block_slots(case, case.requests[i]), len(right)
    return slots[1 : count + 1] if count < len(slots) else right


def _freed(first: Callable[[KvMoveCase, Request], int]) -> Callable[[KvMoveCase, int, Any], list[int]]:
    """The slots of the block from a position on are handed back."""

    def change(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
        r = case.requests[i]
        return block_slots(case, r)[max(0, first(case, r) - r.pre) :]

    return change


def _rejected(case: KvMoveCase, i: int, right: list[int]) -> list[int]:
    r = case.requests[i]
    return [slot for node, slot in enumerate(block_slots(case, r)) if node not in r.path]


MUTANTS = (
    Mutant("moves_nothing", "missing_check", "leaves every entry where it is", _holding(_in_place)),
    Mutant("one_too_few", "off_by_one", "forgets the last committed token", _holding(_last_forgotten)),
    Mutant("one_too_many", "off_by_one", "moves one rejected node as well", _holding(_one_too_many)),
    Mutant("moves_whole_block", "missing_check", "moves rejected nodes up behind the path", _holding(_whole_block)),
    Mutant("first_request_only", "wrong_row", "moves the first request of the batch only", _holding(_first_only)),
    Mutant(
        "copies_backwards",
        "overlap",
        "copies the last token first, over sources not read yet",
        _holding(lambda c, i, v: _one_by_one(c, i, v, backwards=True)),
    ),
    Mutant("within_a_page", "missing_check", "moves only within a page", _holding(_same_page)),
    Mutant(
        "first_layer_only",
        "dropped_field",
        "moves the first layer only",
        _holding(_half(DIVIDED, lambda c: c.layers > 1), "kv"),
    ),
    Mutant(
        "values_forgotten",
        "dropped_field",
        "moves keys only",
        _holding(_half(DIVIDED, lambda c: c.value_words > 0), "kv"),
    ),
    Mutant(
        "first_tile_only",
        "missing_check",
        "copies as many bytes of a row as one program does",
        _holding(_half(PARTS, lambda c: 4 * max(c.key_words, c.value_words) > TILE_BYTES), "kv"),
    ),
    Mutant(
        "values_cut_to_keys",
        "wrong_size",
        "copies as many bytes of a value as a key has",
        _holding(_half(PARTS, lambda c: c.value_words > c.key_words), "kv"),
    ),
    Mutant(
        "scales_forgotten",
        "dropped_field",
        "leaves the scales of moved entries where they are",
        _holding(_half(DIVIDED, lambda c: c.pool in (SCALED, SCALED_LATENT)), "kv"),
    ),
    Mutant("index_forgotten", "dropped_field", "leaves the index keys where they are", _holding(_in_place, "index")),
    Mutant(
        "index_by_page",
        "wrong_index",
        "takes a slot number for the page number of the index keys",
        _holding(lambda c, i, v: [OTHER] * len(v), "index"),
    ),
    Mutant("window_forgotten", "dropped_field", "leaves the window layers as they are", _holding(_in_place, "window")),
    Mutant(
        "window_not_translated",
        "wrong_index",
        "uses slots of the full layers in the window layers",
        _holding(lambda c, i, v: [OTHER if n != at else n for at, n in enumerate(v)], "window"),
    ),
    Mutant("sources_by_path_width", "wrong_stride", "reads rows as wide as a path", _changed(sources=_wrong_stride)),
    Mutant(
        "sources_not_accepted",
        "wrong_index",
        "reads the first nodes",
        _changed(sources=lambda c, i, v: block_slots(c, c.requests[i])[: len(v)]),
    ),
    Mutant("sources_cut", "off_by_one", "reads one committed token too few", _changed(sources=lambda c, i, v: v[:-1])),
    Mutant("targets_added_up", "stale_page", "counts target slots up from the first", _changed(targets=_added_up)),
    Mutant("targets_late", "off_by_one", "writes every token one slot late", _changed(targets=_late_targets)),
    Mutant(
        "targets_at_the_sources",
        "wrong_index",
        "writes every token where it was read",
        lambda case: (right := second(case)) | {"targets": right["sources"]},
    ),
    Mutant("stray_tail", "uninitialised", "moves uncovered entries anywhere", _of_case(stray=lambda c: c.uncovered)),
    Mutant(
        "reads_on",
        "wrong_stride",
        "reads as many accepted entries as there are nodes",
        _of_case(read_beyond=lambda c: len(c.requests) * (c.draft_tokens - c.path_width)),
    ),
    Mutant("neighbour_written", "outside", "writes a slot of nobody in the batch", _of_case(neighbours=lambda c: 1)),
    Mutant(
        "frees_from_post",
        "missing_check",
        "frees the rest of a page that is kept",
        _changed(freed=_freed(lambda c, r: r.pre + len(r.path))),
    ),
    Mutant(
        "frees_one_page_late",
        "off_by_one",
        "keeps an empty page when the last one is full",
        _changed(freed=_freed(lambda c, r: ((r.pre + len(r.path)) // c.page + 1) * c.page)),
    ),
    Mutant(
        "frees_one_page_early",
        "off_by_one",
        "frees the page of the last committed token",
        _changed(freed=_freed(lambda c, r: (r.pre + len(r.path) - 1) // c.page * c.page)),
    ),
    Mutant("frees_nothing", "missing_check", "hands nothing back", _changed(freed=lambda c, i, v: [])),
    Mutant(
        "frees_rejected_nodes",
        "wrong_index",
        "frees the slots of rejected nodes, moved or not",
        _changed(freed=_rejected),
    ),
    Mutant(
        "frees_without_current",
        "off_by_one",
        "counts without the current token",
        _changed(
            freed=_freed(lambda c, r: kept_end(c, Request(r.pre, r.path[:-1], r.pages)) if len(r.path) > 1 else r.pre)
        ),
    ),
)
