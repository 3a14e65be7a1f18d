"""Replay frozen cases against an engine: the question CI asks.

Every case meets every target of its contract. A pair outside a target's domain
is UNSUPPORTED with that reason, so that nothing disappears. Asked for more presentations, each
case is shown under them too; a pair that has no such presentation is counted apart: it was
asked as the file says. A frozen outcome
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
from fuzz.sanitize import may_show
from fuzz.supervisor import Session
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts

PRESENTATIONS = ("graph", "stream", "repeat")  # in which a frozen case may be shown besides its own


@dataclass
class GateResult:
    """Outcome of a gate: verdict counts, red identities, known ones that fired,
    those that did not, and those whose decision has expired. ``not_shown`` counts, by
    presentation and reason, what was asked for more and had no such presentation."""

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
    not_shown: Counter[tuple[str, str]] = field(default_factory=Counter)

    compile_s: float = 0.0

    @property
    def done(self) -> int:
        """Pairs that were asked, in every way they were to be shown."""
        return self.verdicts.total() + self.not_shown.total()

    def add(self, other: GateResult) -> None:
        """Count in what another device found out about other targets."""
        for name in ("verdicts", "executed", "agreed", "not_shown"):
            getattr(self, name).update(getattr(other, name))
        self.compile_s += other.compile_s
        for name in ("red", "known_red", "reasons"):
            getattr(self, name).update(getattr(other, name))
        for name in ("silent_known", "expired_known", "suspects", "answers"):
            getattr(self, name).extend(getattr(other, name))


def gate(
    session: Session,
    adapters: list[Adapter],
    corpus: list[tuple[Path, FrozenCase]],
    events: Events,
    known: list[Known],
    result: GateResult,
    on_case: Callable[[GateResult], None] = lambda result: None,
    more: tuple[str, ...] = (),
) -> GateResult:
    """Run every pair of a frozen case and a target of its contract, into
    ``result``, which is also right when the gate is stopped early. ``more`` are
    presentations to show each case in besides its own."""
    launch = session.launch
    refused: set[tuple[str, str]] = set()  # nothing more is asked of a pair that does not run
    contracts_asked = {a.contract for a in adapters}
    fitting_cases = [frozen for _, frozen in corpus if frozen.contract in contracts_asked]
    asked = {label: each for frozen in fitting_cases for label, each in shown(frozen, more).items()}

    def journaled(number: int, adapter: Adapter, label: str, verdict: Verdict, observes: tuple[str, ...]) -> None:
        listed = verdict.red and any(k.covers(verdict.identity, launch.version, launch.device) for k in known)
        events.end(number, verdict, known=listed)
        if label != asked[label].name and verdict.kind is Kind.UNSUPPORTED:
            result.not_shown[asked_as(label)[1], verdict.evidence["reason"]] += 1
        else:
            _count(result, adapter, label, verdict, listed)
            result.answers.append(Answer(launch.engine, launch.version, label, verdict, observes, listed, number))
        on_case(result)

    for label, frozen in asked.items():
        contract = contracts.get(frozen.contract)
        stale = drifted(frozen)
        extra = label != frozen.name
        for adapter in adapters:
            if adapter.contract != frozen.contract or (extra and (adapter.id, frozen.name) in refused):
                continue
            how = {"presentation": frozen.presentation.names()} if extra else {}
            number = events.start(adapter.id, file=frozen.name, **how)
            verdict = execute(session, adapter, frozen.case, frozen.presentation)
            if stale and verdict.kind is not Kind.UNSUPPORTED:
                reason = "the reference no longer gives the frozen outcome"
                verdict = Verdict(Kind.ORACLE_SUSPECT, adapter.id, contract.name, evidence={"reason": reason})
            journaled(number, adapter, label, verdict, () if stale else adapter.observes)
            if verdict.kind is Kind.UNSUPPORTED and not extra:
                refused.add((adapter.id, frozen.name))
    by_id = {a.id: a for a in adapters}
    for before, after in session.late():  # the verdict before is journaled already: it gets a case of its own
        label = next((a.case for a in result.answers if a.verdict is before), None)
        if label is not None:
            journaled(events.start(after.target, file=asked[label].name), by_id[after.target], label, after, ())
    for identity in [i for i in result.red if i.target in by_id]:  # of others that share the result it was done
        _doubt(session, by_id[identity.target], asked, result, identity, events)
    applying = [k for k in known if k.applies(launch.version, launch.device) and may_show(session, k.identity)]
    fitting = [k for k in applying if result.executed[k.identity.target]]
    result.silent_known = [k for k in fitting if k.identity not in result.known_red]
    result.expired_known = [k for k in fitting if k.expired(date.today())]
    return result


def shown(frozen: FrozenCase, more: tuple[str, ...]) -> dict[str, FrozenCase]:
    """The case as its file says, by its name, and in the presentations ``more``, by the name and
    theirs. A graph gets a row of padding where the contract has one: a single record has no other batch."""
    found = {frozen.name: frozen}
    for name in more:
        how = replace(frozen.presentation, **{name: True})
        if name == "graph":
            padded = contracts.get(frozen.contract).padding is not None
            how = replace(how, stream=False, repeat=False, padding=max(how.padding, int(padded)))
        found[f"{frozen.name} {name}"] = replace(frozen, presentation=how)
    return found


def asked_as(label: str) -> tuple[str, str]:
    """The name of a case and the presentation that was asked for more, from the label of both."""
    name, _, more = label.partition(" ")
    return name, more


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


def _count(result: GateResult, adapter: Adapter, label: str, verdict: Verdict, listed: bool) -> None:
    result.verdicts[verdict.kind] += 1
    result.compile_s += verdict.compile_s
    if verdict.kind is Kind.UNSUPPORTED:
        result.reasons.setdefault(adapter.id, verdict.evidence["reason"])
        return
    result.executed[adapter.id] += 1
    if verdict.red:
        if listed:
            result.known_red.setdefault(verdict.identity, []).append(label)
        else:
            result.red.setdefault(verdict.identity, []).append((label, verdict))
    elif verdict.kind is Kind.AGREE:
        result.agreed[adapter.id] += 1
    else:
        result.suspects.append((label, verdict))
