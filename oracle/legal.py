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

import numpy as np

SHOWN_CELLS = 6  # of an array that a digest spells out


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


@dataclass(frozen=True, eq=False)
class Within:
    """An array of numbers, each at most ``error`` away from ``value``.

    Both are float64 of one shape. ``error`` is a bound that the reference derives
    for this very case: 0 asks for equality, infinity for nothing (NaN is fine then).
    An observed array may be larger along any axis, as padded outputs are: what is
    judged is its leading part.
    """

    value: np.ndarray
    error: np.ndarray

    def __post_init__(self) -> None:
        if self.value.shape != self.error.shape or not (self.error >= 0).all():
            raise ValueError("Within: a bound for each cell, none below 0 and none NaN")

    @classmethod
    def anything(cls, *shape: int) -> Within:
        """Of a row that nothing is asked of."""
        return cls(np.zeros(shape), np.full(shape, np.inf))

    def excess(self, observed: Any) -> np.ndarray | None:
        """How far each cell is off, as a fraction of its bound: legal up to 1, NaN and
        any deviation from an exact cell are infinite. ``None`` for a wrong shape or no real
        numbers."""
        seen = np.asarray(observed)
        if seen.dtype.kind in "cSUmM":  # a cast would drop an imaginary part and read texts
            return None
        if seen.ndim != self.value.ndim or any(s < n for s, n in zip(seen.shape, self.value.shape, strict=True)):
            return None
        seen = seen[tuple(slice(n) for n in self.value.shape)].astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.abs(seen - self.value) / self.error
            share = np.where(seen == self.value, 0.0, share)  # also infinite ones, and 0 / 0
        return np.where(np.isinf(self.error), 0.0, np.where(np.isnan(share), np.inf, share))

    def admits(self, observed: Any) -> bool:
        excess = self.excess(observed)
        return excess is not None and bool((excess <= 1).all())

    def error_of_bound(self, observed: Any) -> float | None:
        """Worst error as a fraction of the bound; ``None`` where everything is exact."""
        return self.worst(self.excess(observed))

    def worst(self, excess: np.ndarray | None) -> float | None:
        """The same of an ``excess`` that is known already."""
        bounded = excess[(self.error > 0) & np.isfinite(self.error)] if excess is not None else np.zeros(0)
        return float(bounded.max()) if bounded.size else None

    def cell(self, where: tuple[int, ...]) -> Real:
        """What is legal for one cell."""
        value, error = float(self.value[where]), float(self.error[where])
        return Real(value - error, value + error, nan=math.isinf(error))

    def describe(self) -> str:
        shape = " x ".join(map(str, self.value.shape))
        return f"{shape} numbers, each within its own bound (the largest is {self.error.max(initial=0.0):.2g})"

    def digest(self) -> dict[str, Any]:
        """What a file keeps: the shape, the first cells and a sum, each to the digits
        that its bound leaves. Machines whose mathematical libraries differ in the last
        bit of a float64 write the same."""
        cells = zip(self.value.ravel()[:SHOWN_CELLS], self.error.ravel()[:SHOWN_CELLS], strict=True)
        asked = np.isfinite(self.error)
        return {
            "shape": list(self.value.shape),
            "first": [_to_bound(float(v), float(e)) for v, e in cells],
            "magnitudes": _number(_digits(float(np.abs(self.value[asked]).sum()))),
            "largest_error": _digits(float(self.error[asked].max(initial=0.0))),
        }


Legal = OneOf | Between | Branched | Real | Each | Within


def alike(first: Any, second: Any) -> bool:
    """True when two definitions say the same of a field: plain values and legal sets
    alike; arrays of numbers up to a millionth of the first one's bounds, because
    float64 itself rounds."""
    if isinstance(first, Within):
        if not isinstance(second, Within) or first.value.shape != second.value.shape:
            return False
        with np.errstate(invalid="ignore"):
            near = np.abs(first.value - second.value) <= 1e-6 * first.error
        return bool((near | (first.value == second.value) | np.isinf(first.error)).all())
    if isinstance(first, (list, tuple)) and any(isinstance(v, Within) for v in first):
        same_size = isinstance(second, (list, tuple)) and len(second) == len(first)
        return same_size and all(alike(a, b) for a, b in zip(first, second, strict=True))
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and first.shape == second.shape and bool((first == second).all())
    return to_plain(first) == to_plain(second)


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
    if isinstance(legal, Within):
        return {"within": legal.digest()}
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


def _to_bound(value: float, error: float) -> float | str:
    """``value`` to two digits more than ``error`` leaves sure; of a cell that may hold
    anything, nothing."""
    if error == math.inf:
        return "anything"
    if not math.isfinite(value) or error == 0:
        return _number(value)
    return round(value, 2 - math.floor(math.log10(error))) + 0.0  # + 0.0: no negative zero


def _digits(number: float) -> float:
    """Three significant digits: a margin is for people, and must not differ
    between machines whose mathematical libraries differ in the last bit."""
    return float(f"{number:.3g}")
