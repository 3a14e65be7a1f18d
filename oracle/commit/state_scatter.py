"""commit.state_scatter: which cells of the state pool change, and to what.

Definition. A verify pass leaves, per layer, scratch row and step, one recurrent
state and one window per convolution. The pool keeps one entry of each per layer
and slot. Committing a batch means, for every row and in every layer:

* ``slot`` receives the entry of ``source_row`` after ``step``;
* ``track_slot`` receives the entry of ``source_row`` after ``track_step``;

where step -1 and slot -1 each mean "not this row". All of an entry is copied,
for the recurrent state and for every convolution alike, bit for bit. Nothing
else changes: no other slot, not the scratch, nothing outside the buffers.

With operation ``pool`` (tracking while decoding) there is no scratch: for every
row with ``track_step`` 0 the pool entry of ``slot`` is copied to ``track_slot``,
unless one of the two is -1 (a slot freed meanwhile); ``track_step`` -1 means
"not this row".

Destinations of one batch are distinct, and no source slot is a destination, so
the order of rows never matters. How large the buffers are never matters either:
``gap`` unused slots lie below the upper half of the pool and ``rows_before`` idle
rows before the first one, so that offsets can pass 2^31 elements.

Source: this project's own statement; SGLang issue 31934 and the pool layouts of
its releases made the offsets, the source rows and the layouts part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oracle.commit import stamps
from oracle.commit.stamps import FOREIGN, OWN, tensors_of
from oracle.contract import FUNCTIONAL, Contract, Field, Outcome, require
from oracle.trace import Trace

NONE = -1
UNTOUCHED = "untouched"
INTEGERS = ("int32", "int64")
INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
MAX_NUMBERS = {2: 2**16 - 1, 4: 2**24}  # cells by bytes of a cell: distinct patterns; memory of a case
LAUNCH_BLOCK = 1024  # elements a program copies in the kernels seen: a longer entry needs several


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


BEHAVIOURS = {
    "committed": "a row's state becomes its current state",
    "tracked": "a row's state is saved in its track slot",
    "tracked_at_an_earlier_step": "the saved step differs from the committed one",
    "not_committed": "a row commits nothing while it has a slot",
    "not_tracked": "a row saves nothing while it has a track slot",
    "step_without_slot": "a row has a step and slot -1",
    "track_step_without_slot": "a row has a track step and track slot -1",
    "nothing_to_do": "no row of the batch copies anything",
    "tracking_off": "no track slots are handed over",
    "first_step": "the state after step 0 is committed",
    "last_step": "the state after the last step is committed",
    "scattered_source_rows": "a row reads a scratch row other than its own place",
    "indexed_source": "rows name their scratch row",
    "several_layers": "more than one layer",
    "several_convolutions": "more than one convolution tensor",
    "many_convolutions": "more convolution tensors than one launch takes (8)",
    "no_recurrent_state": "only convolution windows are kept",
    "windows_overlap": "windows slide over one shared input",
    "window_axis_first": "windows lie as (width, channels)",
    "entry_of_several_blocks": "an entry is longer than one program copies",
    "sixteen_bit_state": "the recurrent state has a 16-bit type",
    "convolution_not_bfloat16": "the windows are not bfloat16",
    "mixed_integer_types": "slots and steps have different integer types",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into its tensor",
    "row_offset_beyond_int32": "a scratch row used lies 2^31 elements or more into its tensor",
    "pool_copied": "an entry is copied within the pool",
    "pool_not_tracked": "a row of a pool copy copies nothing",
    "pool_slot_freed": "a row of a pool copy has slot -1 or track slot -1",
}


def domain(case: StateScatterCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.operation in ("verify", "pool"), "operation: must be verify or pool")
    for name, low, high in (
        ("layers", 1, 64), ("slots", 1, 4096), ("scratch_rows", 0, 4096), ("steps", 1, 4096), ("window_width", 1, 16),
        ("gap", 0, 2**31 - 4097), ("rows_before", 0, 2**16),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(len(case.state_entry) == 3 and min(case.state_entry) >= 0, "state_entry: three sizes, none negative")
    require(len(case.window_channels) <= 16, "window_channels: at most 16 convolutions")
    require(min(case.window_channels, default=1) >= 1, "window_channels: each at least 1")
    require(prod(case.state_entry) or case.window_channels, "state_entry, window_channels: nothing to keep")
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    for name in ("slot_dtype", "track_dtype", "step_dtype"):
        require(getattr(case, name) in INTEGERS, f"{name}: must be int32 or int64")
    for name, field in (("state_dtype", "state"), ("window_dtype", "windows")):
        dtype = getattr(case, name)
        require(dtype in stamps.RAW_DTYPE, f"{name}: must be one of {', '.join(stamps.RAW_DTYPE)}")
        numbers, most = sum(stamps.totals(tensors_of(case)[field])), MAX_NUMBERS[stamps.RAW_DTYPE[dtype].itemsize]
        require(numbers <= most, f"{field}: {numbers} cells, at most {most} can be told apart in {dtype}")
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


def reference(case: StateScatterCase, trace: Trace) -> Outcome:
    """Copy entry by entry, layer by layer, into a pool that remembers its own."""
    trace.step("nothing outside the pool may change", decides="outside")
    trace.step("the scratch is only read", decides="source_changed")
    outcome: Outcome = {"outside": UNTOUCHED, "source_changed": 0}
    tensors = tensors_of(case)
    pools = {f: [np.zeros((t.layers, t.slots, t.cells), np.int64) for t in ts] for f, ts in tensors.items()}
    for i, row in enumerate(case.rows):
        if case.operation == "pool":
            copies = [("copy", row.track_slot, row.slot if row.track_step != NONE else NONE)]
        else:
            copies = [("commit", row.slot, row.step), ("track", row.track_slot, row.track_step)]
        for name, slot, source in copies:
            if slot == NONE or source == NONE:
                trace.step(f"{name}: not this row", i, slot=slot, source=source)
                continue
            trace.step(f"{name}: every layer of every tensor", i, slot=slot, source=source, source_row=row.source_row)
            for field, ts in tensors.items():
                for tensor, pool in zip(ts, pools[field], strict=True):
                    for layer in range(case.layers):
                        if case.operation == "pool":
                            pool[layer, slot] = tensor.slot_numbers(layer, source)
                        else:
                            pool[layer, slot] = tensor.step_numbers(layer, row.source_row, source)
    for field in tensors:
        trace.step(f"the pool's {field} afterwards", decides=field)
        outcome[field] = _joined(case, pools[field])
    _behaviours(case, trace)
    return outcome


def _joined(case: StateScatterCase, arrays: list[np.ndarray]) -> np.ndarray:
    """The tensors of one field side by side: [layers, slots, cells of all]."""
    empty = np.zeros((case.layers, case.slots, 0), np.int64)
    return np.concatenate([empty, *arrays], axis=2)


def _behaviours(case: StateScatterCase, trace: Trace) -> None:
    copied = destinations(case)
    facts = {
        "nothing_to_do": not copied,
        "several_layers": case.layers > 1,
        "several_convolutions": len(case.window_channels) > 1,
        "many_convolutions": len(case.window_channels) > 8,
        "no_recurrent_state": not prod(case.state_entry),
        "windows_overlap": case.overlapping and bool(case.window_channels) and case.operation == "verify",
        "window_axis_first": case.window_first and bool(case.window_channels),
        "sixteen_bit_state": case.state_dtype != "float32" and prod(case.state_entry) > 0,
        "convolution_not_bfloat16": case.window_dtype != "bfloat16" and bool(case.window_channels),
        "mixed_integer_types": len({case.slot_dtype, case.track_dtype, case.step_dtype}) > 1,
    }
    tensors = [t for ts in tensors_of(case).values() for t in ts]
    longest = max(t.cells for t in tensors)
    used = {s for s, _ in copied} | {s for _, s in copied if case.operation == "pool"}
    far = [s for s in used if case.gap and s >= case.slots // 2]
    facts["entry_of_several_blocks"] = bool(copied) and longest > LAUNCH_BLOCK
    facts["slot_offset_beyond_int32"] = any((s + case.gap) * longest >= INT32_ELEMENTS for s in far)
    if case.operation == "pool":
        facts |= {
            "pool_copied": bool(copied),
            "pool_not_tracked": any(r.track_step == NONE for r in case.rows),
            "pool_slot_freed": any(r.track_step != NONE and NONE in (r.slot, r.track_slot) for r in case.rows),
        }
    else:
        facts |= _verify_behaviours(case, tensors)
    for name, shown in facts.items():
        if shown:
            trace.behaviour(name)


def _verify_behaviours(case: StateScatterCase, tensors: list[stamps.StateTensor]) -> dict[str, bool]:
    rows = case.rows
    committed = [r for r in rows if NONE not in (r.slot, r.step)]
    tracked = [r for r in rows if NONE not in (r.track_slot, r.track_step)]
    per_row = max(prod(t.scratch_shape[2:]) for t in tensors)
    reading = [case.rows_before + i for i, r in enumerate(rows) if r in committed or r in tracked]
    return {
        "committed": bool(committed),
        "tracked": bool(tracked),
        "tracked_at_an_earlier_step": any(r.track_step != r.step for r in tracked),
        "not_committed": any(r.step == NONE and r.slot != NONE for r in rows),
        "not_tracked": any(r.track_step == NONE and r.track_slot != NONE for r in rows),
        "step_without_slot": any(r.step != NONE and r.slot == NONE for r in rows),
        "track_step_without_slot": any(r.track_step != NONE and r.track_slot == NONE for r in rows),
        "tracking_off": not case.tracking,
        "first_step": any(r.step == 0 for r in committed),
        "last_step": any(r.step == case.steps - 1 > 0 for r in committed),
        "scattered_source_rows": any(r.source_row != i for i, r in enumerate(rows)),
        "indexed_source": case.indexed_source,
        "row_offset_beyond_int32": any(at * per_row >= INT32_ELEMENTS for at in reading),
    }


def second(case: StateScatterCase) -> Outcome:
    """The outcome from the other side: each slot asks where its contents come
    from and looks them up in the whole scratch, or the whole pool."""
    source = dict(destinations(case))
    outcome: Outcome = {"outside": UNTOUCHED, "source_changed": 0}
    for field, tensors in tensors_of(case).items():
        parts = []
        for tensor in tensors:
            scratch, pool = tensor.numbers_by_step(), tensor.pool_numbers()
            part = np.full((case.layers, case.slots, tensor.cells), OWN, np.int64)
            for slot, origin in source.items():
                entry = pool[:, origin] if case.operation == "pool" else scratch[:, origin[0], origin[1]]
                part[:, slot] = entry.reshape(case.layers, -1)
            parts.append(part)
        outcome[field] = _joined(case, parts)
    return outcome


def columns(case: StateScatterCase) -> dict[str, Any]:
    """The case's scalars as they are, and int64 [B] arrays of the row fields."""
    plain = {n: getattr(case, n) for n in StateScatterCase.__dataclass_fields__ if n != "rows"}
    arrays = {n: np.array([getattr(r, n) for r in case.rows], np.int64) for n in Row.__dataclass_fields__}
    return plain | arrays


