"""DSPARK's commit after verify: which step's state goes to the backend.

Same rule as DFlash's, written a second time in the engine. 0.5.16 has the worker
and no commit at all; commit.call_order shows that from its caller.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import CommitHook, model_config
from fuzz.engines.sglang.dflash_commit import chains_only, start_attention_backends
from fuzz.engines.sglang.settings import settings


@adapter(
    contract="commit.checkpoint_steps",
    module="dspark",
    symbol="_commit_target_mamba_states_after_verify",
    observes=("commits", "current_step", "checkpoint_step"),
    needs=("settings.config", "dspark.commit", "dspark.start"),
    execution="worker",
    accepts=chains_only,
)
def commit(engine: Any, case: Any) -> dict[str, Any]:
    recurrent = case.situation != "no_recurrent_state"
    hook = CommitHook()
    runner = ClosedStub(
        "model_runner",
        attn_backend=hook.backend(present=case.situation != "no_commit_hook"),
        model=None,
        model_config=model_config(recurrent),
    )
    worker = ClosedStub(
        "worker",
        model_runner=runner,
        target_worker=ClosedStub("target_worker", model_runner=runner),
        verify_num_draft_tokens=case.draft_tokens,
    )
    pre = engine.tensor(case.pre, case.length_dtype)
    batch = ClosedStub(
        "batch",
        seq_lens=pre,
        seq_lens_cpu=engine.tensor(case.pre, "int64", contiguous=True),
        mamba_track_indices=engine.tensor(case.track_slot, "int64") if case.tracking else None,
        req_pool_indices=engine.tensor(range(len(case.pre)), "int64"),
        tree_cache=ClosedStub("tree_cache", page_size=1),
    )
    with settings(engine, interval=case.grid, extra_buffer=case.tracking):
        start_attention_backends(engine, worker, "dspark")
        with engine.production():
            engine.symbol("dspark.commit")(
                worker,
                batch=batch,
                seq_lens_pre_verify=pre,
                seq_lens_post_verify=engine.tensor(case.pre + case.committed, case.length_dtype),
                commit_lens=engine.tensor(case.committed, case.committed_dtype),
            )
    return hook.observed(case.track_slot.tolist())
