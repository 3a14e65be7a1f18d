"""Rings of one window, folded into the state by every commit: raw keys, values, gates and betas are replayed.

The fold kernels alone are given a ring that the case filled; with ``.cache_ring`` the verify kernel fills it. The
engine says in the comments of both kernels that a fold gives the verify kernel's own states bit for bit; with
``.same_bits`` the verify kernel writes them too, and the two are compared.
"""

from __future__ import annotations

import sys
from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.replay_state import Batch, ReplayState, weight
from oracle.recurrence.replay_case import KERNELS_DIFFER, NONE
from oracle.recurrence.words import UNTOUCHED

CONTRACT = "recurrence.replay"
FOLDED = ("outside", "kept", "tracks", "state")
NO_SLOT = -1  # what callers pass as the null block: slots from 0 on are real


def per_head(case: Any) -> str | None:
    return _every(case) or (None if case.gate == "head" else "replays one gate a head")


def per_channel(case: Any) -> str | None:
    return _every(case) or (None if case.gate == "channel" else "replays one gate a channel")


def _every(case: Any) -> str | None:
    return None if case.operation == "every" else "folds one window with each commit"


class _Rings:
    """``rawv``, ``rawk``, ``g`` and ``beta`` of all layers."""

    def __init__(self, state: ReplayState):
        case = state.case
        gate = (case.key_size,) if case.gate == "channel" else ()
        self.rawv = state.ring("values", case.value_heads, (case.value_size,), case.input_dtype)
        self.rawk = state.ring("keys", case.key_heads, (case.key_size,), case.input_dtype)
        self.g = state.ring("gates", case.value_heads, gate, "float32")
        self.beta = state.ring("betas", case.value_heads, (), "float32")

    def all(self) -> tuple[Any, ...]:
        return self.rawv, self.rawk, self.g, self.beta

    def fill(self, state: ReplayState, batch: Batch) -> None:
        """What a verify pass leaves of the batch's windows."""
        for r, left in batch.raw():
            if r["slot"] == NONE:
                continue
            for ring, values in zip(self.all(), (r["v"], r["k"], left.g, left.beta), strict=True):
                ring[:, state.row(r), :, : values.shape[2]] = state._values(values).to(ring.dtype)


def scalar_loops(engine: Any, key: str) -> None:
    """The fold kernels call ``.to`` on their loop variable."""
    if engine.device == "cpu":
        from fuzz.engines import interpreter

        interpreter.tensor_range(sys.modules[engine.symbol(key).__module__])


def commit(engine: Any, key: str, state: ReplayState, rings: _Rings, batch: Batch, one_layer: bool = False) -> None:
    """Fold all layers, in one call or in one each."""
    case = state.case
    tracking = any(r["track_slot"] != NONE for r in case.requests)
    track = {
        "mamba_track_indices": batch.slots("int64", contiguous=False, name="track_slot") if tracking else None,
        "mamba_steps_to_track": batch.of_rounds("track_step", "int64") if tracking else None,
    }
    arguments = (batch.slots(contiguous=False), batch.of_rounds("accepted", "int32"), case.ring, case.key_heads)
    more = track | {"use_qk_l2norm_in_kernel": case.normalise, "null_block_id": NO_SLOT}
    buffers = state.pool, *rings.all()
    calls = [[x[n] for x in buffers] for n in range(case.layers)] if one_layer else [buffers]
    with engine.production():
        for call in calls:
            engine.symbol(key)(*call, *arguments, **more)


def _fold(engine: Any, case: Any, key: str, one_layer: bool = False) -> dict[str, Any]:
    scalar_loops(engine, key)
    with Memory(engine.torch, engine.device) as memory:
        state = ReplayState(engine, memory, case)
        rings = _Rings(state)
        memory.seal()
        for batch in state.batches():
            rings.fill(state, batch)
            commit(engine, key, state, rings, batch, one_layer)
            state.save_tracks(batch)
        return state.observed()


@adapter(
    contract=CONTRACT, module="replay", symbol="commit_gdn_replayssm_fold_all_layers", observes=FOLDED,
    needs=("replay.fold_head",), execution="triton", accepts=per_head,
)  # fmt: skip
def fold_per_head(engine: Any, case: Any) -> dict[str, Any]:
    return _fold(engine, case, "replay.fold_head")


@adapter(
    contract=CONTRACT, module="replay", symbol="commit_kda_replayssm_spec_all_layers", observes=FOLDED,
    needs=("replay.fold_channel",), execution="triton", accepts=per_channel,
)  # fmt: skip
def fold_per_channel(engine: Any, case: Any) -> dict[str, Any]:
    return _fold(engine, case, "replay.fold_channel")


