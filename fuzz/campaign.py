"""One bounded run over targets: find, shrink, believe, freeze.

Each target gets slices in turn, so that a slow one cannot starve the others. A
slice is a raw seeded sweep (volume) or a Hypothesis run (structure); both feed
the same judge. A red verdict of a new identity is reproduced in fresh processes,
shrunk with the same identity, checked against a sibling that agrees, and frozen.

A part of a campaign (see `shard`) is a pure function of (targets, seed, engine): the
sequence of cases that a target is shown is fixed by the seed, and the budget decides
how far it gets. What a database of earlier finds holds (see `database`) comes before it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz.adapter import Adapter
from fuzz.believe import Belief, believe, taken_as_known
from fuzz.corpus import make, write
from fuzz.database import Store
from fuzz.events import Events, EventsError
from fuzz.executor import OUTSIDE_DOMAIN, prepare, send
from fuzz.frozen import ENGINE, CorpusError
from fuzz.known import Known
from fuzz.presentation import Presentation
from fuzz.shard import Shard
from fuzz.shrink import MAX_SECONDS
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import RandomSource, SpanSource, drawn_by_hypothesis
from fuzz.supervisor import Session
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts

SLICE_S = 0.5  # of a raw sweep, before the next target has its turn
ROUNDS = 4  # a budget is enough for: where targets are many, slices are shorter, so that each has its turn
RAW_PER_HYPOTHESIS = 60  # raw cases between two runs in which Hypothesis looks for structure
HYPOTHESIS_EXAMPLES = 25
MAX_SLUG = 80  # characters, as the schema of a frozen case asks
LEAST_SHRINK_S = 5.0  # a find gets this much, whatever is left of the budget
STOP_AFTER_REFUSALS = 300  # consecutive cases that a target was asked and refused
STOP_AFTER_OUTSIDE = 10_000  # consecutive draws outside a target's domain: they are not even sent


@dataclass(frozen=True)
class Options:
    """What bounds a campaign. ``max_examples`` is per target; targets and seed are those of
    the whole of which this is the ``shard``."""

    seed: int = 0
    max_seconds: float = 60.0
    max_examples: int | None = None
    continue_on_failure: bool = False
    shard: Shard = Shard()


@dataclass(frozen=True)
class Found:
    """A believed divergence, shrunk and frozen."""

    identity: Identity
    verdict: Verdict
    belief: Belief
    frozen: Path | None
    known: Known | None


@dataclass
class TargetState:
    """What a target was shown and how it did."""

    adapter: Adapter
    verdicts: Counter[Kind] = field(default_factory=Counter)
    behaviours: Counter[str] = field(default_factory=Counter)
    found: dict[Identity, Found] = field(default_factory=dict)
    seen: dict[Identity, Verdict] = field(default_factory=dict)
    raw: int = 0
    sought: int = 0  # of the raw cases, those that lay outside the domain before the first one was executed
    hypothesis_runs: int = 0
    hypothesis_cases: int = 0
    stored: int | None = None  # cases of the database that it was shown, None before its turn
    refused_in_a_row: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    first_claim: dict[str, str] = field(default_factory=dict)  # by flag
    production_s: float = 0.0
    compile_s: float = 0.0
    done: bool = False
    reason: str | None = None

    @property
    def drawn(self) -> int:
        """Cases drawn, without those that shrinking tried."""
        return self.raw + self.hypothesis_cases + (self.stored or 0)

    @property
    def hypothesis_is_due(self) -> bool:
        return self.raw - self.sought >= (self.hypothesis_runs + 1) * RAW_PER_HYPOTHESIS

    @property
    def executed(self) -> int:
        return sum(n for k, n in self.verdicts.items() if k not in (Kind.UNSUPPORTED, Kind.INVALID_CASE))


class Campaign:
    """Runs targets until time, examples or finds end it. See the module."""

    def __init__(
        self,
        session: Session,
        adapters: list[Adapter],
        options: Options,
        events: Events,
        known: list[Known] = (),  # type: ignore[assignment]
        on_progress: Callable[[Campaign], None] = lambda campaign: None,
        store: Store | None = None,
    ):
        self.session, self.options, self.events, self.known = session, options, events, known
        adapters, self.seed = options.shard.share(adapters, options.seed)
        self.states = [TargetState(a) for a in adapters]
        self.on_progress, self.store = on_progress, store
        self.slice_s = min(SLICE_S, options.max_seconds / (ROUNDS * max(len(adapters), 1)))
        self.began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> None:
        """Fuzz until the budget is spent or no target is left."""
        self.began = time.monotonic()
        for state in self.states:
            reason = self.session.ready.get("unsupported", {}).get(state.adapter.id)
            if reason:
                self._stop(state, reason)
                state.verdicts[Kind.UNSUPPORTED] += 1
                nothing = Verdict(
                    Kind.UNSUPPORTED, state.adapter.id, state.adapter.contract, evidence={"reason": reason}
                )
                self.events.end(self.events.start(state.adapter.id), nothing)
        try:
            while not self._over() and any(not s.done for s in self.states):
                for state in self.states:
                    if not state.done and not self._over():
                        self._slice(state)
                        self.on_progress(self)
        finally:  # also of a run that is interrupted
            for state in self.states:
                self._emit_target(state)

    def _emit_target(self, state: TargetState) -> None:
        contract = contracts.get(state.adapter.contract)
        with contextlib.suppress(EventsError):  # a full disk was reported already
            self.events.emit(
                "target",
                target=state.adapter.id,
                contract=contract.name,
                executed=state.executed,
                verdicts={str(k): n for k, n in state.verdicts.items()},
                behaviours=dict(state.behaviours),
                not_reached=sorted(set(contract.behaviours) - set(state.behaviours)),
                production_s=round(state.production_s, 3),
                compile_s=round(state.compile_s, 3),
                reason=state.reason,
            )

    def _over(self) -> bool:
        return self.elapsed_s >= self.options.max_seconds

    def _left(self, state: TargetState) -> int:
        """Cases that the target may still be shown."""
        most = self.options.max_examples
        return HYPOTHESIS_EXAMPLES + RAW_PER_HYPOTHESIS if most is None else most - state.drawn

    def _slice(self, state: TargetState) -> None:
        if state.stored is None and self.store is not None:
            self._earlier_finds(state)
        elif state.hypothesis_is_due:
            self._hypothesis(state)
        else:
            self._sweep(state)
        if self._left(state) <= 0:
            state.done = True

    def _earlier_finds(self, state: TargetState) -> None:
        """Cases that led to finds of the contract, on whichever target and in whichever run. Each
        target's first slice is this one, so that no find of this run is among them."""
        build, state.stored = shown_case(state.adapter.contract), 0
        for choices in self.store.stored(state.adapter.contract):
            if state.done or self._over() or self._left(state) <= 0:
                return
            source = SpanSource(choices)
            state.stored += 1
            self._one(state, *build(source), source.choices)

    def _sweep(self, state: TargetState) -> None:
        """Raw cases until the slice is over or it is Hypothesis's turn. Until a target was shown
        anything it gets a whole slice, and draws outside its domain do not count: they cost
        next to nothing, and of a narrow domain hundreds may stand in front of the first case."""
        build = shown_case(state.adapter.contract)
        began = time.monotonic()
        while not state.hypothesis_is_due and self._left(state) > 0:
            slice_s = self.slice_s if state.executed else SLICE_S
            if state.done or self._over() or time.monotonic() - began >= slice_s:
                return
            source = RandomSource(f"{self.seed}:{state.adapter.id}:{state.raw}")
            state.raw += 1
            case, how = build(source)
            self._one(state, case, how, source.choices)

    def _hypothesis(self, state: TargetState) -> None:
        import hypothesis
        from hypothesis import HealthCheck, Phase
        from hypothesis.configuration import set_hypothesis_home_dir

        # Without it Hypothesis leaves a folder where the user stands.
        set_hypothesis_home_dir(self.events.out / "examples")
        state.hypothesis_runs += 1

        @hypothesis.seed(f"{self.seed}:{state.adapter.id}:hypothesis:{state.hypothesis_runs}")
        @hypothesis.settings(
            max_examples=max(1, min(HYPOTHESIS_EXAMPLES, self._left(state))),
            phases=(Phase.generate,),
            database=None,  # it would keep what raises, and nothing does
            deadline=None,
            suppress_health_check=list(HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
        )
        @hypothesis.given(drawn_by_hypothesis(shown_case(state.adapter.contract)))
        def look(drawn: tuple[tuple[Any, Presentation], list[int]]) -> None:
            if not state.done and not self._over():
                state.hypothesis_cases += 1
                (case, how), choices = drawn
                self._one(state, case, how, choices)

        look()

    def _one(self, state: TargetState, case: Any, how: Presentation, choices: list[int]) -> None:
        verdict = self._execute(state, case, how, choices)
        if verdict.kind is Kind.UNSUPPORTED:
            outside = verdict.evidence["reason"].startswith(OUTSIDE_DOMAIN)
            state.sought += outside and not state.executed
            state.refused_in_a_row += 1
            if state.refused_in_a_row >= (STOP_AFTER_OUTSIDE if outside else STOP_AFTER_REFUSALS):
                self._stop(state, verdict.evidence["reason"])
            return
        state.refused_in_a_row = 0
        if verdict.red and verdict.identity not in state.found:
            state.seen.setdefault(verdict.identity, verdict)
            self._investigate(state, choices, verdict)
        elif verdict.kind is Kind.HARNESS_ERROR:
            self._stop(state, f"harness error: {verdict.evidence.get('message')}")

    def _execute(self, state: TargetState, case: Any, how: Presentation, choices: list[int]) -> Verdict:
        prepared = prepare(self.session, state.adapter, case, how)
        if isinstance(prepared, Verdict):  # nothing is sent, so nothing can be lost
            state.verdicts[prepared.kind] += 1
            return prepared
        number = self.events.start(state.adapter.id, choices=choices)
        verdict = send(self.session, state.adapter, case, how, prepared)
        self.events.end(number, verdict, known=verdict.red and self._known(verdict.identity) is not None)
        state.verdicts[verdict.kind] += 1
        if verdict.kind not in (Kind.UNSUPPORTED, Kind.INVALID_CASE):
            state.behaviours.update(verdict.behaviours)
        for flag in verdict.flags:
            state.flags[flag] += 1
            state.first_claim.setdefault(flag, verdict.evidence.get("claim", ""))
        state.production_s += verdict.production_s
        state.compile_s += verdict.compile_s
        return verdict

    def _stop(self, state: TargetState, reason: str) -> None:
        state.done, state.reason = True, reason

    def _investigate(self, state: TargetState, choices: list[int], verdict: Verdict) -> None:
        """Reproduce, shrink, find a sibling, freeze; then the target is done
        unless the campaign continues on failure."""
        self.on_progress(self)
        known = self._known(verdict.identity)
        belief = (
            self._believe(state, choices, verdict) if known is None else taken_as_known(verdict, choices, state.adapter)
        )
        if belief.kind is not verdict.kind:
            state.verdicts[verdict.kind] -= 1
            state.verdicts[belief.kind] += 1
            self.events.rejudge(replace(verdict, kind=belief.kind, evidence=belief.verdict.evidence))
        if known is None and self.store is not None:
            self.store.save(state.adapter.contract, choices)
        frozen = None if belief.kind is Kind.FLAKY else self._frozen(state, belief, listed=known is not None)
        state.found[verdict.identity] = Found(verdict.identity, belief.verdict, belief, frozen, known)
        self.events.emit(
            "found", target=state.adapter.id, contract=state.adapter.contract, verdict=str(belief.kind),
            identity=vars(verdict.identity), known=known is not None, evidence=belief.verdict.evidence,
            rate=belief.rate, shrink_calls=belief.calls, shrink_processes=belief.fresh_processes,
            shrink_capped=belief.capped, sibling=belief.sibling_words,
            frozen=frozen and str(frozen.relative_to(self.events.out)), seconds=round(self.elapsed_s, 2),
        )  # fmt: skip
        if not self.options.continue_on_failure and known is None:
            state.done = True

    def _known(self, identity: Identity) -> Known | None:
        launch = self.session.launch
        return next((k for k in self.known if k.covers(identity, launch.version, launch.device)), None)

    def _believe(self, state: TargetState, choices: list[int], verdict: Verdict) -> Belief:
        # A find near the end of the budget is still shrunk, but not for long.
        left = self.options.max_seconds - self.elapsed_s
        return believe(
            self.session, state.adapter, choices, verdict.identity,
            lambda c, h, m: self._execute(state, c, h, m), min(MAX_SECONDS, max(LEAST_SHRINK_S, left)),
        )  # fmt: skip

    def _frozen(self, state: TargetState, belief: Belief, listed: bool) -> Path | None:
        """The file of a find. A listed one is frozen as it was drawn, so that a report
        can show it; one too large for a file is still reported."""
        if not listed:
            return self._freeze(state, belief, {})
        try:
            return self._freeze(state, belief, {"listed": "as it was drawn, not shrunk"})
        except CorpusError:
            return None

    def _freeze(self, state: TargetState, belief: Belief, more: dict[str, str]) -> Path:
        # Of two sides that were compared, the file names the one that the reference does
        # not take: there a replay fails.
        launch = self.session.launch
        where = {"engine": f"{launch.engine}=={launch.version}", "target": state.adapter.id}
        where |= belief.verdict.evidence.get("blamed", {})
        if not re.match(ENGINE, where["engine"]):
            del where["engine"]  # a checkout: a file must not make a replay run code from a path
        provenance = {
            **where,
            "device": self.session.ready.get("device", "cpu"),
            "date": time.strftime("%Y-%m-%d"),
            "seed": self.seed,
            "identity": str(belief.verdict.identity),
            **more,
        }
        # The symbol is in it, so that two targets that share a case keep a file each.
        words = f"{state.adapter.module} {state.adapter.symbol} {belief.verdict.identity.kind}".lower()
        frozen = make(
            state.adapter.contract,
            belief.case,
            slug="-".join(re.findall("[a-z0-9]+", words))[:MAX_SLUG].strip("-"),
            reason=belief.words,
            provenance=provenance,
            presentation=belief.how,
        )
        return write(frozen, self.events.out / "found")
