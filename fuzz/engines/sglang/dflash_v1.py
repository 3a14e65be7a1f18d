"""The real round of DFlash's first worker (releases without overlap).

It differs from the later one in who publishes: ``DFlashVerifyInput.verify``
accepts the block, appends tokens to the requests and advances the batch's
lengths in place, all before the commit. Nobody else reads the batch until the
worker returns, so the lengths count as published at the return.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.dflash_order import MASK_TOKEN, batch, target_worker
from fuzz.engines.sglang.round import (
    Round,
    WorkerStub,
    attach_round,
    chains,
    given_chains,
    tracked_requests,
    untracked,
)
from fuzz.engines.sglang.settings import settings

NEEDS = ("settings.config", "dflash_v1.worker_class", "dflash_v1.draft_input")


def never_idle(case: Any) -> str | None:
    """Idle batches exist only with data-parallel attention, which this worker's
    release refuses."""
    return None if len(case.pre) else "no batch is idle without data-parallel attention"


def _recorded(engine: Any, case: Any, seen: Round) -> dict[str, Any]:
    drive(engine, case, seen, *chains(engine, case))
    seen.check_recorded_fact(engine.fact("dflash.batch_lengths_at_commit"))
    seen.publish(seen.batch.seq_lens)
    return seen.observed(seen.batch.seq_lens.tolist())


attach_round("dflash_v1", NEEDS, _recorded, accepts=never_idle)


@adapter(
    contract="verify.greedy_chain",
    module="dflash_v1",
    symbol="DFlashVerifyInput.verify",
    observes=("accepted", "committed", "post", "bonus_token", "emitted"),
    needs=NEEDS,
    execution="worker",
    accepts=lambda case: None if case.block.shape[1] > 1 else "a block without draft tokens is never drafted",
)
def verify(engine: Any, case: Any) -> dict[str, Any]:
    """Acceptance inside the worker's round, with what it does to the batch."""
    round_ = untracked(case)
    seen = Round(round_)
    result = drive(engine, round_, seen, *given_chains(engine, case))
    return {
        "accepted": result.num_correct_drafts_per_req_cpu,
        "committed": [len(r.output_ids) for r in seen.batch.reqs],
        "post": seen.batch.seq_lens,
        "bonus_token": result.next_token_ids,
        "emitted": [list(r.output_ids) for r in seen.batch.reqs],
    }


def drive(engine: Any, case: Any, seen: Round, block: Any, predicted: Any) -> Any:
    """Run one round and return the worker's result; ``seen`` records it."""
    requests, pool = tracked_requests(engine, case)
    pool.req_to_token = None  # key-value locations are stood in for below
    for request in requests:
        _with_output(request)
    made = _draft_input(engine, case, block)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config, _stand_ins(engine):
        worker = _worker(engine, case, config, seen, block, predicted)
        decoding = seen.start(engine, _batch(engine, case, requests, pool, made))
        with engine.production():
            return engine.symbol("dflash_v1.worker_class").forward_batch_generation(worker, decoding)


def _with_output(request: ClosedStub) -> None:
    vars(request).update(
        output_ids=[], origin_input_ids=[0], grammar=None, finished=lambda: False,
        check_finished=lambda: None, update_finish_state=lambda: None,  # one function, renamed in 0.5.13
        spec_verify_ct=0, spec_num_correct_drafts=0, kv_committed_len=0, kv_allocated_len=0,
    )  # fmt: skip


def _batch(engine: Any, case: Any, requests: Any, pool: Any, spec_info: Any) -> ClosedStub:
    made = batch(engine, case, requests, pool, spec_info)
    vars(made).update(
        batch_size=lambda: len(requests),
        get_model_worker_batch=lambda: ClosedStub(
            "model worker batch", forward_mode=made.forward_mode, spec_info=made.spec_info
        ),
        token_to_kv_pool_allocator=ClosedStub("allocator", free=lambda _: None),
    )
    return made


def _draft_input(engine: Any, case: Any, block: Any) -> Any:
    torch = engine.torch
    rows = len(case.pre)
    return engine.symbol("dflash_v1.draft_input")(
        bonus_tokens=block[:, 0].clone(),
        target_hidden=torch.zeros(0, 1, device=engine.device),
        ctx_lens=torch.zeros(rows, dtype=torch.int32, device=engine.device),
        draft_seq_lens=torch.tensor(case.pre, device=engine.device).to(torch.int32),
    )


def _worker(engine: Any, case: Any, config: Any, seen: Round, block: Any, predicted: Any) -> WorkerStub:
    torch = engine.torch
    rows, width = block.shape
    hidden = torch.zeros(rows * width, 1, device=engine.device)
    head = ClosedStub("lm_head", weight=None, shard_indices=None)
    runner = ClosedStub(
        "model_runner",
        attn_backend=seen.hook.backend(present=case.hook and case.recurrent),
        model=ClosedStub(
            "target model", lm_head=head, get_input_embeddings=lambda: lambda ids: ids.unsqueeze(-1).float()
        ),
    )
    allocator = ClosedStub(
        "draft allocator",
        alloc=lambda size: torch.arange(size, device=engine.device),
        backup_state=lambda: None,
        restore_state=lambda _: None,
    )

    drafted = ClosedStub("draft output", logits_output=ClosedStub("draft logits", hidden_states=hidden))
    return WorkerStub(
        engine.symbol("dflash_v1.worker_class"),
        server_args=config,
        device=torch.device(engine.device),
        tp_rank=0,
        page_size=1,
        block_size=width,
        model_runner=runner,
        target_worker=target_worker(engine, seen, runner, predicted),
        draft_model_runner=ClosedStub(
            "draft_model_runner",
            token_to_kv_pool_allocator=allocator,
            token_to_kv_pool=None,
            req_to_token_pool=ClosedStub("draft req_to_token_pool", req_to_token=None),
            attn_backend=None,
            forward=lambda _: drafted,
        ),
        _mask_token_id=MASK_TOKEN,
        _block_pos_offsets=torch.arange(width, device=engine.device),
        _draft_block_ids_buf=None,
        _draft_block_spec_info=None,
        _warned_sampling_fallback=True,
        _logged_first_verify=True,
        _append_target_hidden_to_draft_kv=lambda *_: None,
        _greedy_sample_from_vocab_parallel_head=lambda **_: block[:, 1:].flatten(),
    )


@contextmanager
def _stand_ins(engine: Any) -> Any:
    """Key-value locations and the attention mask belong to the models' memory,
    not to the round; their helpers are replaced by name for the call."""
    from fuzz.engines.interpreter import no_pinning

    torch = engine.torch
    worker, info = engine.symbol("dflash.module"), engine.symbol("dflash.info_module")
    replaced = (
        (worker, "assign_req_to_token_pool_func", lambda *_: None),
        (info, "assign_req_to_token_pool_func", lambda *_: None),
        (info, "alloc_token_slots", lambda _, size: torch.arange(size, device=engine.device)),
        (worker, "resolve_dflash_verify_mask_policy", lambda _: ("no mask", False)),
    )
    with ExitStack() as stack:
        stack.enter_context(no_pinning())
        for module, name, stand_in in replaced:
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield
