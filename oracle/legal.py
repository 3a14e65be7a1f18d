"""What a reference may call legal.

A plain value in an outcome means "exactly this". The classes below are the only
other forms. The trade: a reference that says more than one value is legal must
say why (the margin, or the domain), so that "several are fine" never hides a
fault.
"""

from __future__ import annotations

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


Legal = OneOf | Between


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
    if isinstance(legal, (list, tuple)):
        return [to_plain(v) for v in legal]
    return legal
