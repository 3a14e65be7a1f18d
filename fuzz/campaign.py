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

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fuzz.adapter import Adapter
from fuzz.believe import Belief, believe, taken_as_known
from fuzz.database import Store
from fuzz.events import Events
from fuzz.executor import OUTSIDE_DOMAIN, judged, prepare
from fuzz.freeze import freeze
from fuzz.known import Known
from fuzz.presentation import PLAIN, Presentation
from fuzz.shard import Shard
from fuzz.shrink import MAX_SECONDS
from fuzz.strategies.case import shown_case, without_device
from fuzz.strategies.source import RandomSource, SpanSource, drawn_by_hypothesis
from fuzz.supervisor import Session
from fuzz.target_state import RAW_PER_HYPOTHESIS, Drawn, Found, TargetState, emit_target
from fuzz.verdict import Identity, Kind, Verdict

SLICE_S = 0.5  # of a raw sweep, before the next target has its turn
ROUNDS = 4  # a budget is enough for: where targets are many, slices are shorter, so that each has its turn
HYPOTHESIS_EXAMPLES = 25
MAX_BATCH = 32  # cases sent in one message
BATCH_S = 0.1  # a batch takes at most about this, so that slices and budgets stay what they say
LEAST_SHRINK_S = 5.0  # a find gets this much, whatever is left of the budget
STOP_AFTER_REFUSALS = 300  # consecutive cases that a target was asked and refused
STOP_AFTER_OUTSIDE = 10_000  # consecutive draws outside a target's domain: they are not even sent


@dataclass(frozen=True)
class Options:
    """What bounds a campaign. ``max_examples`` is per target; targets and seed are those of
    the whole of which this is the ``shard``. ``bare``: raw cases alone, shown plainly, and nothing
    is investigated; for a benchmark."""

    seed: int = 0
    max_seconds: float = 60.0
    max_examples: int | None = None
    continue_on_failure: bool = False
    shard: Shard = Shard()
    bare: bool = False


