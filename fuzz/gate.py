"""Replay frozen cases against an engine: the question CI asks.

Every case meets every target of its contract. A pair outside a target's domain
is UNSUPPORTED with that reason, so that nothing disappears. A frozen outcome
that the reference no longer gives is ORACLE_SUSPECT, not a divergence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz.adapter import Adapter
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
    """Outcome of a gate: verdict counts, red identities, known ones that fired
    and those that did not."""

    verdicts: Counter[Kind] = field(default_factory=Counter)
    red: dict[Identity, list[tuple[str, Verdict]]] = field(default_factory=dict)
    known_red: dict[Identity, list[str]] = field(default_factory=dict)
    silent_known: list[Known] = field(default_factory=list)
    executed: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    suspects: list[tuple[str, Verdict]] = field(default_factory=list)


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
            on_case(result)
    by_id, by_name = {a.id: a for a in adapters}, {f.name: f for _, f in corpus}
    for identity in list(result.red):
        _doubt(session, by_id[identity.target], by_name, result, identity, events)
    result.silent_known = [
        k
        for k in known
        if k.applies(launch.version, launch.device)
        and k.identity not in result.known_red
        and result.executed[k.identity.target]
    ]
    return result


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
        result.verdicts[verdict.kind] -= 1
        result.verdicts[Kind.FLAKY] += 1
    elif not result.agreed[adapter.id] and sibling_of(session, adapter, frozen.case, []) is None:
        reason = "no sibling case agrees on this target"
        events.rejudge(replace(verdict, kind=Kind.ORACLE_SUSPECT, evidence={"reason": reason}))
        for name, verdict in result.red.pop(identity):
            result.suspects.append((name, replace(verdict, kind=Kind.ORACLE_SUSPECT, evidence={"reason": reason})))
            result.verdicts[verdict.kind] -= 1
            result.verdicts[Kind.ORACLE_SUSPECT] += 1


def _count(result: GateResult, adapter: Adapter, frozen: FrozenCase, verdict: Verdict, listed: bool) -> None:
    result.verdicts[verdict.kind] += 1
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
