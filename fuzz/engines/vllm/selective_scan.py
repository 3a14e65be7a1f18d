"""Mamba 2's state update in vLLM: one token a call, or a round of a request that owns one slot a step.

Which slot number stands for a null row is a fact of the release.
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
from fuzz.engines.state_buffers import numbers
from oracle.recurrence.selective_scan_case import NONE


@adapter(
    engine="vllm", contract="recurrence.selective_scan", module="mamba_ssm", symbol="selective_state_update",
    observes=("outside", "kept", "output", "states"), needs=("scan.update", "scan.module"), execution="triton",
    accepts=lambda case: "its verify stores states in the request's own slots" if case.operation == "verify" else None,
)  # fmt: skip
def selective_state_update(engine: Any, case: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        # Where slot 0 stands for a null row, no request has it.
        call = ScanCall(engine, case, memory, reserved=1 if engine.fact("scan.null_slot") == 0 else 0)
        return _decode(call) if case.operation == "decode" else _accepted(call)


def _decode(call: ScanCall) -> dict[str, Any]:
    """As many calls as the longest request has tokens; from the second on a state is where the first left it."""
    case = call.case
    rounds = call.rounds()
    outputs = call.outputs(len(rounds), call.rows)
    ends, made = case.destination[:, 0], []
    for t, (at, alive) in enumerate(rounds):
        source = ends if t else case.slot[:, 0]
        slots, destinations = (_table(call, np.where(alive, s, NONE)) for s in (source, ends))
        made.append((call.tokens(at), slots, destinations, outputs[t]))
    call.memory.seal()
    for tokens, slots, destinations, out in made:
        _run(call, tokens, state_batch_indices=slots, dst_state_batch_indices=destinations, out=out)
    return call.decoded(outputs, ends)


def _accepted(call: ScanCall) -> dict[str, Any]:
    """All tokens in one call, packed. The kernel reads counts and offsets by pointer."""
    case = call.case
    out, tokens = call.outputs(int(case.start[-1])), call.tokens(slice(None))
    slots, destinations = _table(call, case.slot), _table(call, case.destination)
    counts, starts = (call.inputs(v, "int32", contiguous=True) for v in (case.accepted, case.start))
    call.memory.seal()
    _run(
        call, tokens, state_batch_indices=slots, dst_state_batch_indices=destinations, out=out,
        num_accepted_tokens=counts, cu_seqlens=starts,
    )  # fmt: skip
    own = [case.destination[i, :n] for i, n in enumerate(case.length)]
    output = [numbers(out[a:b]) for a, b in zip(case.start[:-1], case.start[1:], strict=True)]
    return call.observed(output, [call.states(slots) for slots in own], np.concatenate(own))


def _table(call: ScanCall, slots: np.ndarray) -> Any:
    nobody = call.engine.fact("scan.null_slot")
    places = [call.pool.place(int(s), nobody) for s in slots.ravel()]
    return call.inputs(np.array(places).reshape(slots.shape), "int32")


def _run(call: ScanCall, tokens: dict[str, Any], **more: Any) -> None:
    call.run(_without_device(call.engine) if call.engine.device == "cpu" else nullcontext(), tokens, **more)


@contextmanager
def _without_device(engine: Any) -> Iterator[None]:
    """The wrapper enters its tensors' device and, from some release on, looks for launch settings by
    the device's name; a CPU has neither. Without a file of that name it launches by its own defaults."""
    with (
        mock.patch.object(engine.torch.accelerator, "device_index", lambda *args: nullcontext()),
        mock.patch.object(engine.symbol("scan.module"), "get_ssm_device_name", lambda: "no_device", create=True),
    ):
        yield
