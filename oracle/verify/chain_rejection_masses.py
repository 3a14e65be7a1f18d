"""A request of verify.chain_rejection in exact numbers.

Every float32 is a multiple of 2^-149, so masses are integers, and a residual ``w p - q`` with a rational ``w`` is one
too, over the denominator of ``w``. ``Chain.accepting`` are the edges of the accept tests, ``Chain.residual`` the masses
of the last token after a number of accepted drafts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from oracle.verify.chain_rejection_case import BLOCK, Request, drafted, target_row
from oracle.verify.chain_rejection_rounding import (
    ACCEPT_ULP,
    HALF,
    accept_interval,
    draw_ulp,
    last_interval,
    mass_error,
    next_prefix,
)
from oracle.verify.edges import ulp
from oracle.verify.rows import Row

UNIT = 2**149  # units of mass in 1


@dataclass(frozen=True)
class Edge:
    """An edge of a decision: its exact place, and where rounding may put it."""

    low: Fraction
    exact: Fraction
    high: Fraction

    @property
    def within_ulp(self) -> float:
        return float(max(self.exact - self.low, self.high - self.exact) / ulp(self.exact))


@dataclass(frozen=True)
class Residual:
    """Masses to draw the last token from, over a common ``total``, in the order of token ids.

    ``tokens`` also holds those that only rounding may give mass; ``cumulated`` are the upper ends of their stretches.
    ``fallback`` is what may be drawn when nothing has mass: all that the target row gives some.
    """

    tokens: tuple[int, ...]
    weights: tuple[int, ...]
    touched: tuple[int, ...]
    cumulated: tuple[int, ...]
    total: int
    prefix: Fraction
    roundings: int
    within_ulp: float
    fallback: tuple[int, ...]


class Chain:
    """A functional, sampled request in exact numbers."""

    def __init__(self, request: Request, vocabulary: int, rule: str):
        self.request, self.vocabulary, self.block = request, vocabulary, rule == BLOCK
        self.count = drafted(request)
        self.coins = {j: Fraction(d.coin) for j, d in enumerate(request.drafts)}
        self.coins |= {"final": Fraction(request.final_coin), "half": HALF}
        # One cache a chain: a cached method would keep every chain alive.
        self.target, self.proposal = cache(self._target), cache(self._proposal)
        self.residual = cache(self._residual)
        self.prefixes = self._prefixes()
        self.accepting = tuple(self._accepting(j) for j in range(self.count))

    def _target(self, position: int) -> dict[int, int]:
        """Masses of the target row of a position, in units."""
        return units(target_row(self.request, position), self.vocabulary)

    def _proposal(self, position: int) -> dict[int, int]:
        """Masses of the proposal row; all of it on the draft where there is none."""
        d = self.request.drafts[position]
        return {d.token: UNIT} if d.q is None else units(d.q, self.vocabulary)

    def ratio(self, position: int) -> Fraction:
        """p / q of the draft of a position."""
        token = self.request.drafts[position].token
        return Fraction(self.target(position).get(token, 0), self.proposal(position)[token])

    def _prefixes(self) -> tuple[tuple[Fraction, int], ...]:
        """``w_j`` and its roundings after j accepted drafts; 1 throughout under the token rule."""
        made = [(Fraction(1), 0)]
        for j in range(self.count):
            prefix, roundings = made[-1]
            made.append(next_prefix(prefix * self.ratio(j), roundings) if self.block else made[0])
        return tuple(made)

    def _accepting(self, position: int) -> Edge:
        """The edge below which the coin of a draft accepts."""
        if not self.block:
            ratio = self.ratio(position)
            slack = Fraction(ACCEPT_ULP) * ulp(ratio)
            return Edge(ratio - slack, ratio, ratio + slack) if ratio else Edge(ratio, ratio, ratio)
        prefix, roundings = self.prefixes[position + 1]
        if position + 1 == self.count:
            low, high = last_interval(prefix, roundings)
            return Edge(low, prefix, high)
        left = self.residual(position + 1)
        scale = UNIT * prefix.denominator
        mass, touched = Fraction(left.total, scale), Fraction(sum(left.touched), scale)
        error = mass_error(len(left.tokens), mass, touched, roundings)
        return Edge(*accept_interval(mass, error, prefix, roundings))

    def _residual(self, accepted: int) -> Residual:
        """Masses of the last token after ``accepted`` drafts."""
        p = self.target(accepted)
        q = self.proposal(accepted) if accepted < self.count else {}
        prefix, roundings = self.prefixes[accepted] if accepted < self.count else (Fraction(1), 0)
        above, below = prefix.numerator, prefix.denominator
        tokens, weights, touched, cumulated, total = [], [], [], [], 0
        for token, mass in p.items():
            scaled, weight = above * mass, above * mass - below * q.get(token, 0)
            if weight <= 0 and (not roundings or -weight * 2**24 > scaled * (roundings + 1)):
                continue
            total += max(weight, 0)
            tokens.append(token)
            weights.append(max(weight, 0))
            touched.append(scaled)
            cumulated.append(total)
        within = 0.0
        if total:
            exactly = not roundings and total <= 2**24 * min(w & -w for w in weights)
            within = draw_ulp(len(tokens), Fraction(total), Fraction(sum(touched)), roundings, exactly)
        return Residual(
            tuple(tokens), tuple(weights), tuple(touched), tuple(cumulated), total, prefix, roundings, within, tuple(p)
        )


def units(row: Row, vocabulary: int) -> dict[int, int]:
    """Tokens with mass in rising order, in units of 2^-149."""

    def whole(number: float) -> int:
        above, below = number.as_integer_ratio()
        return above * (UNIT // below)

    if row.rest == 0.0:
        return {m.token: whole(m.value) for m in row.masses if m.value != 0.0}
    named, rest = {m.token: m.value for m in row.masses}, whole(row.rest)
    return {t: whole(named[t]) if t in named else rest for t in range(vocabulary) if named.get(t, row.rest) != 0.0}
