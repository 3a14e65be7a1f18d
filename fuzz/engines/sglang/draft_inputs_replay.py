"""Older draft-extend graphs, and what a backend hands a replayed graph of recurrent states."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.draft_inputs_graph import (
    CONTRACT,
    PADDING,
    ROWS,
    Batch,
    Buffers,
    batches,
    forward_batch,
    has_drafts,
)
from oracle.draft.graph_rows_case import FIRST_STATE, POOL_ROWS

BACKEND_FILL = 1  # the length that these backends capture padding with
STATES = ("state_slots", "row_starts", "padding_states")


@adapter(contract=CONTRACT, module="multi_layer_eagle_v2", symbol="init_replay_state", observes=(*ROWS, *PADDING),
         needs=("graph.composite", "graph.replay_state"), execution="worker",
         accepts=lambda case: "no rows stand before the block" if case.front else has_drafts(case))  # fmt: skip
def init_replay_state(engine: Any, case: Any) -> dict[str, Any]:
    """The worker's order: the shared buffers are reset, then the first step's runner
    takes the batch."""
    torch, buffers = engine.torch, Buffers(engine, case)
    name = engine.fact("graph.counts")
    kept = {n: t for n, t in vars(buffers).items() if n != "case"}
    kept |= {name: buffers.num_accept_tokens, "swa_out_cache_loc": torch.zeros_like(buffers.out_cache_loc)}
    composite = ClosedStub("runners of all steps", cuda_graph_buffers=kept, seq_len_fill_value=case.fill)
    runner = ClosedStub(
        "step runner", buffers=ClosedStub("buffers", **kept), seq_len_fill_value=case.fill,
        extend_seq_lens_cpu=[case.width] * case.capacity,
    )  # fmt: skip
    for prefix, bucket in batches(case):
        batch = Batch(engine, case, prefix)
        # Counts reach the buffers through the reset; the draft input of a decode carries none.
        spec_info = SimpleNamespace(hidden_states=batch.hidden, num_correct_drafts=None, accept_length=None)
        starts = torch.arange(0, batch.size * case.width, case.width, dtype=torch.int32, device=engine.device)
        lengths = torch.full((batch.size,), case.width, dtype=torch.int32, device=engine.device)
        given = forward_batch(
            batch, spec_info=spec_info, extend_seq_lens=lengths, extend_start_loc=starts,
            extend_seq_lens_cpu=[case.width] * batch.size,
        )  # fmt: skip
        result = ClosedStub("batch result", accept_lens=batch.committed)
        with engine.production():
            engine.symbol("graph.composite").reset_buffers(composite, given, result)
            engine.symbol("graph.replay_state")(runner, given, bucket, batch.size, batch.size * case.width)
    return buffers.observed()


def _states(engine: Any) -> Any:
    """State slot by pool row; nobody's row has slot 0."""
    mapping = engine.torch.arange(FIRST_STATE, FIRST_STATE + POOL_ROWS, dtype=engine.torch.int32)
    mapping[0] = 0
    return mapping.to(engine.device)


def _backend(engine: Any, case: Any) -> Any:
    torch = engine.torch

    def zeros(rows: int) -> Any:
        return torch.zeros(rows, dtype=torch.int32, device=engine.device)

    mapping = _states(engine)
    pool = ClosedStub(
        "pool",
        get_mamba_indices=lambda rows: mapping[rows],
        translate_mamba_indices=lambda slots: slots,
        req_index_to_mamba_index_mapping=mapping,
        mamba_v2p_table=None,
    )
    starts = torch.arange(0, (case.capacity + 1) * case.width, case.width, dtype=torch.int32, device=engine.device)
    return bound(
        engine.symbol("graph.backend"), "backend",
        device=engine.device, topk=1, pad_slot_id=-1, req_to_token_pool=pool,
        state_indices_list=[zeros(n + 1) for n in range(case.capacity)],
        query_start_loc_list=[zeros(n + 2) for n in range(case.capacity)],
        cached_cuda_graph_decode_query_start_loc=starts, cached_cuda_graph_verify_query_start_loc=starts,
        replayssm_write_pos_list=None, replayssm_force_flush_list=None,
        mamba_track_indices_buf=torch.full((case.capacity,), -1, dtype=torch.int64, device=engine.device),
        _fused_state_indices_ok=engine.device != "cpu", _graph_seq_len_fill_value=BACKEND_FILL,
    )  # fmt: skip


