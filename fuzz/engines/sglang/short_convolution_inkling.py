"""Inkling's short convolution in SGLang: packed tokens, the slot's line afterwards, both in one for decoding, and the
lines of a verify.

The pool lies as (columns, channels). On a CPU the Triton kernels run; on a GPU bfloat16 with an even number of channels
goes to CUDA kernels that the wrappers choose. An autotuned kernel keeps its first configuration on both: choosing one
would compile dozens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.convolution import handed_out
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.short_convolution import CONTRACT, NULL_SLOT, Lines, only

FORMS = ("own_residual", "plain")
DTYPES = ("float32", "bfloat16", "float16")


def _module(engine: Any) -> Any:
    from fuzz.engines import interpreter

    module = engine.symbol("inkling.module")
    interpreter.single_configuration(module)
    return module


def _options(case: Any) -> dict[str, Any]:
    return {"activation": "silu" if case.activation == "silu" else None, "use_residual": case.form == "own_residual"}


def _flags(engine: Any, case: Any) -> Any:
    return engine.tensor(case.initial, "bool", contiguous=True)


@adapter(
    contract=CONTRACT, module="inkling_sconv", symbol="causal_conv1d", observes=("outside", "kept", "output"),
    needs=("inkling.module",), execution="triton", accepts=only(FORMS, ("decode", "prefill"), DTYPES, dilation=1),
)  # fmt: skip
def convolution(engine: Any, case: Any) -> dict[str, Any]:
    """The outputs alone; the engine's own function makes what it is told about the batch."""
    module, rows = _module(engine), len(case.slot)
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_SLOT, turned=True)
        (x,), indices, starts = lines.packed_parts("x"), lines.indices("int32"), lines.starts("int32")
        about = (lines.case.width, indices, _flags(engine, case))
        if case.operation == "decode":
            told = module.precompute_helion_decode_metadata(rows, *about)
        else:
            told = module.precompute_helion_extend_metadata(rows, len(case.x), *about, starts)
        lines.watch(*[lines.pool[place] for place in lines.owned.values()])
        out = lines.output_like(x)
        options = _options(case) | dict(told) | {"is_decode": case.operation == "decode"}
        memory.seal()
        with handed_out(engine.torch, out), engine.production():
            y = module.causal_conv1d(x, lines.weight, lines.pool.transpose(1, 2), **options)
        return lines.observe() | {"output": lines.split(y)}


@adapter(
    contract=CONTRACT, module="inkling_sconv", symbol="update_sconv_cache", observes=("outside", "kept", "state"),
    needs=("inkling.module",), execution="triton", accepts=only(FORMS, ("decode", "prefill"), DTYPES, dilation=1),
)  # fmt: skip
def update(engine: Any, case: Any) -> dict[str, Any]:
    """The slots' lines alone, which the model writes after the outputs."""
    module = _module(engine)
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_SLOT, turned=True)
        (x,) = lines.packed_parts("x")
        arguments = (lines.indices("int32"), _flags(engine, case), lines.starts("int32"))
        memory.seal()
        with engine.production():
            module.update_sconv_cache(x, lines.pool.transpose(1, 2), *arguments)
        return lines.observe() | {"state": lines.state()}


@adapter(
    contract=CONTRACT, module="inkling_sconv", symbol="fused_causal_conv1d_update_decode",
    observes=("outside", "kept", "output", "state"), needs=("inkling.module",), execution="triton",
    accepts=only(FORMS, ("decode",), DTYPES, dilation=1),
)  # fmt: skip
def fused_decode(engine: Any, case: Any) -> dict[str, Any]:
    module = _module(engine)
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_SLOT, turned=True)
        (x,), indices = lines.packed_parts("x"), lines.indices("int32")
        mask = engine.tensor((case.slot != -1)[:, None, None], "bool", contiguous=True)
        out = lines.output_like(x)
        memory.seal()
        with handed_out(engine.torch, out), engine.production():
            y = module.fused_causal_conv1d_update_decode(
                x, lines.weight, lines.pool.transpose(1, 2), indices, mask, **_options(case)
            )
        return lines.observe() | {"output": lines.split(y), "state": lines.state()}


@adapter(
    contract=CONTRACT, module="inkling_sconv", symbol="save_intermediate_conv_windows",
    observes=("outside", "kept", "states", "state"), needs=("inkling.module",), execution="triton",
    accepts=only(FORMS, ("verify",), DTYPES, dilation=1),
)  # fmt: skip
def verify_lines(engine: Any, case: Any) -> dict[str, Any]:
    """The lines of a verify's steps. Every step counts as real to this function."""
    module, rows = _module(engine), len(case.slot)
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_SLOT, turned=True)
        x = lines.input(np.reshape(case.x, (rows, case.steps, case.channels)))
        lines.watch(x)
        arguments = (x, lines.indices("int32"), lines.scratch, rows, case.steps)
        memory.seal()
        with engine.production():
            module.save_intermediate_conv_windows(lines.pool.transpose(1, 2), *arguments)
        return lines.observe() | {"states": lines.states(), "state": lines.state()}
