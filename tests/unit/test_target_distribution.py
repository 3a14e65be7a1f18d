"""verify.target_distribution: two definitions, the order of the filters, ties and edges."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest

from fuzz.frozen import plain_outcome
from oracle.contract import FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.legal import Real
from oracle.verify.rows import Mass, Row
from oracle.verify.target_distribution import CONTRACT, TOP_K_ALL, Request, TargetDistributionCase


def logits(*values) -> Row:
    return Row(tuple(Mass(t, float(v)) for t, v in enumerate(values)), -math.inf)


def request(*values, temperature=1.0, top_k=TOP_K_ALL, top_p=1.0, min_p=0.0, token=0) -> Request:
    return Request(temperature, top_k, top_p, min_p, (logits(*values),), 0, token)


def outcome(*values, **parameters):
    made = TargetDistributionCase(8, (request(*values, **parameters),))
    assert CONTRACT.domain(made) == FUNCTIONAL
    found = CONTRACT.run(made)[0]
    return found["kept"][0].values, found["mass"][0]


def test_both_definitions_agree_on_a_small_scope():
    seen = 0
    for values in product((0.0, 0.5, 1.0), repeat=3):
        for top_k, top_p, min_p, temperature in product((1, 2, 9), (1.0, 0.75, 0.25), (0.0, 0.5), (1.0, 0.5)):
            made = TargetDistributionCase(
                8, (request(*values, top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature),)
            )
            assert plain_outcome(CONTRACT.run(made)[0]) == plain_outcome(CONTRACT.second(made))
            seen += 1
    assert seen == 27 * 36


def test_the_softmax_lies_within_its_bounds_and_they_are_narrow():
    weights = [math.exp(v / 2) for v in (2, 1, 0)]
    for token, weight in enumerate(weights):
        legal = outcome(2, 1, 0, temperature=2.0, token=token)[1]
        assert isinstance(legal, Real)
        assert legal.admits(weight / sum(weights))
        assert legal.high - legal.low < 1e-5


def test_a_removed_token_has_no_mass_and_the_others_share_it():
    assert outcome(2, 1, 0, top_k=2, token=2) == (([0, 1],), 0.0)
    legal = outcome(2, 1, 0, top_k=2, token=1)[1]
    assert legal.admits(1 / (1 + math.e))


def test_the_token_that_reaches_top_p_stays():
    """Masses 0.665, 0.245, 0.090: 0.7 is reached by the second."""
    assert outcome(2, 1, 0, top_p=0.5)[0] == ([0],)
    assert outcome(2, 1, 0, top_p=0.6875)[0] == ([0, 1],)
    assert outcome(2, 1, 0, top_p=0.9375)[0] == ([0, 1, 2],)


def test_top_p_works_on_what_top_k_left():
    """Alone, top-p 0.5 keeps two of four nearly equal tokens; behind top-k 2, one."""
    values = (0.375, 0.25, 0.125, 0.0)
    assert outcome(*values, top_p=0.5)[0] == ([0, 1],)
    assert outcome(*values, top_p=0.5, top_k=2)[0] == ([0],)


def test_equal_tokens_at_a_cut_may_all_stay_or_any_of_them():
    assert set(map(tuple, outcome(1, 1, 1, 0, top_k=2)[0])) == {(0, 1), (0, 2), (1, 2), (0, 1, 2)}
    assert outcome(1, 1, 0, top_k=2)[0] == ([0, 1],)


def test_an_edge_of_top_p_has_two_sides_and_a_margin():
    made = TargetDistributionCase(8, (request(0, 0, top_p=0.5),))
    legal = CONTRACT.run(made)[0]["kept"][0]
    assert {1, 2} == {len(kept) for kept in legal.values} and legal.margin_ulp == 0.0


def test_min_p_is_relative_to_the_most_likely_token():
    assert outcome(2, 1, 0, min_p=0.25)[0] == ([0, 1],)
    assert outcome(2, 1, 0, min_p=0.5)[0] == ([0],)
    assert outcome(2, 2, 0, min_p=1.0)[0] == ([0, 1],)


def test_leaving_min_p_out_has_a_name_of_its_own():
    made = TargetDistributionCase(8, (request(2, 1, 0, min_p=0.5),))
    legal = CONTRACT.run(made)[0]
    assert judge(CONTRACT, legal, {"kept": [[0, 1, 2]]}).kind == "min_p_not_applied"
    assert judge(CONTRACT, legal, {"kept": [[0, 1]]}).kind == "too_many"
    assert judge(CONTRACT, legal, {"kept": [[0]]}).agrees


def test_bad_cases_name_their_field():
    good = TargetDistributionCase(8, (request(2, 1, 0),))
    one = good.requests[0]
    for changes, words in (
        ({"temperature": 0.0}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.5}, "min_p"),
        ({"row": 1}, r"requests\[0\].row"),
        ({"token": 8}, "token"),
        ({"rows": (logits(0.03125),)}, "multiples of 1/16"),
        ({"rows": (Row((Mass(0, 1.0),), 0.0),)}, "rest"),
        ({"rows": (logits(0, 0, 0, 0, 0),)}, "equal logits"),
        ({"rows": (logits(math.nan),)}, "multiples of 1/16"),
    ):
        with pytest.raises(InvalidCase, match=words):
            CONTRACT.domain(replace(good, requests=(replace(one, **changes),)))


def test_the_claim_gives_masses_as_numbers():
    made = TargetDistributionCase(8, (request(0, 0, token=1),))
    words = CONTRACT.say(made, "mass", (0,), 0.75)
    assert "token 1" in words and "0.75" in words and "0.4999" in words
