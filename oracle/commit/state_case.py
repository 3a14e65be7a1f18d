"""The case of commit.state_scatter: what is committed, and what may be asked.

See ``oracle.commit.state_scatter`` for the definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oracle.commit import stamps
from oracle.commit.stamps import tensors_of
from oracle.contract import FUNCTIONAL, require, require_size

NONE = -1
INTEGERS = ("int32", "int64")
MAX_NUMBERS = {2: 2**16 - 1, 4: 2**24}  # cells by bytes of a cell: distinct patterns; memory of a case
MAX_SIDE = 2**20  # one size of a state's shape, also of a shape that has no cells
MAX_ELEMENTS = 2**33  # of one tensor with its unused slots or idle rows; faults show beyond 2^31


@dataclass(frozen=True)
class Row:
    """One row of the batch. See the definition; -1 is "not this row"."""

    slot: int
    step: int
    track_slot: int
    track_step: int
    source_row: int


@dataclass(frozen=True)
class StateScatterCase:
    """One commit.

    operation        ``verify`` (scratch to pool) or ``pool`` (slot to track slot)
    tracking         verify: whether track slots are handed over at all
    indexed_source   verify: rows name their scratch row; otherwise row i of the
                     batch reads scratch row i and ``source_row`` says which it is
    layers, slots, scratch_rows, steps   sizes of pool and scratch
    gap, rows_before unused slots below the upper half, idle rows before the batch
    state_entry      shape of one recurrent state; a zero means there is none
    window_channels  channels of each convolution; all have ``window_width``
    window_first     entry is (width, channels) instead of (channels, width)
    overlapping      windows of a row slide over one shared input
    state_dtype, window_dtype            float32, bfloat16 or float16
    slot_dtype, track_dtype, step_dtype  int32 or int64
    """

    operation: str
    tracking: bool
    indexed_source: bool
    layers: int
    slots: int
    scratch_rows: int
    steps: int
    gap: int
    rows_before: int
    state_entry: tuple[int, ...]
    window_channels: tuple[int, ...]
    window_width: int
    window_first: bool
    overlapping: bool
    state_dtype: str
    window_dtype: str
    slot_dtype: str
    track_dtype: str
    step_dtype: str
    rows: tuple[Row, ...]


def domain(case: StateScatterCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.operation in ("verify", "pool"), "operation: must be verify or pool")
    for name, low, high in (
        ("layers", 1, 64), ("slots", 1, 4096), ("scratch_rows", 0, 4096), ("steps", 1, 4096), ("window_width", 1, 16),
        ("gap", 0, 2**31 - 4097), ("rows_before", 0, 2**16),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require_size(case.rows, "rows")
    require(
        len(case.state_entry) == 3 and all(0 <= n <= MAX_SIDE for n in case.state_entry),
        f"state_entry: three sizes of 0 to {MAX_SIDE}",
    )
    require(len(case.window_channels) <= 16, "window_channels: at most 16 convolutions")
    require(all(1 <= n <= MAX_SIDE for n in case.window_channels), f"window_channels: each 1 to {MAX_SIDE}")
    require(prod(case.state_entry) or case.window_channels, "state_entry, window_channels: nothing to keep")
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    for name in ("slot_dtype", "track_dtype", "step_dtype"):
        require(getattr(case, name) in INTEGERS, f"{name}: must be int32 or int64")
    for name, field in (("state_dtype", "state"), ("window_dtype", "windows")):
        dtype = getattr(case, name)
        require(dtype in stamps.RAW_DTYPE, f"{name}: must be one of {', '.join(stamps.RAW_DTYPE)}")
        numbers, most = sum(stamps.totals(tensors_of(case)[field])), MAX_NUMBERS[stamps.RAW_DTYPE[dtype].itemsize]
        require(numbers <= most, f"{field}: {numbers} cells, at most {most} can be told apart in {dtype}")
        for tensor in tensors_of(case)[field]:
            pool = (case.slots + case.gap) * case.layers * tensor.cells
            require(pool <= MAX_ELEMENTS, f"gap: {field} of {pool} elements, at most {MAX_ELEMENTS} are laid out")
            scratch = (case.scratch_rows + case.rows_before) * case.steps * case.layers * tensor.cells
            require(
                scratch <= MAX_ELEMENTS,
                f"rows_before: {field} of {scratch} elements, at most {MAX_ELEMENTS} are laid out",
            )
    for i, row in enumerate(case.rows):
        for name, end in (("slot", case.slots), ("track_slot", case.slots), ("source_row", case.scratch_rows)):
            require(NONE <= getattr(row, name) < end, f"rows[{i}].{name}: must be -1 to {end - 1}")
        (_verify_row if case.operation == "verify" else _pool_row)(case, row, f"rows[{i}]")
    if case.operation == "pool":
        require(len(case.window_channels) == 1 and prod(case.state_entry), "pool: one state and one convolution")
        require(not (case.indexed_source or case.scratch_rows or case.rows_before), "pool: there is no scratch")
    else:
        sources = [r.source_row for r in case.rows]
        require(len(set(sources)) == len(sources), "rows.source_row: two rows read one scratch row")
    written = [slot for slot, _ in destinations(case)]
    require(len(set(written)) == len(written), "rows: two rows write one slot")
    read = {r.slot for r in case.rows} if case.operation == "pool" else set()
    require(not read & set(written), "rows: a source slot is written")
    return FUNCTIONAL


def _verify_row(case: StateScatterCase, row: Row, where: str) -> None:
    require(NONE <= row.step < case.steps, f"{where}.step: must be -1 to steps - 1")
    require(NONE <= row.track_step < case.steps, f"{where}.track_step: must be -1 to steps - 1")
    require(row.source_row != NONE, f"{where}.source_row: every row has one")
    require(case.tracking or (row.track_slot, row.track_step) == (NONE, NONE), f"{where}: tracking is off")


def _pool_row(case: StateScatterCase, row: Row, where: str) -> None:
    require((row.step, row.source_row) == (NONE, NONE), f"{where}: a pool copy has neither step nor source row")
    require(row.track_step in (NONE, 0), f"{where}.track_step: 0 to copy, -1 not to")


def destinations(case: StateScatterCase) -> list[tuple[int, Any]]:
    """Every slot that changes, with its source: a scratch ``(row, step)`` or, in
    a pool copy, a slot."""
    if case.operation == "pool":
        wanted = [(r.track_slot, r.slot) for r in case.rows if r.track_step != NONE and r.slot != NONE]
    else:
        wanted = [(r.slot, (r.source_row, r.step)) for r in case.rows if r.step != NONE]
        wanted += [(r.track_slot, (r.source_row, r.track_step)) for r in case.rows if r.track_step != NONE]
    return [(slot, source) for slot, source in wanted if slot != NONE]


def columns(case: StateScatterCase) -> dict[str, Any]:
    """The case's scalars as they are, and int64 [B] arrays of the row fields."""
    plain = {n: getattr(case, n) for n in StateScatterCase.__dataclass_fields__ if n != "rows"}
    arrays = {n: np.array([getattr(r, n) for r in case.rows], np.int64) for n in Row.__dataclass_fields__}
    return plain | arrays
