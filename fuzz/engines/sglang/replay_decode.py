"""Decoding with a ring: one token a call, the state is written by the token that fills the ring or by force."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.replay_fold import CONTRACT
from fuzz.engines.sglang.replay_state import Batch, ReplayState, weight
from oracle.recurrence.replay_case import NONE
from oracle.recurrence.words import POISON


@adapter(
    contract=CONTRACT, module="replay", symbol="fused_recurrent_linear_replayssm_decode",
    observes=("outside", "kept", "output", "tracks", "state"), needs=("replay.decode",), execution="triton",
    accepts=lambda case: None if case.operation == "decode" else "takes one token a call",
)  # fmt: skip
def decode(engine: Any, case: Any) -> dict[str, Any]:
    """The caller keeps the cursors: 0 after a flush, else one further. Each request's last token is forced to flush, so
    that its state is whole; one whose state is saved is flushed as for a copy to the track slot."""
    with Memory(engine.torch, engine.device) as memory:
        state = ReplayState(engine, memory, case)
        gate = (case.key_size,) if case.gate == "channel" else ()
        rings = (
            state.ring("updates", case.value_heads, (case.value_size,), case.state_dtype),
            state.ring("keys", case.key_heads, (case.key_size,), case.state_dtype),
            state.ring("gates", case.value_heads, gate, "float32"),
        )
        batches = state.batches()
        shape = (case.value_heads, case.value_size)
        outs = [
            memory.poisoned((case.layers, len(b.present), 1, *shape), state.dtype(case.input_dtype), POISON)
            for b in batches
        ]
        memory.seal()
        positions = [0] * len(case.requests)
        for batch, out in zip(batches, outs, strict=True):
            forced = [_forced(r, batch.number) for r in batch.requests]
            before = state.frozen(_unflushed(case, batch, positions, forced))
            _call(engine, state, rings, batch, out, [positions[i] for i in batch.present], forced)
            state.stayed(before)
            state.save_outputs(batch, [o[:, 0] for o in out])
            state.save_tracks(batch, own_slot=True)
            for i, flush in zip(batch.present, forced, strict=True):
                positions[i] = 0 if flush or positions[i] == case.ring - 1 else positions[i] + 1
        return state.observed()


def _forced(request: dict[str, Any], number: int) -> bool:
    last = number + 1 == len(request["length"])
    return last or (request["track_slot"] != NONE and request["track_step"][number] != NONE)


def _unflushed(case: Any, batch: Batch, positions: list[int], forced: list[bool]) -> list[int]:
    """Slots that this call must leave alone."""
    flushed = {
        r["slot"]
        for i, r, f in zip(batch.present, batch.requests, forced, strict=True)
        if f or positions[i] == case.ring - 1
    }
    return [s for s in range(case.slots) if s not in flushed]


def _call(
    engine: Any, state: ReplayState, rings: Any, batch: Batch, out: Any, positions: list[int], forced: list[bool]
) -> None:
    case, torch = state.case, engine.torch
    slots = batch.slots(contiguous=False)
    write, force = (engine.tensor(x, "int32", contiguous=True) for x in (positions, [int(f) for f in forced]))
    for n in range(case.layers):
        q, k, v, a, b = (batch.tokens(name, n) for name in "qkvab")
        packed = torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1)
        a = a.contiguous() if case.gate == "channel" else a
        weights = weight(state, "A_log", n), weight(state, "dt_bias", n)
        with engine.production():
            engine.symbol("replay.decode")(
                packed, a, b, *weights, case.key_size**-0.5, state.pool[n], *(r[n] for r in rings), out[n], slots,
                write, force_flush=force, use_qk_l2norm_in_kernel=case.normalise, is_kda=case.gate == "channel",
            )  # fmt: skip
