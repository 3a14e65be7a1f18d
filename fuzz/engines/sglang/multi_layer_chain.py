"""The multi-layer EAGLE worker's draft extension: what every step's model is fed.

``_draft_extend_for_decode`` runs as shipped over the engine's own graph runner (see
``multi_layer_parts``). The models note their input: in an eager round while they run, in a
replayed one inside the graph. Releases up to 0.5.14 lengthen the window of a graph to the
front by one row a step; those rows repeat what an earlier round computed and are not
judged, only the committed rows behind them are.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.mtp_model import states
from fuzz.engines.sglang.multi_layer_parts import Machine
from fuzz.engines.sglang.settings import settings
from oracle.draft.mtp_chain_case import ROUND, WINDOW
from oracle.draft.proposer import NOBODY, read, stamp, unstamp

CONTRACT, MODULE = "draft.mtp_chain", "multi_layer_eagle_v2"
METHOD = "_draft_extend_for_decode"
ROWS = ("replayed", "positions", "locations", "tokens", "hidden", "drafts", "padding_inert", "outside_untouched")
STASH = ("replayed", "stash_owner")
NEEDS = ("mtp.worker", "mtp.composite", "settings.config")


def of_a_window(case: Any) -> str | None:
    if case.form != WINDOW:
        return "a model for every step"
    return None if case.predicted.shape[1] == case.steps + 1 else "a verify, not a prompt"


def with_graphs(case: Any) -> str | None:
    return of_a_window(case) or (None if len(case.captured) else "needs captured graphs")


def extend(machine: Machine, round_: int) -> ClosedStub:
    """One draft extension of the requests of a round; the result that it was handed."""
    engine, case, torch = machine.engine, machine.case, machine.engine.torch
    prefix = "" if round_ == ROUND else "earlier_"

    def tensor(name: str, dtype: str) -> Any:
        return engine.tensor(getattr(case, prefix + name), dtype, contiguous=True)

    pre, predicted = tensor("pre", "int64"), tensor("predicted", "int64").flatten()
    rows = tensor("pool_row", "int64")
    starts = zip(rows.tolist(), pre.tolist(), strict=True)
    stamps = [stamp(round_, row, 0, start + j) for row, start in starts for j in range(case.steps + 1)]
    result = ClosedStub(
        "result of the verify",
        logits_output=ClosedStub("target output", hidden_states=states(engine, stamps)),
        next_token_ids=predicted.clone(),
        accept_lens=tensor("committed", "int32"),
        next_draft_input=ClosedStub("next draft input"),
        can_run_cuda_graph=False,
    )
    modes = engine.symbol("mtp.forward_mode")
    batch = ClosedStub("batch", seq_lens=pre, req_pool_indices=rows, forward_mode=modes.DECODE)
    with machine.surroundings(), ExitStack() as patches:
        owner, name = engine.fact("mtp.prepare")
        if owner:
            owner = engine.symbol(owner)
            patches.enter_context(mock.patch.object(owner, name, _prepared(machine)))
        with engine.production():
            machine.worker._draft_extend_for_decode(batch, result)
    result.restored = bool(torch.equal(result.next_token_ids, predicted))
    return result


def _prepared(machine: Machine) -> Any:
    def prepared(*given: Any, **named: Any) -> Any:
        return machine.prepared(*given, **named)

    return prepared


def run(engine: Any, case: Any, composite: str = "mtp.composite") -> tuple[Machine, ClosedStub]:
    """Both rounds of a case on one worker."""
    machine = Machine(engine, case, composite)
    if len(case.earlier_pre):
        extend(machine, 0)
    machine.replayed.clear()
    for model in machine.models:
        model.forget()
    return machine, extend(machine, ROUND)


def replayed(machine: Machine) -> list[int]:
    """The graph of every step. One graph may hold all steps."""
    steps, seen = machine.case.steps, machine.replayed
    if not seen:
        return [0] * steps
    return seen * steps if len(seen) == 1 else seen


def observed(machine: Machine, result: ClosedStub) -> dict[str, Any]:
    case, grows = machine.case, machine.engine.fact("mtp.window") == "grows"
    graphs, batch = replayed(machine), len(case.pre)
    found: dict[str, list] = {name: [[] for _ in case.pre] for name in ("positions", "locations", "tokens", "hidden")}
    inert = True
    for step, model in enumerate(machine.models):
        fed = model.fed()
        front = step if grows and graphs[step] else 0
        width = case.steps + 1 + front
        for i, committed in enumerate(case.committed.tolist()):
            live = slice(i * width + front, i * width + front + committed)
            for name, steps in found.items():
                steps[i].append(getattr(fed, name)[live])
        inert = inert and not any(fed.locations[batch * width :])
    drafts = result.next_draft_input.topk_index.tolist()
    return found | {
        "replayed": graphs,
        "drafts": drafts,
        "padding_inert": inert,
        "outside_untouched": result.restored,
    }


@adapter(contract=CONTRACT, module=MODULE, symbol=METHOD, observes=ROWS, needs=NEEDS, execution="worker",
         accepts=of_a_window)  # fmt: skip
def draft_extend(engine: Any, case: Any) -> dict[str, Any]:
    with settings(engine, interval=256):
        return observed(*run(engine, case))


@adapter(contract=CONTRACT, module=MODULE, symbol=f"{METHOD}(one_graph)", observes=ROWS,
         needs=(*NEEDS, "mtp.one_graph"), execution="worker", accepts=with_graphs)  # fmt: skip
def draft_extend_one_graph(engine: Any, case: Any) -> dict[str, Any]:
    """With all steps in one graph."""
    with settings(engine, interval=256):
        machine, result = run(engine, case, "mtp.one_graph")
    engine.require_path(len(machine.replayed) <= 1, "one graph for all steps")
    return observed(machine, result)


@adapter(contract=CONTRACT, module=MODULE, symbol=f"{METHOD}(captured)", observes=ROWS, needs=NEEDS,
         execution="worker", accepts=with_graphs)  # fmt: skip
def draft_extend_captured(engine: Any, case: Any) -> dict[str, Any]:
    """With real CUDA graphs, captured around the steps and replayed with new inputs."""
    if engine.device == "cpu":
        raise Unsupported("a CUDA graph needs a GPU")
    return draft_extend(engine, case)


@adapter(contract=CONTRACT, module=MODULE, symbol=f"{METHOD}(stash)", observes=STASH,
         needs=(*NEEDS, "mtp.stash_kernel"), execution="worker", accepts=with_graphs)  # fmt: skip
def draft_extend_stash(engine: Any, case: Any) -> dict[str, Any]:
    """The hidden states that are kept for the front rows of the next round's graphs."""
    with settings(engine, interval=256):
        machine, _ = run(engine, case)
    owners = []
    for row in case.pool_row.tolist():
        kept = {read(state) for state in machine.stash[row].tolist()}
        whose = {unstamp(of)[:2] if of != NOBODY else None for of in kept}
        whole = len(whose) == 1 and None not in whose
        round_, request = whose.pop() if whole else (NOBODY, NOBODY)
        owners.append(request if round_ == ROUND else NOBODY)
    return {"replayed": replayed(machine), "stash_owner": owners}
