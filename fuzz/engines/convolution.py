"""A case of recurrence.causal_convolution as tensors, and what a call left in them.

Every buffer lies between guard zones. Slots of nobody hold a number that no case has (NaN in the defensive domain,
where it shows what was read), outputs and scratch hold the poison, and whatever must stay is compared bit for bit
afterwards. A pool slot in the upper half lies behind the case's gap, and inputs behind its idle tokens.
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
FOREIGN = 5.0  # in slots of nobody; inputs and windows stay below
TOKEN_GAP = 8  # elements between the tokens of strided inputs


class Convolution:
    """Pool, weights and scratch of one case.

    ``first_slot``: slots below it belong to the engine (its null block). ``scratch_turned``: a window in the scratch is
    (columns, channels), not (channels, columns).
    """

    def __init__(self, engine: Any, memory: Memory, case: Any, first_slot: int = 0, *, scratch_turned: bool = False):
        self.engine, self.memory, self.case, self.first_slot = engine, memory, case, first_slot
        self.scratch_turned = scratch_turned
        self.torch = engine.torch
        self._watched = Watched(engine.torch)
        self.watch = self._watched.watch
        step = 2 if case.hostile else 1  # what stands beside a slot is then nobody's, and NaN
        self.places = slot_places(case.slots, case.gap, first_slot + step - 1, step)
        self.owned = {i: self.places[s] for i, s in enumerate(case.slot.tolist()) if s != NONE}
        self.pool = self._make_pool()
        self.weight = self.input(case.weight)
        self.bias = self.input(case.bias_values) if case.bias else None
        self.watch(self.weight, *([self.bias] if case.bias else []))
        self.scratch = self._make_scratch() if case.operation == "verify" else None

    @property
    def activation(self) -> str | None:
        return "silu" if self.case.activation == "silu" else None

    def input(self, values: np.ndarray) -> Any:
        """``values`` in the inputs' type, contiguous."""
        return self.engine.tensor(values, self.case.input_dtype, contiguous=True)

    def slots(self, rows: Any, null: int) -> list[int]:
        """Pool slots of rows, by the engine's convention for null rows."""
        return [self.owned.get(i, null) for i in rows]

    def packed(self, rows: list[np.ndarray]) -> tuple[Any, list[int]]:
        """Inputs of a call, [tokens before + tokens, channels], one request behind the other, and where each starts.
        A strided presentation takes them out of wider rows, as a projection of several parts gives them."""
        case, before = self.case, int(self.case.tokens_before)
        starts = np.cumsum([before, *[len(r) for r in rows]]).tolist()
        wide = TOKEN_GAP if self.engine.strided and not before else 0
        whole = self.memory.zeros((1, starts[-1], case.channels + wide), self._dtype(case.input_dtype))
        used = list(range(before, starts[-1]))
        self.memory.know("inputs", whole, used)
        x = whole[0, :, : case.channels]
        x[before:] = self.input(np.concatenate(rows))
        return x, starts

    def output_like(self, x: Any, starts: list[int] | None = None) -> Any:
        """An output buffer laid out like ``x``, poisoned where the call must write; ``starts`` of packed inputs."""
        order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
        whole = self.memory.zeros((1, *[x.shape[d] for d in order]), x.dtype)
        used = whole[:, starts[0] :] if starts else whole
        used.fill_(POISON)
        self.memory.know("outputs", whole, list(range(starts[0], starts[-1])) if starts else None)
        return whole[0].permute([order.index(d) for d in range(x.dim())])

    def observe(self) -> dict[str, Any]:
        """``outside`` and ``kept`` after the call."""
        return {"outside": self.memory.outside() or UNTOUCHED, "kept": self._watched.changed()}

    def state(self) -> list[np.ndarray]:
        """The slot of each request, [channels, columns]; zeros for a null row."""
        nobody = np.zeros(self.pool.shape[1:])
        places = self.slots(range(len(self.case.slot)), NONE)
        return [self.numbers(self.pool[place]) if place != NONE else nobody for place in places]

    def states(self) -> list[np.ndarray]:
        """The windows of each request's steps, [steps, channels, width - 1]; none for a null row or another call."""
        nobody, turned = np.zeros((0, 0, 0)), self.scratch_turned
        rows = self.case.row.tolist()
        windows = [self.numbers(self.scratch[r]) if r != NONE else nobody for r in rows]
        return [w.swapaxes(1, 2) if turned else w for w in windows]

    def numbers(self, tensor: Any) -> np.ndarray:
        return tensor.detach().to(self.torch.float64).cpu().numpy()

    def _make_pool(self) -> Any:
        """[slots, channels, columns] as the kernel sees it."""
        case = self.case
        entry = (case.columns, case.channels) if case.window_first else (case.channels, case.columns)
        whole = self.memory.zeros((1, self.places[-1] + 1 + case.hostile, *entry), self._dtype(case.state_dtype))
        beside = {p + by for p in self.places for by in (-1, 1)} if case.hostile else set()
        every = sorted({*range(self.first_slot), *self.places, *beside})
        self.memory.know("pool", whole, every)
        pool = whole[0].transpose(1, 2) if case.window_first else whole[0]
        pool[every] = float("nan") if case.hostile else FOREIGN
        for i, place in self.owned.items():
            pool[place] = self.engine.tensor(case.lines[i], case.state_dtype, contiguous=True)
        self.watch(*[pool[p] for p in every if p not in self.owned.values()])
        return pool

    def _make_scratch(self) -> Any:
        """[rows, steps, channels, width - 1], one row more than requests have; the windows of a row may overlap."""
        case, own = self.case, self.case.width - 1
        rows, dtype = case.scratch_rows + 1, self._dtype(case.state_dtype)
        window = (own, case.channels) if self.scratch_turned else (case.channels, own)
        shape = (case.channels, case.steps + own - 1) if case.overlapping else (case.steps, *window)
        cells = self.memory.zeros((1, rows, *shape), dtype)
        cells.fill_(POISON)
        self.memory.know("window scratch", cells)
        self.watch(*[cells[0, r] for r in self._idle_rows(rows)])
        if not case.overlapping:
            return cells[0]
        row, channel, column = cells[0].stride()
        shape, strides = (rows, case.steps, case.channels, own), (row, column, channel, column)
        return cells[0].as_strided(shape, strides, cells.storage_offset())

    def _idle_rows(self, rows: int) -> list[int]:
        """Rows of the scratch that the call must leave."""
        return [r for r in range(rows) if r not in self.case.row.tolist()]

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, name)


