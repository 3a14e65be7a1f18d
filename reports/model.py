"""What runs say together: targets, divergences by identity, what was never reached.

Made from events alone, so that every writer counts alike and a killed run has a view
too. Runs over several engines fall apart into one ``Run`` an engine. A red verdict
that was judged again counts as what it turned out to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle import contracts
from reports import severity
from reports.events import FAILURES, in_flight, parts, read
from reports.junit import NOT_REACHED, contract_of

Event = dict[str, Any]
Identity = tuple[str, str, str, str]  # contract, target, field, kind
NOT_EXECUTED = frozenset({"UNSUPPORTED", "INVALID_CASE"})
TROUBLE = frozenset({"HARNESS_ERROR", "OUT_OF_MEMORY", "INVALID_CASE", "UNFINISHED"})
WORST_FIRST = ("CRASH", "HANG", "DIVERGE", "FLAKY", "ORACLE_SUSPECT")
SHARE_OF_BOUND = "error_of_bound"  # in evidence: error as a fraction of the bound, where one was computed
MAX_NUMBER = 1e300  # of a margin or share; a larger integer is no float
MAX_TROUBLES = 20  # of one target
MAX_FROZEN = 30  # frozen cases that are looked at for the smallest one that shows a divergence


@dataclass(frozen=True)
class Run:
    """One engine of one run. ``started`` is its first event; ``finished`` its last,
    ``None`` when it was killed. ``stale`` are the entries of the known list that need
    a look."""

    folder: Path
    started: Event
    finished: Event | None
    stale: tuple[Event, ...] = ()

    @property
    def engine(self) -> str:
        return str(self.started.get("engine", "unknown"))

    @property
    def version(self) -> str:
        return str(self.started.get("version", "unknown"))

    @property
    def device(self) -> str:
        return str(self.started.get("device", "unknown"))

    @property
    def label(self) -> str:
        return f"{self.engine}=={self.version}"


@dataclass
class Target:
    """What one target of one run was shown and how it did."""

    run: Run
    contract: str
    id: str
    verdicts: Counter[str] = field(default_factory=Counter)
    listed: Counter[str] = field(default_factory=Counter)  # of the verdicts, those that the known list has
    behaviours: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None
    production_s: float = 0.0
    wall_s: float = 0.0  # from START to END of what was executed, with compilation and the way to the worker
    compile_s: float = 0.0
    near_ties: int = 0
    least_margin_ulp: float | None = None
    worst_of_bound: float | None = None
    troubles: list[Event] = field(default_factory=list)

    @property
    def executed(self) -> int:
        return sum(n for v, n in self.verdicts.items() if v not in NOT_EXECUTED and v != "UNFINISHED")

    @property
    def red(self) -> int:
        return sum(n for v, n in self.verdicts.items() if v in FAILURES)

    @property
    def known(self) -> int:
        return self.listed.total()

    @property
    def cases_per_s(self) -> float | None:
        """Executed cases per second of wall time without compilation, ``None`` where no
        time was measured."""
        seconds = self.wall_s - self.compile_s
        return self.executed / seconds if self.executed and seconds > 0 else None

    @property
    def word(self) -> str:
        """The one verdict that stands for the target; one that was asked nothing, for no
        reason of its own, has none."""
        for verdict in (*WORST_FIRST, *sorted(TROUBLE)):
            if self.verdicts[verdict]:
                return verdict
        if self.executed:
            return "AGREE"
        return "UNSUPPORTED" if self.reasons or self.stopped else NOT_REACHED

    @property
    def not_reached(self) -> list[str]:
        """Behaviours of the contract that no executed case showed."""
        contract = contracts.all_contracts().get(self.contract)
        return [] if contract is None else [b for b in contract.behaviours if not self.behaviours[b]]


@dataclass
class Sighting:
    """One identity in one run. ``event`` is what is known best about it: the find
    (shrunk), else the first case that showed it; ``frozen`` names frozen cases that
    a gate replayed, each with its event."""

    run: Run
    verdict: str
    event: Event
    count: int = 0
    known: bool = False
    frozen: list[tuple[str, Event]] = field(default_factory=list)

    @property
    def evidence(self) -> Event:
        return self.event.get("evidence", {})


@dataclass
class Divergence:
    """All sightings of one identity. The first one with a find is shown."""

    identity: Identity
    sightings: list[Sighting] = field(default_factory=list)

    @property
    def contract(self) -> str:
        return self.identity[0]

    @property
    def target(self) -> str:
        return self.identity[1]

    @property
    def shown(self) -> Sighting:
        return next((s for s in self.sightings if s.event["event"] == "found"), self.sightings[0])

    @property
    def verdict(self) -> str:
        said = {s.verdict for s in self.sightings}
        return next(v for v in WORST_FIRST if v in said)

    @property
    def count(self) -> int:
        return sum(s.count for s in self.sightings)

    @property
    def known(self) -> bool:
        return all(s.known for s in self.sightings)

    @property
    def severity(self) -> int:
        return severity.of(self.verdict, {"field": self.identity[2], "kind": self.identity[3]}, self.contract)

    @property
    def claim(self) -> str:
        evidence = self.shown.evidence
        said = evidence.get("claim") or evidence.get("message") or evidence.get("reason")
        if said is None and "deadline_s" in evidence:
            said = f"production gave no answer within {evidence['deadline_s']} s"
        elif said is None and "how" in evidence:
            said = f"the process in which production ran died: {evidence['how']}"
        return str(said or f"{self.identity[2]}: {self.identity[3]}")


@dataclass
class View:
    """Runs in the order given; targets sorted by contract, id and run; divergences
    the worst first."""

    runs: list[Run]
    targets: list[Target]
    divergences: list[Divergence]

    @property
    def cases(self) -> int:
        return sum(t.executed for t in self.targets)


def view(folders: Iterable[Path]) -> View:
    """The view of the runs in ``folders``. Raises ValueError naming file and line, or
    OSError."""
    runs: list[Run] = []
    targets: list[Target] = []
    found: dict[Identity, Divergence] = {}
    for folder in folders:
        for events in parts(read(folder)):
            finished = next((e for e in reversed(events) if e["event"] == "run_finished"), None)
            run = Run(folder, events[0], finished, tuple(e for e in events if e["event"] == "stale"))
            runs.append(run)
            targets += _targets(run, events)
            for identity, sighting in _sightings(run, events).items():
                found.setdefault(identity, Divergence(identity)).sightings.append(sighting)
    targets.sort(key=lambda t: (t.contract, t.id))
    order = sorted(found.values(), key=lambda d: (d.known, d.severity, d.identity))
    return View(runs, targets, order)


def identity_of(event: Event) -> Identity:
    """Of which divergence an event with an identity speaks."""
    return event["contract"], event["target"], event["identity"]["field"], event["identity"]["kind"]


def judged(events: list[Event]) -> list[Event]:
    """The ``end`` events of a run over one engine, with what red ones turned out to be."""
    again = _again(events)
    return [_judged(e, again) for e in events if e["event"] == "end"]


def _again(events: list[Event]) -> dict[Any, Event]:
    return {e["case"] if "case" in e else identity_of(e): e for e in events if e["event"] == "verdict"}


def _judged(end: Event, again: dict[Any, Event]) -> Event:
    """A red ``end`` event with the verdict that it, or its identity, got later."""
    later = again.get(end["case"], again.get(identity_of(end))) if end["verdict"] in FAILURES else None
    if later is None:
        return end
    return end | {"verdict": later["verdict"], "evidence": end.get("evidence", {}) | later.get("evidence", {})}


def _targets(run: Run, events: list[Event]) -> list[Target]:
    """What each target was asked. Of a case in flight no more is believed than which it
    was."""
    again, found, started, before = _again(events), {}, {}, {}

    def of(event: Event) -> Target:
        contract = event.get("contract", contract_of(event["target"]))
        return found.setdefault((contract, event["target"]), Target(run, contract, event["target"]))

    for event in events:
        if event["event"] == "start":
            started[event["case"]] = event
        elif event["event"] == "end":
            # Cases of a batch are journalled together: each began when the one before it on its device had ended.
            _clock(of(event), started.pop(event["case"], None), event, before.get(event.get("device")))
            before[event.get("device")] = event
            _count(of(event), _judged(event, again))
        elif event["event"] == "swept":
            _clock(of(event), started.pop(event["case"], None), event, None)
            _count_sweep(of(event), event)
        elif event["event"] == "target":
            of(event).stopped = event.get("reason")
    for event in in_flight(events):
        only = {k: event[k] for k in ("case", "target")}
        _trouble(of(only), only | {"verdict": "UNFINISHED"})
    return list(found.values())


def _clock(target: Target, start: Event | None, end: Event, before: Event | None) -> None:
    """Add what an executed case took, from its start or, when that came later, the end of the case
    ``before``; a clock that was set back took nothing."""
    if start is None or end.get("verdict") in NOT_EXECUTED:
        return
    times = [e.get("time") for e in (start, before or start, end)]
    if all(type(t) in (int, float) and abs(t) < MAX_NUMBER for t in times):
        target.wall_s += max(times[2] - max(times[:2]), 0)
    target.compile_s += end.get("compile_s", 0.0)


def _count(target: Target, end: Event) -> None:
    verdict, evidence = end["verdict"], end.get("evidence", {})
    target.production_s += end.get("production_s", 0.0)
    if verdict in TROUBLE:
        _trouble(target, end)
    else:
        target.verdicts[verdict] += 1
    if verdict == "UNSUPPORTED":
        target.reasons[str(evidence.get("reason", "no reason was given"))] += 1
    if verdict not in NOT_EXECUTED:
        target.behaviours.update(end.get("behaviours", []))
    target.listed[verdict] += bool(end.get("known") and verdict in FAILURES)
    if verdict == "AGREE" and "near_tie" in (end.get("flags") or ()):
        target.near_ties += 1
        target.least_margin_ulp = _extreme(min, target.least_margin_ulp, evidence.get("margin_ulp"))
    if verdict == "AGREE":  # how near correct code comes; what is over the bound has a page of its own
        target.worst_of_bound = _extreme(max, target.worst_of_bound, evidence.get(SHARE_OF_BOUND))


def _extreme(choose: Any, a: float | None, b: Any) -> float | None:
    if type(b) not in (int, float) or not abs(b) < MAX_NUMBER:  # false for NaN, which orders with nothing
        return a
    return b if a is None else choose(a, b)


def _count_sweep(target: Target, swept: Event) -> None:
    target.verdicts["AGREE"] += max(swept["rows"] - swept["diverging"], 0)
    target.verdicts["DIVERGE"] += swept["diverging"]
    target.production_s += swept.get("production_s", 0.0) if type(swept.get("production_s")) is float else 0.0
    target.stopped = swept.get("failure")
    if not swept["rows"]:
        target.reasons[swept.get("failure") or "no row was executed"] += 1


def _trouble(target: Target, event: Event) -> None:
    target.verdicts[event["verdict"]] += 1
    if len(target.troubles) < MAX_TROUBLES:
        target.troubles.append(event)


def _sightings(run: Run, events: list[Event]) -> dict[Identity, Sighting]:
    again, files, seen = _again(events), {}, {}
    for event in events:
        if event["event"] == "start":
            # A case that was shown in another presentation than its file's is not what a replay would show.
            files[event["case"]] = None if event.get("presentation") else event.get("file")
        elif event["event"] == "end" and event["verdict"] in FAILURES:
            _sight(seen, run, _judged(event, again), files.get(event["case"]))
        elif event["event"] == "found" and event["verdict"] in WORST_FIRST:
            sighting = seen.setdefault(identity_of(event), Sighting(run, event["verdict"], event))
            sighting.event, sighting.verdict = event, event["verdict"]
        elif event["event"] == "swept" and event["diverging"]:
            _sight_sweep(seen, run, event)
    return seen


def _sight(seen: dict[Identity, Sighting], run: Run, end: Event, file: Any) -> None:
    sighting = seen.setdefault(identity_of(end), Sighting(run, end["verdict"], end, known=True))
    if isinstance(file, str) and len(sighting.frozen) < MAX_FROZEN:
        sighting.frozen.append((file, end))
    sighting.count += 1
    sighting.known &= bool(end.get("known"))
    sighting.verdict = min(sighting.verdict, end["verdict"], key=WORST_FIRST.index)


def _sight_sweep(seen: dict[Identity, Sighting], run: Run, swept: Event) -> None:
    contract = swept.get("contract", contract_of(swept["target"]))
    claim = f"{swept['diverging']} of {swept['rows']} rows of a sweep diverge; the first: {swept.get('first')}"
    identity = {"field": "rows", "kind": "diverging"}
    event = swept | {"contract": contract, "identity": identity, "evidence": {"claim": claim}}
    seen[identity_of(event)] = Sighting(run, "DIVERGE", event, count=swept["diverging"])
