"""Mutants of verify.ragged_layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.verify.ragged_layout import Batch, RaggedLayoutCase, second


def _offsets(rows: list[int]) -> list[int]:
    return [sum(rows[:k]) for k in range(len(rows) + 1)]


def _rows(share: Callable[[Batch, int, int], list[int]]) -> Callable[[RaggedLayoutCase], dict[str, Any]]:
    """Rows by ``share(batch, tokens left, padding rows)``, before the cap."""

    def observe(case: RaggedLayoutCase) -> dict[str, Any]:
        padded = []
        for b in case.batches:
            rows = share(b, b.tokens - sum(b.lengths), b.slots - len(b.lengths))
            padded.append([min(n, b.cap) if b.cap else n for n in rows])
        offsets = [_offsets(rows) for rows in padded]
        return {"lengths": padded, "offsets": offsets, "starts": [o[:-1] for o in offsets]}

    return observe


def _even(left: int, spare: int, first_extra: int = 0) -> list[int]:
    base, extra = divmod(left, spare) if spare else (0, 0)
    return [base + (first_extra <= k < first_extra + extra) for k in range(spare)]


def _right(b: Batch, left: int, spare: int) -> list[int]:
    rows = [*b.lengths, *_even(left, spare)]
    if not spare:
        rows[-1] += left
    return rows


def _extra_last(b: Batch, left: int, spare: int) -> list[int]:
    rows = _right(b, left, spare)
    return rows[: len(b.lengths)] + rows[len(b.lengths) :][::-1]


def _first_takes_all(b: Batch, left: int, spare: int) -> list[int]:
    return [*b.lengths, left, *[0] * (spare - 1)] if spare else _right(b, left, spare)


def _drops_rest(b: Batch, left: int, spare: int) -> list[int]:
    return [*b.lengths, *[left // spare] * spare] if spare else _right(b, left, spare)


def _first_request_grows(b: Batch, left: int, spare: int) -> list[int]:
    return _right(b, left, spare) if spare else [b.lengths[0] + left, *b.lengths[1:]]


def _shared_by_all(b: Batch, left: int, spare: int) -> list[int]:
    rows = [*b.lengths, *[0] * spare]
    return [n + more for n, more in zip(rows, _even(left, len(rows)), strict=True)]


def _changed(name: str, change: Callable[[list[int], Batch], list[int]]) -> Callable[[RaggedLayoutCase], dict]:
    def observe(case: RaggedLayoutCase) -> dict[str, Any]:
        seen = second(case)
        return seen | {name: [change(list(v), b) for v, b in zip(seen[name], case.batches, strict=True)]}

    return observe


def _uncapped(case: RaggedLayoutCase) -> dict[str, Any]:
    return second(RaggedLayoutCase(tuple(Batch(b.lengths, b.slots, b.tokens, 0) for b in case.batches)))


MUTANTS = (
    Mutant("extra_tokens_last", "tie", "the last padding rows take one more", _rows(_extra_last)),
    Mutant("first_padding_takes_all", "padding", "one padding row takes everything", _rows(_first_takes_all)),
    Mutant("drops_the_rest", "off_by_one", "what does not come out even is lost", _rows(_drops_rest)),
    Mutant(
        "padding_stays_empty",
        "padding",
        "padding rows get no tokens",
        _rows(lambda b, left, spare: [*b.lengths, *[0] * spare] if spare else _right(b, left, spare)),
    ),
    Mutant(
        "nobody_takes_the_rest",
        "padding",
        "without a padding row the rest is lost",
        _rows(lambda b, left, spare: _right(b, left, spare) if spare else list(b.lengths)),
    ),
    Mutant(
        "first_request_grows",
        "wrong_row",
        "without a padding row the first request takes the rest",
        _rows(_first_request_grows),
    ),
    Mutant("requests_grow_too", "wrong_row", "all rows share what is left", _rows(_shared_by_all)),
    Mutant("ignores_the_cap", "bounds", "cuts no row", _uncapped),
    Mutant(
        "offsets_end_late",
        "off_by_one",
        "offsets are inclusive sums",
        _changed("offsets", lambda v, b: [*v[1:], v[-1]]),
    ),
    Mutant(
        "offsets_of_requests",
        "padding",
        "offsets stop moving behind the requests",
        _changed("offsets", lambda v, b: [min(n, v[len(b.lengths)]) for n in v]),
    ),
    Mutant(
        "starts_inclusive",
        "off_by_one",
        "rows start where they end",
        _changed("starts", lambda v, b: [*v[1:], v[-1] + 1]),
    ),
)
