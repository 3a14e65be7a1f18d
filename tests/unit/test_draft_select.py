"""verify.draft_select: two definitions over small scopes, losslessness of the walk,
ties, hostile rows, and the domain."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fuzz.frozen import plain_outcome
from fuzz.strategies.draft_select_tree import expand as grow_tree
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.verify.draft_select import CONTRACT
from oracle.verify.edges import integrate
from oracle.verify.rows import Mass, Row
from oracle.verify.select_case import DraftSelectCase, Request, Slot
from oracle.verify.select_rows import nearest_float32
from oracle.verify.select_second import _by_tails
from oracle.verify.select_walk import FLUSHED, NO_MASS, distribution, walk

LAST_COIN = 1.0 - 2.0**-24


def row(*values: float) -> Row:
    return Row(tuple(Mass(t, float(v)) for t, v in enumerate(values)))


def rows_case(form: str, *rows: Row, vocabulary: int, width: int = 1, divisor: Row | None = None) -> DraftSelectCase:
    requests = tuple(Request((Slot((), (r,)),), 5, divisor) for r in rows)
    return DraftSelectCase(form, "float32", vocabulary, width, 0, requests)


def walk_case(*slots: Slot, greedy: bool = False, temperature: float = 1.0) -> DraftSelectCase:
    width = len(slots[0].candidates)
    return DraftSelectCase("walk", "float32", 100, width, 0, (Request(slots, 0, None, greedy, temperature),))


def both(case: DraftSelectCase) -> dict:
    outcome = CONTRACT.run(case)[0]
    assert plain_outcome(outcome) == plain_outcome(CONTRACT.second(case))
    return outcome


def test_every_row_of_three_scores_over_three_values():
    for values in product((-1.0, 0.0, 2.0), repeat=3):
        case = rows_case("top1", row(*values), vocabulary=3)
        assert both(case)["tokens"] == [[values.index(max(values))]]
        for width in (1, 2, 3):
            chosen = both(rows_case("topk", row(*values), vocabulary=3, width=width))["tokens"][0]
            assert [values[t] for t in chosen] == sorted(values, reverse=True)[:width]


def test_every_quotient_of_small_scores():
    for values in product((0.0, 1.0, 3.0), repeat=2):
        for divisors in product((0.5, 1.0, 3.0), repeat=2):
            case = rows_case("top1", row(*values), vocabulary=2, divisor=row(*divisors))
            quotients = [v / d for v, d in zip(values, divisors, strict=True)]
            assert both(case)["tokens"] == [[quotients.index(max(quotients))]]


def test_quotients_are_rounded_once_to_nearest():
    rng = np.random.default_rng(7)
    for a, b in rng.random((500, 2)).astype(np.float32) + np.float32(2.0**-20):
        assert nearest_float32(Fraction(float(a)) / Fraction(float(b))) == float(a / b)
    assert nearest_float32(Fraction(2) ** 128) == math.inf
    assert nearest_float32(Fraction(2**24 + 1)) == float(2**24)  # a tie goes to the even neighbour
    assert nearest_float32(Fraction(2**24 + 3)) == float(2**24 + 4)


def test_an_argmax_takes_the_first_of_tied_and_a_top_k_any():
    case = rows_case("topk", row(2, 1, 2, 1, 1), vocabulary=5, width=3)
    outcome = both(case)
    assert outcome["tokens"] == [[0, 2, 1]]
    for chosen, legal in (([2, 0, 4], True), ([0, 2, 3], True), ([0, 0, 1], False), ([1, 0, 2], False)):
        assert judge(CONTRACT, outcome, {"any_tokens": [chosen]}).agrees is legal


def test_every_greedy_walk_of_two_slots():
    for scores in product((0.0, 1.0), repeat=6):
        first, lattice = row(*scores[:2]), (row(*scores[2:4]), row(*scores[4:]))
        case = walk_case(Slot((10, 11), (first, row(9, 9))), Slot((20, 21), lattice), greedy=True)
        a = int(scores[1] > scores[0])
        of_a = scores[2 + 2 * a : 4 + 2 * a]
        assert both(case)["tokens"] == [[10 + a, 20 + int(of_a[1] > of_a[0])]]


def test_drawn_walks_agree_over_a_grid_of_coins():
    for first, then in product((0.0, 0.125, 0.5, 0.731, 0.9, LAST_COIN), repeat=2):
        slots = [Slot((10, 11, 12), (row(0, 1, -math.inf),) * 3, float(np.float32(first)))]
        slots.append(Slot((20, 21, 22), (row(0, 0, 0), row(1, 2, 3), row(5, 5, 5)), float(np.float32(then))))
        both(walk_case(*slots, temperature=0.5))


def test_a_walk_loses_nothing():
    """Integrated over the coins, the path has the probability that q gives it."""
    lattice = (row(0, 1, 2), row(3, -math.inf, 1), row(0.5, 0.5, -8))
    request = Request(
        (Slot((0, 1, 2), (row(1, 0.25, -2),) * 3), Slot((3, 4, 5), lattice), Slot((6, 7, 8), lattice)),
        0,
        None,
        False,
        0.75,
    )
    found = integrate(lambda decide: tuple(walk(request, 3, decide)["tokens"]))
    first = distribution((1.0, 0.25, -2.0), 0.75).masses
    q = [distribution(tuple(m.value for m in r.masses), 0.75).masses for r in lattice]
    for a, b, c in product(range(3), repeat=3):
        assert float(found.get((a, 3 + b, 6 + c), 0)) == pytest.approx(float(first[a] * q[a][b] * q[b][c]), abs=1e-40)
    assert sum(found.values()) == 1


def test_two_exponentials_agree_to_forty_digits():
    for scores, temperature in (((0.0, 1.0, -3.25), 1.0), ((40.0, 39.0, -60.0), 0.5), ((-math.inf, 2.0, 2.0), 0.125)):
        known, other = distribution(scores, temperature), _by_tails(scores, temperature)
        assert all(abs(a - b) < Fraction(1, 10**40) for a, b in zip(known.masses, other.masses, strict=True))


def test_the_rounding_model_holds_what_float32_computes():
    """Masses and edges of plain float32 arithmetic lie inside the bounds, and not far inside."""
    rng, worst = np.random.default_rng(1), 0.0
    for _ in range(300):
        scores, temperature = rng.normal(size=8).astype(np.float32) * 8, np.float32(rng.uniform(0.1, 2))
        scaled = scores / temperature
        weights = np.exp(scaled - scaled.max())
        masses = (weights / weights.sum(dtype=np.float32)).astype(np.float32)
        known = distribution(tuple(map(float, scores)), float(temperature))
        assert known.q.admits([float(m) for m in masses])
        off = [
            abs(Fraction(float(m)) - e) / (e * r)
            for m, e, r in zip(masses, known.masses, known.errors, strict=True)
            if FLUSHED <= e < max(known.masses)
        ]
        worst = max(worst, *map(float, off))
    assert 0.02 < worst <= 1.0


def test_a_coin_on_an_edge_leaves_two_ways_that_stay_together():
    slots = Slot((10, 11), (row(3, 3),) * 2, 0.5), Slot((20, 21), (row(9, -9), row(-9, 9)), 0.5)
    outcome = both(walk_case(*slots))
    other = judge(CONTRACT, outcome, {"tokens": [[10, 20]]})
    exact = judge(CONTRACT, outcome, {"tokens": [[11, 21]]})
    assert exact.agrees and not exact.near_tie
    assert other.agrees and other.near_tie and other.margin_ulp == 0.0
    assert not judge(CONTRACT, outcome, {"tokens": [[11, 20]]}).agrees


def test_a_candidate_without_mass_is_never_drawn():
    for coin in (0.0, LAST_COIN):
        outcome = both(walk_case(Slot((10, 11, 12, 13), (row(-math.inf, 1, 1, -math.inf),) * 4, coin)))
        assert not any(judge(CONTRACT, outcome, {"tokens": [[t]]}).agrees for t in (10, 13))
    outcome = both(walk_case(Slot((10, 11), (row(0, -120),) * 2, LAST_COIN)))
    assert not judge(CONTRACT, outcome, {"tokens": [[11]]}).agrees
    underflowed = distribution((0.0, -120.0), 1.0)
    assert underflowed.masses == (pytest.approx(1), 0) and Fraction(math.exp(-120)) < NO_MASS


@pytest.mark.parametrize("kind", ["falling", "sixteenths", "certain"])
@pytest.mark.parametrize(("width", "steps"), [(1, 3), (2, 1), (2, 3), (3, 2)])
def test_trees_agree_and_keep_the_best(kind, width, steps):
    total = width + (steps - 1) * width * width
    for seed in range(20):
        for kept in {1, total // 2 or 1, total}:
            case = DraftSelectCase(
                "tree", "float32", 1000, width, kept + 1, (grow_tree(width, steps, 1000, kind, seed),)
            )
            both(case)


def test_a_tree_by_hand():
    slots = (
        Slot((100, 101), (row(0.5, 0.25),)),
        Slot((200, 201, 202, 203), (row(0.25, 0.125), row(0.75, 0.0625))),
        Slot((300, 301, 302, 303), (row(0.5, 0.25), row(0.5, 0.25))),
    )
    outcome = both(DraftSelectCase("tree", "float32", 1000, 2, 5, (Request(slots),)))
    assert outcome["picks"] == [[4, 2, 6, 8]]  # 0.1875 under node 1, 0.125 under node 0; then their children
    assert outcome["hidden_rows"] == [[1, 0, 0, 1]]
    assert outcome["next_inputs"] == [[202, 200, 300, 302]]
    assert outcome["selected"] == [[0, 1, 2, 4]]
    assert outcome["any_tokens"] == [[100, 101, 200, 202]]


@pytest.mark.parametrize(
    ("values", "legal", "illegal"),
    [
        ((math.nan, 1, 2), {0, 2}, {1, 3, -1}),
        ((math.nan, math.nan, math.nan), {0, 1, 2}, {3, -1}),
        ((-math.inf, -math.inf, -math.inf), {0, 1, 2}, {3, -1}),
        ((math.nan, -math.inf, -math.inf), {0}, {1, 2, 3}),
    ],
)
def test_a_hostile_row_leaves_ids_inside_the_vocabulary(values, legal, illegal):
    case = rows_case("top1", row(*values), row(0, 5, 0), vocabulary=3)
    assert CONTRACT.domain(case) == DEFENSIVE
    outcome = CONTRACT.run(case)[0]
    for token in legal | illegal:
        assert judge(CONTRACT, outcome, {"tokens": [[token], [1]]}).agrees is (token in legal)
    assert judge(CONTRACT, outcome, {"tokens": [[min(legal)], [0]]}).where == (1,)


def test_masked_tokens_are_functional_while_numbers_remain():
    assert CONTRACT.domain(rows_case("topk", row(1, 2, -math.inf), vocabulary=3, width=2)) == FUNCTIONAL
    assert CONTRACT.domain(rows_case("topk", row(1, -math.inf, -math.inf), vocabulary=3, width=2)) == DEFENSIVE


HEALTHY = CONTRACT.example.requests[0]
TREE = DraftSelectCase("tree", "float32", 1000, 2, 3, (grow_tree(2, 2, 1000, "falling", 0),))


@pytest.mark.parametrize(
    ("case", "field"),
    [
        (replace(CONTRACT.example, form="best"), "form"),
        (replace(CONTRACT.example, dtype="int8"), "dtype"),
        (replace(CONTRACT.example, vocabulary=0), "vocabulary"),
        (replace(CONTRACT.example, vocabulary=2**30), "too many"),
        (replace(CONTRACT.example, width=2), "width"),
        (replace(CONTRACT.example, draft_tokens=3), "draft_tokens"),
        (replace(CONTRACT.example, requests=()), "requests"),
        (replace(CONTRACT.example, requests=(replace(HEALTHY, position=-1),)), "position"),
        (replace(CONTRACT.example, requests=(replace(HEALTHY, slots=()),)), "slots"),
        (replace(CONTRACT.example, dtype="bfloat16", requests=(Request((Slot((), (row(1.00390625),)),)),)), "bfloat16"),
        (replace(CONTRACT.example, dtype="float16", requests=(Request((Slot((), (row(65536.0),)),)),)), "float16"),
        (replace(CONTRACT.example, requests=(Request((Slot((), (Row((Mass(8, 1.0),)),)),)),)), "vocabulary"),
        (rows_case("topk", row(1, 2), vocabulary=2, width=1, divisor=row(1, 1)), "divisor"),
        (walk_case(Slot((10, 11), (row(1, 2),) * 2, 1.0)), "coin"),
        (walk_case(Slot((10, 11), (row(1, 2),) * 2, 0.1)), "coin"),
        (walk_case(Slot((10, 100), (row(1, 2),) * 2)), "candidates"),
        (walk_case(Slot((10, 11), (row(1, 2),))), "rows"),
        (replace(TREE, draft_tokens=8), "draft_tokens"),
        (replace(TREE, dtype="float16"), "dtype"),
    ],
)
def test_domain_names_the_field(case, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(case)
