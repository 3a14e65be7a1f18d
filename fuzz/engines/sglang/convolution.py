"""SGLang's Triton convolution: one call for decode and verify, one for packed prefills.

The pool of a linear-attention model lies as (channels, columns) or, for KDA, the other way round; both wrappers take
strides. Verify hands over one row of windows a request; a tree comes as first child and next sibling, and the kernel
leaves the parents for the recurrent kernel that follows. The rolling form with accepted counts has no caller in
SGLang's own backends in any release: it came with the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.convolution import Convolution, handed_out, requests_of, tree_tables
from fuzz.engines.convolution_prefill import prefill_calls, prefill_outputs
from fuzz.engines.memory import Memory

CONTRACT = "recurrence.causal_convolution"
NULL_SLOT = -1
WRITTEN = ("intermediate_conv_window", "retrieve_parent_token")


def one_step_count(case: Any) -> str | None:
    """Rows of an update all have the same number of tokens."""
    if case.operation == "prefill":
        return "decode, verify and the accepted form only"
    return None if (case.length == case.steps).all() else "every row has as many tokens as there are steps"


def prefill_only(case: Any) -> str | None:
    return None if case.operation == "prefill" else "prefill only"


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_update",
    observes=("outside", "kept", "output", "states", "state", "parents"), needs=("conv.update",), execution="triton",
    accepts=one_step_count,
)  # fmt: skip
def update(engine: Any, case: Any) -> dict[str, Any]:
    """Inputs as the backends have them: [rows, channels] to decode, else [rows, steps, channels] turned round."""
    rows = len(case.slot)
    with Memory(engine.torch, engine.device) as memory:
        buffers = Convolution(engine, memory, case)
        x, _ = buffers.packed(requests_of(case))
        buffers.watch(x)
        if case.operation != "decode":
            x = x.unflatten(0, (rows, case.steps)).transpose(1, 2)
        out = buffers.output_like(x)
        options = _options(engine, case, buffers)
        buffers.watch(*[t for name, t in options.items() if name not in WRITTEN])
        memory.seal()
        arguments = (x, buffers.pool, buffers.weight, buffers.bias, buffers.activation)
        with handed_out(engine.torch, out), engine.production():
            y = engine.symbol("conv.update")(*arguments, **options)
        y = buffers.numbers(y).reshape(rows, case.channels, case.steps)
        parents = options.get("retrieve_parent_token")
        return buffers.observe() | {
            "output": list(y.transpose(0, 2, 1)),
            "states": buffers.states(),
            "state": buffers.state(),
            "parents": [parents[i, 1:].tolist() if case.branched[i] else [] for i in range(rows)],
        }


def _options(engine: Any, case: Any, buffers: Convolution) -> dict[str, Any]:
    options = {"conv_state_indices": engine.tensor(buffers.slots(range(len(case.slot)), NULL_SLOT), "int32")}
    if case.operation == "accepted":
        options[engine.fact("conv.accepted_argument")] = engine.tensor(case.accepted, "int32", contiguous=True)
    if case.operation == "verify":
        options["intermediate_conv_window"] = buffers.scratch
        options["intermediate_state_indices"] = engine.tensor(np.maximum(case.row, 0), "int32")
    if case.tree:
        child, sibling = tree_tables(case.parents)
        options["retrieve_next_token"] = engine.tensor(child, "int64")
        options["retrieve_next_sibling"] = engine.tensor(sibling, "int64")
        options["retrieve_parent_token"] = engine.torch.full_like(options["retrieve_next_token"], -7)
    return options


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_fn", observes=("outside", "kept", "output", "state"),
    needs=("conv.prefill",), execution="triton", accepts=prefill_only,
)  # fmt: skip
def prefill(engine: Any, case: Any) -> dict[str, Any]:
    """Packed tokens with the channels side by side, as the projection leaves them."""
    return _prefill(engine, case, lambda lengths: {})


@adapter(
    contract=CONTRACT, module="conv", symbol="causal_conv1d_fn(block_table)",
    observes=("outside", "kept", "output", "state"), needs=("conv.prefill", "conv.block"), execution="triton",
    accepts=prefill_only,
)  # fmt: skip
def prefill_by_table(engine: Any, case: Any) -> dict[str, Any]:
    """As a captured graph launches it: a table of (row, block of tokens) with idle entries behind."""
    block = engine.symbol("conv.block")

    def table(lengths: list[int]) -> dict[str, Any]:
        pairs = [(row, b) for row, n in enumerate(lengths) for b in range(-(-n // block))]
        return {"block_table": engine.tensor([*pairs, (NULL_SLOT, 0), (NULL_SLOT, 0)], "int32", contiguous=True)}

    return _prefill(engine, case, table)


def _prefill(engine: Any, case: Any, more: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        buffers = Convolution(engine, memory, case)
        calls, made = prefill_calls(buffers, NULL_SLOT, strided_indices=False), []
        lengths = [[last - first for _, first, last in call.rows] for call in calls]
        options = [c.options | {"seq_lens_cpu": n} | more(n) for c, n in zip(calls, lengths, strict=True)]
        memory.seal()
        with handed_out(engine.torch, *[c.out.t() for c in calls]), engine.production():
            for call, keywords in zip(calls, options, strict=True):
                arguments = (call.x.t(), buffers.weight, buffers.bias, buffers.pool)
                made.append(engine.symbol("conv.prefill")(*arguments, **keywords))
        return buffers.observe() | {"output": prefill_outputs(buffers, calls, made), "state": buffers.state()}
