"""Mutants of draft.graph_rows: mostly buffers that are refreshed too little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.draft.graph_rows import second
from oracle.draft.graph_rows_case import GraphRowsCase, Row, location, state_slot

Observed = dict[str, Any]


def _changed(**fields: Callable[[GraphRowsCase, Any], Any]) -> Callable[[GraphRowsCase], Observed]:
    """The right outcome, with fields recomputed: (case, right value)."""

    def observe(case: GraphRowsCase) -> Observed:
        right = second(case)
        return right | {name: change(case, right[name]) for name, change in fields.items()}

    return observe


def _left(case: GraphRowsCase, value: Callable[[Row], Any], fresh: list[Any]) -> list[Any]:
    """What padding rows hold when nothing is done: ``value`` of the request before."""
    pads = range(len(case.rows), case.bucket)
    return [value(case.before[p]) if p < len(case.before) else f for p, f in zip(pads, fresh, strict=True)]


def _stale_writes(case: GraphRowsCase, right: list[int]) -> list[int]:
    width = case.width
    rows = [right[i : i + width] for i in range(0, len(right), width)]
    spots = lambda r: [location(r, r.length - case.front + j) for j in range(width)]  # noqa: E731
    return [spot for row in _left(case, spots, rows) for spot in row]


def _before_in_place(case: GraphRowsCase, right: list[int], value: Callable[[Row], int]) -> list[int]:
    """Rows that keep what the batch before had in their place."""
    return [value(case.before[i]) if i < len(case.before) else v for i, v in enumerate(right)]


def _short_is_padding(case: GraphRowsCase, right: list[int]) -> list[int]:
    """Counts rows of the fill's length, and takes that many from the end for padding."""
    short = sum(r.length == case.fill for r in case.rows)
    return [*right[: len(right) - short], *[-1] * short]


def _neighbour(case: GraphRowsCase, right: list[Any]) -> list[Any]:
    return right[-1:] + right[:-1]


def _dense_starts(case: GraphRowsCase, right: list[int]) -> list[int]:
    return [i * case.width for i in range(case.bucket + 1)]


def _half_selected(case: GraphRowsCase, right: int) -> int:
    return case.bucket - len(case.rows)


MUTANTS = (
    Mutant("tokens_of_neighbour", "wrong_row", "feeds the tokens of another row", _changed(tokens=_neighbour)),
    Mutant("hidden_of_neighbour", "wrong_row", "feeds the hidden states of another row", _changed(hidden=_neighbour)),
    Mutant(
        "positions_of_block",
        "off_by_one",
        "counts positions from the block, not from the front rows",
        _changed(positions=lambda c, v: [[p + c.front for p in row] for row in v]),
    ),
    Mutant(
        "locations_late",
        "off_by_one",
        "shifts the locations by one token",
        _changed(locations=lambda c, v: [[0, *row[:-1]] for row in v]),
    ),
    Mutant(
        "selects_rejected",
        "off_by_one",
        "samples behind the last committed token",
        _changed(selected=lambda c, v: [s + 1 for s in v]),
    ),
    Mutant(
        "selects_without_front",
        "off_by_one",
        "counts the sampled row from the block",
        _changed(selected=lambda c, v: [s - c.front for s in v]),
    ),
    Mutant(
        "stale_lengths",
        "stale_length",
        "keeps the lengths of the batch before",
        _changed(lengths=lambda c, v: _before_in_place(c, v, lambda r: r.length)),
    ),
    Mutant(
        "stale_counts",
        "stale_length",
        "keeps the committed counts of the batch before",
        _changed(committed=lambda c, v: _before_in_place(c, v, lambda r: min(r.committed, c.width - c.front))),
    ),
    Mutant(
        "stale_tracks",
        "stale_slot",
        "keeps the track slots of the batch before",
        _changed(track_slots=lambda c, v: _before_in_place(c, v, lambda r: r.track_slot)),
    ),
    Mutant(
        "state_by_pool_row",
        "wrong_index",
        "takes the pool row for the state slot",
        _changed(state_slots=lambda c, v: [r.pool_row for r in c.rows]),
    ),
    Mutant(
        "short_is_padding",
        "wrong_test",
        "takes a request of the fill's length for padding",
        _changed(state_slots=_short_is_padding),
    ),
    Mutant(
        "stale_padding_lengths",
        "stale_padding",
        "leaves the lengths of padding rows",
        _changed(padding_lengths=lambda c, v: _left(c, lambda r: r.length, v)),
    ),
    Mutant(
        "stale_padding_writes",
        "stale_padding",
        "leaves the KV locations of padding rows",
        _changed(padding_writes=_stale_writes),
    ),
    Mutant(
        "stale_padding_rows",
        "stale_padding",
        "leaves pool rows and counts of padding rows",
        _changed(padding_rows=lambda c, v: _left(c, lambda r: r.pool_row, v)),
    ),
    Mutant(
        "stale_padding_states",
        "stale_padding",
        "leaves the state slots of padding rows",
        _changed(padding_states=lambda c, v: _left(c, lambda r: state_slot(r.pool_row), v)),
    ),
    Mutant(
        "padding_state_zero",
        "missing_check",
        "gives padding rows the first state slot",
        _changed(padding_states=lambda c, v: [0] * len(v)),
    ),
    Mutant(
        "padding_selects_first",
        "wrong_row",
        "samples padding from the first request",
        _changed(padding_selected=_half_selected),
    ),
    Mutant("padding_has_tokens", "missing_check", "gives padding rows tokens", _changed(row_starts=_dense_starts)),
    Mutant(
        "whole_buffer", "stale_tail", "hands out the whole buffer", _changed(rows_handed_out=lambda c, v: c.capacity)
    ),
    Mutant(
        "real_rows_only",
        "missing_check",
        "hands out the rows of the batch",
        _changed(rows_handed_out=lambda c, v: len(c.rows)),
    ),
)
