"""Find the release between a good and a bad one where a divergence appears or goes.

Both ends are verified first, and what the bad end shows is what is followed: another
divergence on the way, a target that is not there, a release that cannot be provisioned
say nothing, so such a release is skipped for a neighbour and never counts as good.
Halving assumes one change; with a history that goes back and forth it finds one of the
changes. Releases that cost little are therefore asked as well, and a contradiction is
said. The trade: a fault that comes and goes between two asked releases stays unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Answer(StrEnum):
    """What a release says about the divergence that is followed."""

    BAD = "bad"
    GOOD = "good"
    SKIP = "skip"


@dataclass(frozen=True)
class Probe:
    """One asked release: its answer and, for a skip, why."""

    version: str
    answer: Answer
    reason: str = ""


Ask = Callable[[str], Probe]


class EndsError(Exception):
    """A good end that is not good or a bad end that is not bad. The message says which."""


@dataclass
class Bisection:
    """What was found. ``versions`` run from the end ``good`` to the end ``bad``, so from
    new to old when a fix is looked for. ``good`` and ``bad`` are neighbours except for
    skipped releases between them."""

    versions: list[str]
    good: str
    bad: str
    probes: dict[str, Probe] = field(default_factory=dict)

    @property
    def between(self) -> list[str]:
        """Releases between the last good and the first bad one; all of them skipped."""
        return self.versions[self.versions.index(self.good) + 1 : self.versions.index(self.bad)]

    @property
    def contradictions(self) -> list[Probe]:
        """Asked releases that one change between ``good`` and ``bad`` does not explain."""
        turn = self.versions.index(self.bad)
        return [
            probe
            for place, version in enumerate(self.versions)
            if (probe := self.probes.get(version)) is not None
            and probe.answer is (Answer.GOOD if place >= turn else Answer.BAD)
        ]

    @property
    def steps(self) -> int:
        """How many releases were asked."""
        return len(self.probes)


def bisect(versions: list[str], ask: Ask, on_probe: Callable[[Probe], None] = lambda probe: None) -> Bisection:
    """Halve ``versions``, the first of which must be good and the last bad, in about
    log2 steps. Raises EndsError."""
    found = Bisection(versions, versions[0], versions[-1])

    def probe(version: str) -> Probe:
        if version not in found.probes:
            found.probes[version] = ask(version)
            on_probe(found.probes[version])
        return found.probes[version]

    for version, wanted in ((found.bad, Answer.BAD), (found.good, Answer.GOOD)):
        end = probe(version)
        if end.answer is not wanted:
            said = {Answer.BAD: "shows it", Answer.GOOD: "does not show it", Answer.SKIP: f"says nothing: {end.reason}"}
            raise EndsError(f"{version} was named as the {wanted} end, but {said[end.answer]}")
    low, high = 0, len(versions) - 1
    while (place := _next(found, low, high)) is not None:
        answer = probe(versions[place]).answer
        if answer is Answer.GOOD:
            low = place
        elif answer is Answer.BAD:
            high = place
        found.good, found.bad = versions[low], versions[high]
    return found


def _next(found: Bisection, low: int, high: int) -> int | None:
    """The release nearest to the middle that was not asked yet, ``None`` when there is none."""
    left = [i for i in range(low + 1, high) if found.versions[i] not in found.probes]
    return min(left, key=lambda i: (abs(2 * i - low - high), i), default=None)


def look_again(found: Bisection, cheap: Iterable[str], ask: Ask, on_probe: Callable[[Probe], None]) -> None:
    """Ask those of ``cheap`` that were not asked, to notice a history with more than one change."""
    for version in cheap:
        if version in found.versions and version not in found.probes:
            found.probes[version] = ask(version)
            on_probe(found.probes[version])


def spread(versions: list[str], asked: Mapping[str, Probe], cheap: Iterable[str], most: int) -> list[str]:
    """At most ``most`` of the ``cheap`` releases not asked yet, evenly over the range."""
    allowed = set(cheap)
    left = [v for v in versions if v in allowed and v not in asked]
    if len(left) <= most:
        return left
    return [left[(2 * i + 1) * len(left) // (2 * most)] for i in range(most)]
