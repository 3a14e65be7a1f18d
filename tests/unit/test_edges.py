"""Decisions near an edge, and the integration over coins."""

from fractions import Fraction

import pytest

from oracle.contract import Contract, Field, InvalidCase
from oracle.judgement import judge
from oracle.legal import Branched
from oracle.verify.edges import MAX_BRANCHES, branched, explore, integrate, ulp


def _two_coins(decide):
    """Accept below 1/4; then draw one of three tokens with masses 1/2, 0, 1/2."""
    if decide.below("accept", Fraction(1, 4), 1):
        return {"accepted": 1, "token": 9}
    for token, cumulated in ((0, Fraction(1, 2)), (1, Fraction(1, 2))):
        if decide.below("final", cumulated, 2, at=Fraction(1)):
            return {"accepted": 0, "token": token}
    return {"accepted": 0, "token": 2}


def _outcome(accept, final):
    branches = explore(_two_coins, {"accept": Fraction(accept), "final": Fraction(final)})
    return {name: [value] for name, value in branched(branches).items()}


CONTRACT = Contract(
    name="test.coins", version=1, case_type=object, reference=None, second=None, domain=None, columns=None,
    fields=(Field("accepted", "request", ""), Field("token", "request", "")), behaviours={}, example=None,
)  # fmt: skip


def test_far_from_every_edge_there_is_one_outcome():
    assert _outcome("0.5", "0.75") == {"accepted": [0], "token": [2]}


def test_ulp_is_the_distance_of_float32_neighbours():
    assert ulp(Fraction(1)) == Fraction(1, 2**23)
    assert ulp(Fraction(2**24 - 1, 2**24)) == Fraction(1, 2**24)
    assert ulp(Fraction(1, 2**149)) == ulp(Fraction(0)) == Fraction(1, 2**149)


def test_on_an_edge_both_sides_are_legal_but_not_mixed():
    outcome = _outcome("0.25", "0.75")
    assert isinstance(outcome["accepted"][0], Branched)
    exact = judge(CONTRACT, outcome, {"accepted": [0], "token": [2]})
    other = judge(CONTRACT, outcome, {"accepted": [1], "token": [9]})
    mixed = judge(CONTRACT, outcome, {"accepted": [1], "token": [2]})
    assert exact.agrees and not exact.near_tie
    assert other.agrees and other.near_tie and other.margin_ulp == 0.0
    assert mixed.field == "token" and mixed.expected.values == (9,)


def test_a_coarser_target_may_stray_as_far_as_it_declares():
    outcome = _outcome(Fraction(1, 4) + 10 * ulp(Fraction(1, 4)), "0.75")
    wrong = {"accepted": [1], "token": [9]}
    assert judge(CONTRACT, outcome, wrong).field == "accepted"
    assert judge(CONTRACT, outcome, wrong, slack_ulp=8).field == "accepted"
    assert judge(CONTRACT, outcome, wrong, slack_ulp=9).near_tie


def test_a_token_without_mass_is_never_legal_at_an_edge():
    """At the edge of token 0 the next token with mass is 2: token 1 has none."""

    def draw(decide):
        for token, low, high in ((0, 0, 1), (1, 1, 1), (2, 1, 2)):
            if high > low and decide.below("final", Fraction(high, 2), 2, at=Fraction(1)):
                return {"token": token}
        return {"token": 2}

    value = branched(explore(draw, {"final": Fraction(1, 2)}))["token"]
    assert set(value.values) == {0, 2}


def test_thresholds_of_zero_and_one_are_no_edges():
    sides = explore(lambda d: (d.below("u", Fraction(0), 9), d.below("u", Fraction(1), 9)), {"u": Fraction(0)})
    assert [s.result for s in sides] == [(False, True)]


def test_too_many_edges_are_refused():
    def walk(decide):
        return tuple(decide.below("u", Fraction(1, 2), 1) for _ in range(MAX_BRANCHES))

    with pytest.raises(InvalidCase, match="ways to round"):
        explore(walk, {"u": Fraction(1, 2)})


def test_integration_is_exact():
    assert integrate(lambda d: _two_coins(d)["token"]) == {9: Fraction(1, 4), 0: Fraction(3, 8), 2: Fraction(3, 8)}


def test_integration_knows_that_a_coin_was_asked_before():
    """Asked twice, one coin gives no independent answers (the fault of a reused coin)."""
    both = integrate(lambda d: (d.below("u", Fraction(1, 2), 0), d.below("u", Fraction(1, 4), 0)))
    assert both == {(True, True): Fraction(1, 4), (True, False): Fraction(1, 4), (False, False): Fraction(1, 2)}
