"""A case of commit.state_scatter as tensors, and the pool read back as numbers.

Slots, rows and cells keep their meaning whatever the layout: the upper half of
the slots lies behind the case's gap, scratch rows stand where the target will
look for them, and numbers become bit patterns of each tensor's dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.engines.memory import Memory, bits, slot_places
from oracle.commit import stamps
from oracle.commit.state_case import NONE
from oracle.commit.state_scatter import UNTOUCHED

ENTRY_GAP = 8  # elements between the entries of a strided pool
SPARE_ROWS = 1  # the engine allocates one scratch row more than it has requests
NAMES = {"state": "recurrent state", "windows": "convolution windows"}


class CommitState:
    """Pools, scratch and index tensors of one case.

    ``strided_pool``: this version of the target takes pools whose slots and
    layers are not contiguous, as when all layers share one buffer; the
    presentation decides whether it gets one.
    """

    def __init__(self, engine: Any, memory: Memory, case: Any, *, strided_pool: bool = False):
        self.engine, self.memory, self.case = engine, memory, case
        self.strided = strided_pool and engine.strided and not case.gap
        self.tensors = stamps.tensors_of(case)
        self.pools: dict[str, list[Any]] = {"state": [], "windows": []}
        self._scratch: list[tuple[Any, Any]] = []  # cells and what they held
        self.places = slot_places(case.slots, case.gap)
        self.rows_in_memory = case.rows_before + max(case.scratch_rows, len(case.slot)) + SPARE_ROWS

    def dtype(self, field: str) -> Any:
        return getattr(self.engine.torch, self._dtype_name(field))

    def _dtype_name(self, field: str) -> str:
        return self.case.state_dtype if field == "state" else self.case.window_dtype

    def make_pools(self, field: str) -> list[Any]:
        """The pool tensors of a field, [layers, slots, *entry], filled."""
        for tensor in self.tensors[field]:
            self.fill_pool(field, tensor, self._new_pool(field, tensor))
        return self.pools[field]

    def make_scratch(self, field: str) -> list[Any]:
        """The scratch of a field as the engine sees it, [layers, rows, steps,
        *entry]; overlapping windows are views over shared inputs."""
        made = []
        for tensor in self.tensors[field]:
            layers, _, *rest = tensor.scratch_shape
            cells = self.memory.zeros((layers, self.rows_in_memory, *rest), self.dtype(field))
            self.fill_scratch(field, cells, tensor.scratch_numbers())
            made.append(cells if tensor.sliding is None else windows_of(cells, tensor))
        return made

    def _new_pool(self, field: str, tensor: stamps.StateTensor) -> Any:
        slots = self.places[-1] + 1
        if not self.strided:
            return self.memory.zeros((tensor.layers, slots, *tensor.entry), self.dtype(field))
        wide = self.memory.zeros((slots, tensor.layers, tensor.cells + ENTRY_GAP), self.dtype(field))
        return wide[:, :, : tensor.cells].unflatten(2, tensor.entry).transpose(0, 1)

    def fill_pool(self, field: str, tensor: stamps.StateTensor, pool: Any) -> None:
        """Give every cell of ``pool``, allocated in this call's memory, its number."""
        self.memory.know(f"pool of the {NAMES[field]}", pool, self.places)
        bits(self.engine.torch, pool)[:, self.places] = self._patterns(field, tensor.pool_numbers())
        self.pools[field].append(pool)

    def fill_scratch(self, field: str, cells: Any, numbers: np.ndarray) -> None:
        """Put ``numbers`` [layers, rows, ...] into ``cells``, scratch that does not
        overlap itself, with the rows in the order in which the target reads."""
        first, places = self.case.rows_before, cells.shape[1]
        self.memory.know(f"scratch of the {NAMES[field]}", cells, list(range(first, places)))
        nobody = np.zeros((numbers.shape[0], 1, *numbers.shape[2:]), np.int64)
        order = self._row_order()
        order += [len(numbers[0])] * (places - first - len(order))
        used = bits(self.engine.torch, cells)[:, first:]
        used.copy_(self._patterns(field, np.concatenate([numbers, nobody], axis=1)[:, order]))
        self._scratch.append((used, used.clone()))

    def _row_order(self) -> list[int]:
        """Scratch row of the case at each place behind ``rows_before``. A target
        that reads row i of the batch from place i gets it there; padding gets
        the row after the last, which has no numbers."""
        every = range(self.case.scratch_rows)
        if self.case.indexed_source:
            return list(every)
        read = [int(r) if r != NONE else self.case.scratch_rows for r in self.case.source_row]
        return read + [r for r in every if r not in read]

    def _patterns(self, field: str, numbers: np.ndarray) -> Any:
        """``numbers`` as the integer tensor that has their bit patterns."""
        scratch_total, _ = stamps.totals(self.tensors[field])
        raw = stamps.to_raw(numbers, scratch_total, self._dtype_name(field))
        return self.engine.torch.from_numpy(raw.view(f"i{raw.dtype.itemsize}")).to(self.engine.device)

    def index(self, name: str, *, contiguous: bool = False, tail: int = 0) -> Any:
        """An index tensor of the batch, idle rows first and ``tail`` of them last:
        ``slot``, ``step``, ``track_slot``, ``track_step``, or ``source``, the
        places of the scratch rows."""
        case = self.case
        idle, dtype = NONE, case.step_dtype
        if name == "source":
            idle, dtype = 0, "int64"
            values = [case.rows_before + max(r, 0) for r in case.source_row.tolist()]
        elif name.endswith("slot"):
            dtype = case.slot_dtype if name == "slot" else case.track_dtype
            values = [self.places[s] if s != NONE else NONE for s in getattr(case, name).tolist()]
        else:
            values = getattr(case, name).tolist()
        values = [idle] * case.rows_before + values + [idle] * tail
        return self.engine.tensor(values, dtype, contiguous=contiguous)

    def observe(self, *fields: str) -> dict[str, Any]:
        """After the call: ``outside``, ``source_changed`` and the named arrays."""
        observed: dict[str, Any] = {
            "outside": self.memory.outside() or UNTOUCHED,
            "source_changed": sum(int((now != was).sum()) for now, was in self._scratch),
        }
        return observed | {field: self._read(field) for field in fields}

    def _read(self, field: str) -> np.ndarray:
        shape = (self.case.layers, self.case.slots, -1)
        parts = [np.zeros((*shape[:2], 0), np.int64)]
        for tensor, pool in zip(self.tensors[field], self.pools[field], strict=True):
            held = bits(self.engine.torch, pool)[:, self.places].cpu().numpy()
            numbers = stamps.from_raw(held.view(f"u{held.dtype.itemsize}"), *stamps.totals(self.tensors[field]))
            parts.append(stamps.against_own(numbers, tensor.pool_numbers()).reshape(shape))
        return np.concatenate(parts, axis=2)


def windows_of(cells: Any, tensor: stamps.StateTensor) -> Any:
    """Overlapping windows [layers, rows, steps, *entry] over shared inputs."""
    layer, row, *inner = cells.stride()
    shape = (*cells.shape[:2], tensor.steps, *tensor.entry)
    return cells.as_strided(shape, (layer, row, inner[tensor.sliding], *inner), cells.storage_offset())
