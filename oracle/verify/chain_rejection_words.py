"""verify.chain_rejection in words: trace steps, the kind of a difference, the claim of a divergence."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle.legal import Legal
from oracle.trace import Trace
from oracle.verify.chain_rejection_case import (
    ChainRejectionCase,
    LastWithMass,
    NothingLeft,
    drafted,
    is_functional,
    target_row,
)
from oracle.verify.chain_rejection_masses import Chain, Residual
from oracle.verify.chain_rejection_walk import walk
from oracle.verify.edges import explore, ulp
from oracle.verify.rows import value

SHOWN = 3  # tokens with mass on either side of the last coin


def steps(request: int, chain: Chain, exact: dict[str, Any], trace: Trace) -> None:
    """The accept tests that were made and the distribution around the last coin."""
    accepted = exact["accepted"]
    if chain.block:
        tests = range(chain.count - 1, max(accepted - 1, 0) - 1, -1)
    else:
        tests = range(min(accepted + 1, chain.count))
    for j in tests:
        trace.step("accept test", request, **test(chain, j))
    left = chain.residual(accepted)
    trace.step(
        "masses of the last token",
        request,
        row=accepted,
        scale=float(left.prefix),
        total=_float(left.total, _unit(left)),
        final_coin=chain.request.final_coin,
        around=around(left, chain.coins["final"]),
    )


def test(chain: Chain, position: int) -> dict[str, Any]:
    """The numbers of one accept test."""
    d, edge = chain.request.drafts[position], chain.accepting[position]
    numbers = {"position": position, "draft": d.token, "p": value(d.p, d.token)}
    numbers["q"] = 1.0 if d.q is None else value(d.q, d.token)
    if chain.block:
        numbers["joint_ratio"] = float(chain.prefixes[position + 1][0])
    return numbers | {
        "coin": d.coin,
        "edge": float(edge.exact),
        "margin_ulp": _margin(chain.coins[position], edge.exact),
        "accepted": chain.coins[position] < edge.exact,
    }


def around(left: Residual, coin: Fraction) -> list[tuple[int, float, float]]:
    """(token, from, to) in shares of the total, for the tokens on either side of the coin."""
    live = [i for i, w in enumerate(left.weights) if w]
    at = next((k for k, i in enumerate(live) if left.cumulated[i] > coin * left.total), len(live))
    shown = live[max(at - SHOWN, 0) : at + SHOWN + 1]
    return [
        (left.tokens[i], _float(left.cumulated[i] - left.weights[i], left.total), _float(left.cumulated[i], left.total))
        for i in shown
    ]


def _float(above: int, below: int) -> float:
    return float(Fraction(above, below))


def _unit(left: Residual) -> int:
    return 2**149 * left.prefix.denominator


def _margin(coin: Fraction, edge: Fraction) -> float:
    return float(f"{float(abs(coin - edge) / ulp(edge)):.3g}")


def kind(field: str, expected: Any, observed: Any) -> str:
    """too_many / too_few, wrong_path, wrong_draft, no_token (nothing or no id), wrong_token, without_mass where
    the residual is empty, past_the_end behind the last mass, unsafe where the domain is defensive, outside_writes."""
    if field == "outside_writes":
        return "outside_writes"
    if isinstance(expected, NothingLeft):
        return "without_mass"
    if isinstance(expected, LastWithMass):
        return "past_the_end" if observed > expected.values[0] else "wrong_token"
    if isinstance(expected, Legal):
        return "unsafe"
    if field == "accepted":
        return "too_many" if observed > expected else "too_few"
    if field == "path":
        return "wrong_path"
    if field == "accepted_drafts":
        return "wrong_draft"
    return "no_token" if observed < 0 else "wrong_token"


def say(case: ChainRejectionCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim with the rule, the position and the margin."""
    if field == "outside_writes":
        return f"{observed} cells outside what verification may write were changed, must be 0"
    (i,), request = where[:1], case.requests[where[0]]
    if not is_functional(request, case.vocabulary):
        return f"request {i} (hostile input): {field} is {observed}, which is not safe: {_unsafe(case, i, observed)}"
    if request.greedy:
        return f"request {i} (greedy): {field} is {observed}, which exact matches with the largest mass do not give"
    chain = Chain(request, case.vocabulary, case.rule)
    ways = explore(lambda d: walk(chain, d), chain.coins)
    exact = ways[0].result
    start = f"request {i}, {case.rule} rule: "
    if field == "accepted":
        return start + _count(chain, exact["accepted"], observed)
    if field in ("path", "accepted_drafts"):
        return start + f"{field} is {observed}, must be {exact[field]}"
    legal = [w for w in ways if w.excess_ulp <= 0 and w.result != exact]
    others = sorted({f" or, an edge being {w.margin_ulp:.3g} ULP away, {_after(w.result, field)}" for w in legal})
    return start + _token(chain, exact, field, observed) + "".join(others)


def _count(chain: Chain, accepted: int, observed: Any) -> str:
    claim = f"production accepts {observed} of {chain.count} drafts, must be {accepted}"
    position = (
        accepted if chain.block is False or not isinstance(observed, int) or observed < accepted else observed - 1
    )
    if not 0 <= position < chain.count:
        return claim
    t = test(chain, position)
    side = "below" if t["accepted"] else "not below"
    return (
        f"{claim}: the coin {t['coin']:.9g} of draft {t['position']} (token {t['draft']}) is {side} {t['edge']:.9g}, "
        f"by {t['margin_ulp']:g} ULP"
    )


def _after(result: dict[str, Any], field: str) -> str:
    return f"{_described(result[field])} after {result['accepted']} drafts"


def _described(token: Any) -> str:
    token = token.values[0] if isinstance(token, LastWithMass) else token
    return token.describe() if isinstance(token, Legal) else str(token)


def _token(chain: Chain, exact: dict[str, Any], field: str, observed: Any) -> str:
    accepted, token = exact["accepted"], exact[field]
    row = "the row behind the drafts" if accepted == chain.count else f"the residual of position {accepted}"
    claim = f"the last token is {observed}, must be {_described(token)}: drawn from {row}"
    token = token.values[0] if isinstance(token, LastWithMass) else token
    if field == "race_token" or isinstance(token, Legal):
        return claim
    left = chain.residual(accepted)
    nearest = min(
        (abs(chain.coins["final"] - Fraction(c, left.total)) for c in left.cumulated), default=Fraction(0)
    ) / ulp(Fraction(1))
    at = left.tokens.index(token)
    low, high = _float(left.cumulated[at] - left.weights[at], left.total), _float(left.cumulated[at], left.total)
    return (
        f"{claim}, where token {token} holds {low:.9g} to {high:.9g} and the coin is {chain.request.final_coin:.9g} "
        f"({float(nearest):.3g} ULP from an edge)"
    )


def _unsafe(case: ChainRejectionCase, i: int, observed: Any) -> str:
    if isinstance(observed, int) and not 0 <= observed < case.vocabulary:
        return "no token of the vocabulary"
    row = target_row(case.requests[i], drafted(case.requests[i]))
    return (
        f"not given mass by a target row (the last one gives it {value(row, observed)})"
        if isinstance(observed, int)
        else "not the drafts"
    )
