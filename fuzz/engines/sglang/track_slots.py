"""Track slots handed to verify: the shared preparation and the older inline form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.bound import pinning_dropped
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.settings import settings

CONTRACT = "commit.track_slots"
NONE = -1
UNUSED_SLOT = 977  # in pool rows of nobody: a slot that no request of a case owns
STALE = "left over from prefill"
MASK_FIELDS = ("mamba_track_mask", "mamba_track_seqlens", "mamba_prefill_track_mask_cpu", "mamba_track_seqlens_cpu")


@contextmanager
def tracking(engine: Any, case: Any) -> Iterator[Any]:
    """The settings of a round: whether checkpoints are tracked, and lazily."""
    if case.lazy and not engine.fact("tracks.lazy"):
        raise Unsupported("the lazy form is refused together with speculation in this version")
    lazily = {engine.fact("settings.strategy_field"): "extra_buffer_lazy"} if case.lazy and case.tracking else {}
    with settings(engine, interval=case.grid, extra_buffer=case.tracking, **lazily) as config:
        yield config


def request_state(engine: Any, **state: Any) -> ClosedStub:
    """A request that carries ``state`` where this release keeps it."""
    if engine.fact("tracks.state_on") == "request":
        return ClosedStub("request", **state)
    return ClosedStub("request", kv=ClosedStub("request.kv", **state))


def buffer_table(engine: Any, case: Any) -> Any:
    """The pool's table of ping-pong buffers, int64 [rows, buffer size]. Rows of
    nobody, and of requests without a position, hold slots that others own."""
    table = np.full((int(case.pool_row.max()) + 2, case.slots.shape[1]), UNUSED_SLOT, dtype=np.int64)
    table[case.pool_row] = np.where(case.position[:, None] == NONE, UNUSED_SLOT, case.slots)
    return engine.tensor(table, "int64")


def _batch(engine: Any, case: Any) -> ClosedStub:
    positions = [None if p == NONE else int(p) for p in case.position]
    pool = ClosedStub("pool", req_index_to_mamba_ping_pong_track_buffer_mapping=buffer_table(engine, case))
    return ClosedStub(
        "batch",
        absent=("mamba_track_indices",),
        reqs=[request_state(engine, mamba_next_track_idx=p) for p in positions],
        req_to_token_pool=pool,
        req_pool_indices=engine.tensor(case.pool_row, "int64"),
        mamba_lazy_spec_track_positions_cpu=[int(p) for p in case.planned],
        **dict.fromkeys(MASK_FIELDS, STALE),
    )


def _observed(batch: ClosedStub) -> dict[str, Any]:
    """What the round was handed; a batch that nobody prepared has no slots."""
    slots = getattr(batch, "mamba_track_indices", None)
    return {
        "prepared": slots is not None,
        "mask_cleared": batch.mamba_track_mask is None and batch.mamba_track_seqlens is None,
        "track_slot": [] if slots is None else slots,
    }


@adapter(contract=CONTRACT, module="spec_utils", symbol="prepare_mamba_track_for_verify",
         observes=("prepared", "mask_cleared", "track_slot"), needs=("settings.config", "tracks.prepare"),
         execution="worker")  # fmt: skip
def prepare(engine: Any, case: Any) -> dict[str, Any]:
    batch = _batch(engine, case)
    with tracking(engine, case), pinning_dropped(engine.torch), engine.production():
        engine.symbol("tracks.prepare")(batch)
    return _observed(batch)


@adapter(contract=CONTRACT, module="schedule_batch", symbol="set_mamba_track_indices_from_reqs",
         observes=("track_slot",), needs=("tracks.set_indices",), execution="worker",
         accepts=lambda case: None if case.tracking else "the caller asks whether anything is tracked")  # fmt: skip
def set_indices(engine: Any, case: Any) -> dict[str, Any]:
    batch = _batch(engine, case)
    if case.lazy and not engine.fact("tracks.lazy"):
        raise Unsupported("no lazy plan in this version")
    plan = ([int(p) for p in case.planned],) if case.lazy else ()
    with pinning_dropped(engine.torch), engine.production():
        engine.symbol("tracks.set_indices")(batch, *plan)
    return {"track_slot": batch.mamba_track_indices}


def _has_positions(case: Any) -> str | None:
    """The inline form indexes each request's own buffer: without one the worker
    fails before verify, which a stub cannot judge."""
    if (case.position == NONE).any():
        return "the older workers need a position of every request"
    return None


@adapter(contract=CONTRACT, module="eagle_v2", symbol="prepare_for_v2_verify",
         observes=("prepared", "mask_cleared", "track_slot"), needs=("settings.config", "tracks.inline_v2"),
         execution="worker", accepts=_has_positions)  # fmt: skip
def inline_v2(engine: Any, case: Any) -> dict[str, Any]:
    torch, module = engine.torch, engine.symbol("tracks.inline_module")
    table = buffer_table(engine, case)
    batch = ClosedStub(
        "batch",
        absent=("mamba_track_indices",),
        forward_mode=ClosedStub("forward_mode", is_idle=lambda: False),
        reqs=[
            ClosedStub("request", mamba_next_track_idx=int(p), mamba_ping_pong_track_buffer=torch.tensor(slots))
            for p, slots in zip(case.position, case.slots.tolist(), strict=True)
        ],
        req_pool_indices=engine.tensor(case.pool_row, "int64", contiguous=True),
        seq_lens=engine.tensor(case.pre, "int64", contiguous=True),
        seq_lens_cpu=None,
        seq_lens_sum=None,
        mamba_track_mask=STALE,
        mamba_track_seqlens=STALE,
    )
    backend = ClosedStub("attention backend", init_forward_metadata=lambda batch: None)
    algorithm = ClosedStub("spec_algorithm", is_standalone=lambda: False)
    runner = ClosedStub("model_runner", graph_runner=None, attn_backend=backend, spec_algorithm=algorithm)
    verify_input = ClosedStub("verify_input", draft_token=torch.zeros(1), draft_token_num=case.draft_tokens)
    pool = ClosedStub("pool", req_to_token=None, req_index_to_mamba_ping_pong_track_buffer_mapping=table)
    forward = SimpleNamespace(init_new=lambda batch, runner: ClosedStub("verify batch"))
    with tracking(engine, case), pinning_dropped(torch), mock.patch.multiple(
        module, ForwardBatch=forward, assign_extend_cache_locs_func=lambda **_: None
    ), engine.production():  # fmt: skip
        engine.symbol("tracks.inline_v2")(verify_input, pool, batch, ClosedStub("target", model_runner=runner))
    return _observed(batch)
