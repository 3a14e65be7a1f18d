"""One case of recurrence.selective_scan as the tensors that the state updates of two engines take.

Weights come as a layer hands them over: one number a head, expanded without a copy, from
which the wrappers see that they are tied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fuzz.engines.memory import Memory
from fuzz.engines.state_buffers import Inputs, StatePool, numbers, outside
from oracle.recurrence.selective_scan_case import NONE
from oracle.recurrence.words import POISON


class ScanCall:
    """Pool, inputs and outputs of one case. ``reserved``: places of the pool that no request has."""

    def __init__(self, engine: Any, case: Any, memory: Memory, reserved: int = 0):
        self.engine, self.case, self.memory = engine, case, memory
        self.inputs = Inputs(engine)
        self.pool = StatePool(engine, memory, case.pool, case.state_dtype, case.gap, reserved)
        self.rows = len(case.length)
        wide = (case.heads, case.head_dim)
        self._weights = {
            "A": self._weight(case.A, "float32", (*wide, case.state_dim)),
            "D": self._weight(case.D, case.input_dtype, wide),
            "dt_bias": self._weight(case.dt_bias, case.input_dtype, wide),
        }

    def _weight(self, values: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        made = self.inputs(values, dtype)
        return made.reshape(*made.shape, *[1] * (len(shape) - made.dim())).expand(shape) if self.case.tied else made

    def tokens(self, at: Any) -> dict[str, Any]:
        """The tensors of the tokens that stand ``at``, by the names of the wrappers' arguments."""
        case = self.case
        made = {n: self.inputs(getattr(case, n)[at], case.input_dtype) for n in ("x", "dt", "B", "C", "z")}
        if case.tied:
            made["dt"] = made["dt"][..., None].expand(*made["dt"].shape, case.head_dim)
        if not case.gate:
            made["z"] = None
        return made

    def rounds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of a decode: the tokens of each call, and which requests have one; the others are null rows."""
        calls = []
        for t in range(int(self.case.length.max())):
            alive = self.case.length > t
            calls.append((self.case.start[:-1] + np.where(alive, t, 0), alive))
        return calls

    def outputs(self, *rows: int) -> Any:
        """Poisoned outputs, [*rows, heads, head_dim]."""
        shape = (*rows, self.case.heads, self.case.head_dim)
        return self.memory.poisoned(shape, getattr(self.engine.torch, self.case.input_dtype), POISON)

    def run(self, opening: AbstractContextManager[Any], tokens: dict[str, Any], **more: Any) -> None:
        """Call the wrapper inside ``opening``."""
        with opening, self.engine.production():
            self.engine.symbol("scan.update")(
                self.pool.states, dt_softplus=self.case.softplus, **self._weights, **tokens, **more
            )

    def states(self, slots: Any) -> np.ndarray:
        """The states of slots now; 0 for no slot."""
        nothing = np.zeros(self.case.pool.shape[1:], np.float32)
        return np.stack([self.pool.read(int(s)) if s != NONE else nothing for s in slots])

    def decoded(self, outputs: Any, ends: Any) -> dict[str, Any]:
        """What is observed of a decode: ``outputs`` [calls, B, ...], and the slots that hold the states now."""
        output = [numbers(outputs[:n, i]) for i, n in enumerate(self.case.length)]
        return self.observed(output, [self.states([s]) for s in ends], ends)

    def observed(self, output: list[Any], states: list[Any], written: Any, changed: int = 0) -> dict[str, Any]:
        """The fields; ``written``: the slots whose states had to change."""
        kept = self.pool.changed({int(s) for s in written}) + self.inputs.changed() + changed
        return {"outside": outside(self.memory), "kept": kept, "output": output, "states": states}
