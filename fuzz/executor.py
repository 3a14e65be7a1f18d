"""One case on one target: present, call, judge, and say which verdict it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fuzz.adapter import Adapter
from fuzz.presentation import PLAIN, NoOtherBatch, Presentation, other_batch, present, undo
from fuzz.supervisor import Died, Hung, Session
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts, explain
from oracle import legal as legal_
from oracle.contract import Contract, InvalidCase
from oracle.judgement import judge

MAX_EVENT_CELLS = 256  # of an observed array that an event holds
BUFFERS = "buffers"  # the identity's field when values agree and something was written beside them
OUTSIDE_DOMAIN = "outside the target's domain: "


def execute(session: Session, adapter: Adapter, case: Any, how: Presentation = PLAIN) -> Verdict:
    """Verdict of ``case`` on ``adapter`` in the session's worker."""
    prepared = prepare(session, adapter, case, how)
    return prepared if isinstance(prepared, Verdict) else send(session, adapter, case, how, prepared)


def prepare(session: Session, adapter: Adapter, case: Any, how: Presentation) -> dict[str, Any] | Verdict:
    """The request to send, or the verdict when there is nothing to send."""
    contract = contracts.get(adapter.contract)
    try:
        contract.domain(case)
    except InvalidCase as error:
        return Verdict(Kind.INVALID_CASE, adapter.id, contract.name, evidence={"reason": str(error)})
    if adapter.id in session.ready.get("unsupported", {}):
        return _unsupported(adapter, session.ready["unsupported"][adapter.id])
    columns = contract.columns(present(contract, case, how))
    refusal = adapter.accepts(Columns(columns))
    if refusal:
        return _unsupported(adapter, OUTSIDE_DOMAIN + refusal)
    request = {"target": adapter.id, "case": columns, "repeat": how.repeat, "strided": how.strided}
    request |= {"stream": True} if how.stream else {}
    if how.graph:
        try:
            request["graph"] = contract.columns(other_batch(contract, case, how))
        except NoOtherBatch as error:
            return _unsupported(adapter, str(error))
        refusal = adapter.accepts(Columns(request["graph"]))
        if refusal:
            return _unsupported(adapter, f"the batch to capture a graph with is {OUTSIDE_DOMAIN}{refusal}")
    return request


def send(session: Session, adapter: Adapter, case: Any, how: Presentation, request: dict[str, Any]) -> Verdict:
    """Send a prepared request to the worker and judge the answer."""
    return judged(session, adapter, case, how, session.call(request))


def judged(session: Session, adapter: Adapter, case: Any, how: Presentation, answer: Any) -> Verdict:
    """The verdict that an answer of the session means."""
    means = getattr(session, "interpret", interpret)  # two sides that are compared judge their pair of answers
    return means(contracts.get(adapter.contract), adapter, case, how, answer)


class Columns:
    """Attribute access to a case's columns, as an adapter sees them."""

    def __init__(self, columns: dict[str, Any]):
        self.__dict__.update(columns)


def interpret(contract: Contract, adapter: Adapter, case: Any, how: Presentation, answer: Any) -> Verdict:
    """Turn a worker's answer, death or silence into a verdict."""
    verdict = _meaning(contract, adapter, case, how, answer)
    compile_s = answer.get("compile_s", 0.0) if isinstance(answer, dict) else 0.0
    return replace(verdict, compile_s=compile_s) if compile_s else verdict


