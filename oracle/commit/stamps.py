"""Numbers that make a copied state readable.

Every cell of the verify scratch has a positive number and every cell of the pool
a negative one; after a call, each pool cell is read back as the number of the
cell whose contents it holds. A wrong copy then says what it is: "slot 7 holds
the state of row 2 after step 3". Random contents would only say "differs".

In memory a number is a bit pattern of the tensor's own dtype (``to_raw`` and
``from_raw``), because a copy must keep bits, whatever float they spell. A 16-bit
tensor has 65,535 patterns, so its cells are counted by the domain. Pattern 0 is
never given out: it is what untouched memory holds.

Windows of one convolution input slide: with ``overlapping`` windows the window of
step t is inputs t .. t + width - 1 of one shared row, so neighbouring steps share
cells and share their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

OWN = 0  # in an outcome: the cell still holds what it held before
FOREIGN = -(2**62)  # in an outcome: neither a stamp of the scratch nor one of the pool
RAW_DTYPE = {"float32": np.dtype(np.uint32), "bfloat16": np.dtype(np.uint16), "float16": np.dtype(np.uint16)}


@dataclass(frozen=True)
class StateTensor:
    """One pool tensor ``[layers, slots, *entry]`` and its verify scratch.

    entry          shape of one slot's state
    sliding        axis of ``entry`` along which the windows of a row slide, or
                   ``None``: every step has cells of its own
    scratch_start  numbers of scratch cells before this tensor's
    pool_start     numbers of pool cells before this tensor's
    """

    layers: int
    slots: int
    rows: int
    steps: int
    entry: tuple[int, ...]
    sliding: int | None
    scratch_start: int
    pool_start: int

    @property
    def cells(self) -> int:
        """Cells of one entry."""
        return prod(self.entry)

    @property
    def scratch_shape(self) -> tuple[int, ...]:
        """Shape of the scratch as it lies in memory, each cell once."""
        if self.sliding is None:
            return (self.layers, self.rows, self.steps, *self.entry)
        shared = list(self.entry)
        shared[self.sliding] += self.steps - 1
        return (self.layers, self.rows, *shared)

    @property
    def pool_shape(self) -> tuple[int, ...]:
        return (self.layers, self.slots, *self.entry)

    def scratch_numbers(self) -> np.ndarray:
        """The number of every scratch cell, in ``scratch_shape``."""
        first = self.scratch_start + 1
        return np.arange(first, first + prod(self.scratch_shape), dtype=np.int64).reshape(self.scratch_shape)

    def numbers_by_step(self) -> np.ndarray:
        """The number of every cell of every step's entry, [layers, rows, steps,
        *entry]; overlapping windows repeat the cells they share."""
        numbers = self.scratch_numbers()
        if self.sliding is None:
            return numbers
        axis = 2 + self.sliding
        windows = np.lib.stride_tricks.sliding_window_view(numbers, self.entry[self.sliding], axis=axis)
        return np.moveaxis(np.moveaxis(windows, axis, 2), -1, axis + 1)

    def pool_numbers(self) -> np.ndarray:
        """The number of every pool cell, in ``pool_shape``."""
        first = self.pool_start + 1
        return -np.arange(first, first + prod(self.pool_shape), dtype=np.int64).reshape(self.pool_shape)

    def step_numbers(self, layer: int, row: int, step: int) -> np.ndarray:
        """The numbers of the state after ``step`` of ``row``, flattened."""
        strides = np.array([prod(self.scratch_shape[i + 1 :]) for i in range(len(self.scratch_shape))])
        at = layer * strides[0] + row * strides[1]
        if self.sliding is None:
            at, inner = at + step * strides[2], strides[3:]
        else:
            at, inner = at + step * strides[2 + self.sliding], strides[2:]
        cells = np.indices(self.entry).reshape(len(self.entry), -1)
        return self.scratch_start + 1 + at + inner @ cells

    def slot_numbers(self, layer: int, slot: int) -> np.ndarray:
        """The numbers of one slot of the pool, flattened."""
        first = self.pool_start + 1 + (layer * self.slots + slot) * self.cells
        return -np.arange(first, first + self.cells, dtype=np.int64)


def tensors_of(case: Any) -> dict[str, tuple[StateTensor, ...]]:
    """The tensors of a case by outcome field: ``state`` (none when its entry has
    no cells) and ``windows``, one per convolution. ``case`` is the dataclass or
    an adapter's columns."""
    shape = (case.layers, case.slots, case.scratch_rows, case.steps)
    state_entry = tuple(int(n) for n in case.state_entry)
    state = (StateTensor(*shape, state_entry, None, 0, 0),) if prod(state_entry) else ()
    windows: list[StateTensor] = []
    for channels in case.window_channels:
        entry = (case.window_width, int(channels)) if case.window_first else (int(channels), case.window_width)
        sliding = (0 if case.window_first else 1) if case.overlapping else None
        scratch_start, pool_start = totals(windows)
        windows.append(StateTensor(*shape, entry, sliding, scratch_start, pool_start))
    return {"state": state, "windows": tuple(windows)}


def totals(tensors: Any) -> tuple[int, int]:
    """How many scratch and pool cells ``tensors`` have together."""
    return sum(prod(t.scratch_shape) for t in tensors), sum(prod(t.pool_shape) for t in tensors)


def to_raw(numbers: np.ndarray, scratch_total: int, dtype: str) -> np.ndarray:
    """Bit patterns of ``numbers``: scratch cells first, pool cells after them; 0
    is no number and stays the pattern of untouched memory."""
    raw = np.where(numbers >= 0, numbers, scratch_total - numbers)
    return raw.astype(RAW_DTYPE[dtype])


def from_raw(raw: np.ndarray, scratch_total: int, pool_total: int) -> np.ndarray:
    """The numbers behind bit patterns; FOREIGN for a pattern never given out."""
    raw = raw.astype(np.int64)
    numbers = np.where(raw > scratch_total, scratch_total - raw, raw)
    return np.where((raw == 0) | (raw > scratch_total + pool_total), FOREIGN, numbers)


def against_own(numbers: np.ndarray, own: np.ndarray) -> np.ndarray:
    """``numbers`` with OWN wherever a pool cell still holds its own contents."""
    return np.where(numbers == own, OWN, numbers)


def describe(case: Any, field: str, number: int) -> str:
    """What a cell that reads ``number`` holds, in words."""
    if number == OWN:
        return "its old contents"
    if number == FOREIGN:
        return "something that no state ever held"
    for i, tensor in enumerate(tensors_of(case)[field]):
        name = "state" if field == "state" else f"window of convolution {i}"
        index = abs(number) - 1 - (tensor.scratch_start if number > 0 else tensor.pool_start)
        shape = tensor.scratch_shape if number > 0 else tensor.pool_shape
        if not 0 <= index < prod(shape):
            continue
        at = [int(n) for n in np.unravel_index(index, shape)]
        if number < 0:
            return f"the old {name} of slot {at[1]} in layer {at[0]}"
        if tensor.sliding is None:
            return f"the {name} of row {at[1]} after step {at[2]} in layer {at[0]}"
        return f"input {at[2 + tensor.sliding]} of the sliding {name} of row {at[1]} in layer {at[0]}"
    return "something that no state ever held"
