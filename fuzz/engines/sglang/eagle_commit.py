"""Which verify step's state EAGLE and NGRAM keep: the shared commit.

The commit receives a batch, the committed counts and the accepted nodes, and
hands two step indices a request to a hook. Here the hook is a recorder, so the
targets are the index arithmetic and the decisions not to commit at all. What a
caller decides (which lengths the batch holds) comes from the version record and
is checked by ``commit.call_order``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_stubs import Hook, guarded, model_runner
from fuzz.engines.sglang.settings import settings

STEPS = ("current_step", "checkpoint_step")
CONTRACT = "commit.checkpoint_steps"


def node_numbers(case: Any) -> np.ndarray:
    """``accept_index``: node numbers in the whole batch, row r starting at r * N."""
    rows = np.arange(len(case.pre))[:, None] * case.draft_tokens
    return np.where(case.path >= 0, case.path + rows, -1)


def batch_of(engine: Any, case: Any, lengths: Any, *, contiguous: bool = False) -> ClosedStub:
    """The part of a batch that a commit reads."""
    slots = engine.tensor(case.track_slot, "int64", contiguous=True)
    return ClosedStub(
        "batch",
        forward_mode=ClosedStub("forward mode", is_idle=lambda: case.situation == "idle"),
        seq_lens=engine.tensor(lengths, case.length_dtype, contiguous=contiguous),
        mamba_track_indices=slots if case.tracking else None,
        req_pool_indices=engine.tensor(np.arange(len(case.pre)), "int64", contiguous=True),
        tree_cache=ClosedStub("tree cache", page_size=1),
    )


def accept_index(engine: Any, case: Any, *, contiguous: bool = False) -> Any:
    """[B, path_width] int32, or the empty vector that idle sampling returns."""
    if not len(case.pre):
        return engine.tensor(np.zeros(0, np.int32), "int32")
    return guarded(engine, node_numbers(case), "int32", case, contiguous=contiguous)


def commit(engine: Any, case: Any, hook: Hook, pool: ClosedStub, *, kernel: bool) -> None:
    """Call the shipped commit with a recorder as the hook. ``kernel``: the index
    kernel answers, and gets contiguous tensors, as from every caller."""
    backend = hook.in_backend(present=case.situation != "no_commit_hook")
    runner = model_runner(backend, recurrent=case.situation != "no_recurrent_state", pool=pool)
    target = ClosedStub("target worker", model_runner=runner)
    batch = batch_of(engine, case, case.pre, contiguous=kernel)
    committed = engine.tensor(case.committed, case.committed_dtype, contiguous=kernel)
    nodes = accept_index(engine, case, contiguous=kernel)
    with settings(engine, interval=case.grid), engine.production():
        engine.symbol("eagle.commit")(target, batch, committed, nodes, case.draft_tokens)


@adapter(contract=CONTRACT, module="spec_utils", symbol="commit_mamba_states_after_verify",
         observes=("commits", *STEPS), needs=("settings.config", "eagle.commit",), execution="worker")  # fmt: skip
def commit_states(engine: Any, case: Any) -> dict[str, Any]:
    """The path that the device's tensors take by themselves."""
    hook = Hook(engine)
    commit(engine, case, hook, ClosedStub("request pool", absent=("mamba_pool",)), kernel=engine.device != "cpu")
    return hook.observed(case.track_slot.tolist())


def _committed_something(case: Any) -> str | None:
    return "shown to fused_commit_track_indices by itself" if (case.committed < 1).any() else None


@adapter(contract=CONTRACT, module="spec_utils", symbol="commit_mamba_states_after_verify(cuda)",
         observes=("commits", *STEPS), needs=("settings.config", "eagle.commit", "eagle.commit_kernel"),
         execution="triton", accepts=_committed_something)  # fmt: skip
def commit_states_fused(engine: Any, case: Any) -> dict[str, Any]:
    """The path of CUDA tensors, with the kernel in the interpreter."""
    from fuzz.engines.interpreter import cuda_tensors

    hook, kernel = Hook(engine), engine.symbol("eagle.commit_kernel")
    with ExitStack() as stack:
        spied = stack.enter_context(_in_place_of(engine, "eagle.commit_kernel", mock.Mock(side_effect=kernel)))
        stack.enter_context(cuda_tensors())
        commit(engine, case, hook, ClosedStub("request pool", absent=("mamba_pool",)), kernel=True)
    engine.require_path(not hook.calls or spied.call_count == 1, "fused_commit_track_indices from the commit")
    return hook.observed(case.track_slot.tolist())


def _has_hook_of_its_own(case: Any) -> str | None:
    return "the replay hook is not the backend's" if case.situation == "no_commit_hook" else None


def _replayed(key: str, symbol: str, is_kda: bool) -> None:
    """A target for one replay branch of the commit, whose hook is a module function."""

    @adapter(contract=CONTRACT, module="spec_utils", symbol=f"commit_mamba_states_after_verify({symbol})",
             observes=("commits", *STEPS), needs=("settings.config", "eagle.commit", key), execution="worker",
             accepts=_has_hook_of_its_own)  # fmt: skip
    def replay(engine: Any, case: Any) -> dict[str, Any]:
        hook = Hook(engine)
        states = ClosedStub("mamba pool", replayssm_spec_fold=True, replayssm_is_kda=is_kda, replayssm_cache_base=None)
        pool = ClosedStub(
            "request pool", mamba_pool=states, get_mamba_indices=lambda rows: rows,
            get_speculative_mamba2_params_all_layers=lambda: ClosedStub("states of all layers"),
        )  # fmt: skip
        with _in_place_of(engine, key, hook):
            commit(engine, case, hook, pool, kernel=engine.device != "cpu")
        return hook.observed(case.track_slot.tolist())


_replayed("eagle.kda_replay", "kda_replay", True)
_replayed("eagle.gdn_fold", "gdn_fold", False)


def _in_place_of(engine: Any, key: str, replacement: Any) -> Any:
    """Patch the recorded module attribute ``key`` for a while."""
    engine.symbol(key)
    module, _, name = engine.record.symbol(key).partition(":")
    return mock.patch(f"{module}.{name}", replacement)