def _meaning(contract: Contract, adapter: Adapter, case: Any, how: Presentation, answer: Any) -> Verdict:

    def red(kind: Kind, field: str, difference: str, **evidence: Any) -> Verdict:
        identity = Identity(contract.name, adapter.id, field, difference)
        return Verdict(kind, adapter.id, contract.name, identity, evidence, behaviours=reached)

    try:
        outcome, trace = contract.run(case)
    except InvalidCase as error:  # more decisions on an edge than a verdict could be based on
        return Verdict(Kind.INVALID_CASE, adapter.id, contract.name, evidence={"reason": str(error)})
    reached = frozenset(trace.behaviours)
    if isinstance(answer, Died):
        return red(Kind.CRASH, "process", f"died:{answer.signal_name}", how=answer.signal_name, output=answer.output)
    if isinstance(answer, Hung):
        return red(Kind.HANG, "process", "hang", deadline_s=answer.deadline_s, stack=answer.stack)
    status = answer.get("status")
    if status == "unsupported":
        return _unsupported(adapter, answer["reason"])
    if status == "raised":
        difference = f"raised:{answer['exception']}:{answer['function']}"
        return red(Kind.CRASH, "call", difference, message=answer["message"], traceback=answer["traceback"])
    if status == "device_fault":
        difference = "device:" + answer["fault"].removeprefix("CUDA error: ")
        return red(Kind.CRASH, "call", difference, message=answer["message"], traceback=answer.get("traceback", ""))
    if status == "out_of_memory":
        return Verdict(Kind.OUT_OF_MEMORY, adapter.id, contract.name, evidence=answer)
    if status != "ok":
        return Verdict(Kind.HARNESS_ERROR, adapter.id, contract.name, evidence=answer)
    outside = {"outside": answer["outside"]} if answer.get("outside") else {}
    if answer.get("unstable"):
        return red(Kind.DIVERGE, "repeat", "two_runs_differ", observed=summary(answer["observed"]), **outside)
    observed = undo(contract, case, how, answer["observed"])
    try:
        judgement = judge(contract, outcome, observed, adapter.rounding_ulp)
    except (
        TypeError,
        ValueError,
        IndexError,
        OverflowError,
    ) as error:  # None for a list, a ragged one
        reason = f"what the adapter returned cannot be judged: {type(error).__name__}: {error}"
        return Verdict(Kind.HARNESS_ERROR, adapter.id, contract.name, evidence={"message": reason})
    production_s = answer.get("production_s", 0.0)
    # Said of every verdict: a bound that no correct kernel comes near would prove nothing.
    share = judgement.error_of_bound
    bound = {} if share is None or not math.isfinite(share) else {"error_of_bound": share}
    if judgement.agrees and outside:
        claim = f"The call wrote outside the buffers it was given: {outside['outside']}."
        return red(Kind.DIVERGE, BUFFERS, "written_outside", claim=claim, all_observed=summary(observed), **outside)
    if judgement.agrees:
        flags = ("near_tie",) if judgement.near_tie else ()
        evidence = ({"margin_ulp": judgement.margin_ulp} if judgement.near_tie else {}) | bound
        return Verdict(
            Kind.AGREE, adapter.id, contract.name, None, evidence, reached, flags, production_s,
        )  # fmt: skip
    return red(
        Kind.DIVERGE,
        judgement.field,
        judgement.kind,
        claim=explain.sentence(contract, case, judgement),
        where=list(judgement.where),
        expected=legal_.to_plain(judgement.expected),
        observed=_finite(judgement.observed),
        illegal=judgement.illegal,
        all_observed=summary(observed),
        **bound,
        **outside,
    )


def _unsupported(adapter: Adapter, reason: str) -> Verdict:
    return Verdict(Kind.UNSUPPORTED, adapter.id, adapter.contract, evidence={"reason": reason})


def summary(observed: dict[str, Any]) -> dict[str, Any]:
    """Observed values small enough for an event: a large array is left out, and
    its first illegal cell stands in the claim."""
    return {k: _plain(v) for k, v in observed.items() if _cells(v) <= MAX_EVENT_CELLS}


def _cells(value: Any) -> int:
    """Cells of the arrays in an observed value."""
    if isinstance(value, list):
        return sum(_cells(v) for v in value if isinstance(v, np.ndarray))
    return value.size if isinstance(value, np.ndarray) else 0


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return _finite(value.tolist() if isinstance(value, np.ndarray) else value)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinities: they become words."""
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
