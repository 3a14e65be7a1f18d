"""Linear attention with one decay a head: the segmented kernels, and the two that came from vLLM.

``seg_la_fwd`` chooses among its kernels by the number of tokens a row and by whether
scratch for step states is handed over; what it chose for is part of each target's name.
Buffers of 2^31 elements, and whatever stands before a block, have targets of their own, so
that a listed divergence of theirs hides no other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines import lightning_calls as calls
from fuzz.engines.lightning_calls import Call
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.launches import counted
from fuzz.engines.state_buffers import StepScratch, numbers
from oracle.recurrence.lightning_case import NONE

CONTRACT = "recurrence.lightning"
FIELDS = ("outside", "kept", "output", "states")
NEEDS = ("seg_la.forward", "seg_la.meta", "seg_la.module")
DECODE_DIM = 128  # keys a program of the decode kernel takes: fewer leave it without programs
SPLIT_DIM = 32  # keys a program of the others takes; values too, for up to two rows, else twice as many
BLOCK = 32  # tokens a step of the prefill kernel takes: where it can save a state


def decode_accepts(case: Any) -> str | None:
    if case.operation != "decode":
        return "one token a row"
    return None if case.head_dim % DECODE_DIM == 0 else f"takes a head_dim of {DECODE_DIM}"


def _head_dim(case: Any) -> str | None:
    least = SPLIT_DIM if len(case.length) <= 2 else 2 * SPLIT_DIM
    return None if case.head_dim % least == 0 else f"takes a head_dim of {least} for so many rows"


def verify_accepts(case: Any) -> str | None:
    if case.operation != "verify":
        return "a verify of drafts"
    return _head_dim(case) if case.length[0] > 1 else "one draft token a row goes to its decode kernel"


def single_accepts(case: Any) -> str | None:
    """Rows of one token each, which go to the decode kernel."""
    if case.operation != "prefill" or not (case.length == 1).all():
        return "a prefill of one token a row"
    if case.track_length.any():
        return "callers save the state of such a batch themselves"
    return None if case.head_dim % DECODE_DIM == 0 else f"takes a head_dim of {DECODE_DIM}"


def prefill_accepts(case: Any) -> str | None:
    if case.operation != "prefill":
        return "a prefill"
    if any((last - first == 1).all() for _, first, last in _parts(case)):
        return "a call with one token a row is asked about separately"
    if ((case.track_length % BLOCK != 0) & (case.track_length != case.length)).any():
        return "saves a state at the end of its blocks only"
    return _head_dim(case)


def _forward(engine: Any, call: Call, kernel: str, at: Any, slots: Any, starts: Any, scales: Any, **more: Any) -> Any:
    """One call of the wrapper; ``kernel`` is what it must launch, once."""
    query, keys, values = call.tokens(at)
    offsets = call.integers(starts)
    meta = engine.symbol("seg_la.meta")(
        batch_size=len(slots), max_q_length=None, q_offsets=offsets, s_offsets=call.places(slots),
        q_lengths=offsets.diff(), s_scales=scales,
    )  # fmt: skip
    with counted(engine.symbol("seg_la.module"), kernel) as launches, call.allocations.watched(), engine.production():
        output = engine.symbol("seg_la.forward")(
            q=query, k=keys, v=values, s=call.pool.states, decay_scales=call.decay, meta=meta,
            softmax_scale=call.case.scale, **more,
        )  # fmt: skip
    engine.require_path(launches.count == 1, kernel)
    return output


@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(decode)", observes=FIELDS, needs=NEEDS, execution="triton",
    accepts=calls.near(decode_accepts),
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(decode_large)", observes=FIELDS, needs=NEEDS,
    execution="triton", accepts=calls.large(decode_accepts),
)  # fmt: skip
def segmented_decode(engine: Any, case: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        call = Call(engine, case, memory)
        scales = call.inputs(np.ones(call.rows), "int64", contiguous=True)
        memory.seal()
        starts = np.arange(call.rows + 1)
        outputs = [_forward(engine, call, "seg_la_d_kernel", at, s, starts, scales) for at, s in call.rounds()]
        return call.decoded(outputs)


@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(verify)", observes=FIELDS, needs=NEEDS, execution="triton",
    accepts=calls.near(verify_accepts),
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(verify_large)", observes=FIELDS, needs=NEEDS,
    execution="triton", accepts=calls.large(verify_accepts),
)  # fmt: skip
def segmented_verify(engine: Any, case: Any) -> dict[str, Any]:
    """Every row has the same number of drafts; the kernel counts on it."""
    steps = int(case.length[0])
    with Memory(engine.torch, engine.device) as memory:
        call = Call(engine, case, memory)
        entry = case.pool.shape[1:]
        scratch = StepScratch(engine, memory, case.rows_before, call.rows, case.steps, entry, case.state_dtype)
        rows = call.integers(scratch.rows)
        scales = call.inputs(np.ones(call.rows), "bool", contiguous=True)
        memory.seal()
        output = _forward(
            engine, call, "seg_la_mtp_kernel", slice(None), call.slots, case.start, scales, caches=scratch.states,
            cache_indices=rows,
        )  # fmt: skip
        made = numbers(output).reshape(call.rows, steps, *case.q.shape[1:])
        states = [scratch.read(i, steps) for i in range(call.rows)]
        return call.observed(list(made), states, (), scratch.changed(case.length))


@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(prefill)", observes=FIELDS, needs=NEEDS, execution="triton",
    accepts=calls.near(prefill_accepts),
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(prefill_large)", observes=FIELDS, needs=NEEDS,
    execution="triton", accepts=calls.large(prefill_accepts),
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="seg_la", symbol="seg_la_fwd(single_token_prefill)", observes=FIELDS, needs=NEEDS,
    execution="triton", accepts=calls.near(single_accepts),
)  # fmt: skip
def segmented_prefill(engine: Any, case: Any) -> dict[str, Any]:
    """Whether rows have a state before is handed over as booleans. A batch of rows of one token each goes to the
    decode kernel: that is what its caller gets, and so what is judged."""
    if (case.length > 1).any():  # the decode kernel multiplies no matrices
        calls.needs_multiplier(engine, case)
    with Memory(engine.torch, engine.device) as memory:
        call = Call(engine, case, memory)
        more: dict[str, Any] = {}
        if case.track_length.any():
            if not engine.fact("seg_la.tracks"):
                raise Unsupported("this version saves no state on the way")
            more = {"track_lens": call.integers(case.track_length), "track_state_indices": call.places(case.track_slot)}
        memory.seal()
        outputs: list[list[np.ndarray]] = [[] for _ in range(call.rows)]
        for rows, first, last in _parts(case):
            at = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
            starts = np.concatenate([[0], np.cumsum(last - first)])
            later = first > case.start[:-1][rows]  # the second call of a split goes on from the slot
            scales = call.inputs((case.initial[rows] > 0) | later, "bool", contiguous=True)
            kernel = "seg_la_d_kernel" if len(at) == len(rows) else "seg_la_p_kernel"
            output = numbers(_forward(engine, call, kernel, at, call.slots[rows], starts, scales, **more))
            for place, row in enumerate(rows):
                outputs[row].append(output[starts[place] : starts[place + 1]])
        written = [s for s in (*call.slots, *case.track_slot) if s != NONE]
        pairs = zip(case.track_slot, call.slots, strict=True)
        return call.observed([np.concatenate(o) for o in outputs], [call.states(p) for p in pairs], written)


def _parts(case: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each call: the requests that have tokens in it, and where these begin and end."""
    first, last = case.start[:-1], case.start[1:]
    if not case.split:
        return [(np.arange(len(first)), first, last)]
    middle = np.minimum(first + case.split, last)
    rest = np.flatnonzero(middle < last)
    return [(np.arange(len(first)), first, middle), *([(rest, middle[rest], last[rest])] if len(rest) else [])]


@adapter(
    contract=CONTRACT, module="lightning_attn", symbol="linear_decode_forward_triton", observes=FIELDS,
    needs=("lightning.decode",), execution="triton", accepts=calls.near(calls.decode_accepts),
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="lightning_attn", symbol="linear_decode_forward_triton(large)", observes=FIELDS,
    needs=("lightning.decode",), execution="triton", accepts=calls.large(calls.decode_accepts),
)  # fmt: skip
def linear_decode(engine: Any, case: Any) -> dict[str, Any]:
    return calls.decode(engine, case, "lightning.decode")


@adapter(
    contract=CONTRACT, module="lightning_attn", symbol="jit_linear_forward_prefix", observes=FIELDS,
    needs=("lightning.prefix",), execution="triton", accepts=calls.prefill_accepts,
)  # fmt: skip
@adapter(
    contract=CONTRACT, module="lightning_attn", symbol="jit_linear_forward_prefix(history)", observes=FIELDS,
    needs=("lightning.prefix",), execution="triton", accepts=calls.history_accepts,
)  # fmt: skip
def linear_prefill(engine: Any, case: Any) -> dict[str, Any]:
    return calls.prefill(engine, case, "lightning.prefix")
