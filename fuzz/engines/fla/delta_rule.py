"""flash-linear-attention's recurrent kernels of the gated delta rule and of KDA, and its plain definitions.

The forms of its interface take the states of a batch side by side and give the final ones back as float32. The kernel
below KDA's also takes slots with accepted counts; it knows no null rows, so it is shown none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.accepted import (
    NOTHING_ACCEPTED,
    behind_zeros,
    only_nothing_accepted,
    something_accepted,
    steps_of,
)
from fuzz.engines.delta import Call, Delta
from fuzz.engines.memory import Memory
from oracle.recurrence.delta_case import NONE
from oracle.recurrence.words import POISON

GATED, KDA = "recurrence.gated_delta", "recurrence.kda"
FIELDS = ("outside", "kept", "output", "states", "state")


def gathering(case: Any) -> str | None:
    """Forms that take the states of a batch and give them back."""
    if case.operation not in ("prefill", "decode"):
        return "advances states only"
    if case.gap:
        return "knows no slots"
    return "does not round beta" if case.beta_rounded and case.input_dtype != "float32" else None


def with_slots(case: Any) -> str | None:
    if case.operation not in ("decode", "accepted"):
        return "decodes, and verifies with accepted counts"
    if case.beta_rounded and case.input_dtype != "float32":
        return "does not round beta"
    null = case.slot == NONE if case.operation == "decode" else _table(case).min(axis=1, initial=0) == NONE
    return "knows no rows or steps without a slot" if null.any() else None


def plain(case: Any) -> str | None:
    """What the definitions in plain torch take."""
    if case.gate != "given" or case.beta_per_channel:
        return "takes a decay and a beta for each head"
    return gathering(case) or ("does not normalise" if case.normalise else None)


def plain_gated(case: Any) -> str | None:
    return plain(case) or (None if case.key_heads == case.value_heads else "value heads have a key head each")


def _table(case: Any) -> np.ndarray:
    """Slots of the steps, a request's last one repeated behind its own."""
    table = case.table.copy()
    for row, count in zip(table, steps_of(case).tolist(), strict=True):
        behind = np.arange(len(row)) >= count
        row[behind & (row == NONE)] = row[:count].max(initial=0)
    return table


@contextmanager
def _poisoned(engine: Any, memory: Memory, name: str) -> Iterator[None]:
    """What a wrapper makes with ``torch.NAME`` like its values is poisoned and guarded."""

    def made(tensor: Any) -> Any:
        return memory.poisoned(tuple(tensor.shape), tensor.dtype, POISON)

    with mock.patch.object(engine.torch, name, made):
        yield


def _gates(case: Any, delta: Delta, call: Call) -> dict[str, Any]:
    """Gates as inputs, or their inputs and weights."""
    if case.gate == "given":
        return {"g": call.tensors["g"].unsqueeze(0), "beta": call.tensors["beta"].unsqueeze(0)}
    made = {"g": call.tensors["a"].unsqueeze(0), "beta": call.tensors["b"].unsqueeze(0)}
    made |= {"A_log": delta.weights["A_log"], "dt_bias": delta.weights["dt_bias"].flatten()}
    made |= {"use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
    return made | ({"lower_bound": case.lower_bound} if case.gate == "bounded" else {})


def _gathered(
    engine: Any, case: Any, key: str, *, values_first: bool = False, output_factory: str = "empty_like"
) -> dict[str, Any]:
    """Call after call; ``values_first``: states lie as [V, K] instead of [K, V]."""
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case, strided_tokens=True)
        states, calls, outputs = delta.gathered(fresh=case.fresh), delta.calls(), []
        options = [
            {"use_qk_l2norm_in_kernel": case.normalise, "cu_seqlens": delta.integers(call.start, "int64")}
            | _gates(case, delta, call)
            | ({} if case.default_scale else {"scale": case.scale})
            for call in calls
        ]
        memory.seal()
        for number, (call, more) in enumerate(zip(calls, options, strict=True)):
            before = None if case.fresh else states.clone() if values_first else states.transpose(-1, -2).contiguous()
            q, k, v = (call.tensors[n].unsqueeze(0) for n in ("q", "k", "v"))
            with delta.poisoned_outputs(), _poisoned(engine, memory, output_factory), engine.production():
                output, final = engine.symbol(key)(
                    q=q, k=k, v=v, initial_state=before, output_final_state=True, state_v_first=values_first, **more
                )
            outputs.append((call, output))
            final = final if values_first else final.transpose(-1, -2)
            if number + 1 < len(calls):
                states.copy_(final)  # what the caller stores between two calls
        return delta.observe(outputs, list(final))


