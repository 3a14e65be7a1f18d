"""SGLang's recurrent kernels of the gated delta rule and of KDA.

The pool lies as [slots, value heads, V, K]. Null rows have slot -1, verify names a scratch row per request. The forms
that gather their states know no slots; nothing in SGLang calls those two any more, they are what others are tested
against. On a CPU the kernels run in Triton's interpreter, and the helper that enters their CUDA device enters nothing.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.delta import Call, Delta
from fuzz.engines.memory import Memory

GATED, KDA = "recurrence.gated_delta", "recurrence.kda"
FIELDS = ("outside", "kept", "output", "states", "state")
RECURRENT = ("delta.module", "delta.helpers")
SOFTPLUS_BETA, SOFTPLUS_THRESHOLD = 1.0, 20.0  # what all callers hand over


def gathering(case: Any) -> str | None:
    """Forms that take the states of a batch and give them back."""
    if case.operation not in ("prefill", "decode"):
        return "advances states only"
    if case.gap:
        return "knows no slots"
    return None if case.gate == "given" else "gates are its inputs"


def gathering_kda(case: Any) -> str | None:
    if case.fresh:
        return "always has states before"
    return gathering(case) or (None if case.key_heads == case.value_heads else "its decays are per key head")


def with_slots(case: Any) -> str | None:
    if case.operation == "accepted":
        return "has no accepted counts"
    return "always has states before" if case.fresh else None


def given_gates(case: Any) -> str | None:
    return with_slots(case) or (None if case.gate == "given" else "gates are its inputs")


def computed_gates(case: Any) -> str | None:
    return with_slots(case) or (None if case.gate != "given" else "computes its gates") or unrounded(case)


def unrounded(case: Any) -> str | None:
    return "does not round beta" if case.beta_rounded and case.input_dtype != "float32" else None


def prepare(engine: Any) -> None:
    """What the interpreter needs of these modules."""
    if engine.device == "cpu":
        from fuzz.engines import interpreter

        interpreter.rebind_aliases(engine.symbol("delta.module"))
        interpreter.null_device_context(engine.symbol("delta.helpers"))


def _options(engine: Any, case: Any, delta: Delta, call: Call) -> dict[str, Any]:
    """Arguments that all forms share."""
    scale = {} if case.default_scale else {"scale": case.scale}
    return scale | {"use_qk_l2norm_in_kernel": case.normalise, "cu_seqlens": delta.integers(call.start, "int32")}


def _verifying(case: Any, delta: Delta) -> dict[str, Any]:
    if case.operation != "verify":
        return {}
    return {
        "disable_state_update": True,
        "intermediate_states_buffer": delta.scratch,
        "intermediate_state_indices": delta.rows(),
        "cache_steps": case.steps,
        "retrieve_parent_token": delta.parents(),
    }


@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule", observes=FIELDS,
    needs=("delta.gathering", *RECURRENT), execution="triton", accepts=gathering,
)  # fmt: skip
def gated_from_gathered_states(engine: Any, case: Any) -> dict[str, Any]:
    """A decode comes as a batch [B, 1, ...], a prefill packed; the final states come back as float32."""
    prepare(engine)
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case)
        states, calls, outputs = delta.gathered(fresh=case.fresh), delta.calls(), []
        memory.seal()
        for number, call in enumerate(calls):
            options = _options(engine, case, delta, call)
            lead = 0
            if case.operation == "decode":
                options["cu_seqlens"], lead = None, 1
            before = None if case.fresh else states.clone()
            inputs = [call.tensors[n].unsqueeze(lead) for n in ("q", "k", "v", "g", "beta")]
            with delta.poisoned_outputs(), engine.production():
                output, final = engine.symbol("delta.gathering")(
                    *inputs, initial_state=before, output_final_state=True, **options
                )
            outputs.append((call, output))
            if number + 1 < len(calls):
                states.copy_(final)  # what the caller stores between two calls
        return delta.observe(outputs, list(final))


@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule_update", observes=FIELDS,
    needs=("delta.update", *RECURRENT), execution="triton", accepts=given_gates,
)  # fmt: skip
def gated_with_given_gates(engine: Any, case: Any) -> dict[str, Any]:
    """As a model calls it that computes its own gates (Jet-Nemotron), and as verify did before gates were fused."""
    prepare(engine)
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case, strided_pool=engine.fact("delta.strided_pool"), strided_tokens=True)
        calls, outputs = delta.calls(), []
        slots, verifying = delta.index(case.slot), _verifying(case, delta)
        options = [_options(engine, case, delta, call) | verifying for call in calls]
        memory.seal()
        for call, more in zip(calls, options, strict=True):
            inputs = [call.tensors[n].unsqueeze(0) for n in ("q", "k", "v", "g", "beta")]
            with delta.poisoned_outputs(), engine.production():
                output = engine.symbol("delta.update")(
                    *inputs, initial_state_source=delta.pool, initial_state_indices=slots, **more
                )
            outputs.append((call, output))
        return delta.observe(outputs)


def _fused(engine: Any, case: Any, *, kda: bool) -> dict[str, Any]:
    """Gates computed in the kernel; q, k, v and gate inputs are parts of one projection's rows."""
    prepare(engine)
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(
            engine, memory, case, strided_pool=engine.fact("delta.strided_pool"), strided_tokens=True,
            strided_gates=engine.fact("delta.strided_gates"),
        )  # fmt: skip
        calls, outputs = delta.calls(), []
        slots = delta.index(case.slot)
        more = _verifying(case, delta) | {"is_kda": kda} | bounded(engine, case)
        options = [_options(engine, case, delta, call) | more for call in calls]
        memory.seal()
        for call, arguments in zip(calls, options, strict=True):
            q, k, v = (call.tensors[n].unsqueeze(0) for n in ("q", "k", "v"))
            a = call.tensors["a"].flatten(1)
            with delta.poisoned_outputs(), engine.production():
                output = engine.symbol("delta.fused")(
                    delta.weights["A_log"], a, delta.weights["dt_bias"].flatten(), SOFTPLUS_BETA, SOFTPLUS_THRESHOLD,
                    q, k, v, call.tensors["b"], delta.pool, slots, **arguments,
                )  # fmt: skip
            outputs.append((call, output))
        return delta.observe(outputs)


