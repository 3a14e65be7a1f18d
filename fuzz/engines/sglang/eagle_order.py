"""EAGLE's rounds: which lengths its workers hand over, and in which order.

``forward_batch_generation`` of each worker runs with its own verify and commit.
The v1 worker advances ``batch.seq_lens`` in place before it commits, and the
first v2 workers put the lengths into the next draft input: in both, whoever plans
the next round has them when the call returns, and that is when they count as
published. Later workers call ``on_publish``.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_round import EagleRound, allocator, nothing, says_no, short_enough
from fuzz.engines.sglang.eagle_surroundings import chain_input, no_context, surroundings
from fuzz.engines.sglang.round import WorkerStub
from fuzz.engines.sglang.settings import settings

CONTRACT = "commit.call_order"
FIELDS = ("order", "current_step", "checkpoint_step", "published")
GDN, LIGHTNING = "hybrid_gdn_config", "hybrid_lightning_config"
KINDS = (GDN, "mamba2_config", LIGHTNING)


def kinds_of(case: Any, kind: str) -> dict[str, Any]:
    """The model runner's attributes for a model of one kind of recurrent state."""
    return {name: ClosedStub(name) if case.recurrent and name == kind else None for name in KINDS}


def worker_of(seen: EagleRound, target: ClosedStub, production_class: type, config: Any, **parts: Any) -> WorkerStub:
    """A worker with the attributes that its round reads."""
    width = seen.case.draft_tokens
    return WorkerStub(
        production_class,
        target_worker=target,
        server_args=config,
        device=seen.engine.device,
        topk=1,
        page_size=1,
        speculative_num_steps=width - 1,
        speculative_num_draft_tokens=width,
        speculative_algorithm=ClosedStub("algorithm", is_standalone=says_no),
        adaptive_controller=None,
        req_to_token_pool=target.model_runner.req_to_token_pool,
        token_to_kv_pool_allocator=allocator(),
        **parts,
    )


def draft_worker(verify_input: Any) -> ClosedStub:
    """A draft worker that proposes ``verify_input`` and extends nothing."""
    return ClosedStub(
        "draft worker",
        draft=lambda batch: verify_input,
        draft_tp_context=no_context,
        draft_runner=ClosedStub("draft runner", tp_group=None),
        parallel_layout=None,
        draft_owns_attention=False,
        _draft_extend_for_decode=nothing,
        _draft_extend_plan_for_decode=nothing,
    )


def round_v2(engine: Any, case: Any, key: str, kind: str = GDN) -> dict[str, Any]:
    """One round of a v2 worker, single-layer or multi-layer."""
    seen, production_class = EagleRound(engine, case), engine.symbol(key)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config:
        target = seen.target_worker(**kinds_of(case, kind))
        worker = worker_of(
            seen,
            target,
            production_class,
            config,
            draft_worker=draft_worker(chain_input(seen)),
            plan_stream=None,
            plan_stream_ctx=no_context(),
            enable_dp_spec_prefill_coordination=False,
        )
        draft_input = ClosedStub("draft input", is_verify_input=says_no)
        batch = seen.open(target.model_runner.req_to_token_pool, draft_input)
        with surroundings(seen, engine.symbol(f"{key}_module")), engine.production():
            if engine.fact("eagle.publication") == "callback":
                result = production_class.forward_batch_generation(worker, batch, on_publish=seen.publish)
                returned = result.new_seq_lens
            else:
                result = production_class.forward_batch_generation(worker, batch)
                returned = result.next_draft_input.new_seq_lens
                seen.publish(returned)
    seen.check_recorded_fact(engine.fact("eagle.lengths_at_commit"))
    return seen.observed(returned.tolist())


@adapter(contract=CONTRACT, module="eagle_v2", symbol="forward_batch_generation", observes=FIELDS,
         needs=("settings.config", "eagle.v2_worker"), execution="worker", accepts=short_enough)  # fmt: skip
def eagle_v2(engine: Any, case: Any) -> dict[str, Any]:
    return round_v2(engine, case, "eagle.v2_worker")


