"""When a red verdict is believed.

A stub can fail by itself, so a divergence counts only if the same target, at the
same version, behind the same stub, agrees on a sibling case that does not
trigger it. A fault must also repeat: it is run again in fresh processes, and one
that does not always repeat is FLAKY with its rate, never retried into green.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fuzz.adapter import Adapter
from fuzz.executor import execute, judged, prepare
from fuzz.history import needed
from fuzz.presentation import PLAIN, Presentation
from fuzz.shrink import MAX_SECONDS, Shrunk, shrink
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import RandomSource, ReplaySource
from fuzz.supervisor import Session
from fuzz.verdict import Identity, Kind, Verdict
from oracle import case as case_
from oracle import contracts, explain

FRESH_RUNS = 3  # fresh processes in which a fault must repeat
# Processes that a case may kill while it is shrunk, and as many while a sibling is looked for, where each of them
# imports the engine anew (with a GPU, where nothing forks): 10 minutes at 15 s each. A fork costs milliseconds.
MAX_FRESH_PROCESSES = 40
SIBLING_DRAWS = 200  # random cases tried when shrinking met none that agreed


class FreshProcesses:
    """How many workers a session started since, and whether that is the most allowed."""

    def __init__(self, session: Session):
        self._session, self._before = session, session.workers

    @property
    def used(self) -> int:
        return self._session.workers - self._before

    def exhausted(self) -> bool:
        return self._session.direct and self.used >= MAX_FRESH_PROCESSES


@dataclass(frozen=True)
class Belief:
    """What is known about a find after it was investigated.

    ``calls`` and ``fresh_processes`` are what shrinking took; ``capped`` says that it had
    to end there, with a case that might be smaller.
    ``rate`` is "k of n fresh processes". ``kind`` is FLAKY when k < n, and
    ORACLE_SUSPECT when no sibling agrees, because then nothing shows that the
    adapter and the reference are right at all.
    """

    kind: Kind
    case: Any
    how: Presentation
    verdict: Verdict
    rate: str
    calls: int
    sibling: Any
    words: str
    fresh_processes: int = 0
    capped: bool = False

    @property
    def shrink_words(self) -> str:
        """``46 calls``, or ``46 calls, 40 fresh processes (the most allowed)``."""
        if not self.fresh_processes:
            return f"{self.calls} calls"
        most = " (the most allowed)" if self.capped else ""
        processes = "1 fresh process" if self.fresh_processes == 1 else f"{self.fresh_processes} fresh processes"
        return f"{self.calls} calls, {processes}{most}"

    @property
    def sibling_words(self) -> str | None:
        """Where the agreeing sibling differs from the case."""
        return None if self.sibling is None else explain.changes(self.case, self.sibling)


def believe(
    session: Session,
    adapter: Adapter,
    choices: Sequence[int],
    identity: Identity,
    run: Callable[[Any, Presentation], Verdict],
    shrink_seconds: float = MAX_SECONDS,
    past: Sequence[dict[str, Any]] = (),
) -> Belief:
    """Investigate the find that ``choices`` led to. ``run`` executes and journals
    one case; it is used for everything but the fresh reproductions. ``past`` is what its
    process was sent before: looked through when the find does not repeat alone."""
    device = session.launch.device
    given_case, given_how = shown_case(adapter.contract, device)(ReplaySource(choices))
    repeated = repeats(session, adapter, given_case, given_how, identity)
    rate = f"{repeated} of {FRESH_RUNS} fresh processes"
    if repeated < FRESH_RUNS:
        behind = _behind(session, adapter, given_case, given_how, identity, past, shrink_seconds)
        evidence = {"rate": rate} | ({"behind": behind} if behind else {})
        verdict = Verdict(Kind.FLAKY, adapter.id, adapter.contract, identity, evidence)
        words = f"Repeats only in {rate}: {identity.field} {identity.kind}."
        if behind:
            words += f" It shows in a fresh process behind {_cases(behind)} of this run."
        return Belief(Kind.FLAKY, given_case, given_how, verdict, rate, 0, None, words)
    fresh = FreshProcesses(session)
    small = shrink(adapter.contract, choices, identity, run, shrink_seconds, device, fresh.exhausted)
    used, capped = fresh.used, fresh.exhausted()
    if small is None:
        small = Shrunk(given_case, given_how, run(given_case, given_how))
    sibling = sibling_of(session, adapter, small.case, small.agreeing)
    kind = small.verdict.kind if sibling is not None else Kind.ORACLE_SUSPECT
    words = words_for(small.verdict)
    return Belief(kind, small.case, small.how, small.verdict, rate, small.calls, sibling, words, used, capped)


def taken_as_known(verdict: Verdict, choices: Sequence[int], adapter: Adapter, device: str = "cpu") -> Belief:
    """A listed divergence was investigated when it was listed; it is only reported."""
    case, how = shown_case(adapter.contract, device)(ReplaySource(choices))
    return Belief(verdict.kind, case, how, verdict, "not repeated: listed as known", 0, None, words_for(verdict))


def repeats(session: Session, adapter: Adapter, case: Any, how: Presentation, identity: Identity) -> int:
    """In how many of ``FRESH_RUNS`` fresh processes the identity shows again."""
    count = 0
    for _ in range(FRESH_RUNS):
        session.fresh()
        count += execute(session, adapter, case, how).identity == identity
    return count


def _behind(
    session: Session, adapter: Adapter, case: Any, how: Presentation, identity: Identity,
    past: Sequence[dict[str, Any]], max_seconds: float,
) -> list[int]:  # fmt: skip
    """Numbers of the earlier cases behind which the identity shows in a fresh process."""
    request = prepare(session, adapter, case, how)
    if isinstance(request, Verdict) or not past:
        return []
    found = needed(
        session, past, request,
        lambda answer: judged(session, adapter, case, how, answer).identity == identity, max_seconds,
    )  # fmt: skip
    return [earlier["number"] for earlier in found or ()]


def _cases(numbers: list[int]) -> str:
    return f"case {numbers[0]}" if len(numbers) == 1 else f"cases {', '.join(map(str, numbers))}"


def sibling_of(session: Session, adapter: Adapter, case: Any, agreeing: list[tuple[Any, Presentation]]) -> Any:
    """The agreeing case nearest to ``case``: of those met while shrinking, else
    of the contract's example and random draws."""
    if agreeing:
        return min((c for c, _ in agreeing), key=lambda other: difference(case, other))
    build = shown_case(adapter.contract)
    fresh = FreshProcesses(session)
    drawn = (build(RandomSource(f"sibling:{i}"))[0] for i in range(SIBLING_DRAWS))
    for candidate in itertools.chain([contracts.get(adapter.contract).example], drawn):
        if execute(session, adapter, candidate, PLAIN).kind is Kind.AGREE:
            return candidate
        if fresh.exhausted():
            return None
    return None


def difference(a: Any, b: Any) -> int:
    """How many leaves of two cases differ; a missing record counts whole."""
    return _distance(case_.to_plain(a), case_.to_plain(b))


def _distance(a: Any, b: Any) -> int:
    if isinstance(a, dict) and isinstance(b, dict):
        return sum(_distance(a.get(k), b.get(k)) for k in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list):
        shared = sum(_distance(x, y) for x, y in zip(a, b))
        return shared + 5 * abs(len(a) - len(b))
    return int(a != b)


def words_for(verdict: Verdict) -> str:
    """What a red verdict claims, in one sentence."""
    evidence = verdict.evidence
    if "claim" in evidence:
        return evidence["claim"]
    detail = evidence.get("message") or evidence.get("rate") or ""
    return f"{verdict.kind} {verdict.identity.kind} {detail}".strip()
