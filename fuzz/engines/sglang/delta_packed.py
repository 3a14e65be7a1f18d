"""SGLang's packed decode kernels: one token a request, q, k and v side by side in one row.

They compute their gates. That of the gated delta rule rounds beta to the inputs' format, KDA's does not; a null row's
output is set to 0.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.delta import Delta
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.delta_rule import FIELDS, GATED, KDA, RECURRENT, bounded, prepare, unrounded
from oracle.recurrence.words import POISON


def packed(case: Any) -> str | None:
    if case.operation != "decode":
        return "decodes only"
    return None if case.gate != "given" else "computes its gates"


def packed_gated(case: Any) -> str | None:
    rounds = case.beta_rounded or case.input_dtype == "float32"
    return packed(case) or (None if rounds else "rounds beta to the inputs' format")


def packed_kda(case: Any) -> str | None:
    return packed(case) or unrounded(case)


def _packed(engine: Any, case: Any, key: str) -> dict[str, Any]:
    prepare(engine)
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case, strided_pool=True, strided_tokens=False)
        (call,) = delta.calls()
        rows = [call.tensors[n].flatten(1) for n in ("q", "k", "v")]
        mixed = engine.torch.cat(rows, dim=1)
        delta.watch(mixed)
        out = memory.poisoned((len(rows[0]), 1, case.value_heads, case.value_dim), mixed.dtype, POISON)
        slots, more = delta.index(case.slot), bounded(engine, case)
        memory.seal()
        with engine.production():
            engine.symbol(key)(
                mixed, call.tensors["a"].flatten(1), call.tensors["b"], delta.weights["A_log"],
                delta.weights["dt_bias"].flatten(), case.scale, delta.pool, out, slots, case.normalise, **more,
            )  # fmt: skip
        return delta.observe([(call, out)])


@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule_packed_decode", observes=FIELDS,
    needs=("delta.packed", *RECURRENT), execution="triton", accepts=packed_gated,
)  # fmt: skip
def gated_packed(engine: Any, case: Any) -> dict[str, Any]:
    return _packed(engine, case, "delta.packed")


@adapter(
    contract=KDA, module="delta", symbol="fused_recurrent_kda_packed_decode", observes=FIELDS,
    needs=("delta.packed_kda", *RECURRENT), execution="triton", accepts=packed_kda,
)  # fmt: skip
def kda_packed(engine: Any, case: Any) -> dict[str, Any]:
    return _packed(engine, case, "delta.packed_kda")
