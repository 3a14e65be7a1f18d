"""The walk of verify.chain_rejection: one request, decision by decision, in their order.

The same walk runs with coins (``explore``) and over all coins at once (``integrate``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from typing import Any

from oracle.legal import OneOf
from oracle.verify.chain_rejection_case import LastWithMass, NothingLeft, exponentials
from oracle.verify.chain_rejection_masses import Chain, Edge, Residual
from oracle.verify.chain_rejection_rounding import ACCEPT_ULP, HALF, past_the_end, race_ulp
from oracle.verify.edges import EXPLORED_SLACK_ULP, Decide, ulp

# Beyond this the edges of a draw may lie anywhere: every token that may have mass is legal.
SHAPELESS_ULP = 2.0**22


def walk(chain: Chain, decide: Decide, sampled: bool = True) -> dict[str, Any]:
    """Accept, then draw the last token. ``sampled`` is false when ``decide`` integrates over the coins: nothing is
    then a matter of rounding, and no race is run."""
    accepted = _accepted(chain, decide, sampled)
    drafts = [d.token for d in chain.request.drafts[:accepted]]
    left = chain.residual(accepted)
    result = {"accepted": accepted, "accepted_drafts": drafts, "path": list(range(accepted + 1))}
    result["bonus_token"] = _drawn(left, chain, decide, sampled)
    if sampled:
        result["race_token"] = _raced(left, chain, decide)
    return result


def _accepted(chain: Chain, decide: Decide, sampled: bool) -> int:
    """Token rule: the drafts before the first rejected one. Block rule: the longest prefix its own coin accepts."""
    if not chain.block:
        for j, edge in enumerate(chain.accepting):
            if not decide.below(j, edge.exact, ACCEPT_ULP):
                return j
        return chain.count
    for j in range(chain.count - 1, -1, -1):
        if _below(decide, j, chain.accepting[j], chain.coins[j] if sampled else None):
            return j + 1
    return 0


def _below(decide: Decide, name: Any, edge: Edge, coin: Fraction | None) -> bool:
    """``coin < edge``. An edge at exactly 0 or 1 that rounding moves inwards is one as well; its distance is 0."""
    if 0 < edge.exact < 1 or coin is None:
        return decide.below(name, edge.exact, edge.within_ulp)
    if edge.low <= coin < edge.high:
        return (edge.exact > 0) != decide.below("half", HALF, 0.0)
    return edge.exact > 0


def _drawn(left: Residual, chain: Chain, decide: Decide, sampled: bool) -> Any:
    """The first token whose cumulated mass is above ``final_coin`` times the total."""
    legal = without_shape(left)
    if legal is not None:
        return legal
    first, last = _near(left, chain.coins["final"]) if sampled else (0, len(left.tokens) - 1)
    moved = Fraction(left.within_ulp) * ulp(Fraction(1)) if left.roundings else Fraction(0)
    for i in range(first, last):
        exact = Fraction(left.cumulated[i], left.total)
        if 0 < exact < 1:
            below = decide.below("final", exact, left.within_ulp, at=Fraction(1))
        else:
            coin = chain.coins["final"] if sampled else None
            below = _below(decide, "final", Edge(exact - moved, exact, exact + moved), coin)
        if below:
            return left.tokens[i]
    token = left.tokens[last]
    at_end = sampled and last == len(left.tokens) - 1 and past_the_end(chain.coins["final"], left.within_ulp)
    return LastWithMass((token,)) if at_end else token


def without_shape(left: Residual) -> OneOf | None:
    """What may be drawn where masses give no order of edges: nothing is left, or less than the rounding of ``w p``."""
    if left.total == 0:
        return NothingLeft(left.fallback)
    return OneOf(left.tokens) if left.within_ulp > SHAPELESS_ULP else None


def _near(left: Residual, coin: Fraction) -> tuple[int, int]:
    """The stretch of tokens that rounding can reach: those before end below the coin, the last one above it."""
    reach = (Fraction(left.within_ulp) + EXPLORED_SLACK_ULP + 1) * ulp(Fraction(1))
    first = bisect_left(left.cumulated, (coin - reach) * left.total)
    last = bisect_right(left.cumulated, (coin + reach) * left.total, lo=first)
    return first, min(last, len(left.tokens) - 1)


def _raced(left: Residual, chain: Chain, decide: Decide) -> Any:
    """The first token with the largest ``residual / exponential``."""
    legal = without_shape(left)
    if legal is not None:
        return legal
    best, rivals = race(left, exponentials(chain.request.race_seed, chain.vocabulary))
    for token, ratio, within in rivals:
        if decide.below("half", ratio / 2, within):
            return token
    return best


def race(left: Residual, speed: Any) -> tuple[int, list[tuple[int, Fraction, float]]]:
    """The winner, and near it those that rounding may let win: token, score over the winner's, and the model's ULP."""
    live = [i for i, w in enumerate(left.weights) if w]
    scores = {i: left.weights[i] / left.total / float(speed[left.tokens[i]]) for i in live}

    def ratio(i: int, j: int) -> Fraction:
        above = left.weights[i] * Fraction(float(speed[left.tokens[j]]))
        return above / (left.weights[j] * Fraction(float(speed[left.tokens[i]])))

    top = max(scores.values())
    leaders = [i for i in live if scores[i] >= top * (1 - 2.0**-40)]
    best = leaders[0]
    for i in leaders[1:]:
        if ratio(i, best) > 1:
            best = i
    rivals = []
    for i in live:
        if i == best or scores[i] < top / 2:
            continue
        within = race_ulp(
            *(Fraction(x) for x in (left.weights[i], left.touched[i], left.weights[best], left.touched[best])),
            left.roundings,
        )
        exact = ratio(i, best)
        if 1 - exact <= (within + EXPLORED_SLACK_ULP) * 2.0**-23:
            rivals.append((left.tokens[i], exact, within))
    return left.tokens[best], rivals