@adapter(contract=CONTRACT, module="eagle_v2", symbol="forward_batch_generation(cuda)", observes=FIELDS,
         needs=("settings.config", "eagle.v2_worker", "eagle.fused_outputs"), execution="triton",
         accepts=short_enough)  # fmt: skip
def eagle_v2_cuda(engine: Any, case: Any) -> dict[str, Any]:
    """With the step indices that CUDA tensors get from the verify's own kernel."""
    from fuzz.engines.interpreter import cuda_tensors

    module, kernel = engine.symbol("eagle.common_module"), engine.symbol("eagle.fused_outputs")
    spy = mock.Mock(side_effect=kernel)
    with mock.patch.object(module, "prepare_verify_commit_outputs", spy), cuda_tensors():
        observed = round_v2(engine, case, "eagle.v2_worker")
    engine.require_path(spy.called or not len(case.pre), "prepare_verify_commit_outputs from verify")
    return observed


@adapter(contract=CONTRACT, module="eagle_v2", symbol="forward_batch_generation(lightning)", observes=FIELDS,
         needs=("settings.config", "eagle.v2_worker", "eagle.state_kinds"), execution="worker",
         accepts=short_enough)  # fmt: skip
def eagle_v2_lightning(engine: Any, case: Any) -> dict[str, Any]:
    """A model whose recurrent state is that of lightning attention."""
    return round_v2(engine, case, "eagle.v2_worker", LIGHTNING)


@adapter(contract=CONTRACT, module="multi_layer_eagle_v2", symbol="forward_batch_generation", observes=FIELDS,
         needs=("settings.config", "eagle.multi_layer_worker"), execution="worker", accepts=short_enough)  # fmt: skip
def multi_layer_v2(engine: Any, case: Any) -> dict[str, Any]:
    return round_v2(engine, case, "eagle.multi_layer_worker")


def round_v1(engine: Any, case: Any, kind: str = GDN) -> dict[str, Any]:
    """One round of the v1 worker, which allocates KV itself and frees the rest."""
    seen, production_class = EagleRound(engine, case, hidden_states=True), engine.symbol("eagle.v1_worker")
    verify_input = chain_input(seen)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config:
        target = seen.target_worker(**kinds_of(case, kind))
        worker = worker_of(
            seen,
            target,
            production_class,
            config,
            draft=lambda batch: verify_input,
            draft_tp_context=no_context,
            draft_model_runner=ClosedStub("draft runner", tp_group=None),
            forward_draft_extend_after_decode=nothing,
            _draft_preprocess_idle=nothing,
        )
        batch = seen.open(target.model_runner.req_to_token_pool, None)
        batch.get_model_worker_batch = lambda **kw: ClosedStub(
            "model worker batch", capture_hidden_mode=verify_input.capture_hidden_mode
        )

        def slots(tree_cache: Any, size: int) -> Any:
            return engine.torch.arange(size, device=engine.device)

        handed_out = mock.patch.object(engine.symbol("eagle.verify_info"), "alloc_token_slots", slots)
        with surroundings(seen, engine.symbol("eagle.v1_worker_module")), handed_out, engine.production():
            production_class.forward_batch_generation(worker, batch)
        seen.publish(batch.seq_lens)
    seen.check_recorded_fact(engine.fact("eagle.v1_lengths_at_commit"))
    return seen.observed(batch.seq_lens.tolist())


@adapter(contract=CONTRACT, module="eagle_v1", symbol="forward_batch_generation", observes=FIELDS,
         needs=("settings.config", "eagle.v1_worker"), execution="worker", accepts=short_enough)  # fmt: skip
def eagle_v1(engine: Any, case: Any) -> dict[str, Any]:
    return round_v1(engine, case)


@adapter(contract=CONTRACT, module="eagle_v1", symbol="forward_batch_generation(lightning)", observes=FIELDS,
         needs=("settings.config", "eagle.v1_worker", "eagle.state_kinds"), execution="worker",
         accepts=short_enough)  # fmt: skip
def eagle_v1_lightning(engine: Any, case: Any) -> dict[str, Any]:
    return round_v1(engine, case, LIGHTNING)
