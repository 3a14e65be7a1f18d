"""What a reference may call legal.

A plain value in an outcome means "exactly this". The classes below are the only
other forms. The trade: a reference that says more than one value is legal must
say why (the margin, or the domain), so that "several are fine" never hides a
fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OneOf:
    """Any of ``values``; ``values[0]`` is the one an exact machine would give.

    ``margin_ulp`` is the distance to the edge, in units in the last place, when
    the alternatives exist only because of rounding: an observation that takes
    another than the first is then a near tie. Without a margin the values are
    simply equivalent.
    """

    values: tuple[Any, ...]
    margin_ulp: float | None = None

    def admits(self, observed: Any) -> bool:
        return observed in self.values

    def describe(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Between:
    """Any integer from ``low`` to ``high``, both included.

    Used for the defensive domain, where only safety is promised: an index that
    stays inside the buffer is fine, whatever it is.
    """

    low: int
    high: int

    def admits(self, observed: Any) -> bool:
        return isinstance(observed, int) and self.low <= observed <= self.high

    def describe(self) -> str:
        return f"at most {self.high}" if self.low < -(2**62) else f"any from {self.low} to {self.high}"


@dataclass(frozen=True)
class Branched:
    """One value per branch of a run that met decisions near a rounding edge.

    All fields of a request are branched alike: entry ``k`` of each belongs to the
    same run, so an observation must take one branch in all fields. Branch 0 is the
    exact one. ``margins_ulp[k]`` is the largest distance to an edge at which branch
    k decides otherwise, ``excess_ulp[k]`` how far that is beyond what the contract's
    rounding model allows (0 or less: legal for everyone; above: only for a target
    whose own arithmetic is declared to be that much coarser).
    """

    values: tuple[Any, ...]
    margins_ulp: tuple[float, ...]
    excess_ulp: tuple[float, ...]

    def branches(self, observed: Any, slack_ulp: float = 0.0) -> frozenset[int]:
        """The branches that admit ``observed``."""
        return frozenset(
            k for k, v in enumerate(self.values) if self.excess_ulp[k] <= slack_ulp and admits(v, observed)
        )

    def admits(self, observed: Any) -> bool:
        return bool(self.branches(observed))

    def describe(self) -> str:
        others = [
            f"{describe(v)} ({m:.3g} ULP from an edge)"
            for v, m, e in zip(self.values[1:], self.margins_ulp[1:], self.excess_ulp[1:], strict=True)
            if e <= 0 and v != self.values[0]
        ]
        return " or ".join([describe(self.values[0]), *others])


@dataclass(frozen=True)
class Real:
    """Any number from ``low`` to ``high``, both included; NaN too where ``nan`` says so.

    The interval is an error bound that the reference derives for this very case.
    """

    low: float
    high: float
    nan: bool = False

    def admits(self, observed: Any) -> bool:
        return isinstance(observed, float) and (
            self.low <= observed <= self.high or (self.nan and observed != observed)
        )

    def describe(self) -> str:
        return f"{self.low:.9g}" if self.low == self.high else f"{self.low:.9g} to {self.high:.9g}"


@dataclass(frozen=True)
class Each:
    """A list, each entry of which must be a legal one; all different if ``distinct``."""

    values: tuple[Any, ...]
    distinct: bool = False

    def admits(self, observed: Any) -> bool:
        return (
            isinstance(observed, list)
            and len(observed) == len(self.values)
            and all(admits(v, o) for v, o in zip(self.values, observed, strict=True))
            and not (self.distinct and len(set(observed)) < len(observed))
        )

    def describe(self) -> str:
        return "[" + ", ".join(map(describe, self.values)) + "]" + (" all different" if self.distinct else "")


Legal = OneOf | Between | Branched | Real | Each


def admits(legal: Any, observed: Any) -> bool:
    """True when ``observed`` is a legal observation of ``legal``."""
    if isinstance(legal, Legal):
        return legal.admits(observed)
    return type(legal) is type(observed) and legal == observed


def describe(legal: Any) -> str:
    """``legal`` in words, for reports."""
    return legal.describe() if isinstance(legal, Legal) else str(legal)


def is_near_tie(legal: Any, observed: Any) -> bool:
    """True when ``observed`` is legal only because of a rounding edge."""
    return isinstance(legal, OneOf) and legal.margin_ulp is not None and observed != legal.values[0]


def to_plain(legal: Any) -> Any:
    """JSON form of a legal outcome; plain values stay what they are."""
    if isinstance(legal, OneOf):
        return {"one_of": [to_plain(v) for v in legal.values], "margin_ulp": legal.margin_ulp}
    if isinstance(legal, Between):
        return {"between": [legal.low, legal.high]}
    if isinstance(legal, Real):
        return {"real": [_number(legal.low), _number(legal.high)], "nan": legal.nan}
    if isinstance(legal, Each):
        return {"each": to_plain(legal.values), "distinct": legal.distinct}
    if isinstance(legal, Branched):
        return {
            "branches": [to_plain(v) for v in legal.values],
            "margins_ulp": [_digits(m) for m in legal.margins_ulp],
            "excess_ulp": [_digits(m) for m in legal.excess_ulp],
        }
    if isinstance(legal, (list, tuple)):
        return [to_plain(v) for v in legal]
    return legal


def _number(value: float) -> float | str:
    """JSON has no infinities."""
    return value if math.isfinite(value) else str(value)


def _digits(number: float) -> float:
    """Three significant digits: a margin is for people, and must not differ
    between machines whose mathematical libraries differ in the last bit."""
    return float(f"{number:.3g}")
