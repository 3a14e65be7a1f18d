"""How far float32 arithmetic may move the edges of verify.chain_rejection.

With u = 2^-24, one rounding moves a result by u of itself; first order, nothing tuned.

* Accept test of the token rule: one product ``coin * q`` or one quotient ``p / q``, compared exactly: u of the edge,
  at most one ULP.
* ``w_j`` of the block rule: a product and a quotient a draft since ``w`` was certainly clamped to 1, so ``roundings``
  grows by 2 a draft and falls back to 0 when the unclamped value is above 1 by more than its error.
* A term of the residual: one subtraction; with ``w`` below 1 also a product, and the error of ``w``, both relative to
  ``w p``, which the subtraction may cancel. A token with ``w p`` at or just below ``q`` *may* then come out with mass.
* A sum of n terms in any order: n - 1. A cumulated sum and the total that the coin is multiplied with are two such
  sums, and the product is one rounding more: (2 (n - 1) + 3) u of the total, n + 1/2 ULP at 1. It is taken relative to
  the total and not to the cumulated part, because a scan may subtract. Masses that are multiples of one quantum and
  sum to at most 2^24 of it round nowhere: then a coin on the edge has one right side.
* ``h_j``: the interval of S / (S + 1 - w) over the intervals of S and w, and four roundings. A verifier may also use
  that h <= w for rows that sum to 1, and reject above its own w.
* A race: one subtraction, a reciprocal and a product on both sides of a comparison.
"""

from __future__ import annotations

from fractions import Fraction

from oracle.verify.draws import EXACT, is_power_of_two
from oracle.verify.edges import ulp

U = Fraction(1, 2**24)
SMALLEST_NORMAL = Fraction(1, 2**126)  # what a product of a small w may lose when results below are flushed to 0
ACCEPT_ULP = 1.0
RACE_ULP = 3.0  # of a ratio halved, near 1/2: half of six roundings of 2^-24
HALF = Fraction(1, 2)


def next_prefix(unclamped: Fraction, roundings: int) -> tuple[Fraction, int]:
    """``w_j`` and its roundings, from ``w_(j-1) p / q`` and the roundings of ``w_(j-1)``."""
    if unclamped == 0:  # a product with 0 rounds nothing
        return unclamped, 0
    if not roundings:  # w was exactly 1: one quotient, which is at least 1 whenever p >= q
        return (Fraction(1), 0) if unclamped >= 1 else (unclamped, 1)
    roundings += 2
    if unclamped >= 1 + roundings * U:
        return Fraction(1), 0
    return min(unclamped, Fraction(1)), roundings


def mass_error(terms: int, mass: Fraction, touched: Fraction, roundings: int) -> Fraction:
    """Error of a sum of ``terms`` residual masses that is ``mass``. ``touched`` is ``w p`` summed over the tokens that
    have or may come out with mass; it counts only when ``w`` is rounded at all."""
    if not roundings:
        return terms * U * mass
    return terms * (U * mass + SMALLEST_NORMAL) + (roundings + 1) * U * touched


def draw_ulp(terms: int, mass: Fraction, touched: Fraction, roundings: int, sums_exactly: bool) -> float:
    """By how many ULP at 1 the edges of a draw by cumulated mass may lie elsewhere. ``sums_exactly`` says that no order
    of float32 additions rounds: only the product of coin and total is left, and not even that for a power of two."""
    if sums_exactly:
        return EXACT if is_power_of_two(mass) else 1.0
    moved = 2 * mass_error(terms, mass, touched, roundings) / mass + U
    return float(moved / ulp(Fraction(1)))


def past_the_end(coin: Fraction, within_ulp: float) -> bool:
    """True when a rounded total times the coin may be no less than all masses in sum."""
    return coin >= 1 - Fraction(within_ulp) * ulp(Fraction(1))


def accept_interval(
    mass: Fraction, error: Fraction, prefix: Fraction, roundings: int
) -> tuple[Fraction, Fraction, Fraction]:
    """Lowest, exact and highest ``h_j`` of a draft that is not the last one; ``error`` is that of ``mass``."""
    low_prefix, high_prefix = last_interval(prefix, roundings)
    exact = _threshold(mass, prefix)
    low = min(_threshold(max(mass - error, Fraction(0)), low_prefix), low_prefix)
    return min(low * (1 - 4 * U), exact), exact, max(_threshold(mass + error, high_prefix) * (1 + 4 * U), exact)


def last_interval(prefix: Fraction, roundings: int) -> tuple[Fraction, Fraction]:
    """Lowest and highest ``w_j``, the edge of the last draft."""
    error = prefix * roundings * U + (SMALLEST_NORMAL if roundings else 0)
    return max(prefix - error, Fraction(0)), min(prefix + error, Fraction(1))


def _threshold(mass: Fraction, prefix: Fraction) -> Fraction:
    """S / (S + 1 - w); 1 for w = 1, where it is 1 for every S above 0."""
    return Fraction(1) if prefix >= 1 else mass / (mass + 1 - prefix)


def race_ulp(own: Fraction, own_touched: Fraction, best: Fraction, best_touched: Fraction, roundings: int) -> float:
    """The same for two racing masses whose ``w p`` are ``own_touched`` and ``best_touched``."""
    if not roundings:
        return RACE_ULP
    return RACE_ULP + float((roundings + 1) * (own_touched / own + best_touched / best) / 2)
