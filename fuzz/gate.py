"""Replay frozen cases against an engine: the question CI asks.

Every case meets every target of its contract. A pair outside a target's domain
is UNSUPPORTED with that reason, so that nothing disappears. A frozen outcome
that the reference no longer gives is ORACLE_SUSPECT, not a divergence. So is one in
which all engines of a gate over several contradict the reference alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from fuzz.adapter import Adapter
from fuzz.agreement import Answer, alone
from fuzz.believe import FRESH_RUNS, repeats, sibling_of
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.frozen import FrozenCase, drifted
from fuzz.known import Known
from fuzz.supervisor import Session
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts


@dataclass
class GateResult:
    """Outcome of a gate: verdict counts, red identities, known ones that fired,
    those that did not, and those whose decision has expired."""

    verdicts: Counter[Kind] = field(default_factory=Counter)
    red: dict[Identity, list[tuple[str, Verdict]]] = field(default_factory=dict)
    known_red: dict[Identity, list[str]] = field(default_factory=dict)
    silent_known: list[Known] = field(default_factory=list)
    expired_known: list[Known] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    suspects: list[tuple[str, Verdict]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    compile_s: float = 0.0


def gate(
    session: Session,
    adapters: list[Adapter],
    corpus: list[tuple[Path, FrozenCase]],
    events: Events,
    known: list[Known],
    result: GateResult,
    on_case: Callable[[GateResult], None] = lambda result: None,
) -> GateResult:
    """Run every pair of a frozen case and a target of its contract, into
    ``result``, which is also right when the gate is stopped early."""
    launch = session.launch
    for _, frozen in corpus:
        contract = contracts.get(frozen.contract)
        stale = drifted(frozen)
        for adapter in adapters:
            if adapter.contract != frozen.contract:
                continue
            number = events.start(adapter.id, file=frozen.name)
            verdict = execute(session, adapter, frozen.case, frozen.presentation)
            if stale and verdict.kind is not Kind.UNSUPPORTED:
                reason = "the reference no longer gives the frozen outcome"
                verdict = Verdict(Kind.ORACLE_SUSPECT, adapter.id, contract.name, evidence={"reason": reason})
            listed = verdict.red and any(k.covers(verdict.identity, launch.version, launch.device) for k in known)
            events.end(number, verdict, known=listed)
            _count(result, adapter, frozen, verdict, listed)
            observes = () if stale else adapter.observes
            result.answers.append(Answer(launch.engine, launch.version, frozen.name, verdict, observes, listed, number))
            on_case(result)
    by_id, by_name = {a.id: a for a in adapters}, {f.name: f for _, f in corpus}
    for identity in list(result.red):
        _doubt(session, by_id[identity.target], by_name, result, identity, events)
    asked = [k for k in known if k.applies(launch.version, launch.device) and result.executed[k.identity.target]]
    result.silent_known = [k for k in asked if k.identity not in result.known_red]
    result.expired_known = [k for k in asked if k.expired(date.today())]
    return result


def doubt_reference(results: list[GateResult], events: Events) -> None:
    """Turn the divergences of a gate over several engines in which the reference
    stands alone into ORACLE_SUSPECT, in the results and in the events. One that did
    not repeat stays FLAKY: it says nothing about the reference."""
    by_case: dict[str, list[Answer]] = {}
    for result in results:
        for answer in result.answers:
            by_case.setdefault(answer.case, []).append(answer)
    lone = {(a.label, a.number): a for answers in by_case.values() for a in alone(answers)}
    for result in results:
        for at, answer in enumerate(result.answers):
            if (answer.label, answer.number) in lone:
                _suspect(result, at, events)


def _suspect(result: GateResult, at: int, events: Events) -> None:
    answer = result.answers[at]
    hits = result.red.get(answer.verdict.identity, [])
    if not hits or hits[0][1].kind is Kind.FLAKY:
        return
    reason = "every engine that was asked contradicts the reference in the same way"
    verdict = replace(answer.verdict, kind=Kind.ORACLE_SUSPECT, evidence=answer.verdict.evidence | {"reason": reason})
    result.answers[at] = replace(answer, verdict=verdict)
    left = [hit for hit in hits if hit[0] != answer.case]
    if left:
        result.red[answer.verdict.identity] = left
    else:
        del result.red[answer.verdict.identity]
    result.suspects.append((answer.case, verdict))
    result.verdicts[answer.verdict.kind] -= 1
    result.verdicts[Kind.ORACLE_SUSPECT] += 1
    events.about = {"engine": answer.engine, "version": answer.version}
    events.rejudge(verdict, case=answer.number)


def _doubt(
    session: Session,
    adapter: Adapter,
    corpus: dict[str, FrozenCase],
    result: GateResult,
    identity: Identity,
    events: Events,
) -> None:
    """Believe a red identity only if it repeats in fresh processes and the same
    target agrees on some other case."""
    name, verdict = result.red[identity][0]
    frozen = corpus[name]
    repeated = repeats(session, adapter, frozen.case, frozen.presentation, identity)
    if repeated < FRESH_RUNS:
        evidence = verdict.evidence | {"rate": f"{repeated} of {FRESH_RUNS} fresh processes"}
        flaky = replace(verdict, kind=Kind.FLAKY, evidence=evidence)
        result.red[identity][0] = (name, flaky)
        events.rejudge(flaky)
        _answered(result, identity, flaky)
        result.verdicts[verdict.kind] -= 1
        result.verdicts[Kind.FLAKY] += 1
    elif not result.agreed[adapter.id] and sibling_of(session, adapter, frozen.case, []) is None:
        reason = "no sibling case agrees on this target"
        suspect = replace(verdict, kind=Kind.ORACLE_SUSPECT, evidence={"reason": reason})
        events.rejudge(suspect)
        _answered(result, identity, suspect)
        for name, verdict in result.red.pop(identity):
            result.suspects.append((name, replace(verdict, kind=Kind.ORACLE_SUSPECT, evidence={"reason": reason})))
            result.verdicts[verdict.kind] -= 1
            result.verdicts[Kind.ORACLE_SUSPECT] += 1


def _answered(result: GateResult, identity: Identity, verdict: Verdict) -> None:
    """The answers of a doubted identity say what it turned out to be."""
    result.answers = [replace(a, verdict=verdict) if a.verdict.identity == identity else a for a in result.answers]


def _count(result: GateResult, adapter: Adapter, frozen: FrozenCase, verdict: Verdict, listed: bool) -> None:
    result.verdicts[verdict.kind] += 1
    result.compile_s += verdict.compile_s
    if verdict.kind is Kind.UNSUPPORTED:
        result.reasons.setdefault(adapter.id, verdict.evidence["reason"])
        return
    result.executed[adapter.id] += 1
    if verdict.red:
        if listed:
            result.known_red.setdefault(verdict.identity, []).append(frozen.name)
        else:
            result.red.setdefault(verdict.identity, []).append((frozen.name, verdict))
    elif verdict.kind is Kind.AGREE:
        result.agreed[adapter.id] += 1
    else:
        result.suspects.append((frozen.name, verdict))