def kind(field: str, expected: Any, observed: Any) -> str:
    """What is wrong with the first cell, by what it should and does hold."""
    if field == "outside":
        return "written_outside"
    if field == "source_changed":
        return "source_written"
    if observed == FOREIGN:
        return "foreign_contents"
    if expected == OWN:
        return "neighbour_overwritten"
    return "not_copied" if observed == OWN else "wrong_source"


def explain(case: StateScatterCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field == "outside":
        return f"outside the pool: {observed}"
    if field == "source_changed":
        return f"{observed} cells of the verify scratch were changed; it is only read"
    layer, slot, cell = where
    expected = int(reference(case, Trace())[field][where])
    holds, must = (stamps.describe(case, field, int(n)) for n in (observed, expected))
    return f"layer {layer}, slot {slot}, cell {cell} of {field} holds {holds}; it must hold {must}"


CONTRACT = Contract(
    name="commit.state_scatter",
    version=1,
    case_type=StateScatterCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    records="rows",
    padding=lambda case: Row(NONE, NONE, NONE, NONE, NONE),
    fields=(
        Field("outside", "case", "what was written outside the pool's own slots, in words"),
        Field("source_changed", "case", "cells of the verify scratch that changed"),
        Field("state", "array", "what each cell of the recurrent state's pool holds [layers, slots, cells]"),
        Field("windows", "array", "the same for the convolution windows, tensors side by side"),
    ),
    behaviours=BEHAVIOURS,
    example=StateScatterCase(
        operation="verify", tracking=True, indexed_source=False, layers=1, slots=4, scratch_rows=1, steps=2, gap=0,
        rows_before=0, state_entry=(1, 1, 2), window_channels=(2,), window_width=3, window_first=False,
        overlapping=False, state_dtype="float32", window_dtype="bfloat16", slot_dtype="int32", track_dtype="int64",
        step_dtype="int64", rows=(Row(slot=1, step=1, track_slot=2, track_step=0, source_row=0),),
    ),
)  # fmt: skip
