"""The scheduler's own bookkeeping after verify: what is filed, under which length.

Driven as its caller does: the result processor first turns the committed counts
of a result into its own counts and cuts runs that a grammar ended, the requests
get their tokens, then the boundary is checked request by request. Both steps are
the engine's, because what one counts must be what the other expects.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.settings import settings
from fuzz.engines.sglang.track_slots import CONTRACT, NONE, request_state, tracking

NEEDS = ("settings.config", "boundary.update", "boundary.resolve", "boundary.result", "boundary.pool")
MOST_TOKENS = 2**48  # a request's tokens are counted, never stored


class Grammar:
    """A grammar that ends with its ``length``-th token."""

    def __init__(self, length: int):
        self._left = length

    def accept_token(self, token: int) -> None:
        self._left -= 1

    def is_terminated(self) -> bool:
        return self._left <= 0


def _request(engine: Any, pre: int, kept: int, committed: int, position: int, slots: list[int], row: int) -> ClosedStub:
    """A request with ``pre`` tokens in its state and its current token emitted."""
    torch = engine.torch
    state = {
        "mamba_ping_pong_track_buffer": None if position == NONE else torch.tensor(slots),
        "mamba_ping_pong_empty": [s == NONE for s in slots],
        "mamba_next_track_idx": None if position == NONE else position,
        "mamba_last_track_idx": None,
        "mamba_last_track_seqlen": None,
        "mamba_prev_track_seqlen": None,
        "kv_committed_len": pre,
        "req_pool_idx": row,
    }
    request = request_state(engine, **state)
    for name, value in {
        "origin_input_ids": range(pre + 1),
        "output_ids": [],
        "grammar": Grammar(kept) if kept < committed else None,
        "finished": lambda: False,
        "is_retracted": False,
        "spec_verify_ct": 0,
        "spec_accepted_tokens": 0,
        "spec_num_correct_drafts": 0,
        "update_spec_acceptance_histogram": lambda drafts: None,
        "update_spec_correct_drafts_histogram": lambda drafts: None,
    }.items():
        setattr(request, name, value)
    return request


def state_of(engine: Any, request: ClosedStub) -> ClosedStub:
    return request if engine.fact("tracks.state_on") == "request" else request.kv


def _pool(engine: Any, requests: list[ClosedStub], case: Any) -> ClosedStub:
    rows = int(case.pool_row.max()) + 1
    return bound(
        engine.symbol("boundary.pool"),
        "pool",
        mamba_ping_pong_track_buffer_size=case.slots.shape[1],
        req_index_to_mamba_ping_pong_track_buffer_mapping=engine.torch.zeros(
            rows, case.slots.shape[1], dtype=engine.torch.int64
        ),
        mamba_allocator=ClosedStub("allocator", free=lambda slots: None),
    )


def settle(engine: Any, case: Any) -> list[ClosedStub]:
    """Process one verify result; returns the requests' slot state after it."""
    torch = engine.torch
    if (case.retained < case.committed).any() and not engine.fact("boundary.cuts_runs"):
        raise Unsupported("the result processor of this version does not cut runs")
    rows = zip(case.pre, case.retained, case.committed, case.position, case.slots.tolist(), case.pool_row, strict=True)
    requests = [_request(engine, int(p), int(k), int(c), int(at), s, int(row)) for p, k, c, at, s, row in rows]
    result = engine.symbol("boundary.result")(
        next_token_ids=torch.zeros(len(requests) * case.draft_tokens, dtype=torch.int64),
        accept_lens=torch.tensor(case.committed, dtype=torch.int32),
    )
    result.speculative_num_draft_tokens = case.draft_tokens
    batch = ClosedStub(
        "batch",
        reqs=requests,
        has_grammar=any(r.grammar is not None for r in requests),
        forward_mode=ClosedStub("forward_mode", is_decode=lambda: True, is_extend=lambda: False),
        spec_algorithm=ClosedStub("spec_algorithm", is_none=lambda: False, is_dflash=lambda: True),
        req_to_token_pool=_pool(engine, requests, case),
        mamba_track_buffer_indices=[int(p) for p in (case.planned if case.lazy else case.position)],
        mamba_lazy_spec_track_positions_cpu=[int(p) for p in case.planned] if case.lazy else None,
    )
    worker = ClosedStub(
        "worker", speculative_num_draft_tokens=case.draft_tokens, on_verify_complete_cpu=lambda *_, **__: None
    )
    processor = bound(
        engine.symbol("boundary.processor"),
        "result processor",
        draft_worker=worker,
        model_worker=worker,
        tree_cache=ClosedStub("tree_cache", page_size=1),
        metrics_reporter=ClosedStub("metrics", snapshot_spec_decode_metrics=lambda *_: None),
    )
    with engine.production():
        runs = engine.symbol("boundary.resolve")(processor, result, batch)
    length_of = engine.symbol("boundary.request").seqlen.fget
    for i, (request, run) in enumerate(zip(requests, runs, strict=True)):
        request.output_ids.extend(run)
        request.seqlen = length_of(request)
        with engine.production():
            engine.symbol("boundary.update")(processor, request, batch, result, i)
    return [state_of(engine, r) for r in requests]


def _or_none(value: int | None) -> int:
    return NONE if value is None else int(value)


@adapter(contract=CONTRACT, module="scheduler", symbol="_mamba_prefix_cache_update",
         observes=("filed_length", "next_position"), needs=NEEDS, execution="worker",
         accepts=lambda case: None if case.tracking else "without tracking there is no buffer to file")  # fmt: skip
def positions(engine: Any, case: Any) -> dict[str, Any]:
    with tracking(engine, case):
        states = settle(engine, case)
    return {
        "filed_length": [_or_none(s.mamba_last_track_seqlen) for s in states],
        "next_position": [_or_none(s.mamba_next_track_idx) for s in states],
    }


def _host_counts(case: Any) -> str | None:
    if case.situation != "verify":
        return "the scheduler sees results of verified batches only"
    return None if int(case.pre.max()) <= MOST_TOKENS else "more tokens than a request can count"


@adapter(contract="commit.checkpoint_steps", module="scheduler", symbol="_mamba_prefix_cache_update",
         observes=("checkpoint_length",), needs=NEEDS, execution="worker", accepts=_host_counts)  # fmt: skip
def checkpoint_length(engine: Any, case: Any) -> dict[str, Any]:
    """Every request at the first of two slots; without a track slot, no buffer."""
    rows = np.arange(len(case.pre))
    held = (case.track_slot != NONE) & case.tracking
    with settings(engine, interval=case.grid, extra_buffer=True):
        states = settle(
            engine,
            SimpleNamespace(
                pre=case.pre, committed=case.committed, retained=case.committed, draft_tokens=case.draft_tokens,
                position=np.where(held, 0, NONE), planned=0 * rows, lazy=False,
                slots=np.stack([2 * rows, 2 * rows + 1], axis=1), pool_row=rows + 1,
            ),
        )  # fmt: skip
    return {"checkpoint_length": [_or_none(s.mamba_last_track_seqlen) for s in states]}
