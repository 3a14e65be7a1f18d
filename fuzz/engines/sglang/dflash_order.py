"""DFlash's real round, from the worker's entry to its result.

``forward_batch_generation`` runs with stand-ins for the models: the draft
proposes what the case says, the target predicts what makes exactly the case's
drafts match. Everything that decides the order (preparing tracks, committing,
publishing) is the engine's.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import model_config
from fuzz.engines.sglang.dflash_commit import start_attention_backends
from fuzz.engines.sglang.predictions import Predictions
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

MASK_TOKEN = 3
NEEDS = ("settings.config", "dflash.forward", "dflash.worker_class", "dflash.draft_input")


def _recorded(engine: Any, case: Any, seen: Round) -> dict[str, Any]:
    result = drive(engine, case, seen, *chains(engine, case))
    seen.check_recorded_fact(engine.fact("dflash.batch_lengths_at_commit"))
    return seen.observed(result.new_seq_lens.tolist())


attach_round("dflash", NEEDS, _recorded)


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol="forward_batch_generation",
    observes=("committed", "post", "bonus_token", "emitted"),
    needs=NEEDS,
    execution="triton",
)
def accept_in_round(engine: Any, case: Any) -> dict[str, Any]:
    """Acceptance as the worker's round does it; some releases have it inline."""
    round_ = untracked(case)
    seen = Round(round_)
    result = drive(engine, round_, seen, *given_chains(engine, case))
    rows = result.next_token_ids.view(len(case.pre), -1).tolist()
    committed = result.accept_lens.tolist()
    return {
        "committed": committed,
        "post": seen.published,
        "bonus_token": getattr(result.next_draft_input, engine.fact("dflash.draft_input_token")),
        "emitted": [row[: max(0, c)] for row, c in zip(rows, committed, strict=True)],
    }


def drive(engine: Any, case: Any, seen: Round, block: Any, predicted: Any) -> Any:
    """Run one round of the worker and return its result; ``seen`` records it."""
    requests, pool = tracked_requests(engine, case)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config, stand_ins(engine):
        worker = _worker(engine, case, config, seen, block, predicted)
        decoding = seen.start(engine, batch(engine, case, requests, pool, draft_input(engine, block)))
        with engine.production():
            result = engine.symbol("dflash.forward")(worker, decoding, on_publish=seen.publish)
    engine.require_path(worker._use_triton_prepare_block and worker._use_triton_accept_bonus, "Triton kernels")
    return result


def batch(engine: Any, case: Any, requests: Any, pool: Any, spec_info: Any) -> ClosedStub:
    """A decoding batch, or an idle one where the case has no requests. It holds
    no track slots, as after a filter or a merge."""
    torch = engine.torch
    modes = engine.symbol("dflash.forward_mode")
    lengths = torch.tensor(case.pre.tolist(), dtype=torch.int64, device=engine.device)
    return ClosedStub(
        "batch",
        forward_mode=modes.DECODE if len(case.pre) else modes.IDLE,
        is_extend_in_batch=False,
        spec_info=spec_info,
        seq_lens=lengths,
        seq_lens_cpu=lengths.cpu().clone(),
        seq_lens_sum=int(lengths.sum()),
        req_pool_indices=torch.arange(len(case.pre), device=engine.device),
        req_to_token_pool=pool,
        tree_cache=ClosedStub("tree_cache", page_size=1),
        reqs=requests,
        sampling_info=None,
        has_grammar=False,
        return_logprob=False,
        mamba_track_indices=None,
        can_run_decode_cuda_graph=False,
        global_num_tokens=None,
        device=engine.device,
    )


def draft_input(engine: Any, block: Any) -> Any:
    """What the previous round carried over: the current token of each row."""
    made = engine.symbol("dflash.draft_input").create_idle_input(engine.device)
    name = engine.fact("dflash.draft_input_token")
    setattr(made, name, block[:, 0].to(getattr(made, name).dtype))
    return made


