"""How an observed number can be wrong, in words that make an identity and in words for people."""

from __future__ import annotations

import math
from typing import Any

from oracle.legal import Branched, Real, Within
from oracle.recurrence.formats import FORMATS, rounded

# Output buffers hold it before the call: far outside what a case computes, exact in every stored format.
POISON = -8192.0

UNTOUCHED = "untouched"  # the legal `outside`
FOREIGN = "foreign_state"


def kind(field: str, expected: Any, observed: Any) -> str:
    """The kind of difference of one cell, or of a count of cells."""
    if field == "outside":
        return "written_outside"
    if field == "kept":
        return "changed"
    if isinstance(observed, float) and not math.isfinite(observed):
        return "not_finite"
    return "not_written" if observed == POISON else "wrong_value"


def cell(legal: Within, where: tuple[int, ...], observed: float, axes: tuple[str, ...]) -> str:
    """One wrong cell in words. ``where``: request and cell; ``axes`` names the cell's axes.

    Says by how many times its bound the cell is off, because that is what tells a fault from a doubtful bound.
    """
    place = ", ".join(f"{name} {i}" for name, i in zip(axes, where[1:], strict=True))
    value, error = float(legal.value[where[1:]]), float(legal.error[where[1:]])
    must = Real(value - error, value + error).describe()
    if observed == POISON:
        return f"request {where[0]}: {place} was never written; it must be {must}"
    far = f", {abs(observed - value) / error:.3g} times its bound of {error:.2g} away" if error else ""
    times = far if math.isfinite(observed) else ""
    return f"request {where[0]}: {place} is {observed:.9g}; it must be {must}{times}"


def own_kind(field: str, expected: Any, observed: Any) -> str:
    """``kind`` where a request that accepted nothing may start from any of its own slots: then the
    expected value is a whole array, and no own state explains what was observed."""
    return FOREIGN if isinstance(expected, Within) else kind(field, expected, observed)


def own_claim(legal: Any, field: str, where: tuple[int, ...], observed: Any, axes: tuple[str, ...]) -> str:
    """The first illegal value of such a contract in words. ``legal``: what the request's field may be."""
    if field == "outside":
        return f"outside the buffers: {observed}"
    if field == "kept":
        return f"{observed} cells changed of slots, inputs or scratch that had to stay"
    if isinstance(legal, Branched):
        return f"request {where[0]}: {field} follow from none of the request's own slots, and not from 0"
    return cell(legal, where, observed, axes)


assert all(rounded(POISON, name) == POISON for name in FORMATS)
