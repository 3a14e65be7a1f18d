"""A case of a delta rule as tensors, and what a call left in them.

Pools and scratch lie as [slots, value heads, V, K], the order of every kernel seen; the contract's order is [.., K, V].
Slots nobody writes, inputs and the unused steps of a scratch row are compared bit for bit afterwards. Outputs that a
wrapper allocates by itself lie between guard zones and hold a poison at first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any
from unittest import mock

import numpy as np

from fuzz.engines.memory import Memory, Watched, slot_places
from oracle.recurrence.delta_case import NONE
from oracle.recurrence.words import POISON, UNTOUCHED

ENTRY_GAP = 8  # elements between the slots of a strided pool
TOKEN_GAP = 8  # elements between the tokens of strided inputs
GATE_INPUTS = ("a", "b")
TOKEN_TENSORS = ("q", "k", "v", *GATE_INPUTS, "g", "beta")


@dataclass(frozen=True)
class Call:
    """One call of a case: its tokens' tensors by name, all requests one behind the other; ``start`` (host) are the
    token offsets of the requests in them, and ``tokens`` the places of these tokens in the case's own order."""

    tensors: dict[str, Any]
    start: list[int]
    tokens: np.ndarray


class Delta:
    """Pool, scratch and inputs of one case.

    ``first_slot``: slots below it belong to the engine (its null block). What the target takes, where the presentation
    asks for it: ``strided_pool``, pools whose slots lie apart; ``strided_tokens``, q, k, v as parts of wider rows, and
    ``strided_gates``, gate inputs too.
    """

    def __init__(
        self,
        engine: Any,
        memory: Memory,
        case: Any,
        *,
        first_slot: int = 0,
        strided_pool: bool = False,
        strided_tokens: bool = False,
        strided_gates: bool = False,
    ):
        self.engine, self.memory, self.case, self.torch = engine, memory, case, engine.torch
        self._wide = (
            ("q", "k", "v", *(GATE_INPUTS if strided_gates else ())) if strided_tokens and engine.strided else ()
        )
        self._watched = Watched(engine.torch)
        self.watch = self._watched.watch
        self.places = slot_places(case.slots, case.gap, first_slot)
        self.heads, self.keys, self.values = case.value_heads, case.key_dim, case.value_dim
        self.entry = (self.heads, self.values, self.keys)  # of a slot in memory
        self.pool = self._make_pool(first_slot, strided_pool and engine.strided and not case.gap)
        self.scratch = self._make_scratch() if case.operation == "verify" else None
        names = [n for n in ("A_log", "dt_bias") if hasattr(case, n)]
        self.weights = {n: self._guarded(getattr(case, n), "float32") for n in names}

    @property
    def null(self) -> np.ndarray:
        """Which requests are null rows."""
        return (self.case.slot == NONE) & (self.case.table.max(axis=1, initial=NONE) == NONE)

    def calls(self) -> list[Call]:
        """The case's call, or its two when it is split."""
        case = self.case
        first = np.minimum(case.length, case.split) if case.split else case.length
        parts = [(case.start[:-1], case.start[:-1] + first)]
        if case.split:
            parts.append((case.start[:-1] + first, case.start[1:]))
        return [self._call(low, high) for low, high in parts if (high > low).any()]

    def index(self, values: Any, *, null: int = NONE) -> Any:
        """Slots as the pool's places, contiguous, in the case's integer type; -1 becomes ``null``."""
        places = [self.places[s] if s != NONE else null for s in np.ravel(values).tolist()]
        return self.integers(np.reshape(places, np.shape(values)), self.case.index_dtype)

    def integers(self, values: Any, dtype: str) -> Any:
        """An integer argument that the call must not change."""
        tensor = self.engine.tensor(values, dtype, contiguous=True)
        self.watch(tensor)
        return tensor

    def rows(self) -> Any:
        """Scratch rows of the requests; -1 for none."""
        rows = [r if r == NONE else r + self.case.row_gap for r in self.case.row.tolist()]
        return self.integers(rows, self.case.index_dtype)

    def parents(self) -> Any | None:
        """Parents [B, longest request], or ``None`` for chains."""
        return self.integers(self.case.parents, "int64") if self.case.tree else None

    def gathered(self, *, fresh: bool = False) -> Any:
        """The states of the requests side by side, [B, value heads, V, K], for kernels that know no slots; 0 for null
        rows."""
        states = self.memory.zeros((len(self.case.slot), *self.entry), self.pool.dtype)
        for i, slot in enumerate(self.case.slot.tolist()):
            if slot != NONE and not fresh:
                states[i] = self.pool[self.places[slot]]
        self.memory.know("gathered states", states)
        return states

    @contextmanager
    def poisoned_outputs(self) -> Iterator[None]:
        """Tensors that wrappers make with ``new_empty`` are poisoned and guarded."""
        memory, original = self.memory, self.torch.Tensor.new_empty

        def new_empty(tensor: Any, *size: Any, dtype: Any = None, **options: Any) -> Any:
            shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
            if not prod(shape):  # the interpreter makes one for every argument and then gives it another storage
                return original(tensor, shape, dtype=dtype, **options)
            return memory.poisoned(shape, dtype or tensor.dtype, POISON)

        with mock.patch.object(self.torch.Tensor, "new_empty", new_empty):
            yield

    def observe(self, outputs: list[tuple[Call, Any]], state: list[Any] | None = None) -> dict[str, Any]:
        """All fields, from each call's outputs [tokens, value heads, V] (or any shape of these cells). ``state``: where
        the kernel knows no slots, each request's state [value heads, V, K]."""
        case = self.case
        joined = np.zeros((int(case.start[-1]), self.heads, self.values))
        for call, output in outputs:
            joined[call.tokens] = self.numbers(output).reshape(-1, self.heads, self.values)
        return {
            "outside": self.memory.outside() or UNTOUCHED,
            "kept": self._watched.changed(),
            "output": [joined[a:b] for a, b in zip(case.start[:-1], case.start[1:], strict=True)],
            "states": [self._states(i) for i in range(len(case.slot))],
            "state": [self._state(i) if state is None else self._turned(state[i]) for i in range(len(case.slot))],
        }

    def numbers(self, tensor: Any) -> np.ndarray:
        return tensor.detach().to(self.torch.float64).cpu().numpy()

    def _turned(self, tensor: Any) -> np.ndarray:
        """From the order in memory to the contract's."""
        return np.swapaxes(self.numbers(tensor), -1, -2)

    def _state(self, i: int) -> np.ndarray:
        slot = int(self.case.slot[i])
        if self.case.operation == "accepted":
            return np.zeros((0, self.keys, self.values))
        return (
            np.zeros((self.heads, self.keys, self.values))
            if slot == NONE
            else self._turned(self.pool[self.places[slot]])
        )

    def _states(self, i: int) -> np.ndarray:
        case, length = self.case, int(self.case.length[i])
        states = np.zeros(
            (length if case.operation in ("verify", "accepted") else 0, self.heads, self.keys, self.values)
        )
        if case.operation == "verify" and case.row[i] != NONE:
            return self._turned(self.scratch[int(case.row[i]) + case.row_gap, :length])
        if case.operation == "accepted":
            for step, slot in enumerate(case.table[i, :length].tolist()):
                if slot != NONE:
                    states[step] = self._turned(self.pool[self.places[slot]])
        return states

    def _make_pool(self, first_slot: int, strided: bool) -> Any:
        case, cells = self.case, prod(self.entry)
        count, dtype = self.places[-1] + 1, self._dtype(case.state_dtype)
        if strided:
            pool = self.memory.zeros((count, cells + ENTRY_GAP), dtype)[:, :cells].unflatten(1, self.entry)
        else:
            pool = self.memory.zeros((count, *self.entry), dtype)
        self.memory.know("state pool", pool[None], [*range(first_slot), *self.places])
        pool[self.places] = self.engine.tensor(np.swapaxes(case.pool, -1, -2), case.state_dtype, contiguous=True)
        written = {*case.slot.tolist(), *case.table.ravel().tolist()}
        own = [place for slot, place in enumerate(self.places) if slot not in written]
        self.watch(*[pool[place] for place in [*range(first_slot), *own]], *self._unreached(pool))
        return pool

    def _unreached(self, pool: Any) -> list[Any]:
        """Slots of a table behind the steps of this call."""
        case = self.case
        behind = [case.table[i, n:] for i, n in enumerate(case.length.tolist()) if case.operation == "accepted"]
        return [pool[self.places[s]] for row in behind for s in row.tolist() if s != NONE]

    def _make_scratch(self) -> Any:
        """[rows, steps, value heads, V, K], one row more than there are."""
        case = self.case
        rows = range(case.row_gap, case.row_gap + case.rows)
        scratch = self.memory.zeros((rows.stop + 1, case.steps, *self.entry), self._dtype(case.state_dtype))
        self.memory.know("verify scratch", scratch[None], list(rows))
        if rows:
            scratch[rows.start : rows.stop] = POISON
        used = dict(zip(case.row.tolist(), case.length.tolist(), strict=True))
        self.watch(*[scratch[case.row_gap + row, used.get(row, 0) :] for row in range(case.rows)])
        return scratch

    def _call(self, low: np.ndarray, high: np.ndarray) -> Call:
        tokens = np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)]).astype(np.int64)
        start = [0, *np.cumsum(high - low).tolist()]
        tensors = {
            n: self._token_tensor(n, getattr(self.case, n)[tokens]) for n in TOKEN_TENSORS if hasattr(self.case, n)
        }
        return Call(tensors, start, tokens)

    def _token_tensor(self, name: str, values: np.ndarray) -> Any:
        dtype = "float32" if name in ("g", "beta") else self.case.input_dtype
        if name not in self._wide:
            return self._guarded(values, dtype)
        cells = prod(values.shape[1:])
        wide = self.memory.zeros((len(values), cells + TOKEN_GAP), self._dtype(dtype)).fill_(POISON)
        view = wide[:, :cells].unflatten(1, values.shape[1:])
        self.memory.know(name, view[None])
        view.copy_(self.engine.tensor(values, dtype, contiguous=True))
        self.watch(view)
        return view

    def _guarded(self, values: np.ndarray, dtype: str) -> Any:
        """An input between guard zones."""
        tensor = self.memory.zeros(values.shape, self._dtype(dtype))
        tensor.copy_(self.engine.tensor(values, dtype, contiguous=True))
        self.memory.know("an input", tensor)
        self.watch(tensor)
        return tensor

    def _dtype(self, name: str) -> Any:
        return getattr(self.torch, name)
