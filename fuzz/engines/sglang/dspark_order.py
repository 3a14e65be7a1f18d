"""DSPARK's real round, from the worker's entry to its result.

The planner and the proposer are stand-ins that ask for one full block a request;
the executor that verifies, accepts and writes back is the engine's own, on the
same target stand-in as DFlash's.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import model_config
from fuzz.engines.sglang.dflash_commit import start_attention_backends
from fuzz.engines.sglang.dflash_order import batch, draft_input, stand_ins, target_worker
from fuzz.engines.sglang.round import Round, WorkerStub, attach_round, chains, tracked_requests
from fuzz.engines.sglang.settings import settings

NEEDS = ("settings.config", "dspark.worker_class", "dspark.executor_class", "dspark.start")


def _recorded(engine: Any, case: Any, seen: Round) -> dict[str, Any]:
    block, predicted = chains(engine, case)
    requests, pool = tracked_requests(engine, case)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config, stand_ins(engine):
        worker = _worker(engine, case, config, seen, block, predicted)
        decoding = seen.start(engine, batch(engine, case, requests, pool, draft_input(engine, block)))
        vars(decoding).update(forward_iter=1, spec_verify_tier_num_tokens=0)
        window = _window(engine, block)
        with (
            mock.patch.object(engine.symbol("dspark.module"), "alloc_verify_window", lambda **_: window),
            engine.production(),
        ):
            result = engine.symbol("dspark.worker_class").forward_batch_generation(
                worker, decoding, on_publish=seen.publish
            )
    seen.check_recorded_fact(engine.fact("dspark.batch_lengths_at_commit"))
    return seen.observed(result.new_seq_lens.tolist())


attach_round("dspark", NEEDS, _recorded)


def _window(engine: Any, block: Any) -> ClosedStub:
    """Positions and key-value locations of the block: the models' business."""
    nowhere = engine.torch.zeros_like(block)
    return ClosedStub(
        "verify window",
        positions_2d=nowhere,
        verify_cache_loc=nowhere.flatten(),
        verify_cache_loc_2d=nowhere,
        kv_loc_plan=None,
    )


def _worker(engine: Any, case: Any, config: Any, seen: Round, block: Any, predicted: Any) -> WorkerStub:
    torch = engine.torch
    width = block.shape[1]
    backend = seen.hook.backend(
        present=case.hook,
        absent=("make_forward_metadata_from_raw_verify",),
        init_forward_metadata=lambda _: None,
    )
    runner = ClosedStub(
        "model_runner",
        attn_backend=backend,
        model=None,
        model_config=model_config(case.recurrent),
        decode_cuda_graph_runner=None,
        ngram_embedding_manager=ClosedStub("ngram_embedding_manager", update_after_verify=lambda **_: None),
    )
    target = target_worker(engine, seen, runner, predicted)
    tp_sync = ClosedStub("tp_sync", sync=lambda *_: None)
    executor = WorkerStub(
        engine.symbol("dspark.executor_class"),
        target_worker=target,
        gamma=width - 1,
        verify_num_draft_tokens=width,
        kv_injector=ClosedStub(
            "kv_injector",
            swa_ring_size=None,
            inject_target_hidden=lambda **_: None,
            ids_for=lambda _: torch.zeros_like(block).flatten(),
        ),
        verify_epilogue=None,
        _verify_backend_self_adds_seq_lens_cache=None,
        _simulate_acc_len=0.0,
        _simulated_correct_len=None,
        _target_is_dsv41=False,
        _fused_argmax=False,
        _block_verification=False,
        _rejection_noise=None,
        _tp_sync=tp_sync,
    )
    worker = WorkerStub(
        engine.symbol("dspark.worker_class"),
        server_args=config,
        device=engine.device,
        model_runner=runner,
        _target_worker=target,
        verify_num_draft_tokens=width,
        _block_pos_offsets=torch.arange(width, device=engine.device),
        _verify_planner=_planner(),
        _proposer=_proposer(engine, block),
        _observers=_observers(),
        _verify_executor=executor,
        _verify_epilogue=None,
        _verify_inputs_ready=None,
        _prepare_inputs_once=False,
        _sim_draw_ahead=False,
        _simulate_acc_greedy=False,
        _draft_is_moe=False,
        _draft_context=lambda: nullcontext(),
        _hosts_draft=True,
        draft_model=None,
    )
    start_attention_backends(engine, worker, "dspark")
    return worker


def _planner() -> ClosedStub:
    """No confidence, no budget, no compaction: every request verifies its block."""
    return ClosedStub(
        "verify planner",
        mode_value="none",
        is_compact_mode=False,
        compute_confidence_tensor=lambda **_: None,
        resolve_verify_token_budget=lambda **_: None,
        schedule_layout=lambda **_: None,
        should_run_compact=lambda **_: False,
    )


def _proposer(engine: Any, block: Any) -> ClosedStub:
    drafted = ClosedStub(
        "draft block",
        draft_tokens=block[:, 1:],
        corrected_logits=None,
        greedy_mask=block[:, 0] >= 0,
        temperatures=None,
        greedy_draft=True,
    )
    proposal = ClosedStub(
        "proposal",
        draft_block_ids=block[:, :1],
        draft_block=drafted,
        draft_hidden=None,
        confidence=None,
        confidence_raw=None,
        confidence_tap=None,
        folded=False,
        verify_ids=None,
    )
    return ClosedStub("proposer", propose=lambda **_: proposal)


def _observers() -> ClosedStub:
    return ClosedStub(
        "observers",
        begin_step=lambda: None,
        note_idle_decode_step=lambda: None,
        observe_verify_step=lambda **_: None,
        segment=lambda _: nullcontext(),
    )
