"""Cases of commit.state_scatter.

A row draws its steps and which of its slots are missing; slot numbers and scratch
rows follow from one seed each, because rows that draw slots collide. Sizes that
need many numbers (long entries, several convolutions, many steps) shrink together
until they can be told apart in the dtype. Offsets beyond 2^31 elements come from
a gap of unused slots, or rarely of rows, just large enough for the longest entry.
"""

from __future__ import annotations

import dataclasses
import random
from math import prod

from fuzz.strategies.source import Source, choice, flag
from oracle.commit import stamps
from oracle.commit.state_case import MAX_NUMBERS, NONE, Row, StateScatterCase
from oracle.commit.state_scatter import INT32_ELEMENTS

MOST_ROWS = 6
STATE_ENTRIES = ((1, 1, 2), (2, 3, 5), (1, 8, 16), (2, 1, 1), (1, 33, 32), (0, 0, 0))
CHANNELS = ((2,), (6,), (6, 10), (342,), (2, 400, 4), (1,) * 9)
WIDE_STEPS, WIDE_ENTRY = 4096, (1, 16, 16)  # 2^31 elements of scratch in 2048 rows: about a second a case


def structure(source: Source) -> StateScatterCase:
    """One case; simplest: one row that commits its first step."""
    operation = "pool" if source.integer(0, 2) == 2 else "verify"
    state_dtype = choice(source, ("float32", "bfloat16", "float16"))
    window_dtype = choice(source, ("bfloat16", "bfloat16", "float32", "float16"))
    dtypes = ("int32", "int64", "int64") if not flag(source) else tuple(
        choice(source, ("int32", "int64")) for _ in range(3)
    )  # fmt: skip
    state_entry, channels = choice(source, STATE_ENTRIES), choice(source, CHANNELS)
    width, first = source.integer(1, 4), flag(source)
    far = source.integer(0, 11) if source.integer(0, 3) == 3 else 0
    far = far if far < 11 or flag(source) else 0
    layers = source.integer(1, 3)
    steps = source.integer(1, 8)
    overlapping = flag(source)
    tracking = operation == "pool" or source.integer(0, 7) < 7
    indexed = operation == "verify" and source.integer(0, 3) == 3
    if operation == "pool":
        channels, steps, overlapping = channels[:1], 1, False
        state_entry = state_entry if prod(state_entry) else STATE_ENTRIES[0]

    def row(source: Source) -> tuple[int, int, int]:
        # Missing: 0 nothing, 1 the slot, 2 the track slot, 3 both.
        step = source.integer(0, steps) - 1 if operation == "verify" else NONE
        track_step = steps - 1 - source.integer(0, steps)
        return step, track_step, source.integer(0, 3) if source.integer(0, 5) == 5 else 0

    drawn = source.records(row, 1, MOST_ROWS)
    slot_seed, row_seed = source.integer(0, 2**16), source.integer(0, 2**16)
    case = StateScatterCase(
        operation, tracking, indexed, layers, 2 * len(drawn) + 2, len(drawn) if operation == "verify" else 0, steps,
        0, 0, state_entry, channels, width, first, overlapping, state_dtype, window_dtype, *dtypes, (),
    )  # fmt: skip
    return with_rows(_far(_told_apart(case), far), drawn, slot_seed, row_seed)


def with_rows(
    case: StateScatterCase, drawn: list[tuple[int, int, int]], slot_seed: int, row_seed: int
) -> StateScatterCase:
    """Give rows their slots and scratch rows; seed 0 counts upwards. Slot 0 is
    the engine's own, so it comes last."""
    slots, rows = [*range(1, case.slots), 0], list(range(case.scratch_rows))
    if slot_seed:
        random.Random(slot_seed).shuffle(slots)
    if row_seed:
        random.Random(row_seed).shuffle(rows)
    made = []
    for i, (step, track_step, missing) in enumerate(drawn):
        slot = NONE if missing & 1 else slots[2 * i]
        track_slot = NONE if missing & 2 or not case.tracking else slots[2 * i + 1]
        track_step = min(track_step, case.steps - 1) if case.tracking else NONE
        source_row = rows[i] if case.operation == "verify" else NONE
        made.append(Row(slot, min(step, case.steps - 1), track_slot, track_step, source_row))
    return dataclasses.replace(case, rows=tuple(made))


def _told_apart(case: StateScatterCase) -> StateScatterCase:
    """Fewer steps, then one layer, then one convolution, until every cell has a
    pattern of its own."""
    while True:
        tensors = stamps.tensors_of(case)
        fits = all(
            sum(stamps.totals(tensors[field])) <= MAX_NUMBERS[stamps.RAW_DTYPE[dtype].itemsize]
            for field, dtype in (("state", case.state_dtype), ("windows", case.window_dtype))
        )
        if fits:
            return case
        if case.steps > 1:
            case = dataclasses.replace(case, steps=case.steps // 2)
        elif case.layers > 1:
            case = dataclasses.replace(case, layers=1)
        else:
            case = dataclasses.replace(case, window_channels=case.window_channels[:1], state_entry=(1, 1, 2))


def _far(case: StateScatterCase, far: int) -> StateScatterCase:
    """``far`` 1 to 10: a gap that carries the upper half of the slots across, or
    up to, the 2^31st element of the longest entry. 11: rows that far into the
    scratch, for which entry and steps are set."""
    if far in (0, 11) and not (far and case.operation == "verify"):
        return case
    case = dataclasses.replace(case, layers=1)
    if far == 11:
        return dataclasses.replace(
            case, steps=WIDE_STEPS, rows_before=INT32_ELEMENTS // (WIDE_STEPS * prod(WIDE_ENTRY)) - 1,
            state_dtype="float32", state_entry=WIDE_ENTRY, window_channels=(2,), window_dtype="float32",
        )  # fmt: skip
    longest = max(t.cells for ts in stamps.tensors_of(case).values() for t in ts)
    gap = min(INT32_ELEMENTS // longest, INT32_ELEMENTS // 4) - case.slots + far * case.slots // 5
    return dataclasses.replace(case, gap=gap)
