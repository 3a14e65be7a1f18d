"""The commit of the first EAGLE workers, one method a worker.

The v1 method gets the accepted nodes as one flat list and a batch whose lengths
were advanced already; the v2 method gets rows and the lengths before verify. Their
callers ask whether there is recurrent state; neither asks for the hook.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_commit import CONTRACT, STEPS, accept_index, batch_of, node_numbers
from fuzz.engines.sglang.eagle_stubs import Hook, model_runner
from fuzz.engines.sglang.settings import settings


def _v1_accepts(case: Any) -> str | None:
    if case.situation == "no_recurrent_state":
        return "the caller asks for recurrent state, not this method"
    if case.situation == "empty_accept_index":
        return "outside an idle batch the flat accept list is never empty"
    return "every request keeps its current token in the flat accept list" if (case.committed < 1).any() else None


@adapter(contract=CONTRACT, module="eagle_v1", symbol="_mamba_verify_update", observes=("commits", *STEPS),
         needs=("settings.config", "eagle.v1_update",), execution="worker", accepts=_v1_accepts)  # fmt: skip
def update_v1(engine: Any, case: Any) -> dict[str, Any]:
    torch, hook, names = engine.torch, Hook(engine), engine.fact("eagle.v1_result")
    nodes = node_numbers(case)
    tree = ClosedStub("verify input", topk=1 if case.form == "chain" else 2, draft_token_num=case.draft_tokens)
    result = ClosedStub("verify result", **{
        names["counts"]: (case.committed - 1).tolist(),
        names["nodes"]: engine.tensor(nodes[nodes >= 0], "int32"),
    })  # fmt: skip
    post = engine.fact("eagle.v1_lengths_at_commit") == "post"
    batch = batch_of(engine, case, case.pre + case.committed if post else case.pre)
    batch.spec_info = tree
    runner = model_runner(hook.in_backend(present=case.situation != "no_commit_hook"))
    logits = ClosedStub("logits", hidden_states=torch.zeros(1), next_token_logits=torch.zeros(1))
    target = ClosedStub("target worker", model_runner=runner)
    pre = engine.tensor(case.pre, case.length_dtype)
    with settings(engine, interval=case.grid) as config:
        worker = ClosedStub("worker", server_args=config, target_worker=target)
        with engine.production():
            engine.symbol("eagle.v1_update")(worker, batch, result, logits, tree, pre)
    return hook.observed(case.track_slot.tolist())


def _v2_accepts(case: Any) -> str | None:
    if case.situation == "no_recurrent_state":
        return "the caller asks for recurrent state, not this method"
    return None if case.form == "chain" else "the method refuses trees"


@adapter(contract=CONTRACT, module="eagle_v2", symbol="_mamba_verify_update", observes=("commits", *STEPS),
         needs=("settings.config", "eagle.v2_update",), execution="worker", accepts=_v2_accepts)  # fmt: skip
def update_v2(engine: Any, case: Any) -> dict[str, Any]:
    hook = Hook(engine)
    runner = model_runner(hook.in_backend(present=case.situation != "no_commit_hook"))
    target = ClosedStub("target worker", model_runner=runner)
    batch, chain = batch_of(engine, case, case.pre), ClosedStub("verify input", topk=1)
    committed = engine.tensor(case.committed, case.committed_dtype)
    nodes = accept_index(engine, case)
    with settings(engine, interval=case.grid) as config:
        worker = ClosedStub(
            "worker", server_args=config, speculative_num_draft_tokens=case.draft_tokens, target_worker=target
        )
        with engine.production():
            engine.symbol("eagle.v2_update")(worker, batch, chain, committed, nodes, len(case.pre))
    return hook.observed(case.track_slot.tolist())
