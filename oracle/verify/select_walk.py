"""The walk over a candidate lattice: each choice selects the row of the next slot.

Slot j has K candidates and K rows of scores. The row is that of the candidate
chosen in slot j - 1 (row 0 in the first slot). A greedy request takes the first
candidate with the greatest score, and its draft distribution q is the point mass
there. A sampling request draws from q = softmax(scores / temperature) with the
slot's coin: the first candidate whose cumulated mass exceeds the coin. Mass that
is less than half the smallest float32 is none, and a candidate without mass is
never drawn, neither by coin 0 nor by a coin above everything that rounding left of
the sum.

Rounding model, with u = 2^-24 and z = score / temperature, m the greatest z:

* the division may be off by 2 ULP (4 u |z|), for z and for m; their difference is
  rounded once, and once more on the way to a power of two: 2 u |z - m|;
* ``exp`` is accurate to 2 ULP (4 u); results below 2^-126 may be flushed to 0;
* the sum of K terms in any order adds (K - 1) u, the division by it 2 ULP (4 u),
  and the errors of its terms enter with their weight;
* i additions make the i-th cumulated mass: i u.

``relative_errors`` adds these up for the numbers of the case; the same bound serves
for q itself, entry by entry. Nothing in it is tuned.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from oracle.legal import Between, Each, OneOf, Real
from oracle.trace import Trace
from oracle.verify.edges import Decide, branched, explore, ulp
from oracle.verify.rows import Row, dense
from oracle.verify.select_case import DraftSelectCase, Request

U = Fraction(1, 2**24)  # unit roundoff of float32
NO_MASS = Fraction(1, 2**150)  # rounds to 0 in float32
FLUSHED = Fraction(1, 2**126)  # below, a device may give 0
EXP_ULP = 2  # declared accuracy of exp
DIVISION_ULP = 2  # of a division that is not asked to be correctly rounded
DIGITS = decimal.Context(prec=60, Emin=-(10**6), Emax=10**6)


@dataclass(frozen=True)
class Distribution:
    """``masses[c]`` of each candidate, 0 where it rounds to nothing, what each may
    be off by relative to itself, and the cumulated masses."""

    masses: tuple[Fraction, ...]
    errors: tuple[Fraction, ...]
    cumulated: tuple[Fraction, ...]

    @cached_property
    def within_ulp(self) -> tuple[float, ...]:
        """How far correct arithmetic may place each cumulated mass, in its ULP."""
        off, found = FLUSHED * len(self.masses), []
        for i, (mass, error, edge) in enumerate(zip(self.masses, self.errors, self.cumulated, strict=True)):
            off += mass * error
            found.append(float((off + i * U * edge) / ulp(edge)))
        return tuple(found)

    @cached_property
    def q(self) -> Each:
        """What may be handed on as the draft distribution."""
        entries = []
        for mass, error in zip(self.masses, self.errors, strict=True):
            off = mass * error + (FLUSHED if mass else 0)
            entries.append(Real(_down(max(mass - off, Fraction(0))), _up(mass + off)))
        return Each(tuple(entries))


def _exp(power: Fraction) -> Fraction:
    value = DIGITS.exp(DIGITS.divide(decimal.Decimal(power.numerator), decimal.Decimal(power.denominator)))
    return Fraction(value)


def exponents(scores: tuple[float, ...], temperature: float) -> list[Fraction | None]:
    """score / temperature of each candidate, ``None`` for a score of minus infinity."""
    t = Fraction(temperature)
    return [None if s == -math.inf else Fraction(s) / t for s in scores]


@lru_cache(maxsize=4096)
def distribution(scores: tuple[float, ...], temperature: float) -> Distribution:
    """softmax(scores / temperature) to some fifty digits, with its error bounds."""
    z = exponents(scores, temperature)
    greatest = max(x for x in z if x is not None)
    weights = [Fraction(0) if x is None else _exp(x - greatest) for x in z]
    total = sum(weights)
    masses = [w / total for w in weights]
    masses = [m if m >= NO_MASS else Fraction(0) for m in masses]
    cumulated, so_far = [], Fraction(0)
    for mass in masses:
        so_far += mass
        cumulated.append(so_far)
    return Distribution(tuple(masses), relative_errors(z, masses), tuple(cumulated))


def relative_errors(z: list[Fraction | None], masses: list[Fraction]) -> tuple[Fraction, ...]:
    """The rounding model above for each candidate, relative to its mass."""
    greatest = max(x for x in z if x is not None)
    terms = []
    for x in z:
        if x is None or x == greatest:  # exp(-inf) and exp(0) are exact
            terms.append(Fraction(0))
        else:
            terms.append(U * (2 * DIVISION_ULP * (abs(x) + abs(greatest)) + 2 * (greatest - x) + 2 * EXP_ULP))
    shared = sum((m * t for m, t in zip(masses, terms, strict=True)), Fraction(0))
    shared += (len(z) - 1) * U + 2 * DIVISION_ULP * U
    # e / (1 - e) takes in the products of errors that a sum of first orders leaves out
    return tuple((t + shared) / (1 - t - shared) if t + shared < Fraction(1, 2) else Fraction(1) for t in terms)


def _down(number: Fraction) -> float:
    value = float(number)
    return math.nextafter(value, -math.inf) if Fraction(value) > number else value


def _up(number: Fraction) -> float:
    value = float(number)
    return math.nextafter(value, math.inf) if Fraction(value) < number else value


def point_mass(index: int, width: int) -> Each:
    return Each(tuple(Real(float(i == index), float(i == index)) for i in range(width)))


def scores_of(row: Row, width: int) -> tuple[float, ...]:
    return tuple(float(v) for v in dense(row, width))


def walk(request: Request, width: int, decide: Decide) -> dict[str, Any]:
    """One path; ``decide`` answers the coins."""
    previous, tokens, rows = 0, [], []
    for j, slot in enumerate(request.slots):
        scores = scores_of(slot.rows[previous], width)
        if request.greedy:
            previous = scores.index(max(scores))
            rows.append(point_mass(previous, width))
        else:
            known = distribution(scores, request.temperature)
            previous = draw(known, j, decide)
            rows.append(known.q)
        tokens.append(slot.candidates[previous])
    return {"tokens": tokens, "rows": Each(tuple(rows))}


def draw(known: Distribution, coin: int, decide: Decide) -> int:
    """The first candidate with mass whose cumulated mass exceeds the coin."""
    with_mass = [c for c, mass in enumerate(known.masses) if mass > 0]
    for c in with_mass[:-1]:
        if decide.below(coin, known.cumulated[c], known.within_ulp[c]):
            return c
    return with_mass[-1]  # takes what rounding leaves of the total


def coins_of(request: Request) -> dict[int, Fraction]:
    return {j: Fraction(slot.coin) for j, slot in enumerate(request.slots)}


def choose(case: DraftSelectCase, i: int, request: Request, is_hostile: bool, trace: Trace) -> dict[str, Any]:
    """Fields of one request of ``walk``."""
    if is_hostile:
        trace.step("hostile lattice", i, "tokens", rule="each token is a candidate of its slot")
        inside = Each(tuple(OneOf(tuple(dict.fromkeys(s.candidates))) for s in request.slots))
        anything = Each((Each((Real(-math.inf, math.inf, True),) * case.width),) * len(request.slots))
        return {"massless": Between(0, len(request.slots)), "tokens": inside, "rows": anything}
    _tell(case, i, request, trace)
    found = branched(explore(lambda decide: walk(request, case.width, decide), coins_of(request)))
    trace.step("drawn tokens without mass", i, "massless", value=0)
    trace.step("chosen tokens", i, "tokens", value=found["tokens"])
    trace.step("draft distribution", i, "rows", value=found["rows"])
    return found


def _tell(case: DraftSelectCase, i: int, request: Request, trace: Trace) -> None:
    """The exact path, with the masses around each coin."""
    previous = 0
    for j, slot in enumerate(request.slots):
        scores = scores_of(slot.rows[previous], case.width)
        if request.greedy:
            previous = scores.index(max(scores))
            trace.step("greedy choice", i, slot=j, candidate=previous, score=scores[previous])
            continue
        known = distribution(scores, request.temperature)
        exact = Exact(Fraction(slot.coin))
        previous = draw(known, j, exact)
        low = known.cumulated[previous] - known.masses[previous]
        trace.step(
            "drawn candidate", i, slot=j, coin=slot.coin, candidate=previous, row=scores,
            below=float(low), up_to=float(known.cumulated[previous]),
            threshold=float(exact.threshold), margin_ulp=exact.margin_ulp,
        )  # fmt: skip


class Exact:
    """Decides exactly and remembers the nearest threshold."""

    def __init__(self, coin: Fraction):
        self._coin, self.threshold, self.margin_ulp = coin, Fraction(1), math.inf

    def below(self, coin: Any, threshold: Fraction, within_ulp: float, at: Fraction | None = None) -> bool:
        margin = float(abs(self._coin - threshold) / ulp(threshold))
        if margin < self.margin_ulp:
            self.threshold, self.margin_ulp = threshold, float(f"{margin:.3g}")
        return self._coin < threshold