@adapter(
    contract=CONTRACT, module="replay", symbol="commit_kda_replayssm_spec", observes=FOLDED,
    needs=("replay.fold_channel_layer",), execution="triton", accepts=per_channel,
)  # fmt: skip
def fold_per_channel_layer_by_layer(engine: Any, case: Any) -> dict[str, Any]:
    return _fold(engine, case, "replay.fold_channel_layer", one_layer=True)


def verify(engine: Any, state: ReplayState, rings: _Rings, batch: Batch, **more: Any) -> list[Any]:
    """Outputs of the batch's windows, layer by layer; fills the rings."""
    case, outputs = state.case, []
    channel = case.gate == "channel"
    offsets, slots = batch.offsets(), batch.slots()
    for layer in range(case.layers):
        q, k, v, a, b = (batch.tokens(n, layer) for n in "qkvab")
        given = dict(more)
        if "intermediate_states_buffer" in more:
            given["intermediate_states_buffer"] = more["intermediate_states_buffer"][layer]
        names = ("rawv", "rawk", "g", "beta")
        given |= {f"replayssm_{n}": getattr(rings, n)[layer] for n in names}
        bias = weight(state, "dt_bias", layer)
        with engine.production():
            out = engine.symbol("replay.verify")(
                weight(state, "A_log", layer), a.flatten(1), bias.flatten(), 1.0, 20.0, q[None], k[None], v[None], b,
                initial_state_source=state.pool[layer], initial_state_indices=slots,
                use_qk_l2norm_in_kernel=case.normalise, cu_seqlens=offsets, is_kda=channel,
                disable_state_update=True, cache_ring=True, **given,
            )  # fmt: skip
        outputs.append(out[0])
    return outputs


@adapter(
    contract=CONTRACT, module="replay", symbol="fused_sigmoid_gating_delta_rule_update.cache_ring",
    observes=("outside", "kept", "output", "tracks", "state"),
    needs=("replay.verify", "replay.fold_head", "replay.fold_channel"), execution="triton", accepts=_every,
)  # fmt: skip
def verify_and_fold(engine: Any, case: Any) -> dict[str, Any]:
    """The whole round: the verify kernel fills the ring, the commit folds it."""
    key = "replay.fold_channel" if case.gate == "channel" else "replay.fold_head"
    scalar_loops(engine, key)
    with Memory(engine.torch, engine.device) as memory:
        state = ReplayState(engine, memory, case)
        rings = _Rings(state)
        memory.seal()
        for batch in state.batches():
            before = state.frozen(list(range(case.slots)))
            state.save_outputs(batch, verify(engine, state, rings, batch))
            state.stayed(before)
            commit(engine, key, state, rings, batch)
            state.save_tracks(batch)
        return state.observed()


@adapter(
    contract=CONTRACT, module="replay", symbol="fused_sigmoid_gating_delta_rule_update.same_bits",
    observes=("outside",), needs=("replay.verify", "replay.fold_head", "replay.fold_channel"), execution="triton",
    accepts=_every,
)  # fmt: skip
def fold_and_verify_states(engine: Any, case: Any) -> dict[str, Any]:
    key = "replay.fold_channel" if case.gate == "channel" else "replay.fold_head"
    scalar_loops(engine, key)
    with Memory(engine.torch, engine.device) as memory:
        state = ReplayState(engine, memory, case)
        rings = _Rings(state)
        shape = (case.layers, len(case.requests), case.window, *state.pool.shape[2:])
        scratch = memory.zeros(shape, state.pool.dtype)
        memory.know("scratch of step states", scratch)
        memory.seal()
        differing = 0
        for batch in state.batches():
            steps = {
                "intermediate_states_buffer": scratch, "cache_steps": case.window,
                "intermediate_state_indices": engine.tensor(range(len(batch.present)), "int32", contiguous=True),
            }  # fmt: skip
            verify(engine, state, rings, batch, **steps)
            commit(engine, key, state, rings, batch)
            differing += _differing(state, batch, scratch)
        told = f"{KERNELS_DIFFER} {differing} cells" if differing else state.memory.outside() or UNTOUCHED
        return {"outside": told}


def _differing(state: ReplayState, batch: Batch, scratch: Any) -> int:
    """Cells of slots and track slots that are not the verify kernel's states."""
    count = 0
    for place, r in enumerate(batch.requests):
        steps = [("slot", int(r["accepted"][batch.number]) - 1), ("track_slot", int(r["track_step"][batch.number]))]
        for name, step in steps:
            if NONE not in (r["slot"], r[name], step):
                now = state.pool[:, state.slot(r[name])]
                count += int((now != scratch[:, place, step]).sum())
    return count