def _of_the_graph(how: Presentation, verdict: Verdict) -> bool:
    """Whether a target refused a graph. It says nothing about the target, which is asked without."""
    return how.graph and verdict.kind is Kind.UNSUPPORTED and not verdict.evidence["reason"].startswith(OUTSIDE_DOMAIN)


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

    def run(self, *, whole: bool = True) -> None:
        """Fuzz until the budget is spent or no target is left. What each target was shown is
        said at the end of a ``whole`` campaign; of a part its caller says it."""
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
            self._until_over()
        finally:  # also of a run that is interrupted
            for state in self.states if whole else ():
                emit_target(self.events, state)

    @property
    def finished(self) -> bool:
        """True when no target is left, whatever is left of the budget."""
        return all(s.done for s in self.states)

    def go_on(self, max_seconds: float) -> None:
        """Fuzz for that much longer."""
        self.options, self.began = replace(self.options, max_seconds=max_seconds), time.monotonic()
        self._until_over()

    def _until_over(self) -> None:
        while not self._over() and not self.finished:
            for state in self.states:
                if not state.done and not self._over():
                    self._slice(state)
                    self.on_progress(self)

    def _over(self) -> bool:
        return self.elapsed_s >= self.options.max_seconds

    def _hypothesis_is_due(self, state: TargetState) -> bool:
        return not self.options.bare and state.hypothesis_is_due

    def _left(self, state: TargetState) -> int:
        """Cases that the target may still be shown."""
        most = self.options.max_examples
        return HYPOTHESIS_EXAMPLES + RAW_PER_HYPOTHESIS if most is None else most - state.drawn

    def _slice(self, state: TargetState) -> None:
        if state.stored is None and self.store is not None:
            self._earlier_finds(state)
        elif self._hypothesis_is_due(state):
            self._hypothesis(state)
        else:
            self._sweep(state)
        if self._left(state) <= 0:
            state.done = True

    def _earlier_finds(self, state: TargetState) -> None:
        """Cases that led to finds of the contract, on whichever target and in whichever run. Each
        target's first slice is this one, so that no find of this run is among them."""
        build, state.stored = shown_case(state.adapter.contract, self.session.launch.device), 0
        for choices in self.store.stored(state.adapter.contract):
            if state.done or self._over() or self._left(state) <= 0:
                return
            source = SpanSource(choices)
            state.stored += 1
            self._one(state, *build(source), source.choices)

    def _sweep(self, state: TargetState) -> None:
        """Raw cases until the slice is over or it is Hypothesis's turn, in batches: while the worker
        is at one, the next is drawn. Until a target was shown anything it gets a whole slice, and
        draws outside its domain do not count: they cost next to nothing, and of a narrow domain
        hundreds may stand in front of the first case."""
        began = time.monotonic()

        def over() -> bool:
            slice_s = self.slice_s if state.executed else SLICE_S
            return state.done or self._over() or time.monotonic() - began >= slice_s

        batch = self._draw(state, over)
        while batch:
            asked = time.monotonic()
            answers = self._post(state, batch)
            ahead = self._draw(state, over)
            verdicts = [self._journal(state, drawn, answer) for drawn, answer in zip(batch, answers, strict=True)]
            state.batch = self._batch_size(state.batch, (time.monotonic() - asked) / len(batch))
            stopped, state.done = state.done, False  # by the draws ahead, which say nothing of what was answered
            for drawn, verdict in zip(batch, verdicts, strict=True):
                if not state.done:
                    self._look(state, drawn, verdict)
            state.done |= stopped
            batch = ahead if not state.done else []

    @staticmethod
    def _batch_size(size: int, case_s: float) -> int:
        """The next batch: twice the last one while a batch stays a small part of a slice."""
        return max(1, min(2 * size, MAX_BATCH, int(BATCH_S / max(case_s, 1e-9))))

    def _draw(self, state: TargetState, over: Callable[[], bool]) -> list[Drawn]:
        """The next raw cases that can be sent, as many as a batch has; those that cannot are
        counted at once."""
        build, batch = shown_case(state.adapter.contract, self.session.launch.device), []
        while len(batch) < state.batch and not self._hypothesis_is_due(state) and self._left(state) > 0 and not over():
            source = RandomSource(f"{self.seed}:{state.adapter.id}:{state.raw}")
            state.raw += 1
            case, how = build(source)
            ready = self._prepare(state, case, PLAIN if self.options.bare else how, source.choices)
            if isinstance(ready, Verdict):
                self._refused(state, ready)
            else:
                batch.append(ready)
        return batch

    def _post(self, state: TargetState, batch: list[Drawn]) -> Iterator[Any]:
        """Journal a batch and send it. Of a run that is killed, the first case without an end is the
        one that was in flight."""
        requests = []
        for drawn in batch:
            drawn.number = self.events.start(state.adapter.id, choices=drawn.choices)
            requests.append(drawn.request | {"number": drawn.number})  # for whoever reads a session's history
        return iter(self.session.stream(requests))

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
        @hypothesis.given(drawn_by_hypothesis(shown_case(state.adapter.contract, self.session.launch.device)))
        def look(drawn: tuple[tuple[Any, Presentation], list[int]]) -> None:
            if not state.done and not self._over():
                state.hypothesis_cases += 1
                (case, how), choices = drawn
                self._one(state, case, how, choices)

        look()

    def _one(self, state: TargetState, case: Any, how: Presentation, choices: list[int]) -> None:
        ready = self._prepare(state, case, how, choices)
        if isinstance(ready, Verdict):
            self._refused(state, ready)
        else:
            self._look(state, ready, self._ask(state, ready))

    def _execute(self, state: TargetState, case: Any, how: Presentation) -> Verdict:
        """The verdict of a case that shrinking tries."""
        ready = self._prepare(state, case, how, [])
        return ready if isinstance(ready, Verdict) else self._ask(state, ready)

    def _prepare(self, state: TargetState, case: Any, how: Presentation, choices: list[int]) -> Drawn | Verdict:
        if how.graph and state.has_no_graph:
            how, choices = replace(how, graph=False), without_device(choices)
        prepared = prepare(self.session, state.adapter, case, how)
        if not isinstance(prepared, Verdict):
            state.fits = True
            return Drawn(case, how, choices, prepared)
        state.verdicts[prepared.kind] += 1  # nothing is sent, so nothing can be lost
        if not _of_the_graph(how, prepared):
            return prepared
        return self._prepare(state, case, replace(how, graph=False), without_device(choices))

    def _ask(self, state: TargetState, drawn: Drawn) -> Verdict:
        (answer,) = self._post(state, [drawn])
        return self._journal(state, drawn, answer)

    def _journal(self, state: TargetState, drawn: Drawn, answer: Any) -> Verdict:
        """Judge an answer, write it down and count it."""
        verdict = judged(self.session, state.adapter, drawn.case, drawn.how, answer)
        self.events.end(drawn.number, verdict, known=verdict.red and self._known(verdict.identity) is not None)
        if verdict.red and verdict.identity not in state.found:
            drawn.past = [r for r in self.session.history if r.get("number", drawn.number) < drawn.number]
        state.verdicts[verdict.kind] += 1
        if drawn.how.graph and verdict.kind is Kind.UNSUPPORTED:
            state.uncaptured[verdict.evidence["reason"]] += 1
        state.captured += drawn.how.graph and verdict.kind is not Kind.UNSUPPORTED
        if verdict.kind not in (Kind.UNSUPPORTED, Kind.INVALID_CASE):
            state.behaviours.update(verdict.behaviours)
        for flag in verdict.flags:
            state.flags[flag] += 1
            state.first_claim.setdefault(flag, verdict.evidence.get("claim", ""))
        state.production_s += verdict.production_s
        state.worker_s += answer.get("worker_s", 0.0) if isinstance(answer, dict) else 0.0
        state.compile_s += verdict.compile_s
        return verdict

    def _look(self, state: TargetState, drawn: Drawn, verdict: Verdict) -> None:
        """What a verdict means for its target."""
        if _of_the_graph(drawn.how, verdict):
            self._one(state, drawn.case, replace(drawn.how, graph=False), without_device(drawn.choices))
            return
        if verdict.kind is Kind.UNSUPPORTED:
            self._refused(state, verdict)
            return
        state.refused_in_a_row = 0
        if verdict.red and verdict.identity not in state.found and not self.options.bare:
            state.seen.setdefault(verdict.identity, verdict)
            self._investigate(state, drawn, verdict)
        elif verdict.kind is Kind.HARNESS_ERROR:
            self._stop(state, f"harness error: {verdict.evidence.get('message')}")

    def _refused(self, state: TargetState, verdict: Verdict) -> None:
        if verdict.kind is not Kind.UNSUPPORTED:
            return
        outside = verdict.evidence["reason"].startswith(OUTSIDE_DOMAIN)
        state.sought += outside and not state.fits
        state.refused_in_a_row += 1
        if state.refused_in_a_row >= (STOP_AFTER_OUTSIDE if outside else STOP_AFTER_REFUSALS):
            self._stop(state, verdict.evidence["reason"])

    def _stop(self, state: TargetState, reason: str) -> None:
        state.done, state.reason = True, reason

    def _investigate(self, state: TargetState, drawn: Drawn, verdict: Verdict) -> None:
        """Reproduce, shrink, find a sibling, freeze; then the target is done
        unless the campaign continues on failure."""
        self.on_progress(self)
        known = self._known(verdict.identity)
        belief = (
            self._believe(state, drawn, verdict)
            if known is None
            else taken_as_known(verdict, drawn.choices, state.adapter, self.session.launch.device)
        )
        if belief.kind is not verdict.kind:
            state.verdicts[verdict.kind] -= 1
            state.verdicts[belief.kind] += 1
            self.events.rejudge(replace(verdict, kind=belief.kind, evidence=belief.verdict.evidence))
        if known is None and self.store is not None:
            self.store.save(state.adapter.contract, drawn.choices)
        frozen = (
            None
            if belief.kind is Kind.FLAKY
            else freeze(self.session, self.seed, state.adapter, belief, self.events.out, listed=known is not None)
        )
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

    def _believe(self, state: TargetState, drawn: Drawn, verdict: Verdict) -> Belief:
        # A find near the end of the budget is still shrunk, but not for long.
        left = self.options.max_seconds - self.elapsed_s
        return believe(
            self.session, state.adapter, drawn.choices, verdict.identity,
            lambda c, h: self._execute(state, c, h), min(MAX_SECONDS, max(LEAST_SHRINK_S, left)), drawn.past,
        )  # fmt: skip
