"""Decisions against a coin: exact, near an edge, or over all coins at once.

Every decision of a sampling verifier has the form ``coin < threshold``: a draft is
accepted below a ratio of probabilities, a token is drawn below a cumulated mass.
A walk asks ``decide.below(...)`` for each and is otherwise plain code, so that one
and the same walk serves three readers:

* ``explore`` gives the exact result and, where a decision lies so near its edge
  that float32 arithmetic may fall on the other side, the results of the other
  side as well, each with its distance to the edge;
* ``integrate`` gives the exact probability of every result when the coins are
  uniform and independent, which is how losslessness is proved.

Thresholds are exact: integers or ``Fraction``. Two edges are not a matter of
rounding and never have two sides: nothing is below a threshold of 0 or less (a
token without mass is never taken, also at coin 0), and every coin is below 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from oracle.contract import InvalidCase
from oracle.legal import Branched

# How far beyond the rounding model a branch is still written down, for targets
# whose own arithmetic is coarser (a softmax before the decision).
EXPLORED_SLACK_ULP = 1024
# A case with more decisions on an edge says nothing any more.
MAX_BRANCHES = 64


class Decide(Protocol):
    """Answers the decisions of a walk."""

    def below(self, coin: Any, threshold: Fraction, within_ulp: float, at: Fraction | None = None) -> bool:
        """True when the coin called ``coin`` is below ``threshold``.

        ``within_ulp`` is the rounding model: how far, in float32 ULP at ``at`` (by
        default at the threshold), correct arithmetic may place the edge elsewhere.
        """


def ulp(value: Fraction) -> Fraction:
    """Distance between neighbouring float32 at ``value``'s magnitude (at least 2^-149)."""
    value = abs(value)
    if value == 0:
        return Fraction(1, 2**149)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    return Fraction(2) ** max(exponent - 23, -149)


@dataclass
class _Run:
    """One run of a walk: forced decisions first, then the exact ones."""

    coins: dict[Any, Fraction]
    forced: tuple[bool, ...]
    taken: list[bool] = field(default_factory=list)
    near: list[tuple[int, float, float, bool]] = field(default_factory=list)  # decision, margin, excess, flipped

    def below(self, coin: Any, threshold: Fraction, within_ulp: float, at: Fraction | None = None) -> bool:
        exact = self.coins[coin] < threshold
        if not 0 < threshold < 1:
            return threshold > 0
        margin = float(abs(self.coins[coin] - threshold) / ulp(threshold if at is None else at))
        index, answer = len(self.taken), exact
        if margin <= within_ulp + EXPLORED_SLACK_ULP:
            if index < len(self.forced):
                answer = self.forced[index]
            self.near.append((index, margin, margin - within_ulp, answer != exact))
        self.taken.append(answer)
        return answer


@dataclass(frozen=True)
class Branch:
    """One way a walk may go: its result and the distances that allow it."""

    result: Any
    margin_ulp: float
    excess_ulp: float


def explore(walk: Callable[[Decide], Any], coins: dict[Any, Fraction]) -> list[Branch]:
    """All results of ``walk`` that rounding may lead to, the exact one first.

    Raises InvalidCase when there are more than ``MAX_BRANCHES``.
    """
    found: list[Branch] = []
    pending: list[tuple[bool, ...]] = [()]
    while pending:
        forced = pending.pop(0)
        run = _Run(coins, forced)
        result = walk(run)
        flips = [(m, e) for _, m, e, flipped in run.near if flipped]
        found.append(Branch(result, max((m for m, _ in flips), default=0.0), max((e for _, e in flips), default=0.0)))
        if len(found) + len(pending) > MAX_BRANCHES:
            raise InvalidCase(f"coins: more than {MAX_BRANCHES} ways to round; move the coins off the edges")
        pending += [(*run.taken[:index], not run.taken[index]) for index, _, _, _ in run.near if index >= len(forced)]
    return found


def branched(branches: list[Branch]) -> dict[str, Any]:
    """Outcome fields of branches whose results are dicts of fields: a plain value
    where there is one way, ``Branched`` otherwise. Ways that end alike are one,
    with the smaller distance."""
    kept: dict[str, Branch] = {}
    for branch in branches:  # the exact one is first and stays, with distance 0
        key = repr(branch.result)
        if key not in kept or branch.margin_ulp < kept[key].margin_ulp:
            kept[key] = branch
    ways = list(kept.values())
    if len(ways) == 1:
        return dict(ways[0].result)
    margins = tuple(w.margin_ulp for w in ways)
    excess = tuple(w.excess_ulp for w in ways)
    return {name: Branched(tuple(w.result[name] for w in ways), margins, excess) for name in ways[0].result}


@dataclass
class _Interval:
    """Coins as intervals; a decision inside one must be told its side."""

    forced: list[bool]
    bounds: dict[Any, tuple[Fraction, Fraction]] = field(default_factory=dict)
    asked: int = 0

    def below(self, coin: Any, threshold: Fraction, within_ulp: float, at: Fraction | None = None) -> bool:
        low, high = self.bounds.get(coin, (Fraction(0), Fraction(1)))
        if threshold <= low:
            return False
        if threshold >= high:
            return True
        answer = self.forced[self.asked] if self.asked < len(self.forced) else True
        if self.asked >= len(self.forced):
            self.forced.append(True)
        self.asked += 1
        self.bounds[coin] = (low, threshold) if answer else (threshold, high)
        return answer


def integrate(walk: Callable[[Decide], Any]) -> dict[Any, Fraction]:
    """Exact probability of each (hashable) result over uniform independent coins."""
    total: dict[Any, Fraction] = {}
    forced: list[bool] = []
    while True:
        run = _Interval(forced)
        result = walk(run)
        weight = Fraction(1)
        for low, high in run.bounds.values():
            weight *= high - low
        total[result] = total.get(result, Fraction(0)) + weight
        while forced and not forced[-1]:
            forced.pop()
        if not forced:
            return total
        forced[-1] = False
