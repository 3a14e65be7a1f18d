"""Mutants of verify.draft_select: top1 and topk; walks and trees have modules of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.mutants import draft_select_tree, draft_select_walk
from fuzz.mutants.mutant import Mutant
from oracle.verify.select_case import DraftSelectCase
from oracle.verify.select_columns import columns

TILE = 1024
NOTHING = -977  # what an output holds that was never written
Observation = dict[str, Any] | None


def _keys(case: DraftSelectCase) -> np.ndarray:
    seen = columns(case)
    with np.errstate(all="ignore"):
        return seen["scores"] / seen["divisor"]


def _top1(choose: Callable[[DraftSelectCase, np.ndarray], Any]) -> Callable[[DraftSelectCase], Observation]:
    """``choose`` gives the token of each row."""

    def observe(case: DraftSelectCase) -> Observation:
        if case.form != "top1":
            return None
        tokens = [int(t) for t in choose(case, _keys(case))]
        return {"tokens": [[t] for t in tokens], "stored": [[t] for t in tokens]}

    return observe


def _argmax(rows: np.ndarray) -> np.ndarray:
    """The first maximum; NaN never wins."""
    return np.argmax(np.where(np.isnan(rows), -np.inf, rows), axis=1)


def _last_of_tied(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return rows.shape[1] - 1 - _argmax(rows[:, ::-1])


def _without_divisor(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return _argmax(columns(case)["scores"])


def _multiplied(case: DraftSelectCase, rows: np.ndarray) -> Any:
    seen = columns(case)
    with np.errstate(all="ignore"):
        return _argmax(seen["scores"] * seen["divisor"])


def _reciprocal(case: DraftSelectCase, rows: np.ndarray) -> Any:
    seen = columns(case)
    with np.errstate(all="ignore"):
        return _argmax(seen["scores"] * (np.float32(1.0) / seen["divisor"]))


def _full_tiles_only(case: DraftSelectCase, rows: np.ndarray) -> Any:
    full = rows.shape[1] // TILE * TILE
    return _argmax(rows[:, :full] if full else rows)


def _index_in_tile(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return _argmax(rows) % TILE


def _masked_tail_wins(case: DraftSelectCase, rows: np.ndarray) -> Any:
    """A comparison that NaN always loses hands the choice to the column behind the last."""
    return np.where(np.isnan(rows).any(axis=1), rows.shape[1], _argmax(rows))


def _tail_wins_without_numbers(case: DraftSelectCase, rows: np.ndarray) -> Any:
    """The masked tail holds a large negative number instead of minus infinity."""
    return np.where((rows == -np.inf).all(axis=1), rows.shape[1], _argmax(rows))


def _takes_masked(case: DraftSelectCase, rows: np.ndarray) -> Any:
    """Scores are negated for masked tokens before they are masked."""
    return _argmax(np.where(rows == -np.inf, np.inf, rows))


def _row_above(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return np.roll(_argmax(rows), 1)


def _first_row(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return np.full(len(rows), _argmax(rows[:1])[0])


def _rounded_to_sixteen_bits(case: DraftSelectCase, rows: np.ndarray) -> Any:
    bits = rows.astype(np.float32).view(np.uint32)
    return _argmax(((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32))


def _ignores_infinity(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return _argmax(np.where(np.isinf(rows), -np.inf, rows))


def _absolute(case: DraftSelectCase, rows: np.ndarray) -> Any:
    return _argmax(np.where(np.isinf(rows), rows, np.abs(rows)))


def _other(field: str, value: Callable[[DraftSelectCase], Any]) -> Callable[[DraftSelectCase], Observation]:
    def observe(case: DraftSelectCase) -> Observation:
        return {field: value(case)} if case.form == "top1" else None

    return observe


def _topk(choose: Callable[[DraftSelectCase, np.ndarray], tuple[Any, Any]]) -> Callable[[DraftSelectCase], Observation]:
    """``choose`` gives ids and values of one row."""

    def observe(case: DraftSelectCase) -> Observation:
        if case.form != "topk" or np.isnan(columns(case)["scores"]).any():
            return None
        chosen = [choose(case, row) for row in columns(case)["scores"]]
        return {
            "any_tokens": [[int(t) for t in ids] for ids, _ in chosen],
            "values": [[float(v) for v in values] for _, values in chosen],
        }

    return observe


def _best(case: DraftSelectCase, row: np.ndarray) -> np.ndarray:
    return np.argsort(-row, kind="stable")[: case.width]


def _rising(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    ids = _best(case, row)[::-1]
    return ids, row[ids]


def _by_id(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    ids = _best(case, row)
    return np.sort(ids), row[ids]


def _best_only(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    ids = np.repeat(_best(case, row)[:1], case.width)
    return ids, row[ids]


def _one_of_each_tile(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    """Only the best of a tile is a candidate."""
    order, tiles, kept = np.argsort(-row, kind="stable"), set(), []
    for token in order:
        if len(row) <= TILE or token // TILE not in tiles:
            tiles.add(token // TILE)
            kept.append(token)
    ids = np.array((kept + [int(order[0])] * case.width)[: case.width])
    return ids, row[ids]


def _tiles_as_read(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    """Ids inside the tile, without its start."""
    ids = _best(case, row)
    return ids % TILE, row[ids]


def _worst(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    ids = np.argsort(row, kind="stable")[: case.width]
    return ids, row[ids]


def _one_less(case: DraftSelectCase, row: np.ndarray) -> tuple[Any, Any]:
    ids = _best(case, row)
    ids[-1] = ids[max(len(ids) - 2, 0)] if len(ids) > 1 else (ids[0] + 1) % len(row)
    return ids, row[ids]


def _tail_among_the_best(case: DraftSelectCase) -> Observation:
    """Masked columns hold a large negative number, which beats minus infinity; NaN
    draws a tile among the best and loses every comparison inside it."""
    if case.form != "topk":
        return None
    scores = columns(case)["scores"]
    lost = np.isnan(scores) | (scores == -np.inf)
    ids = np.argsort(-np.where(np.isnan(scores), np.inf, scores), axis=1, kind="stable")[:, : case.width]
    lost = np.take_along_axis(lost, ids, 1)
    return {"any_tokens": np.where(lost, case.vocabulary, ids).tolist()}


def _positions(change: int) -> Callable[[DraftSelectCase], Any]:
    return lambda case: [r.position + change for r in case.requests]


MUTANTS = (
    Mutant("last_of_tied", "tie", "takes the last of tied tokens", _top1(_last_of_tied)),
    Mutant("ignores_divisor", "missing_step", "compares undivided scores", _top1(_without_divisor)),
    Mutant("multiplies_by_divisor", "wrong_operation", "multiplies by the divisor", _top1(_multiplied)),
    Mutant("multiplies_by_reciprocal", "rounding", "rounds twice where a division rounds once", _top1(_reciprocal)),
    Mutant("full_tiles_only", "tail_tile", "never looks at the last partial tile", _top1(_full_tiles_only)),
    Mutant("index_in_tile", "tail_tile", "forgets where the tile starts", _top1(_index_in_tile)),
    Mutant("masked_tail_wins_over_nan", "nan", "NaN hands the choice to the masked tail", _top1(_masked_tail_wins)),
    Mutant(
        "masked_tail_wins",
        "masking",
        "the masked tail beats a row of minus infinity",
        _top1(_tail_wins_without_numbers),
    ),
    Mutant("takes_masked_tokens", "masking", "a masked token wins", _top1(_takes_masked)),
    Mutant("row_above", "row_stride", "gives a request the choice of the row above", _top1(_row_above)),
    Mutant("first_row_for_all", "row_stride", "reads the first row for every request", _top1(_first_row)),
    Mutant("sixteen_bit_scores", "rounding", "compares scores rounded to bfloat16", _top1(_rounded_to_sixteen_bits)),
    Mutant("ignores_infinity", "masking", "treats plus infinity as masked", _top1(_ignores_infinity)),
    Mutant("largest_magnitude", "wrong_operation", "compares magnitudes", _top1(_absolute)),
    Mutant("position_not_advanced", "off_by_one", "leaves the position", _other("next_position", _positions(0))),
    Mutant(
        "position_advanced_twice", "off_by_one", "advances the position by two", _other("next_position", _positions(2))
    ),
    Mutant("not_stored", "missing_step", "stores nothing", _other("stored", lambda c: [[NOTHING]] * len(c.requests))),
    Mutant("mass_of_zero", "wrong_value", "hands on no mass", _other("values", lambda c: [[0.0]] * len(c.requests))),
    Mutant(
        "writes_outside", "out_of_bounds", "writes a cell behind its outputs", _other("outside_writes", lambda c: 1)
    ),
    Mutant("rising_order", "order", "gives the k best in rising order", _topk(_rising)),
    Mutant("ids_sorted", "order", "sorts the ids and not the values", _topk(_by_id)),
    Mutant("best_repeated", "missing_step", "never removes what it has chosen", _topk(_best_only)),
    Mutant("one_of_each_tile", "tail_tile", "takes one token of a tile at most", _topk(_one_of_each_tile)),
    Mutant("k_index_in_tile", "tail_tile", "forgets where the tiles start", _topk(_tiles_as_read)),
    Mutant("k_worst", "wrong_operation", "gives the k worst", _topk(_worst)),
    Mutant("one_less", "off_by_one", "chooses one token less", _topk(_one_less)),
    Mutant(
        "masked_tail_among_best", "masking", "the masked tail is chosen before minus infinity", _tail_among_the_best
    ),
    *draft_select_walk.MUTANTS,
    *draft_select_tree.MUTANTS,
)
