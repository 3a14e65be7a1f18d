"""Mutants of commit.state_scatter.

Each rewrites one thing of the plan "these entries go to these slots", or of how
an entry is read, and leaves the rest right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from fuzz.mutants.mutant import Mutant
from oracle.commit.stamps import FOREIGN, OWN, StateTensor, tensors_of
from oracle.commit.state_case import NONE, Row, StateScatterCase
from oracle.commit.state_scatter import INT32_ELEMENTS, LAUNCH_BLOCK, UNTOUCHED


@dataclass(frozen=True)
class Copy:
    """One entry on its way: to ``slot``, from scratch ``row`` and ``step``, or in
    a pool copy from slot ``step``; ``place`` of the row in the batch, ``track``
    for the copy into the track slot."""

    slot: int
    row: int
    step: int
    place: int
    track: bool

    @property
    def inert(self) -> bool:
        return NONE in (self.slot, self.step)


Plan = list[Copy]


def planned(case: StateScatterCase) -> Plan:
    """Every copy of the batch, inert ones included."""
    plan = []
    for i, r in enumerate(case.rows):
        if case.operation == "pool":
            plan.append(Copy(r.track_slot, NONE, r.slot if r.track_step != NONE else NONE, i, True))
        else:
            plan.append(Copy(r.slot, r.source_row, r.step, i, False))
            plan.append(Copy(r.track_slot, r.source_row, r.track_step, i, True))
    return plan


Entry = Callable[[StateScatterCase, StateTensor, int, Copy], np.ndarray]


def right_entry(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    if case.operation == "pool":
        return tensor.slot_numbers(layer, copy.step)
    return tensor.step_numbers(layer, copy.row, copy.step)


def _mutant(
    name: str,
    fault: str,
    meaning: str,
    *,
    plan: Callable[[StateScatterCase, Plan], Iterable[Copy]] = lambda case, plan: plan,
    entry: Entry = right_entry,
    skips: Callable[[StateScatterCase, str, int, int], bool] = lambda case, field, tensor, layer: False,
    also: Callable[[StateScatterCase], dict[str, Any]] = lambda case: {},
) -> Mutant:
    """``skips`` says which (field, tensor, layer) is left out, ``also`` replaces
    observed fields outright."""

    def observe(case: StateScatterCase) -> dict[str, Any]:
        observed: dict[str, Any] = {"outside": UNTOUCHED, "source_changed": 0}
        copies = [c for c in plan(case, planned(case)) if not c.inert]
        for field, tensors in tensors_of(case).items():
            parts = [np.zeros((case.layers, case.slots, 0), np.int64)]
            for i, tensor in enumerate(tensors):
                part, own = np.zeros((case.layers, case.slots, tensor.cells), np.int64), tensor.pool_numbers()
                for layer in range(case.layers):
                    for copy in copies if not skips(case, field, i, layer) else ():
                        part[layer, copy.slot] = entry(case, tensor, layer, copy)
                parts.append(np.where(part == own.reshape(part.shape), OWN, part))
            observed[field] = np.concatenate(parts, axis=2)
        return observed | also(case)

    return Mutant(name, fault, meaning, observe)


def _each(change: Callable[[StateScatterCase, Copy], Copy]) -> Callable[[StateScatterCase, Plan], Plan]:
    """A plan in which every copy that is not inert is changed."""
    return lambda case, plan: [c if c.inert else change(case, c) for c in plan]


def _step(by: int) -> Callable[[StateScatterCase, Plan], Plan]:
    def change(case: StateScatterCase, c: Copy) -> Copy:
        if case.operation == "pool":
            return c
        return replace(c, step=min(max(c.step + by, 0), case.steps - 1))

    return _each(change)


def _sentinel_step(case: StateScatterCase, plan: Plan) -> Plan:
    if case.operation == "pool":
        return plan
    asked = [c.step == NONE and (case.tracking or not c.track) for c in plan]
    return [replace(c, step=case.steps - 1) if a else c for a, c in zip(asked, plan, strict=True)]


def _sentinel_slot(case: StateScatterCase, plan: Plan) -> Plan:
    return [replace(c, slot=case.slots - 1) if c.slot == NONE and c.step != NONE else c for c in plan]


def _freed_source(case: StateScatterCase, plan: Plan) -> Plan:
    if case.operation == "verify":
        return plan
    freed = {i for i, r in enumerate(case.rows) if r.track_step != NONE and r.slot == NONE}
    return [replace(c, step=case.slots - 1) if c.place in freed else c for c in plan]


def _masked_rows(case: StateScatterCase, plan: Plan) -> Plan:
    if case.operation == "verify":
        return plan
    return [replace(c, step=case.rows[c.place].slot) for c in plan]


def _track_of_commit(case: StateScatterCase, plan: Plan) -> Plan:
    if case.operation == "pool":
        return plan
    return [replace(c, step=case.rows[c.place].step) if c.track and not c.inert else c for c in plan]


def _row(of: Callable[[StateScatterCase, Copy, Row], int]) -> Callable[[StateScatterCase, Plan], Plan]:
    """A plan that reads another scratch row (kept inside the scratch)."""

    def change(case: StateScatterCase, c: Copy) -> Copy:
        if case.operation == "pool":
            return c
        return replace(c, row=of(case, c, case.rows[c.place]) % case.scratch_rows)

    return _each(change)


def _neighbour(case: StateScatterCase, plan: Plan) -> Plan:
    """The entry is one cell run too long: the next slot gets it first."""
    spilled = [replace(c, slot=c.slot + 1) for c in plan if not c.inert and c.slot + 1 < case.slots]
    return spilled + plan


def _dense_windows(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    """Reads an overlapping window as if its cells were contiguous."""
    numbers = right_entry(case, tensor, layer, copy)
    if case.operation == "pool" or tensor.sliding is None:
        return numbers
    return numbers[0] + np.arange(tensor.cells)


def _transposed(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    numbers = right_entry(case, tensor, layer, copy).reshape(tensor.entry)
    return numbers.swapaxes(-1, -2).reshape(-1)


def _first_block(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    """Copies one launch block of the entry and forgets the rest."""
    numbers = right_entry(case, tensor, layer, copy).copy()
    numbers[LAUNCH_BLOCK:] = tensor.slot_numbers(layer, copy.slot)[LAUNCH_BLOCK:]
    return numbers


def _one_layer_for_all(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    return right_entry(case, tensor, 0, copy)


def _rounded(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    """A copy through a narrower type: no cell of a 32-bit state survives it."""
    numbers = right_entry(case, tensor, layer, copy)
    state = len(tensor.entry) == 3
    return np.full_like(numbers, FOREIGN) if state and case.state_dtype == "float32" else numbers


def _first_windows_for_all(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    """Every convolution reads the source of the first one."""
    numbers = right_entry(case, tensor, layer, copy)
    if tensor.pool_start == 0:
        return numbers
    first = tensors_of(case)["windows"][0]
    return np.resize(right_entry(case, first, layer, copy), numbers.shape)


def _wrapped_slot(case: StateScatterCase) -> dict[str, Any]:
    """Slot times stride in 32 bits: the write lands before the buffer."""
    longest = max(t.cells for ts in tensors_of(case).values() for t in ts)
    written = [c.slot for c in planned(case) if not c.inert]
    far = case.gap and any(s >= case.slots // 2 and (s + case.gap) * longest >= INT32_ELEMENTS for s in written)
    return {"outside": "pool: written before the buffer"} if far else {}


def _wrapped_row(case: StateScatterCase, tensor: StateTensor, layer: int, copy: Copy) -> np.ndarray:
    """Row times stride in 32 bits: the read finds memory of nobody."""
    numbers = right_entry(case, tensor, layer, copy)
    at = (case.rows_before + copy.place) * prod(tensor.scratch_shape[2:])
    return np.full_like(numbers, FOREIGN) if case.operation == "verify" and at >= INT32_ELEMENTS else numbers


def _swapped(case: StateScatterCase, plan: Plan) -> Plan:
    """Commit and track slot change places."""
    if case.operation == "pool":
        return plan
    rows = [(case.rows[c.place], c) for c in plan]
    return [replace(c, slot=r.slot if c.track else r.track_slot) for r, c in rows]


def _scratch_written(case: StateScatterCase) -> dict[str, Any]:
    copies = [c for c in planned(case) if not c.inert]
    return {"source_changed": len(copies)} if copies and case.operation == "verify" else {}


def _last_layer(case: StateScatterCase, field: str, tensor: int, layer: int) -> bool:
    return 0 < layer == case.layers - 1


def _no_state(case: StateScatterCase, field: str, tensor: int, layer: int) -> bool:
    return field == "state"


def _no_windows(case: StateScatterCase, field: str, tensor: int, layer: int) -> bool:
    return field == "windows"


def _one_convolution(case: StateScatterCase, field: str, tensor: int, layer: int) -> bool:
    return field == "windows" and tensor > 0


def _only(wanted: Callable[[StateScatterCase, Copy], bool]) -> Callable[[StateScatterCase, Plan], Plan]:
    return lambda case, plan: [c for c in plan if wanted(case, c)]


_nothing = _only(lambda case, c: False)
_no_tracks = _only(lambda case, c: not c.track)
_only_tracks = _only(lambda case, c: c.track)
_not_the_last = _only(lambda case, c: c.place + 1 < len(case.rows))
_at_slot = _row(lambda case, c, r: c.slot)
_at_place = _row(lambda case, c, r: c.place)
_next_row = _row(lambda case, c, r: c.row + 1)

MUTANTS = (
    _mutant("copies_nothing", "missing_commit", "nothing is copied", plan=_nothing),
    _mutant("never_tracks", "missing_commit", "track slots are not written", plan=_no_tracks),
    _mutant("only_tracks", "missing_commit", "current slots are not written", plan=_only_tracks),
    _mutant("last_row_forgotten", "missing_commit", "the last row of the batch is left out", plan=_not_the_last),
    _mutant("step_sentinel_ignored", "sentinel", "step -1 counts from the end", plan=_sentinel_step),
    _mutant("slot_sentinel_ignored", "sentinel", "slot -1 counts from the end", plan=_sentinel_slot),
    _mutant("freed_source_ignored", "sentinel", "a freed source slot counts from the end", plan=_freed_source),
    _mutant("mask_ignored", "sentinel", "a pool copy copies rows that nobody asked for", plan=_masked_rows),
    _mutant("one_step_early", "off_by_one", "the state before the last committed step", plan=_step(-1)),
    _mutant("one_step_late", "off_by_one", "the state one step further", plan=_step(1)),
    _mutant("tracks_committed_step", "step_for_step", "the track slot gets the current state", plan=_track_of_commit),
    _mutant("slots_swapped", "slot_for_slot", "current and track slot change places", plan=_swapped),
    _mutant("slot_for_row", "slot_for_row", "the scratch is read at the row's slot", plan=_at_slot),
    _mutant("place_for_row", "slot_for_row", "the scratch is read at the row's place in the batch", plan=_at_place),
    _mutant("next_row", "off_by_one", "the scratch is read one row further", plan=_next_row),
    _mutant("neighbour_overwritten", "neighbour", "the slot behind is written too", plan=_neighbour),
    _mutant("last_layer_forgotten", "layer", "the last of several layers is left as it is", skips=_last_layer),
    _mutant("one_layer_for_all", "layer", "every layer gets the first layer's state", entry=_one_layer_for_all),
    _mutant("windows_forgotten", "convolution", "no convolution window is copied", skips=_no_windows),
    _mutant("second_convolution_forgotten", "convolution", "only the first is copied", skips=_one_convolution),
    _mutant("state_forgotten", "convolution", "only convolution windows are copied", skips=_no_state),
    _mutant("first_windows_for_all", "convolution", "each reads the first one's windows", entry=_first_windows_for_all),
    _mutant("overlap_read_dense", "wrong_stride", "overlapping windows read as contiguous", entry=_dense_windows),
    _mutant("entry_transposed", "wrong_stride", "the last two axes of an entry are exchanged", entry=_transposed),
    _mutant("first_block_only", "tail", f"only the first {LAUNCH_BLOCK} cells of an entry arrive", entry=_first_block),
    _mutant("narrowed_on_the_way", "dtype", "a 32-bit state passes through 16 bits", entry=_rounded),
    _mutant("scratch_written", "source_written", "the scratch is cleared after reading", also=_scratch_written),
    _mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements", also=_wrapped_slot),
    _mutant("row_offset_in_32_bits", "wrap", "row times stride wraps at 2^31 elements", entry=_wrapped_row),
)
