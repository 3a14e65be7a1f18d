"""The second definition of verify.chain_rejection: regions of coins.

Every result (accepted drafts, last token) is what a region of coins leads to: the accepted count a is the stretch
``u_j < r_j`` for j <= a and ``u_(a+1) >= r_(a+1)`` (token rule), or ``u_a < h_a`` and ``u_j >= h_j`` for all j > a
(block rule); a token is the stretch of the last coin between two cumulated masses. A result is legal at the distance
by which the coins miss its region. Here ``w_j`` is the smallest product of ratios that end at j, and 1, instead of a
recurrence, and all numbers are fractions; only the sizes of rounding errors are shared with the walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import Any

from oracle.legal import OneOf
from oracle.verify.chain_rejection_case import (
    BLOCK,
    LastWithMass,
    NothingLeft,
    Request,
    drafted,
    exponentials,
    target_row,
)
from oracle.verify.chain_rejection_rounding import (
    ACCEPT_ULP,
    U,
    accept_interval,
    draw_ulp,
    last_interval,
    mass_error,
    next_prefix,
    past_the_end,
    race_ulp,
)
from oracle.verify.draws import adds_exactly
from oracle.verify.edges import EXPLORED_SLACK_ULP, Branch, ulp
from oracle.verify.rows import exact

HALF_TOTAL_ULP = 2.0**22  # of a total of 1: edges that move by half of it have no order
Miss = tuple[float, float]  # distance in ULP, and what of it is beyond the rounding model
INSIDE: Miss = (0.0, float("-inf"))


def branches(request: Request, vocabulary: int, rule: str) -> list[Branch]:
    """Every legal result of a functional, sampled request, the exact one first."""
    regions = _Regions(request, vocabulary, rule)
    found = []
    for accepted, by_coin in regions.counts():
        for token, by_draw in regions.tokens(accepted):
            for raced, by_race in regions.raced(accepted):
                result = {
                    "accepted": accepted,
                    "accepted_drafts": [d.token for d in request.drafts[:accepted]],
                    "path": list(range(accepted + 1)),
                    "bonus_token": token,
                    "race_token": raced,
                }
                margin, excess = map(max, zip(by_coin, by_draw, by_race, strict=True))
                found.append(Branch(result, margin, 0.0 if excess == float("-inf") else excess))
                inside = by_coin == by_draw == by_race == INSIDE
                if inside:
                    found.insert(0, found.pop())
    return found


class _Regions:
    def __init__(self, request: Request, vocabulary: int, rule: str):
        self.request, self.vocabulary, self.block = request, vocabulary, rule == BLOCK
        self.count = drafted(request)
        self.p = [exact(target_row(request, j), vocabulary) for j in range(self.count + 1)]
        self.q = [{d.token: Fraction(1)} if d.q is None else exact(d.q, vocabulary) for d in self.drafts()]
        self.ratios = [self.p[j].get(d.token, Fraction(0)) / self.q[j][d.token] for j, d in enumerate(self.drafts())]

    def drafts(self) -> tuple[Any, ...]:
        return self.request.drafts[: self.count]

    def prefix(self, accepted: int) -> tuple[Fraction, int]:
        """``w`` after ``accepted`` drafts that are not all, and how often it was rounded."""
        if not self.block:
            return Fraction(1), 0
        smallest = min((prod(self.ratios[i:accepted]) for i in range(accepted)), default=Fraction(1))
        roundings, before = 0, Fraction(1)
        for ratio in self.ratios[:accepted]:
            before, roundings = next_prefix(before * ratio, roundings)
        return min(smallest, Fraction(1)), roundings

    def masses(self, accepted: int) -> tuple[list[tuple[int, Fraction, Fraction]], int]:
        """(token, mass, ``w p``) of the last token after ``accepted`` drafts, and the roundings of ``w``."""
        if accepted == self.count:
            return [(t, m, m) for t, m in self.p[accepted].items()], 0
        w, roundings = self.prefix(accepted)
        made = []
        for token, mass in self.p[accepted].items():
            left = w * mass - self.q[accepted].get(token, Fraction(0))
            if left > 0 or (roundings and -left <= (roundings + 1) * U * w * mass):
                made.append((token, max(left, Fraction(0)), w * mass))
        return made, roundings

    def edge(self, position: int) -> tuple[Fraction, Fraction, Fraction, float]:
        """Lowest, exact and highest edge of an accept test, and the rounding model in ULP."""
        if not self.block:
            return (self.ratios[position],) * 3 + (ACCEPT_ULP,)
        w, roundings = self.prefix(position + 1)
        if position + 1 == self.count:
            low, high = last_interval(w, roundings)
            return low, w, high, float(max(w - low, high - w) / ulp(w))
        made, _ = self.masses(position + 1)
        total, touched = sum(m for _, m, _ in made), sum(t for _, _, t in made)
        error = mass_error(len(made), total, touched, roundings)
        low, place, high = accept_interval(Fraction(total), Fraction(error), w, roundings)
        return low, place, high, float(max(place - low, high - place) / ulp(place))

    def counts(self) -> Iterator[tuple[int, Miss]]:
        """Accepted counts with the miss of their region."""
        tests = [(Fraction(d.coin), *self.edge(j)) for j, d in enumerate(self.drafts())]
        for accepted in range(self.count + 1):
            below = range(accepted) if not self.block else range(accepted - 1, accepted) if accepted else ()
            above = range(accepted, min(accepted + 1, self.count) if not self.block else self.count)
            missed = _worst([*(_miss(*tests[j], True) for j in below), *(_miss(*tests[j], False) for j in above)])
            if missed is not None:
                yield accepted, missed

    def tokens(self, accepted: int) -> Iterator[tuple[Any, Miss]]:
        """Tokens of the draw by cumulated mass with the miss of their stretch."""
        made, roundings = self.masses(accepted)
        total = sum(m for _, m, _ in made)
        shapeless = self._shapeless(accepted)
        if shapeless is not None:
            yield shapeless, INSIDE
            return
        within = self.within(accepted)
        moved = Fraction(within) * ulp(Fraction(1)) if roundings else Fraction(0)
        coin = Fraction(self.request.final_coin)
        edges = [c / total for c in accumulate(m for _, m, _ in made)]
        before: Miss | None = INSIDE
        for i, (token, _, _) in enumerate(made):
            test = (coin, edges[i] - moved, edges[i], edges[i] + moved, within, Fraction(1))
            here = _worst([before, INSIDE if i == len(made) - 1 else _miss(*test[:5], True, test[5])])
            if here is not None:
                at_end = i == len(made) - 1 and past_the_end(coin, within)
                yield LastWithMass((token,)) if at_end else token, here
            before = _worst([before, _miss(*test[:5], False, test[5])])

    def within(self, accepted: int) -> float:
        """The rounding model of the draw in ULP at 1."""
        made, roundings = self.masses(accepted)
        total, touched = sum(m for _, m, _ in made), sum(t for _, _, t in made)
        return draw_ulp(len(made), total, touched, roundings, not roundings and adds_exactly(m for _, m, _ in made))

    def _shapeless(self, accepted: int) -> OneOf | None:
        made, _ = self.masses(accepted)
        if not sum(m for _, m, _ in made):
            return NothingLeft(tuple(self.p[accepted]))
        return OneOf(tuple(t for t, _, _ in made)) if self.within(accepted) > HALF_TOTAL_ULP else None

    def raced(self, accepted: int) -> Iterator[tuple[Any, Miss]]:
        """Tokens of the race with the miss of their score."""
        made, roundings = self.masses(accepted)
        shapeless = self._shapeless(accepted)
        if shapeless is not None:
            yield shapeless, INSIDE
            return
        speed = exponentials(self.request.race_seed, self.vocabulary)
        scores = {t: m / Fraction(float(speed[t])) for t, m, _ in made if m}
        best = max(scores, key=lambda t: (scores[t], -t))
        sizes = {t: (m, touched) for t, m, touched in made}
        yield best, INSIDE
        for token, score in scores.items():
            if token == best or 2 * score < scores[best]:
                continue
            within = race_ulp(*sizes[token], *sizes[best], roundings)
            half = score / scores[best] / 2
            missed = _miss(Fraction(1, 2), half, half, half, within, True)
            if missed is not None:
                yield token, missed


def _miss(
    coin: Fraction,
    low: Fraction,
    edge: Fraction,
    high: Fraction,
    within: float,
    below: bool,
    at: Fraction | None = None,
) -> Miss | None:
    """By how much a coin misses being below an edge (or not below it); ``None`` where rounding cannot bring it so."""
    inner = 0 < edge < 1
    if (coin < edge if inner else edge > 0) == below:
        return INSIDE
    if not inner:
        return (0.0, 0.0) if low <= coin < high else None
    margin = float(abs(coin - edge) / ulp(edge if at is None else at))
    return (margin, margin - within) if margin <= within + EXPLORED_SLACK_ULP else None


def _worst(misses: list[Miss | None]) -> Miss | None:
    if any(m is None for m in misses):
        return None
    return tuple(map(max, zip(INSIDE, *misses, strict=True)))  # type: ignore[return-value]
