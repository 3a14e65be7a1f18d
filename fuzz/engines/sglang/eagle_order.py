"""EAGLE's rounds: which lengths its workers hand over, and in which order.

``forward_batch_generation`` of each worker runs with its own verify and commit.
The v1 worker advances ``batch.seq_lens`` in place before it commits, and the
first v2 workers put the lengths into the next draft input: in both, whoever plans
the next round has them when the call returns, and that is when they count as
published. Later workers call ``on_publish``.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_round import Round, allocator, chain_input, no_context, short_enough, surroundings
from fuzz.engines.sglang.settings import settings

FIELDS = ("order", "current_step", "checkpoint_step", "published")
KINDS = ("hybrid_gdn_config", "mamba2_config", "hybrid_lightning_config")


def kinds_of(case: Any, kind: str = KINDS[0]) -> dict[str, Any]:
    """The model runner's attributes for a model of one kind of recurrent state."""
    return {name: ClosedStub(name) if case.recurrent and name == kind else None for name in KINDS}


def worker_of(engine: Any, round_: Round, target: ClosedStub, cls: Any, config: Any, **attributes: Any) -> ClosedStub:
    """A worker with the attributes that its round reads, and its own methods."""
    case = round_.case
    worker = ClosedStub(
        "worker", target_worker=target, server_args=config, device=engine.device, topk=1, page_size=1,
        speculative_num_steps=case.draft_tokens - 1, speculative_num_draft_tokens=case.draft_tokens,
        speculative_algorithm=ClosedStub("algorithm", is_standalone=lambda: False), adaptive_controller=None,
        req_to_token_pool=target.model_runner.req_to_token_pool, token_to_kv_pool_allocator=allocator(),
        **attributes,
    )  # fmt: skip
    for name in ("verify", "_mamba_verify_update", "activate_step_by_batch"):
        if hasattr(cls, name):
            setattr(worker, name, partial(getattr(cls, name), worker))
    return worker


def draft_worker(verify_input: Any) -> ClosedStub:
    """A draft worker that proposes ``verify_input`` and extends nothing."""
    return ClosedStub(
        "draft worker", draft=lambda batch: verify_input, draft_tp_context=no_context,
        _draft_extend_for_decode=lambda *args, **kw: None, _draft_extend_plan_for_decode=lambda batch: None,
        draft_runner=ClosedStub("draft runner", tp_group=None), parallel_layout=None, draft_owns_attention=False,
    )  # fmt: skip


def round_v2(engine: Any, case: Any, key: str, kind: str = KINDS[0]) -> Round:
    """One round of a v2 worker, single-layer or multi-layer."""
    round_, cls = Round(engine, case), engine.symbol(key)
    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config:
        target = round_.target_worker(**kinds_of(case, kind))
        worker = worker_of(
            engine, round_, target, cls, config, draft_worker=draft_worker(chain_input(round_)), plan_stream=None,
            plan_stream_ctx=no_context(), enable_dp_spec_prefill_coordination=False,
        )  # fmt: skip
        draft_input = ClosedStub("draft input", is_verify_input=lambda: False)
        batch = round_.batch(target.model_runner.req_to_token_pool, spec_info=draft_input)
        with surroundings(engine, round_, engine.symbol(f"{key}_module")), engine.production():
            if engine.fact("eagle.publication") == "callback":
                cls.forward_batch_generation(worker, batch, on_publish=round_.publish)
            else:
                result = cls.forward_batch_generation(worker, batch)
                round_.publish(result.next_draft_input.new_seq_lens)
    return round_


@adapter(contract="commit.call_order", module="eagle_v2", symbol="forward_batch_generation", observes=FIELDS,
         needs=("eagle.v2_worker",), execution="worker", accepts=short_enough)  # fmt: skip
def eagle_v2(engine: Any, case: Any) -> dict[str, Any]:
    return round_v2(engine, case, "eagle.v2_worker").outcome()


