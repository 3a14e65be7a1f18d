"""The circular ring of records: verify from state and history, fold when the room asks for it.

Two ways to fold. With exact inputs in the ring the *next* verify call replays them, and the flag of the row says that
it will (``gdn_replayssm_spec_decode`` as its own launch modes go). With compact records the *commit* folds all layers
at once and saves states on the way (``commit_gdn_replayssm_circular``, what the engine's worker does).
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.replay_fold import CONTRACT, NO_SLOT, scalar_loops
from fuzz.engines.sglang.replay_state import Batch, ReplayState, weight
from oracle.recurrence.replay_case import NONE
from oracle.recurrence.words import POISON

DOT_ROWS = 16  # a dot product of the fold takes at least so many places of the ring
OBSERVED = ("outside", "kept", "history", "output", "tracks", "state")


def circular(case: Any) -> str | None:
    if case.operation != "circular":
        return "its ring is circular"
    return "its ring must hold a window" if case.window > case.ring else None


def short_ring(case: Any) -> str | None:
    if case.operation != "circular" or case.window <= case.ring:
        return "is about rings that hold no window"
    return "what was left in the ring is asked with rings that are long enough" if case.leftover == "nan" else None


def folded_by_the_next_verify(case: Any) -> str | None:
    if case.operation == "circular" and case.fold == "every":
        return "folds only for room"
    if case.operation == "circular" and 2 * case.window > case.ring:
        return "its engine refuses a ring that does not hold two windows"
    saves = any(NONE not in (r["slot"], r["track_slot"]) and (r["track_step"] != NONE).any() for r in case.requests)
    return "saves no states on the way" if saves else circular(case)


class _Ring:
    """Records, cursors, and either exact inputs or the low parts of the records."""

    def __init__(self, state: ReplayState, exact: bool):
        case, self.state, self.exact = state.case, state, exact
        heads, keys = case.value_heads, case.key_heads
        self.d = state.ring("updates", heads, (case.value_size,), case.input_dtype)
        self.k = state.ring("keys", keys, (case.key_size,), case.input_dtype)
        self.g = state.ring("gates", heads, (), "float32")
        self.low_v = self.low_k = self.beta = None
        if exact or case.input_dtype != "float32":
            self.low_v = state.ring("values or low parts", heads, (case.value_size,), case.input_dtype)
            self.low_k = state.ring("raw keys or low parts", keys, (case.key_size,), case.input_dtype)
        if exact:
            self.beta = state.ring("betas", heads, (), "float32")
        self.write, self.base, self.full = (state.cursors(t) for t in ("int32", "int32", "int8"))

    def layer(self, n: int) -> tuple[Any, ...]:
        return tuple(None if x is None else x[n] for x in (self.d, self.k, self.g, self.low_v, self.low_k, self.beta))

    def history(self, request: dict[str, Any]) -> int:
        """Committed tokens that neither are folded nor will be by the next verify."""
        if request["slot"] == NONE:
            return 0
        row = self.state.row(request)
        return 0 if int(self.full[row]) else int(self.write[row])


class _Round:
    """The calls of one batch."""

    def __init__(self, engine: Any, state: ReplayState, ring: _Ring, batch: Batch):
        self.engine, self.state, self.ring, self.batch = engine, state, ring, batch
        case = state.case
        shape = (case.layers, batch.starts[-1], case.value_heads, case.value_size)
        self.out = state.memory.poisoned(shape, state.dtype(case.input_dtype), POISON)

    def verify(self, mode: str) -> None:
        case, batch, ring = self.state.case, self.batch, self.ring
        rows = {"replay_indices": batch.rows()} if self.engine.fact("replay.own_rows") else {}
        slots, offsets = batch.slots(contiguous=False), batch.offsets()
        for n in range(case.layers):
            q, k, v, a, b = (batch.tokens(name, n) for name in "qkvab")
            weights = weight(self.state, "A_log", n), weight(self.state, "dt_bias", n)
            with self.engine.production():
                self.engine.symbol("replay.circular")(
                    q, k, v, a, b, *weights, self.state.pool[n], *ring.layer(n), self.out[n], offsets, slots,
                    write_pos=ring.write, cache_base=ring.base, is_flush=ring.full, max_cache_len=case.ring,
                    max_spec_len=case.window, use_qk_l2norm_in_kernel=case.normalise, null_block_id=NO_SLOT,
                    launch_mode=mode, **rows,
                )  # fmt: skip

    def advance(self, **more: Any) -> None:
        """Move the cursors by what was accepted."""
        case, ring = self.state.case, self.ring
        with self.engine.production():
            self.engine.symbol("replay.advance")(
                ring.write, ring.base, ring.full, self.batch.of_rounds("accepted", "int32"), self.batch.rows(),
                max_cache_len=case.ring, max_spec_len=case.window, null_block_id=NO_SLOT, **more,
            )  # fmt: skip

    def fold(self, tracking: bool) -> None:
        batch, ring = self.batch, self.ring
        track = {
            "mamba_track_indices": batch.slots("int64", contiguous=False, name="track_slot") if tracking else None,
            "mamba_steps_to_track": batch.of_rounds("track_step", "int64") if tracking else None,
        }
        with self.engine.production():
            self.engine.symbol("replay.circular_fold")(
                checkpoint_state=self.state.pool, d_cache=ring.d, k_cache=ring.k, g_cache=ring.g,
                d_residual_cache=ring.low_v, k_residual_cache=ring.low_k,
                state_batch_indices=batch.slots(contiguous=False), replay_indices=batch.rows(),
                write_pos=ring.write, cache_base=ring.base, is_flush=ring.full,
                accept_lens=batch.of_rounds("accepted", "int32"), null_block_id=NO_SLOT, **track,
            )  # fmt: skip


def _run(engine: Any, case: Any, exact: bool) -> dict[str, Any]:
    if case.ring < DOT_ROWS and engine.device != "cpu" and not exact:
        raise Unsupported("a fold's dot products need a ring of 16 places on a GPU")
    with Memory(engine.torch, engine.device) as memory:
        state = ReplayState(engine, memory, case, own_rows=engine.fact("replay.own_rows"))
        ring = _Ring(state, exact)
        rounds = [_Round(engine, state, ring, batch) for batch in state.batches()]
        histories: list[list[int]] = [[] for _ in case.requests]
        tracking = any(r["track_slot"] != NONE for r in case.requests)
        memory.seal()
        for turn in rounds:
            stay = [r["slot"] for r in turn.batch.requests if r["slot"] != NONE and not ring.full[state.row(r)]]
            before = state.frozen(stay)
            turn.verify("both" if exact else "verify")
            state.stayed(before)
            state.save_outputs(turn.batch, list(turn.out))
            if exact:
                turn.advance()
            else:
                turn.advance(fold_every_commit=case.fold == "every")
                turn.fold(tracking)
                state.save_tracks(turn.batch)
            for i, r in zip(turn.batch.present, turn.batch.requests, strict=True):
                histories[i].append(ring.history(r))
        _hand_on(state, ring, rounds[0], exact)
        return state.observed(history=histories)


def _hand_on(state: ReplayState, ring: _Ring, first: _Round, exact: bool) -> None:
    """Fold what is left of every request; all of them are in the first batch. The states must be whole then."""
    for r in state.case.requests:
        if r["slot"] != NONE:
            ring.full[state.row(r)] = 1
    if exact:
        first.verify("flush")  # replays, then looks at the first window once more: of no interest
    else:
        first.fold(tracking=False)


@adapter(
    contract=CONTRACT, module="replay", symbol="gdn_replayssm_spec_decode", observes=OBSERVED,
    needs=("replay.circular", "replay.advance"), execution="triton", accepts=folded_by_the_next_verify,
)  # fmt: skip
def folded_by_verify(engine: Any, case: Any) -> dict[str, Any]:
    scalar_loops(engine, "replay.circular")
    return _run(engine, case, exact=True)


@adapter(
    contract=CONTRACT, module="replay", symbol="commit_gdn_replayssm_circular", observes=OBSERVED,
    needs=("replay.circular", "replay.advance", "replay.circular_fold"), execution="triton", accepts=circular,
)  # fmt: skip
def folded_by_commit(engine: Any, case: Any) -> dict[str, Any]:
    return _run(engine, case, exact=False)


@adapter(
    contract=CONTRACT, module="replay", symbol="commit_gdn_replayssm_circular.short_ring", observes=OBSERVED,
    needs=(
        "replay.circular", "replay.advance", "replay.circular_fold",
        "pool.class", "pool.dtypes", "pool.gdn_shape", "pool.gdn_params",
    ),
    execution="triton", accepts=short_ring,
)  # fmt: skip
def short_ring_of_the_engine(engine: Any, case: Any) -> dict[str, Any]:
    """The engine's own pool is asked for the ring first: one that refuses is right."""
    from fuzz.engines.sglang.replay_pool import ring_places

    engine.require_path(ring_places(engine, case) == case.ring, "the engine makes a ring shorter than the window")
    return _run(engine, case, exact=False)