@contextmanager
def handed_out(torch: Any, *outputs: Any) -> Iterator[None]:
    """``torch.empty`` and ``torch.empty_like`` inside hand out ``outputs``, each to the first request for its shape and
    type: wrappers that allocate their own output then write between guard zones and over a poison. Raises when one is
    left over."""
    left, empty, like = list(outputs), torch.empty, torch.empty_like

    def wanted(shape: tuple[int, ...], dtype: Any) -> Any:
        for k, made in enumerate(left):
            made = made.unsqueeze(-1) if made.dim() < len(shape) else made
            if tuple(made.shape) == tuple(shape) and made.dtype == dtype:
                del left[k]
                return made
        return None

    def empty_(*size: Any, dtype: Any = None, **options: Any) -> Any:
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        made = wanted(shape, dtype)
        return empty(*size, dtype=dtype, **options) if made is None else made

    def empty_like(tensor: Any, **options: Any) -> Any:
        made = wanted(tensor.shape, options.get("dtype", tensor.dtype))
        return like(tensor, **options) if made is None else made

    with mock.patch.object(torch, "empty", empty_), mock.patch.object(torch, "empty_like", empty_like):
        yield
    if left:
        raise AssertionError(f"the wrapper allocated no output of shape {tuple(left[0].shape)}")


def requests_of(case: Any) -> list[np.ndarray]:
    """The inputs of each request, [length, channels]."""
    return np.split(case.x, np.cumsum(case.length)[:-1])


def tree_tables(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First child and next sibling of each token [B, steps], -1 for none, of parents [B, steps] (negative: none)."""
    child, sibling = np.full(parents.shape, NONE, np.int64), np.full(parents.shape, NONE, np.int64)
    for row, line in enumerate(parents):
        last: dict[int, int] = {}  # the youngest child so far, by parent
        for token, parent in enumerate(line.tolist()):
            if parent < 0:
                continue
            if parent in last:
                sibling[row, last[parent]] = token
            else:
                child[row, parent] = token
            last[parent] = token
    return child, sibling