@adapter(contract="commit.call_order", module="eagle_v2", symbol="forward_batch_generation(cuda)", observes=FIELDS,
         needs=("eagle.v2_worker", "eagle.fused_outputs"), execution="triton", accepts=short_enough)  # fmt: skip
def eagle_v2_fused(engine: Any, case: Any) -> dict[str, Any]:
    """With the step indices that CUDA tensors get from the verify's own kernel."""
    from fuzz.engines.interpreter import cuda_tensors

    module, kernel = engine.symbol("eagle.common_module"), engine.symbol("eagle.fused_outputs")
    with mock.patch.object(module, "prepare_verify_commit_outputs", mock.Mock(side_effect=kernel)) as spied:
        with cuda_tensors():
            round_ = round_v2(engine, case, "eagle.v2_worker")
    engine.require_path(spied.called or not len(case.pre), "prepare_verify_commit_outputs from verify")
    return round_.outcome()


@adapter(contract="commit.call_order", module="eagle_v2", symbol="forward_batch_generation(lightning)",
         observes=FIELDS, needs=("eagle.v2_worker", "eagle.state_kinds"), execution="worker",
         accepts=short_enough)  # fmt: skip
def eagle_v2_lightning(engine: Any, case: Any) -> dict[str, Any]:
    """A model whose recurrent state is lightning attention's."""
    return round_v2(engine, case, "eagle.v2_worker", KINDS[2]).outcome()


@adapter(contract="commit.call_order", module="multi_layer_eagle_v2", symbol="forward_batch_generation",
         observes=FIELDS, needs=("eagle.multi_layer_worker",), execution="worker", accepts=short_enough)  # fmt: skip
def multi_layer_v2(engine: Any, case: Any) -> dict[str, Any]:
    return round_v2(engine, case, "eagle.multi_layer_worker").outcome()


def round_v1(engine: Any, case: Any, kind: str = KINDS[0]) -> Round:
    """One round of the v1 worker, which allocates KV itself and frees the rest."""
    torch = engine.torch
    round_, cls = Round(engine, case, hidden_states=True), engine.symbol("eagle.v1_worker")
    verify_input = chain_input(round_)

    def extend(batch: Any) -> None:
        return None

    with settings(engine, interval=case.grid, extra_buffer=case.tracking) as config:
        target = round_.target_worker(**kinds_of(case, kind))
        worker = worker_of(
            engine, round_, target, cls, config, draft=lambda batch: verify_input, draft_tp_context=no_context,
            draft_model_runner=ClosedStub("draft runner", tp_group=None), forward_draft_extend_after_decode=extend,
            _draft_preprocess_idle=extend,
        )  # fmt: skip
        batch = round_.batch(target.model_runner.req_to_token_pool, spec_info=None, spec_algorithm=None)
        batch.get_model_worker_batch = lambda **kw: ClosedStub(
            "model worker batch", capture_hidden_mode=verify_input.capture_hidden_mode
        )
        slots = lambda tree_cache, size, **kw: torch.arange(size, device=engine.device)  # noqa: E731
        with surroundings(engine, round_, engine.symbol("eagle.v1_worker_module")):
            with mock.patch.object(engine.symbol("eagle.verify_info"), "alloc_token_slots", slots), engine.production():
                cls.forward_batch_generation(worker, batch)
        round_.publish(batch.seq_lens)
    return round_


@adapter(contract="commit.call_order", module="eagle_v1", symbol="forward_batch_generation", observes=FIELDS,
         needs=("eagle.v1_worker",), execution="worker", accepts=short_enough)  # fmt: skip
def eagle_v1(engine: Any, case: Any) -> dict[str, Any]:
    return round_v1(engine, case).outcome()


@adapter(contract="commit.call_order", module="eagle_v1", symbol="forward_batch_generation(lightning)",
         observes=FIELDS, needs=("eagle.v1_worker", "eagle.state_kinds"), execution="worker",
         accepts=short_enough)  # fmt: skip
def eagle_v1_lightning(engine: Any, case: Any) -> dict[str, Any]:
    return round_v1(engine, case, KINDS[2]).outcome()
