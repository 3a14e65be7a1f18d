"""Pools and scratch of recurrent states for one call of a kernel, and what became of them.

Slots keep their meaning whatever the layout: the upper half of them lies behind the
case's gap, and an engine may keep slot 0 for nobody. What a kernel may read is compared
with a copy afterwards, cell by cell, and what it must write is poisoned before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from fuzz.engines.memory import Memory, Watched, slot_places
from oracle.recurrence.words import POISON, UNTOUCHED

NONE = -1


class StatePool:
    """The states of all slots, [places, *entry].

    ``values`` [slots, *entry] are the contents, float64 and representable in ``dtype``;
    ``reserved`` places at the front belong to the engine.
    """

    def __init__(self, engine: Any, memory: Memory, values: np.ndarray, dtype: str, gap: int, reserved: int = 0):
        self.places = slot_places(len(values), gap, reserved)
        whole = memory.zeros((1, self.places[-1] + 1, *values.shape[1:]), getattr(engine.torch, dtype))
        memory.know("pool of states", whole, self.places)
        self.states = whole[0]
        self.states[self.places] = engine.tensor(values, dtype, contiguous=True)
        self._before = self.states[self.places].clone()

    def place(self, slot: int, nobody: int) -> int:
        """Where a slot lies; ``nobody`` for a null row's."""
        return nobody if slot == NONE else self.places[slot]

    def read(self, slot: int) -> np.ndarray:
        """A slot's state now, float32."""
        return self.states[self.places[slot]].float().cpu().numpy()

    def changed(self, written: set[int]) -> int:
        """Cells that changed of slots other than those that had to be ``written``."""
        kept = [s for s in range(len(self.places)) if s not in written]
        now = self.states[[self.places[s] for s in kept]]
        return int((now != self._before[kept]).sum())


class StepScratch:
    """One state a step for each row of the batch, [rows, steps, *entry], poisoned, behind ``before`` idle rows."""

    def __init__(self, engine: Any, memory: Memory, before: int, rows: int, steps: int, entry: Any, dtype: str):
        self.rows = list(range(before, before + rows))
        whole = memory.zeros((1, before + rows, steps, *entry), getattr(engine.torch, dtype))
        memory.know("scratch of step states", whole, self.rows)
        self.states = whole[0]
        self.states[before:] = POISON

    def read(self, row: int, steps: int) -> np.ndarray:
        """The first states of a row, float32."""
        return self.states[self.rows[row], :steps].float().cpu().numpy()

    def changed(self, steps: Any) -> int:
        """Cells that changed behind each row's own ``steps``."""
        return sum(int((self.states[row, own:] != POISON).sum()) for row, own in zip(self.rows, steps, strict=True))


class Inputs(Watched):
    """Tensors that a kernel may only read."""

    def __init__(self, engine: Any):
        super().__init__(engine.torch)
        self._engine = engine

    def __call__(self, values: Any, dtype: str, *, contiguous: bool = False) -> Any:
        """A tensor laid out as the presentation asks."""
        made = self._engine.tensor(values, dtype, contiguous=contiguous)
        self.watch(made)
        return made


def numbers(tensor: Any) -> np.ndarray:
    """A tensor's values, float32."""
    return tensor.detach().float().cpu().numpy()


class Allocations:
    """Outputs that production allocates itself: poisoned, and between guard zones.

    Inside ``watched`` the factories that it uses, ``torch.empty`` and ``torch.empty_like``, hand them out.
    """

    def __init__(self, engine: Any):
        self._engine = engine
        self._memories: list[Memory] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        torch = self._engine.torch
        plain = torch.empty

        def empty(*shape: Any, dtype: Any = None, **options: Any) -> Any:
            if dtype is None or not dtype.is_floating_point or options.keys() - {"device"}:
                return plain(*shape, dtype=dtype, **options)
            return self._guarded(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape, dtype)

        with (
            mock.patch.object(torch, "empty", empty),
            mock.patch.object(torch, "empty_like", lambda tensor: self._guarded(tensor.shape, tensor.dtype)),
        ):
            yield

    def _guarded(self, shape: Any, dtype: Any) -> Any:
        self._memories.append(Memory(self._engine.torch, self._engine.device))
        tensor = self._memories[-1].poisoned(tuple(shape), dtype, POISON)
        self._memories[-1].seal()
        return tensor

    def outside(self) -> str:
        """Where anything but the outputs' own cells changed, in words; empty when nothing did."""
        return "; ".join(filter(None, (memory.outside() for memory in self._memories)))


def outside(memory: Memory, allocations: Allocations | None = None) -> str:
    """The ``outside`` field."""
    found = [memory.outside(), allocations.outside() if allocations else ""]
    return "; ".join(filter(None, found)) or UNTOUCHED
