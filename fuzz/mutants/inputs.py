"""Mutants of draft.inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.draft.inputs import second
from oracle.draft.inputs_case import NOTHING, InputsCase, Request, drafted, history, location

Observed = dict[str, Any]
STALE = 7  # what a row holds that nobody filled
FRONT = ("front_tokens", "front_hidden")


def _changed(**fields: Callable[[InputsCase, Request, list[int]], list[int]]) -> Callable[[InputsCase], Observed]:
    """The right outcome, with fields recomputed a request: (case, request, right value)."""

    def observe(case: InputsCase) -> Observed:
        right = second(case)
        changes = {
            name: [change(case, r, v) for r, v in zip(case.requests, right[name], strict=True)]
            for name, change in fields.items()
        }
        return right | changes

    return observe


def _as_if(other: Callable[[InputsCase, Request], Request], *names: str) -> Callable[[InputsCase], Observed]:
    """The named fields as for other requests."""

    def observe(case: InputsCase) -> Observed:
        wrong = second(replace(case, requests=tuple(other(case, r) for r in case.requests)))
        return second(case) | {name: wrong[name] for name in names}

    return observe


def _rounds(r: Request) -> Iterator[tuple[int, int, int]]:
    """Number, length before and committed tokens of each round."""
    for n, count in enumerate(r.commits):
        yield n, r.prompt + sum(r.commits[:n]), count


def _unknown_stale(case: InputsCase, r: Request, right: list[int]) -> list[int]:
    return [v if v != NOTHING else STALE for v in right]


def _next(case: InputsCase, r: Request, right: list[int]) -> list[int]:
    return [*right[1:], STALE] if right else right


def _block_positions(case: InputsCase, r: Request, right: list[int]) -> list[int]:
    return [p + case.front if p != NOTHING else p for p in right]


def _locations(first_real: Callable[[InputsCase, int, int], int]) -> Callable[..., list[int]]:
    """Locations where rows from ``first_real(case, pre, known position)`` on are written."""

    def change(case: InputsCase, r: Request, right: list[int]) -> list[int]:
        start, out = r.prompt - r.chunk, []
        for _, pre, _ in _rounds(r):
            real = first_real(case, pre, max(start, pre - case.front))
            window = range(pre - case.front, pre + case.width)
            out += [location(r.pool_row, q) if q >= max(real, 0) else NOTHING for q in window]
        return out

    return change


def _first_location_counted_up(case: InputsCase, r: Request, right: list[int]) -> list[int]:
    width, out = case.front + case.width, []
    for at in range(0, len(right), width):
        window = right[at : at + width]
        out += [v if v == NOTHING else window[-1] - (width - 1 - j) for j, v in enumerate(window)]
    return out


def _stash(kept: Callable[[InputsCase, list[int]], range | list[int]], names: tuple[str, ...]) -> Any:
    """Kept rows by position, of all known ones and the last block."""

    def observe(case: InputsCase) -> Observed:
        right = second(case)
        for i, r in enumerate(case.requests):
            if not r.commits:
                continue
            *_, (_, pre, count) = _rounds(r)
            positions = [q for q in kept(case, [pre, count]) if q >= r.prompt - r.chunk]
            tokens = history(case, r)
            base = right["block_hidden"][i][0] - r.prompt
            for name, value in zip(
                names, ([tokens[q + 1] for q in positions], [base + q for q in positions]), strict=True
            ):
                right[name][i] = value
        return right

    return observe


def _rotated(at: Callable[[InputsCase, int], int]) -> Callable[..., list[int]]:
    """The drafted token goes to another row of the block."""

    def change(case: InputsCase, r: Request, right: list[int]) -> list[int]:
        tokens, out = history(case, r), []
        for n, pre, count in _rounds(r):
            rows = [tokens[pre + j + 2] for j in range(count)]
            place = at(case, count)
            if 0 <= place < count:
                rows[place] = drafted(r, n)
            out += rows
        return out

    return change


STASH = ("stash_tokens", "stash_hidden")
MUTANTS = (
    Mutant(
        "stale_front",
        "stale_row",
        "leaves rows before the block that nothing is known for",
        _changed(front_tokens=_unknown_stale),
    ),
    Mutant(
        "stale_front_hidden",
        "stale_row",
        "leaves the hidden states of such rows",
        _changed(front_hidden=_unknown_stale),
    ),
    Mutant("front_one_late", "off_by_one", "takes front tokens one position late", _changed(front_tokens=_next)),
    Mutant(
        "front_hidden_one_late",
        "off_by_one",
        "takes front hidden states one position late",
        _changed(front_hidden=_next),
    ),
    Mutant(
        "whole_prompt_known",
        "missing_check",
        "takes rows of an earlier chunk for known",
        _as_if(lambda c, r: replace(r, chunk=r.prompt), *FRONT),
    ),
    Mutant(
        "front_of_the_prompt",
        "stale_row",
        "never rolls the kept rows forward",
        _as_if(lambda c, r: replace(r, commits=r.commits[:1] * len(r.commits)), *FRONT),
    ),
    Mutant("positions_of_block", "off_by_one", "counts positions from the block", _changed(positions=_block_positions)),
    Mutant(
        "warmup_written",
        "missing_check",
        "writes KV of rows that only warm up",
        _changed(locations=_locations(lambda c, pre, known: known)),
    ),
    Mutant(
        "warmup_from_window",
        "wrong_index",
        "counts warm-up rows from the window, known or not",
        _changed(locations=_locations(lambda c, pre, known: max(known, pre - c.front + c.warmup))),
    ),
    Mutant(
        "front_not_written",
        "missing_check",
        "writes the block only",
        _changed(locations=_locations(lambda c, pre, known: pre)),
    ),
    Mutant(
        "unknown_written",
        "missing_check",
        "writes rows that nothing is known for",
        _changed(locations=_locations(lambda c, pre, known: pre - c.front)),
    ),
    Mutant(
        "locations_counted_up",
        "stale_page",
        "counts locations from one row of the window",
        _changed(locations=_first_location_counted_up),
    ),
    Mutant(
        "stash_takes_rejected",
        "off_by_one",
        "keeps one rejected row",
        _stash(
            lambda c, b: (
                range(b[0] + b[1] - c.front + 1, b[0] + b[1] + 1)
                if b[1] < c.width
                else range(b[0] + b[1] - c.front, b[0] + b[1])
            ),
            STASH,
        ),
    ),
    Mutant(
        "stash_takes_block_end",
        "wrong_row",
        "keeps the last rows of the block, committed or not",
        _stash(lambda c, b: range(b[0] + c.width - c.front, b[0] + c.width), STASH),
    ),
    Mutant(
        "stash_takes_first",
        "wrong_row",
        "keeps the first committed rows",
        _stash(lambda c, b: range(b[0] - max(c.front - b[1], 0), b[0] + min(b[1], c.front)), STASH),
    ),
    Mutant(
        "stash_forgets_old",
        "dropped_field",
        "keeps the committed rows only",
        _stash(lambda c, b: range(b[0] + max(b[1] - c.front, 0), b[0] + b[1]), STASH),
    ),
    Mutant(
        "block_not_shifted",
        "wrong_token",
        "feeds each row its own token",
        _changed(block_tokens=lambda c, r, v: history(c, r)[r.prompt : r.prompt + len(v)]),
    ),
    Mutant(
        "block_hidden_of_next", "off_by_one", "feeds the hidden state of the next row", _changed(block_hidden=_next)
    ),
    Mutant(
        "drafted_at_block_end",
        "wrong_index",
        "puts the drafted token behind the rejected rows",
        _changed(rotated=_rotated(lambda c, count: c.width - 1)),
    ),
    Mutant(
        "drafted_one_early",
        "off_by_one",
        "puts the drafted token one row early",
        _changed(rotated=_rotated(lambda c, count: count - 2)),
    ),
    Mutant(
        "not_rotated",
        "missing_check",
        "feeds the same tokens again",
        lambda case: (right := second(case)) | {"rotated": right["block_tokens"]},
    ),
    Mutant(
        "prefill_not_shifted",
        "wrong_token",
        "feeds prompt tokens unshifted",
        _changed(prefill_tokens=lambda c, r, v: history(c, r)[r.prompt - r.chunk : r.prompt]),
    ),
    Mutant(
        "prefill_end_lost",
        "off_by_one",
        "leaves the last prompt token in place",
        _changed(prefill_tokens=lambda c, r, v: [*v[:-1], history(c, r)[r.prompt - 1]]),
    ),
    Mutant(
        "others_written", "outside", "writes kept rows of others", lambda case: second(case) | {"others_changed": 1}
    ),
)
