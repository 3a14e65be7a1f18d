"""The operation of verify.chain_rejection in exact numbers, one method a decision, so that a mutant replaces one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle.verify.chain_rejection_case import BLOCK, ChainRejectionCase, Request, drafted, exponentials, target_row
from oracle.verify.chain_rejection_masses import UNIT, units

Masses = dict[int, Fraction]


class Verifier:
    """One functional request, decided step by step."""

    def __init__(self, case: ChainRejectionCase, request: Request, place: int):
        self.case, self.r, self.place, self.v = case, request, place, case.vocabulary
        self.block = case.rule == BLOCK
        self.k = drafted(request)

    # what is read
    def p(self, j: int) -> Masses:
        return {t: Fraction(m, UNIT) for t, m in units(target_row(self.r, j), self.v).items()}

    def q(self, j: int) -> Masses:
        d = self.r.drafts[j]
        return {d.token: Fraction(1)} if d.q is None else {t: Fraction(m, UNIT) for t, m in units(d.q, self.v).items()}

    def token(self, j: int) -> int:
        return self.r.drafts[j].token

    def coin(self, j: int) -> Fraction:
        return Fraction(self.r.drafts[j].coin)

    def final_coin(self, accepted: int) -> Fraction:
        return Fraction(self.r.final_coin)

    # accept tests
    def ratio(self, j: int) -> Fraction:
        q = self.q(j).get(self.token(j), Fraction(0))
        return self.p(j).get(self.token(j), Fraction(0)) / q if q else Fraction(0)

    def below(self, coin: Fraction, edge: Fraction) -> bool:
        return coin < edge

    def prefix(self, j: int) -> Fraction:
        w = Fraction(1)
        for i in range(j):
            w = self.clamped(w * self.ratio(i))
        return w

    def clamped(self, w: Fraction) -> Fraction:
        return min(w, Fraction(1))

    def edge(self, j: int) -> Fraction:
        """h of the prefix that ends with draft j."""
        w = self.prefix(j + 1)
        if j + 1 == self.k or w >= 1:
            return w
        left = sum(m for m in self.residual(j + 1).values() if m > 0)
        return left / (left + 1 - w)

    def accepted(self) -> int:
        if self.block:
            return next((j + 1 for j in range(self.k - 1, -1, -1) if self.below(self.coin(j), self.edge(j))), 0)
        return next((j for j in range(self.k) if not self.below(self.coin(j), self.ratio(j))), self.k)

    # the last token
    def scale(self, accepted: int) -> Fraction:
        return self.prefix(accepted) if self.block else Fraction(1)

    def last_masses(self, accepted: int) -> Masses:
        return self.residual(accepted) if accepted < self.k else self.p(accepted)

    def residual(self, accepted: int) -> Masses:
        q, w = self.q(accepted), self.scale(accepted)
        return self.clamp({t: w * m - q.get(t, Fraction(0)) for t, m in self.p(accepted).items()})

    def clamp(self, masses: Masses) -> Masses:
        return {t: m for t, m in masses.items() if m > 0}

    def total(self, masses: Masses) -> Fraction:
        return Fraction(sum(masses.values()))

    def above(self, cumulated: Fraction, wanted: Fraction) -> bool:
        return cumulated > wanted

    def nothing(self, accepted: int) -> int:
        return min(self.p(accepted))

    def drawn(self, accepted: int) -> int:
        masses = self.last_masses(accepted)
        if not masses:
            return self.nothing(accepted)
        wanted, cumulated = self.final_coin(accepted) * self.total(masses), Fraction(0)
        for token in self.order(masses):
            cumulated += masses.get(token, Fraction(0))
            if self.above(cumulated, wanted):
                return token
        return self.v - 1

    def order(self, masses: Masses) -> Any:
        return sorted(masses)

    def raced(self, accepted: int) -> int:
        masses = self.race_masses(accepted)
        if not masses:
            return self.nothing(accepted)
        speed = exponentials(self.r.race_seed, self.v)
        return max(masses, key=lambda t: (self.score(masses[t], Fraction(float(speed[t]))), -t))

    def race_masses(self, accepted: int) -> Masses:
        return self.last_masses(accepted)

    def score(self, mass: Fraction, exponential: Fraction) -> Fraction:
        return mass / exponential

    # greedy requests
    def largest(self, j: int) -> int:
        row = self.p(j)
        return max(row, key=lambda t: (row[t], -t))

    def greedy(self) -> tuple[int, int, int]:
        a = next((j for j in range(self.k) if self.largest(j) != self.token(j)), self.k)
        return a, self.largest(a), self.largest(a)

    def decided(self) -> tuple[int, int, int]:
        if self.r.greedy:
            return self.greedy()
        a = self.accepted()
        return a, self.drawn(a), self.raced(a)

    def outcome(self) -> dict[str, Any]:
        a, token, raced = self.decided()
        drafts = [self.token(j) for j in range(a)]
        return {
            "accepted": a, "path": list(range(a + 1)), "accepted_drafts": drafts, "bonus_token": token,
            "race_token": raced,
        }  # fmt: skip