def _worker(engine: Any, case: Any, config: Any, seen: Round, block: Any, predicted: Any) -> WorkerStub:
    torch = engine.torch
    rows, width = block.shape
    hidden = torch.zeros(rows * width, 1, device=engine.device)
    asks_hook = engine.fact("dflash.nothing_to_commit") == "hook"
    backend = seen.hook.backend(
        present=case.hook and (case.recurrent or not asks_hook), init_forward_metadata=lambda _: None
    )
    head = ClosedStub("lm_head", absent=("quant_method",), weight=torch.zeros(1, 1))
    plan = ClosedStub("kv_loc_plan", bind=lambda *_: None)
    runner = ClosedStub(
        "model_runner",
        attn_backend=backend,
        model=ClosedStub(
            "target model", lm_head=head, get_input_embeddings=lambda: lambda ids: ids.unsqueeze(-1).float()
        ),
        model_config=model_config(case.recurrent),
        req_to_token_pool=ClosedStub(
            "req_to_token_pool", req_to_token=torch.zeros(max(rows, 1), 4, dtype=torch.int32, device=engine.device)
        ),
        decode_cuda_graph_runner=None,
        kv_index_translator=ClosedStub("kv_index_translator", plan=lambda **_: plan),
    )

    drafted = ClosedStub(
        "draft output", logits_output=ClosedStub("draft logits", hidden_states=hidden), can_run_graph=False
    )
    worker = WorkerStub(
        engine.symbol("dflash.worker_class"),
        server_args=config,
        device=engine.device,
        block_size=width,
        model_runner=runner,
        _target_worker=target_worker(engine, seen, runner, predicted),
        draft_model_runner=ClosedStub(
            "draft_model_runner", forward=lambda _: drafted, tp_group=None, kv_index_translator=None
        ),
        draft_model=ClosedStub("draft model", absent=("is_nemotron_35_draft",)),
        use_compact_draft_cache=False,
        _mask_token_id=MASK_TOKEN,
        _draft_block_ids_buf=None,
        _draft_block_spec_info=None,
        _use_triton_prepare_block=True,
        _use_triton_accept_bonus=True,
        _accept_bonus_buffer_cap=0,
        _accept_bonus_buffer_slot=0,
        _greedy_sample_from_vocab_parallel_head=lambda **_: block[:, 1:].flatten(),
        _append_target_hidden_to_draft_kv_by_loc=lambda **_: None,
        _draft_write_ids=lambda _: torch.zeros(rows * width, dtype=torch.int64, device=engine.device),
        _draft_sampler=None,
        _noise_embed_scale=1.0,
        _full_embed_gpu=None,
        _is_domino=False,
        selector=None,
        lilicorr=None,
        _selector_sample=None,
        _target_logits_processor=None,
        _tp_sync=ClosedStub("tp_sync", sync=lambda *_: None),
        draft_tp_context=lambda *_, **__: nullcontext(),
        draft_owns_attention=False,
        draft_parallel_layout=ClosedStub("draft_parallel_layout", tp_group=None),
    )
    if not asks_hook:
        start_attention_backends(engine, worker, "dflash")
    return worker


def target_worker(engine: Any, seen: Round, runner: ClosedStub, predicted: Any) -> ClosedStub:
    """The target: its forward is the round's verify and predicts ``predicted``."""

    def forward(*_: Any, **__: Any) -> ClosedStub:
        seen.verified()
        logits = ClosedStub(
            "target logits",
            next_token_logits=Predictions(predicted.flatten()),
            hidden_states=engine.torch.zeros(predicted.numel(), 1, device=engine.device),
        )
        return ClosedStub(
            "target output",
            logits_output=logits,
            can_run_cuda_graph=False,
            routed_experts_output=None,
            indexer_topk_output=None,
        )

    return ClosedStub("target_worker", model_runner=runner, forward_batch_generation=forward)


@contextmanager
def stand_ins(engine: Any) -> Any:
    """What a CPU lacks and what belongs to the models, for the call only: stream
    bookkeeping of tensors, pinned memory, and the batch that the target's forward
    would receive."""
    from fuzz.engines.interpreter import no_pinning

    class Event:
        def record(self) -> None: ...

    torch = engine.torch
    forward_batch = ClosedStub("verify forward batch", original_global_num_tokens_cpu=None)
    with ExitStack() as stack:
        stack.enter_context(no_pinning())
        if engine.device == "cpu":
            stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", lambda *_: None))
            stack.enter_context(mock.patch.object(torch.cpu, "Event", Event, create=True))
        stack.enter_context(
            mock.patch.object(
                engine.symbol("dflash.info_module"),
                "ForwardBatch",
                ClosedStub("ForwardBatch", init_new=lambda *_, **__: forward_batch),
            )
        )
        yield