def bounded(engine: Any, case: Any) -> dict[str, Any]:
    """The bound of bounded gates, where this version has them."""
    if case.gate != "bounded":
        return {}
    if not engine.fact("delta.bounded_gates"):
        raise Unsupported("gates cannot be bounded in this version")
    return {"lower_bound": case.lower_bound}


@adapter(
    contract=GATED, module="delta", symbol="fused_sigmoid_gating_delta_rule_update", observes=FIELDS,
    needs=("delta.fused", *RECURRENT), execution="triton", accepts=computed_gates,
)  # fmt: skip
def gated_with_computed_gates(engine: Any, case: Any) -> dict[str, Any]:
    return _fused(engine, case, kda=False)


@adapter(
    contract=KDA, module="delta", symbol="fused_sigmoid_gating_delta_rule_update", observes=FIELDS,
    needs=("delta.fused", *RECURRENT), execution="triton", accepts=computed_gates,
)  # fmt: skip
def kda_with_computed_gates(engine: Any, case: Any) -> dict[str, Any]:
    return _fused(engine, case, kda=True)


@adapter(
    contract=KDA, module="delta", symbol="fused_recurrent_kda", observes=FIELDS,
    needs=("delta.gathering_kda", *RECURRENT), execution="triton", accepts=gathering_kda,
)  # fmt: skip
def kda_from_gathered_states(engine: Any, case: Any) -> dict[str, Any]:
    """Advances the gathered states in place."""
    prepare(engine)
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case)
        states, calls, outputs = delta.gathered(), delta.calls(), []
        options = [_options(engine, case, delta, call) for call in calls]
        memory.seal()
        for call, more in zip(calls, options, strict=True):
            inputs = [call.tensors[n].unsqueeze(0) for n in ("q", "k", "v", "g", "beta")]
            with delta.poisoned_outputs(), engine.production():
                output, _ = engine.symbol("delta.gathering_kda")(*inputs, initial_state=states, **more)
            outputs.append((call, output))
        return delta.observe(outputs, list(states))
