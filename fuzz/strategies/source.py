"""Two speeds, one expansion.

A strategy draws integers and records from a source. ``RandomSource`` is a plain
generator (volume); ``drawn_by`` hands the same strategy to Hypothesis (structure
and shrinking). Both make the same choices in the same order, and the random one
writes them down in Hypothesis's own terms, so that whatever the sweep finds,
Hypothesis can replay and shrink. A test holds the two together.

Only integers within bounds and lists of records exist here, simplest first: a
seed is drawn for bulk data, never the data, and a record is drawn whole, because
parallel lists shrink badly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """Where a strategy gets its choices from."""

    def integer(self, low: int, high: int) -> int: ...

    def records(self, one: Callable[[Source], T], low: int, high: int) -> list[T]: ...


def choice(source: Source, options: Sequence[T]) -> T:
    """One of ``options``; the first is the simplest."""
    return options[source.integer(0, len(options) - 1)]


def flag(source: Source) -> bool:
    """False is the simplest."""
    return source.integer(0, 1) == 1


class RandomSource:
    """Choices from a seeded generator, written down for a later replay."""

    def __init__(self, seed: int | str):
        self._random = random.Random(seed)
        self.choices: list[int] = []

    def integer(self, low: int, high: int) -> int:
        if low == high:
            return low
        value = self._random.randint(low, high)
        # Ends of a wide range are where faults are; a uniform draw never sees them.
        if high - low > 64 and self._random.random() < 0.25:
            near = self._random.randint(0, 3)
            value = low + near if self._random.random() < 0.5 else high - near
        self.choices.append(value)
        return value

    def records(self, one: Callable[[Source], T], low: int, high: int) -> list[T]:
        return [one(self) for _ in range(self.integer(low, high))]


class _DrawSource:
    """Choices from a Hypothesis ``draw`` function, written down as well."""

    def __init__(self, draw: Callable[[Any], Any], choices: list[int]):
        self._draw, self.choices = draw, choices

    def integer(self, low: int, high: int) -> int:
        if low == high:
            return low
        value = self._draw(_integers(low, high))
        self.choices.append(value)
        return value

    def records(self, one: Callable[[Source], T], low: int, high: int) -> list[T]:
        # The count comes first and each record is a draw of its own: when the shrinker
        # lowers the count it then tries to delete any one record. With a list strategy
        # ("one more?" before each) records of many choices stay stuck.
        record = _record()(one, self.choices)
        return [self._draw(record) for _ in range(self.integer(low, high))]


# Both are made once: Hypothesis compiles a signature for every composite that is
# defined, and shrinking draws some hundred integers a case from the same few bounds.
@lru_cache(maxsize=4096)
def _integers(low: int, high: int) -> Any:
    from hypothesis import strategies as st

    return st.integers(low, high)


@cache
def _record() -> Any:
    from hypothesis import strategies as st

    @st.composite
    def record(draw: Callable[[Any], Any], one: Callable[[Source], T], choices: list[int]) -> T:
        return one(_DrawSource(draw, choices))

    return record


def drawn_by_hypothesis(build: Callable[[Source], T]) -> Any:
    """A Hypothesis strategy of ``(built value, choices)`` for a builder."""
    from hypothesis import strategies as st

    @st.composite
    def both(draw: Callable[[Any], Any]) -> tuple[T, list[int]]:
        choices: list[int] = []
        return build(_DrawSource(draw, choices)), choices

    return both()


class Exhausted(Exception):
    """A recorded choice list was shorter than the strategy that replays it."""


class ReplaySource:
    """Choices read back from a list, to rebuild a journalled case."""

    def __init__(self, choices: Iterable[int]):
        self._left = list(choices)[::-1]

    def _next(self) -> int:
        if not self._left:
            raise Exhausted
        return self._left.pop()

    def integer(self, low: int, high: int) -> int:
        return low if low == high else self._next()

    def records(self, one: Callable[[Source], T], low: int, high: int) -> list[T]:
        return [one(self) for _ in range(self.integer(low, high))]


class SpanSource:
    """Choices read back from a list that something was cut out of: a choice out of its
    bounds becomes the nearest within, a missing one the lowest.

    ``choices`` is what was chosen then; ``spans`` are the records that may be absent, as
    the place of their count and of their first choice and the place behind their last.
    """

    def __init__(self, choices: Sequence[int]):
        self._given, self._at = choices, 0
        self.choices: list[int] = []
        self.spans: list[tuple[int, int, int]] = []

    def integer(self, low: int, high: int) -> int:
        if low == high:
            return low
        given = self._given[self._at] if self._at < len(self._given) else low
        self._at += 1
        self.choices.append(min(max(given, low), high))
        return self.choices[-1]

    def records(self, one: Callable[[Source], T], low: int, high: int) -> list[T]:
        place, count = len(self.choices), self.integer(low, high)
        made = []
        for _ in range(count):
            start = len(self.choices)
            made.append(one(self))
            if count > low:
                self.spans.append((place, start, len(self.choices)))
        return made
