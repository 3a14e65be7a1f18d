"""vLLM's recurrent kernels of the gated delta rule and of KDA.

The pool lies as [slots, value heads, V, K]. With accepted counts a row of the table names the slots of a request's
steps; without, one slot a request and one token each. Slot 0 is the engine's own from the release on in which it marks
rows and steps without a slot; before, -1 marked them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.accepted import NOTHING_ACCEPTED, behind_zeros, only_nothing_accepted, something_accepted
from fuzz.engines.delta import Delta
from fuzz.engines.memory import Memory
from oracle.recurrence.delta_case import MAX_ELEMENTS
from oracle.recurrence.words import POISON

GATED, KDA = "recurrence.gated_delta", "recurrence.kda"
FIELDS = ("outside", "kept", "output", "states", "state")
LEAST_VALUES = 64  # value channels of the kernel for several drafts at least; a power of two, like its keys
NEUTRAL_EPSILON = 2.0**40  # beside it a mean square is nothing, and its inverse root is a power of two
GATES = (32.0, 64.0)  # x * sigmoid(x) is x itself in float32 from 17 on
WEIGHTS = (1.0, 2.0, 4.0)


def with_slots(case: Any) -> str | None:
    return None if case.operation in ("decode", "accepted") else "decodes, and verifies with accepted counts"


def given_gates(case: Any) -> str | None:
    return with_slots(case) or (None if case.gate == "given" else "gates are its inputs")


def given_gates_per_channel(case: Any) -> str | None:
    same = case.key_heads == case.value_heads and case.key_dim == case.value_dim
    return given_gates(case) or (None if same else "its outputs are shaped like its keys")


def computed_gates(case: Any) -> str | None:
    if case.gate != "softplus":
        return with_slots(case) or "computes its gates with softplus"
    return with_slots(case) or _unrounded(case)


def one_token(case: Any) -> str | None:
    several = case.length.max(initial=0) > 1
    return something_accepted(computed_gates)(case) or ("one token a request" if several else None)


def _unrounded(case: Any) -> str | None:
    return "does not round beta" if case.beta_rounded and case.input_dtype != "float32" else None


def packed(case: Any) -> str | None:
    if case.operation != "decode":
        return "decodes only"
    return None if case.gate == "softplus" else "computes its gates with softplus"


def several_drafts(case: Any) -> str | None:
    if case.operation != "accepted":
        return "verifies with accepted counts only"
    if not case.normalise:
        return "always normalises"
    heads, keys, values = _padded_sizes(case)
    if (case.slots + case.gap) * heads * keys * values > MAX_ELEMENTS:
        return "its states are larger, and would be too many"
    return computed_gates(case)


class _Call:
    """One call with slots: the pool, and the arguments that say where its states lie."""

    def __init__(self, engine: Any, memory: Memory, case: Any, **layout: bool):
        self.null = engine.fact("delta.null_slot")
        self.delta = Delta(engine, memory, case, first_slot=1, strided_pool=True, **layout)
        (call,) = self.delta.calls()
        self.call, self.accepted = call, case.operation == "accepted"
        self.slots = {
            "cu_seqlens": self.delta.integers(call.start, "int32"),
            "ssm_state_indices": behind_zeros(engine, memory, self._slots(case)),
        }
        self.delta.watch(self.slots["ssm_state_indices"])
        if self.accepted:
            self.slots["num_accepted_tokens"] = self.delta.integers(case.accepted, "int32")

    def _slots(self, case: Any) -> Any:
        return self.delta.index(case.table if self.accepted else case.slot, null=self.null)

    def token_tensors(self, *names: str) -> list[Any]:
        """[1, tokens, ...]"""
        return [self.call.tensors[n].unsqueeze(0) for n in names]


def _repair(engine: Any) -> None:
    if engine.device == "cpu":
        from fuzz.engines import interpreter

        interpreter.rebind_aliases(engine.symbol("delta.module"))


@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule", observes=FIELDS,
    needs=("delta.recurrent", "delta.module"), execution="triton", accepts=something_accepted(given_gates),
    engine="vllm",
)  # fmt: skip
@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule" + NOTHING_ACCEPTED, observes=FIELDS,
    needs=("delta.recurrent", "delta.module"), execution="triton", accepts=only_nothing_accepted(given_gates),
    engine="vllm",
)  # fmt: skip
def gated_with_given_gates(engine: Any, case: Any) -> dict[str, Any]:
    _repair(engine)
    with Memory(engine.torch, engine.device) as memory:
        made = _Call(engine, memory, case, strided_tokens=True)
        scale = {} if case.default_scale else {"scale": case.scale}
        memory.seal()
        with made.delta.poisoned_outputs(), engine.production():
            output, _ = engine.symbol("delta.recurrent")(
                *made.token_tensors("q", "k", "v", "g", "beta"), initial_state=made.delta.pool,
                use_qk_l2norm_in_kernel=case.normalise, **made.slots, **scale,
            )  # fmt: skip
        return made.delta.observe([(made.call, output)])


@adapter(
    contract=KDA, module="delta", symbol="fused_recurrent_kda_fwd", observes=FIELDS,
    needs=("delta.recurrent_kda", "delta.module"), execution="triton",
    accepts=something_accepted(given_gates_per_channel), engine="vllm",
)  # fmt: skip
@adapter(
    contract=KDA, module="delta", symbol="fused_recurrent_kda_fwd" + NOTHING_ACCEPTED, observes=FIELDS,
    needs=("delta.recurrent_kda", "delta.module"), execution="triton",
    accepts=only_nothing_accepted(given_gates_per_channel), engine="vllm",
)  # fmt: skip
def kda_with_given_gates(engine: Any, case: Any) -> dict[str, Any]:
    """As its model calls it with accepted counts: contiguous tokens, the scale always given."""
    _repair(engine)
    with Memory(engine.torch, engine.device) as memory:
        made = _Call(engine, memory, case)
        memory.seal()
        with poisoned_like(engine, memory), engine.production():
            output, _ = engine.symbol("delta.recurrent_kda")(
                *made.token_tensors("q", "k", "v", "g", "beta"), scale=case.scale, initial_state=made.delta.pool,
                use_qk_l2norm_in_kernel=case.normalise, **made.slots,
            )  # fmt: skip
        return made.delta.observe([(made.call, output)])


@contextmanager
def poisoned_like(engine: Any, memory: Memory, name: str = "empty_like") -> Iterator[None]:
    """What a wrapper makes with ``torch.empty_like`` is poisoned and guarded."""

    def made(tensor: Any) -> Any:
        return memory.poisoned(tuple(tensor.shape), tensor.dtype, POISON)

    with mock.patch.object(engine.torch, name, made):
        yield


def _sigmoid_gating(engine: Any, case: Any, **more: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        made = _Call(engine, memory, case, strided_tokens=True, strided_gates=True)
        delta = made.delta
        scale = {} if case.default_scale else {"scale": case.scale}
        q, k, v = made.token_tensors("q", "k", "v")
        memory.seal()
        with delta.poisoned_outputs(), engine.production():
            output, _ = engine.symbol("delta.sigmoid_gating")(
                A_log=delta.weights["A_log"], a=made.call.tensors["a"].flatten(1), b=made.call.tensors["b"],
                dt_bias=delta.weights["dt_bias"].flatten(), q=q, k=k, v=v, initial_state=delta.pool,
                use_qk_l2norm_in_kernel=case.normalise, **made.slots, **scale, **more,
            )  # fmt: skip
        return delta.observe([(made.call, output)])


@adapter(
    contract=GATED, module="delta", symbol="fused_sigmoid_gating_delta_rule_update", observes=FIELDS,
    needs=("delta.sigmoid_gating",), execution="triton", accepts=something_accepted(computed_gates), engine="vllm",
)  # fmt: skip
@adapter(
    contract=GATED, module="delta", symbol="fused_sigmoid_gating_delta_rule_update" + NOTHING_ACCEPTED, observes=FIELDS,
    needs=("delta.sigmoid_gating",), execution="triton", accepts=only_nothing_accepted(computed_gates),
    engine="vllm",
)  # fmt: skip
def gated_with_computed_gates(engine: Any, case: Any) -> dict[str, Any]:
    return _sigmoid_gating(engine, case)


@adapter(
    contract=KDA, module="delta", symbol="fused_sigmoid_gating_delta_rule_update(is_kda)", observes=FIELDS,
    needs=("delta.sigmoid_gating",), execution="triton", accepts=something_accepted(computed_gates), engine="vllm",
)  # fmt: skip
@adapter(
    contract=KDA, module="delta", symbol="fused_sigmoid_gating_delta_rule_update(is_kda,one_token)", observes=FIELDS,
    needs=("delta.sigmoid_gating",), execution="triton", accepts=one_token, engine="vllm",
)  # fmt: skip
def kda_with_computed_gates(engine: Any, case: Any) -> dict[str, Any]:
    """No model of these releases asks for this form. With more than one token a request it is wrong, which is listed;
    so one token a request is a target of its own, where the listing hides nothing."""
    return _sigmoid_gating(engine, case, is_kda=True)


@adapter(
    contract=GATED, module="delta", symbol="fused_recurrent_gated_delta_rule_packed_decode", observes=FIELDS,
    needs=("delta.packed", "delta.module"), execution="triton", accepts=packed, engine="vllm",
)  # fmt: skip
def gated_packed(engine: Any, case: Any) -> dict[str, Any]:
    """One token a request, q, k and v side by side in one row."""
    if case.input_dtype != "float32" and case.beta_rounded != engine.fact("delta.packed_rounds_beta"):
        raise Unsupported("whether beta is rounded to the inputs' format is another in this version")
    _repair(engine)
    with Memory(engine.torch, engine.device) as memory:
        made = _Call(engine, memory, case)
        tensors, delta = made.call.tensors, made.delta
        mixed = engine.torch.cat([tensors[n].flatten(1) for n in ("q", "k", "v")], dim=1)
        delta.watch(mixed)
        out = memory.poisoned((len(mixed), 1, case.value_heads, case.value_dim), mixed.dtype, POISON)
        memory.seal()
        with engine.production():
            engine.symbol("delta.packed")(
                mixed, tensors["a"], tensors["b"], delta.weights["A_log"], delta.weights["dt_bias"], case.scale,
                delta.pool, out, made.slots["ssm_state_indices"], case.normalise,
            )  # fmt: skip
        return delta.observe([(made.call, out)])


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _padded_sizes(case: Any) -> tuple[int, int, int]:
    """Value heads, keys and values of a state as the kernel for several drafts takes them."""
    return case.value_heads, _power(case.key_dim), max(_power(case.value_dim), LEAST_VALUES)


def padded(case: Any) -> Any:
    """The case with channels of zeros behind its own. Value channels know nothing of each other and a key channel of
    zeros reads and writes nothing, so the case's own channels stay what they were."""
    _, keys, values = _padded_sizes(case)

    def longer(array: np.ndarray, *sizes: int) -> np.ndarray:
        behind = [(0, size - n) for n, size in zip(array.shape[-len(sizes) :], sizes, strict=True)]
        return np.pad(array, [(0, 0)] * (array.ndim - len(sizes)) + behind)

    return SimpleNamespace(
        **vars(case) | {
            "key_dim": keys, "value_dim": values, "q": longer(case.q, keys), "k": longer(case.k, keys),
            "v": longer(case.v, values), "pool": longer(case.pool, keys, values),
        }
    )  # fmt: skip


