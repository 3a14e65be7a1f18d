"""Make a divergence small without letting it become another one.

Hypothesis shrinks the choices that led to the case; a smaller case counts only
if it shows the same identity. The choices may come from the raw sweep: they are
handed to Hypothesis through its example database, which it replays first. Before
that, records are dropped without it: what one of its attempts costs grows with the
choices. The search is bounded by calls, by time and by whatever else the caller has
``exhausted``; when a bound is hit, the smallest case seen so far stands.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fuzz.presentation import Presentation
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import Source, SpanSource, drawn_by_hypothesis
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts
from oracle.contract import Contract

MAX_CALLS = 1000
MAX_SECONDS = 30.0

Run = Callable[[Any, Presentation], Verdict]


@dataclass
class Shrunk:
    """The smallest case with the wanted identity, and what was seen on the way.

    ``agreeing`` are cases that agreed while shrinking: siblings of the find.
    """

    case: Any
    how: Presentation
    verdict: Verdict
    calls: int = 0
    agreeing: list[tuple[Any, Presentation]] = field(default_factory=list)


class _SameIdentity(Exception):
    """Raised inside Hypothesis for a case that shows the wanted identity."""


def shrink(
    contract: str,
    choices: Sequence[int],
    identity: Identity,
    run: Run,
    max_seconds: float = MAX_SECONDS,
    device: str = "cpu",
    exhausted: Callable[[], bool] = lambda: False,
) -> Shrunk | None:
    """The smallest case found with ``identity``; ``None`` if not even the given
    choices, which were drawn for ``device``, show it again."""
    import hypothesis
    from hypothesis import HealthCheck, Phase

    best: tuple[tuple, Any, Presentation, Verdict] | None = None
    seen: dict[tuple, bool] = {}
    result = Shrunk(None, Presentation(), None)  # type: ignore[arg-type]
    deadline = time.monotonic() + max_seconds
    build = shown_case(contract, device)

    def shows(case: Any, how: Presentation, made: Sequence[int]) -> bool | None:
        """Whether the case has the wanted identity; ``None`` behind the bounds."""
        nonlocal best
        key = tuple(made)
        if key not in seen:
            if result.calls >= MAX_CALLS or time.monotonic() > deadline or exhausted():
                return None
            result.calls += 1
            verdict = run(case, how)
            seen[key] = verdict.identity == identity
            if verdict.kind is Kind.AGREE:
                result.agreeing.append((case, how))
            if seen[key] and (best is None or (len(key), key) < best[0]):
                best = ((len(key), key), case, how, verdict)
        return seen[key]

    choices = _without_records(build, choices, shows)

    @hypothesis.settings(
        database=_replay_database([choices]),
        phases=(Phase.reuse, Phase.shrink),
        max_examples=1,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(drawn_by_hypothesis(build))
    def attempt(drawn: tuple[tuple[Any, Presentation], list[int]]) -> None:
        (case, how), made = drawn
        if shows(case, how, made):
            raise _SameIdentity

    with contextlib.suppress(_SameIdentity):
        attempt()
    if best is None:
        return None
    _, result.case, result.how, result.verdict = best
    _drop_records(contracts.get(contract), identity, run, result, exhausted)
    return result


def _without_records(
    build: Callable[[Source], tuple[Any, Presentation]],
    choices: Sequence[int],
    shows: Callable[[Any, Presentation, Sequence[int]], bool | None],
) -> list[int]:
    """The choices without every record whose absence keeps the identity, the last
    one first; unchanged where they do not show it."""
    source = SpanSource(choices)
    if not shows(*build(source), source.choices):
        return list(choices)
    at = len(source.spans) - 1
    while at >= 0:
        count, start, end = source.spans[at]
        fewer = [*source.choices[:start], *source.choices[end:]]
        fewer[count] -= 1
        trial = SpanSource(fewer)
        if shows(*build(trial), trial.choices) and len(trial.choices) < len(source.choices):
            source = trial
        at = min(at, len(source.spans)) - 1
    return source.choices


def _drop_records(
    contract: Contract, identity: Identity, run: Run, result: Shrunk, exhausted: Callable[[], bool]
) -> None:
    """Take away every record whose absence keeps the identity. Hypothesis deletes
    parts of its choices and now and then stops with a record too many."""
    at = 0
    while len(records := getattr(result.case, contract.records)) > 1 and at < len(records) and not exhausted():
        fewer = replace(result.case, **{contract.records: records[:at] + records[at + 1 :]})
        result.calls += 1
        verdict = run(fewer, result.how)  # an invalid case has no identity
        if verdict.identity == identity:
            result.case, result.verdict = fewer, verdict
        else:
            at += 1


def _replay_database(examples: Iterable[Sequence[int]]) -> Any:
    """A Hypothesis database that offers the given choices under any key."""
    from hypothesis.database import ExampleDatabase, choices_to_bytes

    # An example that replays exactly counts as shrunk already, and Hypothesis would
    # stop; one unused choice at the end makes it shrink.
    stored = [choices_to_bytes([*choices, 0]) for choices in examples]

    class Replay(ExampleDatabase):
        def fetch(self, key: bytes) -> Iterable[bytes]:
            # Hypothesis asks for other corpora under derived keys too.
            return [] if key.endswith((b".secondary", b".pareto")) else stored

        def save(self, key: bytes, value: bytes) -> None:
            pass

        def delete(self, key: bytes, value: bytes) -> None:
            pass

    return Replay()
