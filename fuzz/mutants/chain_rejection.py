"""Mutants of verify.chain_rejection.

A mutant is a ``Verifier`` with one of its decisions replaced. Requests that are not functional get a safe answer, so
that a mutant is told apart by what it means.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from fuzz.mutants.chain_rejection_verifier import Verifier
from fuzz.mutants.mutant import Mutant
from oracle.legal import Between, OneOf
from oracle.verify.chain_rejection_case import PLACEHOLDER, ChainRejectionCase, Request, is_functional, target_row
from oracle.verify.chain_rejection_masses import UNIT, units
from oracle.verify.chain_rejection_safe import safe

TILE = 4096  # tokens a step of a kernel's loop over the vocabulary
FIELDS = ("accepted", "path", "accepted_drafts", "bonus_token", "race_token")


def _observe(verifier: type[Verifier]) -> Callable[[ChainRejectionCase], dict[str, Any]]:
    def observe(case: ChainRejectionCase) -> dict[str, Any]:
        rows = [
            verifier(case, r, i).outcome() if is_functional(r, case.vocabulary) else _safe(r, case.vocabulary)
            for i, r in enumerate(case.requests)
        ]
        return _batch(rows)

    return observe


def _batch(rows: list[dict[str, Any]], outside: int = 0) -> dict[str, Any]:
    return {name: [row[name] for row in rows] for name in FIELDS} | {"outside_writes": outside}


def _safe(r: Request, vocabulary: int) -> dict[str, Any]:
    def first(legal: OneOf | Between) -> Any:
        return legal.low if isinstance(legal, Between) else legal.values[0]

    return {name: first(legal) for name, legal in safe(r, vocabulary).items()}


class _ZeroMassAccepted(Verifier):
    def below(self, coin, edge):
        return coin <= edge


class _DrawReaches(Verifier):
    def above(self, cumulated, wanted):
        return cumulated >= wanted

    def order(self, masses):
        return range(self.v) if self.v <= TILE else super().order(masses)


class _CoinReused(Verifier):
    def final_coin(self, accepted):
        return self.coin(min(accepted, self.k - 1)) if self.k else super().final_coin(accepted)


class _CoinOfNext(Verifier):
    def coin(self, j):
        return Fraction(self.r.drafts[min(j + 1, self.k - 1)].coin)


class _OneCoin(Verifier):
    def coin(self, j):
        return Fraction(self.r.drafts[0].coin)


class _NotClamped(Verifier):
    def clamp(self, masses):
        return masses


class _NotNormalised(Verifier):
    def total(self, masses):
        return Fraction(1)


class _ResidualIsTarget(Verifier):
    def last_masses(self, accepted):
        return self.p(accepted)


class _BlockByTokenRule(Verifier):
    def __init__(self, case, request, place):
        super().__init__(case, request, place)
        self.block = False


class _TokenByBlockRule(Verifier):
    def __init__(self, case, request, place):
        super().__init__(case, request, place)
        self.block = True


class _BlockNotScaled(Verifier):
    def last_masses(self, accepted):
        if accepted == self.k:
            return self.p(accepted)
        q = self.q(accepted)
        return self.clamp({t: m - q.get(t, Fraction(0)) for t, m in self.p(accepted).items()})


class _BlockByPrefix(Verifier):
    def edge(self, j):
        return self.prefix(j + 1)


class _BlockStops(Verifier):
    def accepted(self):
        if not self.block:
            return super().accepted()
        return next((j for j in range(self.k) if not self.below(self.coin(j), self.edge(j))), self.k)


class _BlockNotClamped(Verifier):
    def clamped(self, w):
        return w

    def edge(self, j):
        w = min(self.prefix(j + 1), Fraction(1))
        left = sum(self.residual(j + 1).values()) if j + 1 < self.k else Fraction(0)
        return w if j + 1 == self.k or w >= 1 else left / (left + 1 - w)


class _BonusRowBefore(Verifier):
    def last_masses(self, accepted):
        return self.p(accepted - 1) if accepted == self.k > 0 else super().last_masses(accepted)


class _ResidualRowBefore(Verifier):
    def last_masses(self, accepted):
        return self.residual(accepted - 1) if 0 < accepted < self.k else super().last_masses(accepted)


class _ProposalRowBefore(Verifier):
    def q(self, j):
        return super().q(max(j - 1, 0))


class _TargetRowStride(Verifier):
    """Rows of the target with as many rows a request as the proposal has: one too few."""

    def p(self, j):
        rows = [target_row(r, i) for r in self.case.requests for i in range(self._most() + 1) if i <= len(r.drafts)]
        at = self.place * self._most() + j
        row = rows[at] if at < len(rows) else target_row(self.r, j)
        made = {t: Fraction(m, UNIT) for t, m in units(row, self.v).items()} if _finite(row) else {}
        return made or super().p(j)

    def _most(self):
        return max(len(r.drafts) for r in self.case.requests)


def _finite(row) -> bool:
    return all(0.0 <= v < float("inf") for v in (row.rest, *(m.value for m in row.masses)))


class _RatioInverted(Verifier):
    def ratio(self, j):
        p, q = self.p(j).get(self.token(j), Fraction(0)), self.q(j).get(self.token(j), Fraction(0))
        return q / p if p else Fraction(1)


class _FirstUnverified(Verifier):
    def accepted(self):
        return max(super().accepted(), min(self.k, 1))


class _LastNever(Verifier):
    def accepted(self):
        return min(super().accepted(), max(self.k - 1, 0))


class _NothingIsLastId(Verifier):
    def nothing(self, accepted):
        return self.v - 1


class _TailTileLost(Verifier):
    def last_masses(self, accepted):
        kept = {t: m for t, m in super().last_masses(accepted).items() if t < max(self.v // TILE, 1) * TILE}
        return kept or super().last_masses(accepted)


class _PlaceholderIsToken(Verifier):
    """-1 counts from the end of the row: the last token of the vocabulary."""

    def __init__(self, case, request, place):
        super().__init__(case, request, place)
        self.k = len(request.drafts)

    def token(self, j):
        return self.v - 1 if self.r.drafts[j].token == PLACEHOLDER else super().token(j)

    def q(self, j):
        return {self.token(j): Fraction(1)} if self.r.drafts[j].q is None else super().q(j)


class _PlaceholderTakesMass(Verifier):
    def last_masses(self, accepted):
        if accepted == self.k < len(self.r.drafts) and self.r.drafts[accepted].q is not None:
            return self.residual(accepted)
        return super().last_masses(accepted)


class _PlaceholderIsBonus(Verifier):
    def last_masses(self, accepted):
        return self.p(len(self.r.drafts)) if accepted == self.k else super().last_masses(accepted)


class _AbsentKeepsDraft(Verifier):
    def last_masses(self, accepted):
        absent = accepted < self.k and self.r.drafts[accepted].q is None
        return self.p(accepted) if absent else super().last_masses(accepted)


class _AbsentAccepts(Verifier):
    def ratio(self, j):
        return Fraction(1) if self.r.drafts[j].q is None and super().ratio(j) else super().ratio(j)


class _GreedySamples(Verifier):
    def greedy(self):
        a = self.accepted()
        return a, self.drawn(a), self.raced(a)


class _GreedyLastWins(Verifier):
    def largest(self, j):
        row = self.p(j)
        return max(row, key=lambda t: (row[t], t))


class _GreedyFinalDraws(Verifier):
    def greedy(self):
        a, token, _ = super().greedy()
        return (a, self.drawn(a), self.raced(a)) if a == self.k else (a, token, token)


class _RaceMultiplies(Verifier):
    def score(self, mass, exponential):
        return mass * exponential


class _RaceOverTarget(Verifier):
    def race_masses(self, accepted):
        return self.p(accepted)


class _PathTooLong(Verifier):
    def outcome(self):
        right = super().outcome()
        a = min(right["accepted"] + 1, self.k)
        return right | {"path": list(range(a + 1))}


class _DraftsShifted(Verifier):
    def outcome(self):
        right = super().outcome()
        shifted = [self.token(min(j + 1, self.k - 1)) for j in range(right["accepted"])]
        return right | {"accepted_drafts": shifted}


def _shortest(case: ChainRejectionCase) -> dict[str, Any]:
    """The shortest acceptance of the batch counts for all its rows."""
    made = [Verifier(case, r, i) for i, r in enumerate(case.requests) if is_functional(r, case.vocabulary)]
    least = min((v.decided()[0] for v in made), default=0)

    class Short(Verifier):
        def accepted(self):
            return min(super().accepted(), least)

    return _observe(Short)(case)


def _fills_behind(case: ChainRejectionCase) -> dict[str, Any]:
    """The last token is written to every place left of its row."""
    right = _observe(Verifier)(case)
    behind = sum(len(r.drafts) - a for r, a in zip(case.requests, right["accepted"], strict=True))
    return right | {"outside_writes": behind}


def _hostile_leaves(case: ChainRejectionCase) -> dict[str, Any]:
    """A request of which nothing sums to a mass emits the size of the vocabulary."""
    right = _observe(Verifier)(case)
    tokens = [
        t if is_functional(r, case.vocabulary) else case.vocabulary
        for r, t in zip(case.requests, right["bonus_token"], strict=True)
    ]
    return right | {"bonus_token": tokens}


def _hostile_spreads(case: ChainRejectionCase) -> dict[str, Any]:
    """A hostile request of the batch makes the others lose their drafts."""
    if all(is_functional(r, case.vocabulary) for r in case.requests):
        return _observe(Verifier)(case)

    class Disturbed(Verifier):
        def decided(self):
            return (0, *super().decided()[1:])

    return _observe(Disturbed)(case)


_CLASSES = (
    (_ZeroMassAccepted, "zero_mass_accepted", "endpoint", "a coin equal to the edge accepts, also at a mass of 0"),
    (_DrawReaches, "draw_reaches", "endpoint", "the draw stops where the cumulated mass equals the coin"),
    (_CoinReused, "coin_reused", "coin", "the coin of the last accept test draws the last token"),
    (_CoinOfNext, "coin_of_next", "coin", "each draft is tested with the coin of the next"),
    (_OneCoin, "one_coin", "coin", "one coin tests all drafts"),
    (_NotClamped, "residual_not_clamped", "residual", "negative differences stay in the residual"),
    (_NotNormalised, "residual_not_normalised", "residual", "the last coin is not multiplied with the total"),
    (_ResidualIsTarget, "residual_is_target", "residual", "a rejection draws from the target row"),
    (_BlockByTokenRule, "block_by_token_rule", "block", "block verification uses the token rule"),
    (_TokenByBlockRule, "token_by_block_rule", "block", "token verification uses the block rule"),
    (_BlockNotScaled, "block_not_scaled", "block", "the block residual forgets the joint ratio"),
    (_BlockByPrefix, "block_by_prefix", "block", "a draft in the middle is tested with w instead of h"),
    (_BlockStops, "block_stops", "block", "block verification stops at the first rejected test"),
    (_BlockNotClamped, "block_not_clamped", "block", "the joint ratio of a prefix is not cut to 1"),
    (_BonusRowBefore, "bonus_row_before", "row", "the row of the last draft instead of the one behind it"),
    (_ResidualRowBefore, "residual_row_before", "row", "the residual of one position earlier"),
    (_ProposalRowBefore, "proposal_row_before", "row", "the proposal row of one position earlier"),
    (_TargetRowStride, "target_row_stride", "row", "target rows are as many a request as proposal rows"),
    (_RatioInverted, "ratio_inverted", "accept", "q / p instead of p / q"),
    (_FirstUnverified, "first_unverified", "accept", "the first draft is kept without a test"),
    (_LastNever, "last_never", "accept", "the last draft is never accepted"),
    (_NothingIsLastId, "nothing_is_last_id", "residual", "an empty residual emits the last id of the vocabulary"),
    (_TailTileLost, "tail_tile_lost", "tile", "the last partial tile of the vocabulary is not drawn from"),
    (_PlaceholderIsToken, "placeholder_is_token", "placeholder", "-1 reads the last token of the row"),
    (_PlaceholderTakesMass, "placeholder_takes_mass", "placeholder", "a placeholder's stale row is taken off"),
    (_PlaceholderIsBonus, "placeholder_is_bonus", "placeholder", "a placeholder's token comes from the bonus row"),
    (_AbsentKeepsDraft, "absent_keeps_draft", "n-gram", "a rejected n-gram draft may be drawn again"),
    (_AbsentAccepts, "absent_accepts", "n-gram", "an n-gram draft with any target mass is accepted"),
    (_GreedySamples, "greedy_samples", "greedy", "a greedy request is sampled"),
    (_GreedyLastWins, "greedy_last_wins", "greedy", "the last of equal masses wins"),
    (_GreedyFinalDraws, "greedy_final_draws", "greedy", "the last token of a fully accepted greedy request is sampled"),
    (_RaceMultiplies, "race_multiplies", "race", "masses are multiplied with the exponentials"),
    (_RaceOverTarget, "race_over_target", "race", "the race runs over the target row after a rejection"),
    (_PathTooLong, "path_too_long", "off_by_one", "the path holds the rejected draft"),
    (_DraftsShifted, "drafts_shifted", "off_by_one", "the drafts emitted are one place further"),
)

MUTANTS = (
    *(Mutant(name, fault, meaning, _observe(made)) for made, name, fault, meaning in _CLASSES),
    Mutant("shortest_of_batch", "wrong_row", "the shortest row decides for all", _shortest),
    Mutant("fills_behind", "outside", "the last token fills the row behind it", _fills_behind),
    Mutant("hostile_leaves_vocabulary", "defensive", "hostile input emits the size of the vocabulary", _hostile_leaves),
    Mutant("hostile_spreads", "defensive", "hostile input changes other requests", _hostile_spreads),
)
