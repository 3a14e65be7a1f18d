"""verify.tree_sampling: two definitions, losslessness, and the edges of a coin."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import pytest

from fuzz.frozen import plain_outcome
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.legal import Branched, OneOf
from oracle.verify.edges import integrate
from oracle.verify.links import from_parents
from oracle.verify.rows import Mass, Row
from oracle.verify.sampled_tree import LAST_COIN, Node, Request, TreeSamplingCase
from oracle.verify.tree_sampling import CONTRACT, walk

ROWS = (
    Row((Mass(0, 0.5), Mass(1, 0.25), Mass(2, 0.25))),
    Row((Mass(1, 0.75), Mass(2, 0.25))),
    Row((Mass(2, 1.0),)),
)
SHAPES = ([-1], [-1, 0], [-1, 0, 0], [-1, 0, 1], [-1, 0, 0, 1], [-1, 0, 0, 0], [-1, 0, 1, 1])


def tree(parents, tokens, coins, rows, final) -> Request:
    child, sibling = from_parents(parents)
    return Request(tuple(map(Node, tokens, child, sibling, coins, rows)), final)


def case(*requests, width=None, single=1.0, acc=1.0, vocabulary=3) -> TreeSamplingCase:
    return TreeSamplingCase(vocabulary, width or len(requests[0].nodes), single, acc, requests)


def one(request, **settings):
    outcome, trace = CONTRACT.run(case(request, **settings))
    return {name: value[0] for name, value in outcome.items() if name != "outside_writes"}, trace


def pair(coin, final=0.5, tokens=(0, 0), row=ROWS[0], **settings):
    """The root with one draft."""
    return one(tree([-1, 0], tokens, [coin, 0.5], [row, ROWS[2]], final), **settings)


def test_both_definitions_agree_on_a_small_scope():
    """Every tree of up to four nodes over three tokens, with coins on and beside edges."""
    seen = 0
    for parents, width in product(SHAPES, (1, 2, 4)):
        for tokens in product(range(3), repeat=len(parents) - 1):
            for coin, acc, single in ((0.0, 1.0, 1.0), (0.25, 0.5, 1.0), (0.5, 1.0, 1.0), (0.75, 1.0, 0.25),
                                      (LAST_COIN, 0.75, 1.0)):  # fmt: skip
                rows = [ROWS[(n + len(tokens)) % 2] for n in range(len(parents))]
                request = tree(parents, (0, *tokens), [coin] * len(parents), rows, 1 - coin if coin else 0.0)
                made = case(request, width=width, acc=acc, single=single)
                assert CONTRACT.domain(made) == FUNCTIONAL
                assert plain_outcome(CONTRACT.run(made)[0]) == plain_outcome(CONTRACT.second(made)), made
                seen += 1
    assert seen > 1000


def emitted_sequence(made, decide, wanted):
    """The first ``wanted`` emitted tokens, the missing ones drawn from the target:
    what follows a verify is another verify."""
    nodes = made.requests[0].nodes
    found = walk(made, nodes, decide, rounding=False)
    return tuple([*found["accepted_tokens"], found["bonus_token"]][:wanted])


@pytest.mark.parametrize("parents", SHAPES[1:])
@pytest.mark.parametrize("width", [2, 4])
def test_the_first_token_is_distributed_as_the_target_says(parents, width):
    """Lossless: for every tree and every choice of drafts, exactly."""
    for tokens in product(range(3), repeat=len(parents) - 1):
        request = tree(parents, (0, *tokens), [0.5] * len(parents), [ROWS[0]] + [ROWS[1]] * 3, 0.5)
        made = case(request, width=width)
        found = integrate(lambda decide, made=made: emitted_sequence(made, decide, 1))
        assert found == {(0,): Fraction(1, 2), (1,): Fraction(1, 4), (2,): Fraction(1, 4)}, tokens


def test_the_second_token_follows_the_row_after_the_first():
    """Given that draft 0 was accepted, the next token is distributed as its row says."""
    request = tree([-1, 0, 1, 1], (0, 0, 1, 2), [0.5] * 4, [ROWS[0], ROWS[1], ROWS[2], ROWS[2]], 0.5)
    found = integrate(lambda decide: emitted_sequence(case(request), decide, 2))
    assert found[(0, 1)] == Fraction(1, 2) * Fraction(3, 4)
    assert found[(0, 2)] == Fraction(1, 2) * Fraction(1, 4)
    assert found[(1,)] == found[(2,)] == Fraction(1, 4)


def test_a_repeated_sibling_is_lossless_because_its_mass_counts_once():
    request = tree([-1, 0, 0, 0], (0, 1, 1, 0), [0.5] * 4, [ROWS[0]] + [ROWS[2]] * 3, 0.5)
    found = integrate(lambda decide: emitted_sequence(case(request), decide, 1))
    assert found == {(0,): Fraction(1, 2), (1,): Fraction(1, 4), (2,): Fraction(1, 4)}


def test_a_threshold_below_one_is_not_lossless():
    request = tree([-1, 0], (0, 0), [0.5] * 2, [ROWS[0], ROWS[2]], 0.5)
    found = integrate(lambda decide: emitted_sequence(case(request, acc=0.5), decide, 1))
    assert found == {(0,): 1}


def test_acceptance_grows_as_the_thresholds_fall():
    for coin in (0.0, 0.3125, 0.5625, 0.9375):
        for settings in ("single", "acc"):
            accepted = [pair(coin, 0.3, **{settings: t})[0]["accepted"] for t in (1.0, 0.75, 0.5, 0.25)]
            assert all(a <= b for a, b in pairwise(accepted)), (coin, settings)


def test_a_coin_on_an_exact_edge_rejects_and_nothing_else_is_legal():
    outcome, trace = pair(0.5)
    assert isinstance(outcome["path"], Branched) and outcome["path"].excess_ulp[1] > 0
    whole = CONTRACT.run(case(tree([-1, 0], (0, 0), [0.5, 0.5], [ROWS[0], ROWS[2]], 0.5)))[0]
    seen = {"path": [[0, 1]], "accepted": [1], "accepted_tokens": [[0]], "bonus_token": [2]}
    assert judge(CONTRACT, whole, seen).field == "path"
    assert judge(CONTRACT, whole, seen, slack_ulp=1.0).near_tie
    assert "accept_coin_on_edge" in trace.behaviours and "near_tie" not in trace.behaviours


def test_a_coin_on_a_rounded_edge_may_fall_on_either_side():
    third = 0.3333333432674408
    row = Row((Mass(0, third), Mass(1, third), Mass(2, third)))
    request = tree([-1, 0, 0], (0, 0, 1), [0.6666666865348816, 0.5, 0.5], [row, ROWS[2], ROWS[2]], 0.5)
    outcome, trace = one(request)
    assert outcome["path"].values[:2] == ([0], [0, 2]) and outcome["path"].excess_ulp[1] <= 0
    assert "near_tie" in trace.behaviours


def test_a_token_without_mass_is_never_accepted_not_even_within_any_slack():
    row = Row((Mass(1, 0.5), Mass(2, 0.5)))
    assert pair(0.0, 0.3, row=row)[0]["path"] == [0]
    assert pair(0.0, 0.3, row=row, single=0.0)[0]["path"] == [0]


def test_an_edge_at_one_is_exact_unless_it_was_rounded():
    halves = Row((Mass(0, 0.5), Mass(1, 0.5)))
    thirds = Row(tuple(Mass(t, 0.3333333432674408) for t in range(3)))
    for row, drafts, exact in ((halves, 2, True), (thirds, 3, False)):
        parents, coins = [-1] + [0] * drafts, [LAST_COIN] + [0.5] * drafts
        request = tree(parents, (0, *range(drafts)), coins, [row] + [ROWS[2]] * drafts, 0.25)
        path = one(request)[0]["path"]
        assert path.values[0] == [0, drafts]
        rejected = path.values.index([0])
        assert (path.excess_ulp[rejected] > 0) == exact


def test_an_empty_residual_asks_for_a_token_with_mass():
    row = Row((Mass(1, 0.5), Mass(2, 0.5 - 2.0**-24)))
    request = tree([-1, 0, 0], (0, 1, 2), [LAST_COIN, 0.5, 0.5], [row, ROWS[2], ROWS[2]], 0.5)
    outcome, trace = one(request)
    assert outcome["path"].values[0] == [0]
    assert outcome["bonus_token"].values[0] == OneOf((1, 2))
    assert "residual_empty" in trace.behaviours


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.5, -math.inf])
def test_a_hostile_value_asks_for_a_token_with_mass(value):
    row = Row((Mass(0, value), Mass(2, 0.5)))
    made = case(tree([-1], (0,), [0.5], [row], 0.875))
    assert CONTRACT.domain(made) == DEFENSIVE
    legal = CONTRACT.run(made)[0]["bonus_token"][0]
    assert legal == OneOf((0, 2) if value == math.inf else (2,))


def test_a_hostile_tree_accepts_only_drafts_with_mass():
    row = Row((Mass(0, math.nan), Mass(2, 0.5)))
    request = tree([-1, 0, 0, 0], (0, 0, 1, 2), [0.25] * 4, [row, ROWS[2], ROWS[2], ROWS[2]], 0.5)
    assert one(request)[0]["path"] == OneOf(([0], [0, 3]))


def test_a_draft_outside_the_vocabulary_is_never_accepted_whatever_the_others_have():
    uniform = Row((), 0.25)
    request = tree([-1, 0, 0], (0, 4, -1), [0.0] * 3, [uniform] * 3, 0.5)
    assert one(request, vocabulary=4)[0]["path"] == OneOf(([0],))


def test_a_hostile_request_leaves_its_neighbours_exact():
    healthy = tree([-1, 0], (0, 0), [0.125, 0.5], [ROWS[0], ROWS[2]], 0.5)
    bad = tree([-1, 0], (0, -1), [0.125, 0.5], [ROWS[0], ROWS[2]], 0.5)
    outcome, _ = CONTRACT.run(case(bad, healthy))
    assert outcome["path"][0] == OneOf(([0],)) and outcome["path"][1] == [0, 1]


def test_bad_cases_name_their_field():
    good = case(tree([-1, 0], (0, 0), [0.125, 0.5], [ROWS[0], ROWS[2]], 0.5))
    request = good.requests[0]
    bad_coin = replace(request, final_coin=1.0)
    ring = replace(request, nodes=(request.nodes[0], replace(request.nodes[1], next_child=1)))
    for wrong, words in (
        (replace(good, width=0), "width"),
        (replace(good, threshold_acc=0.0), "threshold_acc"),
        (replace(good, requests=()), "requests"),
        (replace(good, requests=(bad_coin,)), r"requests\[0\].final_coin"),
        (replace(good, requests=(ring,)), r"requests\[0\].nodes"),
        (replace(good, vocabulary=2), r"requests\[0\].nodes\[0\].row"),
    ):
        with pytest.raises(InvalidCase, match=words):
            CONTRACT.domain(wrong)


def test_the_claim_names_node_rule_and_margin():
    made = case(tree([-1, 0], (0, 0), [0.75, 0.5], [ROWS[0], ROWS[2]], 0.25))
    words = CONTRACT.say(made, "path", (0,), [0, 1])
    assert "node 0" in words and "0.75 is not below 0.5" in words and "ULP" in words
    assert "has no mass at node 1" in CONTRACT.say(
        case(tree([-1, 0], (0, 0), [0.25, 0.5], [ROWS[0], ROWS[2]], 0.25)), "bonus_token", (0,), 1
    )
    assert "3 cells" in CONTRACT.say(made, "outside_writes", (), 3)
