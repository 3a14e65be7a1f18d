"""vLLM's Triton convolution: decode and verify in one call, packed prefills in another.

A verify is the accepted form: a slot's line of inputs stays where it is, and the accepted count of the last verify says
where the window starts. Requests are packed and may be shorter than the longest. State indices are the first column of
a table with one slot a draft token, as the attention metadata hands them over. Null rows name slot 0, or -1 in old
releases. Without an output the call writes over its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.convolution import Convolution, handed_out, requests_of
from fuzz.engines.convolution_prefill import prefill_calls, prefill_outputs
from fuzz.engines.memory import Memory

CONTRACT = "recurrence.causal_convolution"


def update_only(case: Any) -> str | None:
    if case.operation not in ("decode", "accepted"):
        return "decode and the accepted form only"
    return one_dtype(case)


def prefill_only(case: Any) -> str | None:
    return one_dtype(case) if case.operation == "prefill" else "prefill only"


def one_dtype(case: Any) -> str | None:
    return None if case.input_dtype == case.state_dtype else "inputs take the type of the state first"


def _buffers(engine: Any, memory: Memory, case: Any) -> tuple[Convolution, int]:
    null = engine.fact("conv.null_slot")
    return Convolution(engine, memory, case, first_slot=null + 1), null


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_update", observes=("outside", "kept", "output", "state"),
    needs=("conv.update",), execution="triton", accepts=update_only, engine="vllm",
)  # fmt: skip
def update(engine: Any, case: Any) -> dict[str, Any]:
    """In place: what was the input is the output afterwards, also of null rows."""
    return _update(engine, case, in_place=True)


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_update(out)",
    observes=("outside", "kept", "output", "state"), needs=("conv.update_out",), execution="triton",
    accepts=update_only, engine="vllm",
)  # fmt: skip
def update_into(engine: Any, case: Any) -> dict[str, Any]:
    """Into an output of the caller's."""
    return _update(engine, case, in_place=False)


def _update(engine: Any, case: Any, in_place: bool) -> dict[str, Any]:
    rows = range(len(case.slot))
    with Memory(engine.torch, engine.device) as memory:
        buffers, null = _buffers(engine, memory, case)
        x, starts = buffers.packed(requests_of(case))
        table = [[slot, *[null] * (case.steps - 1)] for slot in buffers.slots(rows, null)]
        options = {"conv_state_indices": engine.tensor(table, "int32")[:, 0]}
        if case.operation == "accepted":
            options["num_accepted_tokens"] = engine.tensor(case.accepted, "int32", contiguous=True)
            options["query_start_loc"] = engine.tensor(starts, "int32", contiguous=True)
        buffers.watch(*options.values())
        if case.operation == "accepted":
            options["max_query_len"] = case.steps
        if not in_place:
            buffers.watch(x)
            options["out"] = buffers.output_like(x)
        memory.seal()
        arguments = (x, buffers.pool, buffers.weight, buffers.bias, buffers.activation)
        with engine.production():
            y = engine.symbol("conv.update")(*arguments, **options)
        output = np.split(buffers.numbers(y), starts[1:-1])
        return buffers.observe() | {"output": output, "state": buffers.state()}


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_fn", observes=("outside", "kept", "output", "state"),
    needs=("conv.prefill",), execution="triton", accepts=prefill_only, engine="vllm",
)  # fmt: skip
def prefill(engine: Any, case: Any) -> dict[str, Any]:
    """The wrapper counts the blocks of tokens itself."""
    return _prefill(engine, case, lambda starts: None)


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_fn(metadata)",
    observes=("outside", "kept", "output", "state"), needs=("conv.prefill", "conv.metadata"), execution="triton",
    accepts=prefill_only, engine="vllm",
)  # fmt: skip
def prefill_by_metadata(engine: Any, case: Any) -> dict[str, Any]:
    """Blocks of tokens counted by the metadata builder, as the models call it."""

    def metadata(starts: list[int]) -> Any:
        locations = engine.torch.tensor(starts, dtype=engine.torch.int32)
        with _host_tensors(engine):
            counts, rows, offsets = engine.symbol("conv.metadata")(locations, device=engine.torch.device(engine.device))
        return ClosedStub("metadata", nums_dict=counts, batch_ptr=rows, token_chunk_offset_ptr=offsets)

    return _prefill(engine, case, metadata)


@contextmanager
def _host_tensors(engine: Any) -> Iterator[None]:
    """On a CPU nothing is pinned, and the grid function, which fills a table, gets tensors."""
    if engine.device != "cpu":
        yield
        return
    from fuzz.engines import interpreter

    interpreter.grid_of_host_arguments()
    with interpreter.no_pinning():
        yield


def _prefill(engine: Any, case: Any, metadata: Any) -> dict[str, Any]:
    if engine.fact("conv.window_first_only") and not case.window_first:
        raise Unsupported("this version's prefill asserts that channels lie side by side in the pool")
    with Memory(engine.torch, engine.device) as memory:
        buffers, null = _buffers(engine, memory, case)
        calls, made = prefill_calls(buffers, null, strided_indices=True), []
        options = [c.options | {"metadata": metadata(c.starts)} for c in calls]
        memory.seal()
        handed = handed_out(engine.torch, *[c.out.t() for c in calls])
        with _host_tensors(engine), handed, engine.production():
            for call, keywords in zip(calls, options, strict=True):
                arguments = (call.x.t(), buffers.weight, buffers.bias, buffers.pool)
                made.append(engine.symbol("conv.prefill")(*arguments, **keywords))
        return buffers.observe() | {"output": prefill_outputs(buffers, calls, made), "state": buffers.state()}
