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

from math import prod
from typing import Any

import numpy as np

from oracle.commit import stamps
from oracle.commit.stamps import FOREIGN, OWN, tensors_of
from oracle.commit.state_case import NONE, Row, StateScatterCase, columns, destinations, domain
from oracle.contract import Contract, Field, Outcome
from oracle.trace import Trace

UNTOUCHED = "untouched"
INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
LAUNCH_BLOCK = 1024  # elements a program copies in the kernels seen: a longer entry needs several


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
    say=explain,
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