@adapter(
    contract=GATED, module="gated_delta_rule", symbol="fused_recurrent_gated_delta_rule", observes=FIELDS,
    needs=("delta.gated",), execution="triton", accepts=gathering, engine="fla",
)  # fmt: skip
def gated(engine: Any, case: Any) -> dict[str, Any]:
    return _gathered(engine, case, "delta.gated")


@adapter(
    contract=GATED, module="gated_delta_rule", symbol="fused_recurrent_gated_delta_rule(state_v_first)",
    observes=FIELDS, needs=("delta.gated",), execution="triton", accepts=gathering, engine="fla",
)  # fmt: skip
def gated_values_first(engine: Any, case: Any) -> dict[str, Any]:
    return _gathered(engine, case, "delta.gated", values_first=True)


@adapter(
    contract=KDA, module="kda", symbol="fused_recurrent_kda", observes=FIELDS,
    needs=("delta.kda",), execution="triton", accepts=gathering, engine="fla",
)  # fmt: skip
def kda(engine: Any, case: Any) -> dict[str, Any]:
    return _gathered(engine, case, "delta.kda", output_factory="zeros_like")


@adapter(
    contract=KDA, module="kda", symbol="fused_recurrent_kda_fwd", observes=FIELDS,
    needs=("delta.kda_with_slots",), execution="triton", accepts=something_accepted(with_slots), engine="fla",
)  # fmt: skip
@adapter(
    contract=KDA, module="kda", symbol="fused_recurrent_kda_fwd" + NOTHING_ACCEPTED, observes=FIELDS,
    needs=("delta.kda_with_slots",), execution="triton", accepts=only_nothing_accepted(with_slots), engine="fla",
)  # fmt: skip
def kda_with_slots(engine: Any, case: Any) -> dict[str, Any]:
    """Advances the states in their slots."""
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case, first_slot=1, strided_pool=True)
        (call,) = delta.calls()
        accepted = case.operation == "accepted"
        slots = behind_zeros(engine, memory, delta.index(_table(case) if accepted else case.slot))
        delta.watch(slots)
        more = {"num_accepted_tokens": delta.integers(case.accepted, "int32")} if accepted else {}
        q, k, v = (call.tensors[n].unsqueeze(0) for n in ("q", "k", "v"))
        out = memory.poisoned(tuple(v.shape), v.dtype, POISON)
        more |= _gates(case, delta, call) | ({} if case.default_scale else {"scale": case.scale})
        starts = delta.integers(call.start, "int64")
        memory.seal()
        with engine.production():
            engine.symbol("delta.kda_with_slots")(
                q=q, k=k, v=v, initial_state=delta.pool, inplace_final_state=True, state_v_first=True,
                cu_seqlens=starts, ssm_state_indices=slots, use_qk_l2norm_in_kernel=case.normalise, out=out, **more,
            )  # fmt: skip
        return delta.observe([(call, out)])


def _plain(engine: Any, case: Any, key: str) -> dict[str, Any]:
    """Request by request, in float32."""
    with Memory(engine.torch, engine.device) as memory:
        delta = Delta(engine, memory, case)
        states, calls, outputs = delta.gathered(fresh=case.fresh), delta.calls(), []
        scale = {} if case.default_scale else {"scale": case.scale}
        memory.seal()
        for call in calls:
            found = engine.torch.zeros((len(call.tokens), case.value_heads, case.value_dim), device=engine.device)
            for i, (start, end) in enumerate(zip(call.start, call.start[1:], strict=False)):
                if start == end:
                    continue
                tokens = {n: call.tensors[n][None, start:end] for n in ("q", "k", "v", "g", "beta")}
                before = states[i][None].transpose(-1, -2).to(engine.torch.float32)
                with engine.production():
                    output, final = engine.symbol(key)(**tokens, initial_state=before, output_final_state=True, **scale)
                found[start:end] = output[0]
                states[i] = final[0].transpose(-1, -2)
            outputs.append((call, found))
        return delta.observe(outputs, list(states))


@adapter(
    contract=GATED, module="gated_delta_rule", symbol="naive_recurrent_gated_delta_rule", observes=FIELDS,
    needs=("delta.plain_gated",), accepts=plain_gated, engine="fla",
)  # fmt: skip
def gated_in_plain_torch(engine: Any, case: Any) -> dict[str, Any]:
    return _plain(engine, case, "delta.plain_gated")


@adapter(
    contract=KDA, module="kda", symbol="naive_recurrent_kda", observes=FIELDS,
    needs=("delta.plain_kda",), accepts=plain, engine="fla",
)  # fmt: skip
def kda_in_plain_torch(engine: Any, case: Any) -> dict[str, Any]:
    return _plain(engine, case, "delta.plain_kda")