def _replay(engine: Any, case: Any, tracking: bool) -> Any:
    """Replay the batch before and the batch; the second's metadata."""
    torch, backend = engine.torch, _backend(engine, case)
    verify = case.width > 1
    mode = ClosedStub("forward mode", is_target_verify=lambda: verify, is_decode_or_idle=lambda: not verify)
    spec_info = ClosedStub("verify input", draft_token_num=case.width, topk=1, ragged_verify_layout=None)
    pool_rows = torch.zeros(case.capacity, dtype=torch.int64, device=engine.device)
    tracks = torch.zeros(case.capacity, dtype=torch.int64, device=engine.device)
    metadata = None
    for prefix, bucket in batches(case):
        batch = Batch(engine, case, prefix)
        pool_rows[: batch.size] = batch.pool_rows  # padding keeps what it had
        tracks.zero_()[: batch.size] = batch.track_slots
        lengths = torch.full((bucket,), BACKEND_FILL, dtype=torch.int64)
        lengths[: batch.size] = batch.lengths.cpu()
        told = {"num_padding": bucket - batch.size} if engine.fact("graph.told_padding") else {}
        told |= {"mamba_track_indices": tracks[:bucket]} if tracking else {}
        with engine.production():
            metadata = engine.symbol("graph.backend")._replay_metadata(
                backend, bucket, pool_rows[:bucket], mode, spec_info if verify else None, lengths, **told
            )
    return metadata


def _captured_with_one(case: Any) -> str | None:
    return None if case.fill == BACKEND_FILL else "these backends capture padding with the length 1"


def _slots(case: Any, metadata: Any) -> dict[str, Any]:
    slots, b = metadata.mamba_cache_indices.tolist(), len(case.lengths)
    return {
        "state_slots": slots[:b],
        "row_starts": metadata.query_start_loc.tolist(),
        "padding_states": slots[b:],
    }


@adapter(contract=CONTRACT, module="hybrid_backend", symbol="_replay_metadata", observes=STATES,
         needs=("graph.backend",), execution="worker", accepts=_captured_with_one)  # fmt: skip
def replay_metadata(engine: Any, case: Any) -> dict[str, Any]:
    return _slots(case, _replay(engine, case, tracking=False))


@adapter(contract=CONTRACT, module="hybrid_backend", symbol="_replay_metadata(track slots)",
         observes=(*STATES, "track_slots", "rows_handed_out"), needs=("graph.backend", "graph.tracks"),
         execution="worker", accepts=_captured_with_one)  # fmt: skip
def replay_tracks(engine: Any, case: Any) -> dict[str, Any]:
    metadata = _replay(engine, case, tracking=True)
    tracks = metadata.mamba_track_indices.tolist()
    return _slots(case, metadata) | {"track_slots": tracks[: len(case.lengths)], "rows_handed_out": len(tracks)}


@adapter(contract=CONTRACT, module="mamba_kernels", symbol="fused_replay_state_indices",
         observes=("state_slots", "padding_states"), needs=("graph.fused_states",), execution="triton")  # fmt: skip
def fused_states(engine: Any, case: Any) -> dict[str, Any]:
    torch, mapping = engine.torch, _states(engine)
    pool_rows = torch.zeros(case.capacity, dtype=torch.int64, device=engine.device)
    out = torch.zeros(case.capacity, dtype=torch.int32, device=engine.device)
    for prefix, bucket in batches(case):
        batch = Batch(engine, case, prefix)
        pool_rows[: batch.size] = batch.pool_rows
        with engine.production():
            engine.symbol("graph.fused_states")(
                req_pool_indices=pool_rows[:bucket], mamba_index_mapping=mapping, out_state_indices=out[:bucket],
                valid_bs=batch.size, total_bs=bucket,
            )  # fmt: skip
    slots, b = out[: case.bucket].tolist(), len(case.lengths)
    return {"state_slots": slots[:b], "padding_states": slots[b:]}
