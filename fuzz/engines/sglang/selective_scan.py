"""Mamba 2's state update: one token a call, or all drafts of a verify with one state a step.

Rows of a decode that have no token left are null rows, as in a padded batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.memory import Memory
from fuzz.engines.scan_calls import ScanCall
from fuzz.engines.state_buffers import StepScratch, numbers
from oracle.recurrence.selective_scan_case import NONE


def in_place(case: Any) -> str | None:
    if case.operation == "accepted":
        return "keeps one slot a request, and scratch for the steps"
    if case.operation == "decode" and (case.slot[:, 0] != case.destination[:, 0]).any():
        return "stores the next state in the slot that it was read from"
    return None


@adapter(
    contract="recurrence.selective_scan", module="mamba_ssm", symbol="selective_state_update",
    observes=("outside", "kept", "output", "states"), needs=("scan.update",), execution="triton", accepts=in_place,
)  # fmt: skip
def selective_state_update(engine: Any, case: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        call = ScanCall(engine, case, memory)
        return _decode(call) if case.operation == "decode" else _verify(call)


def _decode(call: ScanCall) -> dict[str, Any]:
    """As many calls as the longest request has tokens."""
    rounds = call.rounds()
    outputs = call.outputs(len(rounds), call.rows)
    made = [(call.tokens(at), _slots(call, alive), out) for (at, alive), out in zip(rounds, outputs, strict=True)]
    call.memory.seal()
    for tokens, slots, out in made:
        call.run(_opening(call.engine), tokens, state_batch_indices=slots, out=out)
    return call.decoded(outputs, call.case.slot[:, 0])


def _verify(call: ScanCall) -> dict[str, Any]:
    """Scratch rows are named, as the layer does, and every request has the same number of drafts."""
    case, steps = call.case, int(call.case.length[0])
    entry = case.pool.shape[1:]
    tokens = call.tokens(case.start[:-1, None] + np.arange(steps))
    scratch = StepScratch(call.engine, call.memory, case.rows_before, call.rows, case.steps, entry, case.state_dtype)
    out = call.outputs(call.rows, steps)
    more = {"retrieve_parent_token": call.inputs(case.parent, "int64")} if case.tree else {}
    rows = call.inputs(scratch.rows, "int32", contiguous=True)
    slots = _slots(call, case.length > 0)
    call.memory.seal()
    call.run(
        _opening(call.engine), tokens, state_batch_indices=slots, out=out, disable_state_update=True,
        intermediate_states_buffer=scratch.states, cache_steps=case.steps, intermediate_state_indices=rows, **more,
    )  # fmt: skip
    states = [scratch.read(i, steps) for i in range(call.rows)]
    return call.observed([numbers(o) for o in out], states, (), scratch.changed(case.length))


def _slots(call: ScanCall, alive: np.ndarray) -> Any:
    """Slots of the rows that are ``alive``. The kernel reads them by pointer, and every caller's are contiguous."""
    slots = np.where(alive, call.case.slot[:, 0], NONE)
    return call.inputs([call.pool.place(int(s), NONE) for s in slots], "int32", contiguous=True)


@contextmanager
def _opening(engine: Any) -> Iterator[None]:
    """The wrapper enters its tensors' device, of which a CPU has none; the first releases ask CUDA for it."""
    if engine.device != "cpu":
        yield
        return
    from fuzz.engines import interpreter

    with interpreter.cpu_device_context(), mock.patch.object(engine.torch.cuda, "device", lambda *args: nullcontext()):
        yield