@adapter(
    contract=GATED, module="delta", symbol="fused_gdn_decode_post_conv_mtp_triton", observes=FIELDS,
    needs=("delta.several_drafts", "delta.several_drafts_module"), execution="triton", accepts=several_drafts,
    engine="vllm",
)  # fmt: skip
def gated_for_several_drafts(engine: Any, case: Any) -> dict[str, Any]:
    """Behind the delta rule it normalises and gates the outputs. Here epsilon makes the norm a power of two, and
    weights and gates are powers of two as well, so that they can be taken off again without an error: which weight
    and gate a cell gets is judged, the mean square of the norm is not."""
    wide = padded(case)
    torch = engine.torch
    with Memory(torch, engine.device) as memory:
        made = _Call(engine, memory, wide)
        tensors, delta = made.call.tensors, made.delta
        mixed = torch.cat([tensors[n].flatten(1) for n in ("q", "k", "v")], dim=1)
        delta.watch(mixed)
        out = memory.poisoned((len(mixed), wide.value_heads, wide.value_dim), mixed.dtype, POISON)
        cells = torch.arange(out.numel(), device=engine.device).view(out.shape)
        gate = torch.where(cells * cells % 7 < 3, *GATES).to(out.dtype)  # a pattern that no index shift keeps
        weight = torch.tensor([WEIGHTS[n % 3] for n in range(wide.value_dim)], device=engine.device)
        factor = gate * weight.to(gate.dtype)
        weight *= NEUTRAL_EPSILON**0.5
        delta.watch(gate, weight)
        memory.seal()
        with _compute_units(engine), engine.production():
            engine.symbol("delta.several_drafts")(
                mixed, tensors["a"], tensors["b"], delta.weights["A_log"], delta.weights["dt_bias"],
                made.slots["ssm_state_indices"], made.slots["cu_seqlens"], made.slots["num_accepted_tokens"],
                delta.pool, gate, weight, out, case.scale, NEUTRAL_EPSILON, "silu",
            )  # fmt: skip
        out.copy_(torch.where(out == POISON, out, out / factor))
        return _without_padding(case, delta.observe([(made.call, out)]))


def _without_padding(case: Any, observed: dict[str, Any]) -> dict[str, Any]:
    """Drop the channels of zeros, which hold nothing but zeros."""
    outputs = [o[..., : case.value_dim] for o in observed["output"]]
    states = {f: [s[..., : case.key_dim, : case.value_dim] for s in observed[f]] for f in ("states", "state")}
    return observed | {"output": outputs} | states


@contextmanager
def _compute_units(engine: Any) -> Iterator[None]:
    """The number of a GPU's compute units decides how values are tiled; a CPU counts as one."""
    if engine.device != "cpu":
        yield
        return
    with mock.patch.object(engine.symbol("delta.several_drafts_module"), "num_compute_units", lambda index: 1):
        yield
