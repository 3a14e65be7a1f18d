"""How far rounding may move an edge, and a draw by inverse cumulated mass.

The order in which float32 masses are added is nobody's promise, so an edge that
is a sum may lie elsewhere for two correct programs. Unless nothing is rounded at
all: masses that are multiples of one quantum and whose total is at most 2^24 of
it add up exactly in every order. Then even a coin on the edge has one right side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import accumulate
from typing import Any

from oracle.verify.edges import EXPLORED_SLACK_ULP, Decide, ulp

# Nearer than two float32 can be without being equal: an edge that no rounding moves.
EXACT = -0.25
# No float32 coin lies between this and 1.
BELOW_ONE = 1 - Fraction(1, 2**25)
ONE = Fraction(1)


def in_quanta(masses: Iterable[Fraction]) -> tuple[list[int], int]:
    """``masses`` of float32 as multiples of 1/quantum, and the quantum's reciprocal."""
    masses = list(masses)
    scale = max((m.denominator for m in masses), default=1)  # powers of two
    return [m.numerator * (scale // m.denominator) for m in masses], scale


def adds_exactly(masses: Iterable[Fraction]) -> bool:
    """True when float32 sums of ``masses`` (all above 0) are exact in every order."""
    quanta, _ = in_quanta(masses)
    return len(quanta) < 2 or sum(quanta) <= 2**24


def is_power_of_two(number: Fraction) -> bool:
    """True when multiplying or dividing by ``number`` rounds nothing."""
    return number > 0 and number.numerator & (number.numerator - 1) == 0 and _power(number.denominator)


def _power(number: int) -> bool:
    return number & (number - 1) == 0


def sum_edge_ulp(masses: list[Fraction], divisor: Fraction) -> float:
    """ULP, at its own magnitude, by which the edge ``sum(masses) / divisor`` may be
    misplaced. Each of the n - 1 additions is off by half a ULP of the sum at most,
    the division (or the multiplication of the coin) by half a ULP of its result; a
    ULP may be worth twice as much, relatively, at another magnitude."""
    rounded = 0 if adds_exactly(masses) else len(masses) - 1
    rounded += 0 if is_power_of_two(divisor) else 1
    return float(rounded) if rounded else EXACT


def draw_edge_ulp(masses: list[Fraction], total: Fraction) -> float:
    """ULP at 1 by which the edges of a draw may be misplaced: (n - 1) / 2 for the
    total, as much for the cumulated mass, 1/2 for coin times total: below n."""
    if adds_exactly(masses):
        return EXACT if is_power_of_two(total) else 1.0
    return float(len(masses))


def below(decide: Decide, coin: Any, threshold: Fraction, within_ulp: float, rounding: bool = True) -> bool:
    """``coin < threshold`` where a threshold just above 1 may be rounded below it.

    With ``rounding`` such a threshold is shown as the last number below 1, at
    which no coin decides otherwise, and the distance is put right. Without, the
    threshold is exact, as an integration over coins needs it.
    """
    beyond = (threshold - BELOW_ONE) / ulp(BELOW_ONE)
    if rounding and 0 < beyond <= max(within_ulp, 0) + EXPLORED_SLACK_ULP:
        return decide.below(coin, BELOW_ONE, within_ulp - float(beyond))
    return decide.below(coin, threshold, within_ulp)


def draw(
    decide: Decide, coin: Any, masses: dict[int, Fraction], note: Callable[..., None] = lambda **_: None
) -> int | None:
    """The smallest token whose cumulated mass exceeds ``coin`` times the total,
    found by halving; ``None`` when there is no mass. ``masses`` in rising order.
    ``note`` is told the place of the token and the cumulated masses times ``scale``."""
    tokens, values = list(masses), list(masses.values())
    if not tokens:
        return None
    quanta, scale = in_quanta(values)
    cumulated = list(accumulate(quanta))
    total = cumulated[-1]
    within = draw_edge_ulp(values, Fraction(total, scale))
    low, high = 0, len(tokens) - 1  # every coin is below 1: the last token needs no asking
    while low < high:
        middle = (low + high) // 2
        if decide.below(coin, Fraction(cumulated[middle], total), within, at=ONE):
            high = middle
        else:
            low = middle + 1
    note(place=low, tokens=tokens, cumulated=cumulated, scale=scale)
    return tokens[low]
