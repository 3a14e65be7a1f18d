"""DFlash's commit after verify: which step's state goes to the backend.

The method computes on plain tensors and hands the result to the backend's hook.
Older releases read the length after verify from the batch, which their own
caller had advanced (0.5.12) or not yet (the next three): the version record says
which, and commit.call_order checks that against the caller itself.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import CommitHook, model_config
from fuzz.engines.sglang.settings import settings


def chains_only(case: Any) -> str | None:
    """DFlash and DSPARK verify one chain a request and are never asked when the
    batch is idle: their caller returns before."""
    if case.form != "chain":
        return "verifies chains only"
    if case.situation in ("idle", "empty_accept_index"):
        return "the caller returns before this method"
    return None


def sweep_update(engine: Any, rows: Any) -> dict[str, Any]:
    hook, slots, pre, committed = CommitHook(), rows.slots(), rows.lengths(), rows.committed()
    _update(engine, hook, rows.grid, pre, pre + committed.to(pre.dtype), committed, slots, rows.slots())
    return hook.swept(rows.slots())


@adapter(
    contract="commit.checkpoint_steps",
    module="dflash",
    symbol="_update_target_mamba_state_after_verify",
    observes=("commits", "current_step", "checkpoint_step"),
    needs=("settings.config", "dflash.update"),
    execution="worker",
    accepts=chains_only,
    sweep=sweep_update,
)
def update(engine: Any, case: Any) -> dict[str, Any]:
    hook = CommitHook()
    _update(
        engine,
        hook,
        case.grid,
        engine.tensor(case.pre, case.length_dtype),
        engine.tensor(case.pre + case.committed, case.length_dtype),
        engine.tensor(case.committed, case.committed_dtype),
        engine.tensor(case.track_slot, "int64") if case.tracking else None,
        engine.tensor(range(len(case.pre)), "int64"),
        recurrent=case.situation != "no_recurrent_state",
        has_hook=case.situation != "no_commit_hook",
    )
    return hook.observed(case.track_slot.tolist())


def _update(
    engine: Any, hook: CommitHook, grid: int, pre: Any, post: Any, committed: Any, slots: Any, pool_rows: Any,
    *, recurrent: bool = True, has_hook: bool = True,
) -> None:  # fmt: skip
    """Call the shipped method with a recorder as the hook; without ``slots`` nothing is tracked."""
    batch = ClosedStub(
        "batch",
        seq_lens=post if engine.fact("dflash.batch_lengths_at_commit") == "post" else pre.clone(),
        mamba_track_indices=slots,
        req_pool_indices=pool_rows,
        tree_cache=ClosedStub("tree_cache", page_size=1),
    )
    lengths = {"seq_lens_pre_verify": pre, "commit_lens": committed}
    if engine.fact("dflash.post_argument"):
        lengths["seq_lens_post_verify"] = post
    with settings(engine, interval=grid, extra_buffer=slots is not None) as config:
        worker = _worker(engine, config, hook, recurrent, has_hook)
        with engine.production():
            engine.symbol("dflash.update")(worker, batch=batch, **lengths)


def _worker(engine: Any, config: Any, hook: CommitHook, recurrent: bool, has_hook: bool) -> ClosedStub:
    """The worker as the method sees it. Where a flag decides that there is
    nothing to commit, the engine's own start-up sets it."""
    if engine.fact("dflash.nothing_to_commit") == "hook":
        backend = hook.backend(present=recurrent and has_hook)
    else:
        backend = hook.backend(present=has_hook)
    runner = ClosedStub("model_runner", attn_backend=backend, model=None, model_config=model_config(recurrent))
    worker = ClosedStub(
        "worker",
        server_args=config,
        model_runner=runner,
        target_worker=ClosedStub("target_worker", model_runner=runner),
    )
    if engine.fact("dflash.nothing_to_commit") == "flag":
        start_attention_backends(engine, worker, "dflash")
    return worker


def start_attention_backends(engine: Any, worker: ClosedStub, module: str) -> None:
    """Run the worker's own start-up step that decides whether it must commit.

    What it does besides (process groups, the draft's backends) is taken out by
    name; the names are recorded per version.
    """
    worker._draft_worker = ClosedStub("draft_worker", init_attention_backends=lambda: None)
    for name, value in engine.fact(f"{module}.start_attributes").items():
        vars(worker).setdefault(name, _START_VALUES[value])
    with ExitStack() as stack:
        for name, value in engine.fact(f"{module}.start_outside").items():
            stack.enter_context(mock.patch.object(engine.symbol(f"{module}.module"), name, _START_VALUES[value]))
        engine.symbol(f"{module}.start")(worker)


def _no_context(*_: Any, **__: Any) -> Any:
    return nullcontext()


def _answers_false(*_: Any, **__: Any) -> bool:
    return False


_START_VALUES = {
    "no context": _no_context,
    "answers false": _answers_false,
    "a group": ClosedStub("draft_model_runner", tp_group=None),
    "no": False,
    "yes": True,
    "nothing": None,
}
