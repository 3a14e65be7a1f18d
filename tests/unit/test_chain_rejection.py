"""verify.chain_rejection: losslessness, two definitions, edges, and the domain."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fuzz.frozen import plain_outcome
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.legal import Between, Branched, OneOf
from oracle.verify.chain_rejection import CONTRACT
from oracle.verify.chain_rejection_case import (
    BLOCK,
    TOKEN,
    ChainRejectionCase,
    Draft,
    LastWithMass,
    NothingLeft,
    Request,
    exponentials,
)
from oracle.verify.chain_rejection_masses import Chain
from oracle.verify.chain_rejection_walk import walk
from oracle.verify.edges import integrate
from oracle.verify.rows import Mass, Row

LAST = 1.0 - 2.0**-24
RULES = (TOKEN, BLOCK)
FIRST = {0: 0.25, 1: 0.75}
SECOND = {0: 0.75, 1: 0.25}


def row(masses: dict[int, float], rest: float = 0.0) -> Row:
    return Row(tuple(Mass(t, float(np.float32(v))) for t, v in sorted(masses.items())), rest)


def draft(token, p, q, coin=0.5) -> Draft:
    return Draft(token, row(p), None if q is None else row(q), coin)


def case(rule, *drafts, bonus=None, final=0.5, vocabulary=4, greedy=False, seed=7) -> ChainRejectionCase:
    return ChainRejectionCase(vocabulary, rule, (Request(drafts, row(bonus or {0: 0.5, 3: 0.5}), final, seed, greedy),))


def answer(made: ChainRejectionCase) -> tuple:
    """(accepted, bonus token) where there is no edge."""
    outcome = CONTRACT.run(made)[0]
    return outcome["accepted"][0], outcome["bonus_token"][0]


# --- losslessness: the coins integrated, the drafts summed over what they are drawn from


def eighths(rng: random.Random, vocabulary: int) -> dict[int, float]:
    """A distribution in eighths, so that rows sum to 1 exactly."""
    cuts = sorted(rng.randint(0, 8) for _ in range(vocabulary - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, 8], strict=True)]
    return {t: n / 8 for t, n in enumerate(parts) if n}


class Model:
    """Target and proposal rows that depend on the tokens before them."""

    def __init__(self, seed: int, vocabulary: int, drafts: int, proposed: bool = True):
        self.seed, self.vocabulary, self.drafts, self.proposed = seed, vocabulary, drafts, proposed

    def p(self, *before: int) -> dict[int, float]:
        return eighths(random.Random(f"p{self.seed}{before}"), self.vocabulary)

    def q(self, *before: int) -> dict[int, float]:
        made = eighths(random.Random(f"q{self.seed}{before}"), self.vocabulary)
        return made if self.proposed else {max(made, key=made.get): 1.0}

    def chains(self):
        """(drafts, their probability) of every chain that may be proposed."""
        for tokens in product(range(self.vocabulary), repeat=self.drafts):
            weight = Fraction(1)
            for j, token in enumerate(tokens):
                weight *= Fraction(self.q(*tokens[:j]).get(token, 0.0))
            if weight:
                yield tokens, weight

    def results(self, tokens: tuple[int, ...], rule: str) -> dict[tuple[int, int], Fraction]:
        """Probability of (accepted, last token) for one chain."""
        made = [
            draft(t, self.p(*tokens[:j]), self.q(*tokens[:j]) if self.proposed else None) for j, t in enumerate(tokens)
        ]
        request = Request(tuple(made), row(self.p(*tokens)), 0.5, 0, False)
        chain = Chain(request, self.vocabulary, rule)

        def one(decide):
            result = walk(chain, decide, sampled=False)
            return result["accepted"], result["bonus_token"]

        return integrate(one)

    def emitted(self, rule: str) -> dict[tuple[int, ...], Fraction]:
        """Probability of every sequence of drafts + 1 tokens: what is emitted, continued by the target."""
        total: dict[tuple[int, ...], Fraction] = {}
        for tokens, weight in self.chains():
            for (accepted, last), share in self.results(tokens, rule).items():
                start = (*tokens[:accepted], last)
                for rest in product(range(self.vocabulary), repeat=self.drafts - accepted):
                    whole, chance = start, weight * share
                    for token in rest:
                        chance *= Fraction(self.p(*whole).get(token, 0.0))
                        whole = (*whole, token)
                    total[whole] = total.get(whole, Fraction(0)) + chance
        return {s: c for s, c in total.items() if c}

    def target(self) -> dict[tuple[int, ...], Fraction]:
        made = {(): Fraction(1)}
        for _ in range(self.drafts + 1):
            made = {(*s, t): c * Fraction(m) for s, c in made.items() for t, m in self.p(*s).items()}
        return made

    def length(self, rule: str) -> Fraction:
        """Expected number of accepted drafts."""
        return sum(w * a * c for tokens, w in self.chains() for (a, _), c in self.results(tokens, rule).items())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("vocabulary", "drafts"), [(2, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_emitted_is_distributed_as_the_target(rule, vocabulary, drafts, seed):
    model = Model(seed, vocabulary, drafts)
    assert model.emitted(rule) == model.target()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_n_gram_drafts_are_lossless(rule, seed):
    model = Model(seed, 3, 2, proposed=False)
    assert model.emitted(rule) == model.target()


def test_the_block_rule_never_accepts_less_on_average():
    lengths = [(Model(s, 2, 3).length(TOKEN), Model(s, 2, 3).length(BLOCK)) for s in range(20)]
    assert all(block >= token for token, block in lengths)
    assert sum(block > token for token, block in lengths) >= 5


@pytest.mark.parametrize("seed", range(6))
def test_a_prefix_is_kept_with_its_joint_ratio(seed):
    """Sun et al. 2024: over continuations, a prefix is part of what is kept with probability w of it."""
    model = Model(seed, 2, 3)
    for prefix in product(range(2), repeat=2):
        w, proposed = Fraction(1), Fraction(1)
        for j, token in enumerate(prefix):
            q = Fraction(model.q(*prefix[:j]).get(token, 0.0))
            proposed *= q
            w = min(Fraction(1), w * Fraction(model.p(*prefix[:j]).get(token, 0.0)) / q) if q else Fraction(0)
        kept = sum(
            weight * share
            for tokens, weight in model.chains()
            if tokens[:2] == prefix
            for (accepted, _), share in model.results(tokens, BLOCK).items()
            if accepted >= 2
        )
        assert kept == proposed * w


def test_a_placeholder_ends_the_chain_without_loss():
    """Behind the placeholder nothing is proposed: one draft and the target's next token."""
    p1, q1, p2 = {0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.5}, {0: 0.125, 1: 0.875}
    for rule in RULES:
        total: dict = {}
        for token, weight in q1.items():
            drafts = (draft(token, p1, q1), draft(-1, p2, {0: 1.0}), draft(1, p2, p2))
            chain = Chain(Request(drafts, row({0: 1.0}), 0.5, 0, False), 2, rule)
            found = integrate(
                lambda d, c=chain: tuple(walk(c, d, sampled=False)[k] for k in ("accepted", "bonus_token"))
            )
            for (accepted, last), share in found.items():
                emitted = (token, last) if accepted else (last,)
                total[emitted] = total.get(emitted, 0) + Fraction(weight) * share
        first = {t: sum(c for s, c in total.items() if s[0] == t) for t in (0, 1)}
        assert first == p1
        for t in (0, 1):
            pair = [total.get((t, n), 0) for n in (0, 1)]
            assert pair[1] == 7 * pair[0]


# --- two definitions


def both(made: ChainRejectionCase) -> None:
    assert plain_outcome(CONTRACT.run(made)[0]) == plain_outcome(CONTRACT.second(made)), made


QUARTERS = [{0: 1.0}, {1: 1.0}, {0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.5}]
COINS = (0.0, 0.25, 0.5, 1 / 3, LAST)


@pytest.mark.parametrize("rule", RULES)
def test_both_definitions_agree_on_every_single_draft(rule):
    for p, q, token, coin, final in product(QUARTERS, [*QUARTERS, None], (0, 1), COINS, COINS):
        if q is None or token in q:
            coin, final = float(np.float32(coin)), float(np.float32(final))
            both(case(rule, draft(token, p, q, coin), bonus={0: 0.25, 1: 0.75}, final=final, vocabulary=2))


@pytest.mark.parametrize("rule", RULES)
def test_both_definitions_agree_on_pairs_of_drafts(rule):
    grid = list(product(QUARTERS, QUARTERS, (0, 1), (0.0, 0.25, 0.5, LAST)))
    rng = random.Random(rule)
    for _ in range(800):
        chosen = [d for d in rng.choices(grid, k=2) if d[2] in d[1]]
        both(
            case(rule, *(draft(t, p, q, u) for p, q, t, u in chosen), final=rng.choice((0.0, 0.25, LAST)), vocabulary=4)
        )


# --- by hand


def test_the_token_rule_by_hand():
    first = draft(1, {1: 0.25, 2: 0.75}, {1: 0.5, 3: 0.5}, 0.25)
    assert answer(case(TOKEN, first, final=0.25)) == (1, 0)
    assert answer(case(TOKEN, replace(first, coin=0.75), final=0.25)) == (0, 2)


def test_the_block_rule_keeps_a_draft_behind_a_rejected_one():
    """w1 = 1/3, S1 = 0 as p / 3 <= q, so h1 = 0; w2 = 1/3 * 3 = 1."""
    drafts = (draft(0, FIRST, SECOND, 0.5), draft(1, FIRST, SECOND, 0.5))
    assert answer(case(BLOCK, *drafts, vocabulary=2, bonus={1: 1.0})) == (2, 1)
    assert answer(case(TOKEN, *drafts, vocabulary=2, bonus={1: 1.0})) == (0, 1)


def test_the_block_rule_tests_the_middle_with_h():
    """w1 = 3/4; S1 = 9/16 - 1/2 = 1/16; h1 = (1/16) / (1/16 + 1/4) = 1/5."""
    first, second = {0: 0.375, 1: 0.625}, {0: 0.5, 1: 0.5}
    last = draft(0, FIRST, second, 0.75)  # w2 = 3/8: rejected
    for coin, accepted in ((0.1875, 1), (0.203125, 0), (0.5, 0)):
        made = case(BLOCK, draft(0, first, second, coin), last, vocabulary=2)
        assert answer(made)[0] == accepted


def test_the_block_residual_is_scaled():
    """After one draft with w = 3/4 the masses are 3/4 p - q: 1/32, 9/32, 2/32."""
    last = draft(3, {0: 0.375, 1: 0.375, 2: 0.25}, {0: 0.25, 2: 0.125, 3: 0.625})
    for final, token in ((0.0625, 0), (0.125, 1), (0.8125, 1), (0.875, 2)):
        made = case(BLOCK, draft(0, {0: 0.375, 1: 0.625}, {0: 0.5, 1: 0.5}, 0.03125), last, final=final)
        assert answer(made) == (1, token)


@pytest.mark.parametrize("rule", RULES)
def test_a_token_without_mass_is_never_taken(rule):
    made = case(rule, draft(3, {1: 0.5, 2: 0.5}, {3: 1.0}, 0.0), final=0.0)
    assert answer(made) == (0, 1)
    assert answer(case(rule, draft(1, {1: 1.0}, {1: 1.0}), bonus={2: 1.0}, final=LAST)) == (1, 2)


@pytest.mark.parametrize("rule", RULES)
def test_p_equal_to_q_is_always_accepted(rule):
    third = {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}
    made = case(rule, draft(1, third, third, LAST), draft(2, third, third, LAST), bonus={3: 1.0})
    assert answer(made) == (2, 3)


def test_where_nothing_is_left_any_token_of_the_target_is_legal():
    less = 0.5 - 2.0**-14
    made = case(TOKEN, draft(1, {0: less, 1: less}, {0: 0.5, 1: 0.5}, LAST))
    assert answer(made) == (0, NothingLeft((0, 1)))
    assert judge(CONTRACT, CONTRACT.run(made)[0], {"accepted": [0], "bonus_token": [3]}).kind == "without_mass"


def test_the_last_coin_never_runs_past_the_last_mass():
    fifths = {t: 0.2 for t in range(1, 6)}
    made = case(TOKEN, bonus=fifths, final=LAST, vocabulary=8)
    outcome = CONTRACT.run(made)[0]
    assert outcome["bonus_token"] == [LastWithMass((5,))]
    assert judge(CONTRACT, outcome, {"bonus_token": [7]}).kind == "past_the_end"
    assert judge(CONTRACT, outcome, {"bonus_token": [4]}).kind == "wrong_token"
    assert answer(case(TOKEN, bonus={0: 0.25, 5: 0.75}, final=LAST, vocabulary=8)) == (0, 5)  # nothing is rounded


def test_a_draw_on_an_exact_edge_has_one_answer():
    made = case(TOKEN, draft(1, {1: 1.0}, {1: 1.0}), bonus={0: 0.25, 2: 0.75}, final=0.25)
    outcome = CONTRACT.run(made)[0]
    right = {"accepted": [1], "path": [[0, 1]], "accepted_drafts": [[1]], "bonus_token": [2]}
    assert judge(CONTRACT, outcome, right).agrees
    assert judge(CONTRACT, outcome, right | {"bonus_token": [0]}).field == "bonus_token"


def test_an_accept_coin_on_its_edge_has_two_answers_with_their_consequences():
    made = case(TOKEN, draft(1, {1: 0.25, 2: 0.75}, {1: 0.5, 3: 0.5}, 0.5), final=0.25)
    outcome = CONTRACT.run(made)[0]
    assert isinstance(outcome["accepted"][0], Branched)
    for accepted, token in ((0, 2), (1, 0)):
        assert judge(CONTRACT, outcome, {"accepted": [accepted], "bonus_token": [token]}).agrees
    assert judge(CONTRACT, outcome, {"accepted": [0], "bonus_token": [0]}).field == "bonus_token"


def test_float32_arithmetic_of_both_forms_is_legal_at_planted_edges():
    """``coin * q < p`` and ``coin < p / q`` in float32, at and beside p / q."""
    rng = random.Random(11)
    for _ in range(300):
        q, p = np.float32(rng.uniform(0.1, 0.9)), np.float32(rng.uniform(0.05, 0.9))
        p = min(p, q * np.float32(0.99))
        coin = p / q
        for _ in range(rng.randint(0, 3)):
            coin = np.nextafter(coin, np.float32(rng.choice((0, 1))))
        made = case(
            TOKEN,
            draft(
                0, {0: float(p), 1: float(np.float32(1) - p)}, {0: float(q), 2: float(np.float32(1) - q)}, float(coin)
            ),
        )
        outcome = CONTRACT.run(made)[0]
        for accepts in (coin * q < p, coin < p / q, p / q >= coin):
            assert judge(CONTRACT, outcome, {"accepted": [int(accepts)]}).agrees


def _float32_block(made: ChainRejectionCase) -> int:
    """The block rule in float32, as a kernel does it."""
    r, v, one = made.requests[0], made.vocabulary, np.float32(1)
    made_columns = CONTRACT.columns(made)
    p, q, u = made_columns["target"][0], made_columns["draft"][0], made_columns["coins"][0]
    w, accepted = one, 0
    prefixes = []
    for j, d in enumerate(r.drafts):
        w = min(w * p[j, d.token] / q[j, d.token], one)
        prefixes.append(w)
    for j, w in enumerate(prefixes):
        h = w
        if j + 1 < len(prefixes) and w < one:
            left = np.float32(0)
            for t in range(v):
                left += max(w * p[j + 1, t] - q[j + 1, t], np.float32(0))
            h = left / (left + one - w)
        if u[j] < h:
            accepted = j + 1
    return accepted


def test_float32_arithmetic_of_the_block_rule_is_legal_at_planted_edges():
    """Coins on h and a few float32 beside it, with random rows: whatever float32 decides is in the legal set."""
    rng, near = random.Random(5), 0
    for _ in range(400):
        rows = [np.array([rng.random() for _ in range(4)], np.float32) for _ in range(6)]
        rows = [dict(enumerate((r / r.sum(dtype=np.float32)).tolist())) for r in rows]
        drafts = [draft(rng.randrange(4), rows[i], rows[i + 3], 0.999) for i in range(3)]
        chain = Chain(case(BLOCK, *drafts, bonus=rows[0]).requests[0], 4, BLOCK)
        j = rng.randrange(3)
        coin = np.float32(float(chain.accepting[j].exact))
        for _ in range(rng.randint(0, 4)):
            coin = np.nextafter(coin, np.float32(rng.choice((0, 1))))
        if not 2.0**-20 < coin < 1.0:
            continue
        drafts[j] = replace(drafts[j], coin=float(coin))
        made = case(BLOCK, *drafts, bonus=rows[0])
        verdict = judge(CONTRACT, CONTRACT.run(made)[0], {"accepted": [_float32_block(made)]})
        assert verdict.agrees, (made, verdict)
        near += verdict.near_tie
    assert near > 10


def test_a_greedy_request_uses_no_coin():
    made = case(TOKEN, draft(1, {1: 0.5, 3: 0.5}, None, LAST), bonus={2: 0.375, 3: 0.375, 0: 0.25}, greedy=True)
    assert answer(made) == (1, 2)
    assert answer(replace(made, requests=(replace(made.requests[0], drafts=(draft(3, {1: 0.5, 3: 0.5}, None),)),))) == (
        0, 1,
    )  # fmt: skip


def test_the_race_takes_the_largest_mass_over_its_exponential():
    for seed in range(60):
        made = case(TOKEN, draft(0, {0: 0.25, 1: 0.25, 2: 0.5}, {0: 1.0}, 0.5), seed=seed)
        speed = exponentials(seed, 4)
        assert CONTRACT.run(made)[0]["race_token"] == [int(np.argmax(np.array([0, 0.25, 0.5, 0]) / speed))]


def test_the_race_draws_as_the_masses_say():
    wins = np.zeros(3)
    for seed in range(4000):
        wins[np.argmax(np.array([0.125, 0.25, 0.625]) / exponentials(seed, 3))] += 1
    assert np.abs(wins / 4000 - [0.125, 0.25, 0.625]).max() < 0.03  # 4 standard deviations of the seeds 0 .. 3999


def test_the_exponentials_of_a_seed_never_change():
    assert exponentials(1, 3).tolist() == [0.6697791218757629, 0.050805311650037766, 1.9368342161178589]


# --- defensive


def test_hostile_input_asks_for_safety_and_leaves_its_neighbours_alone():
    nan = Row((Mass(0, math.nan), Mass(1, 0.5)))
    healthy = case(TOKEN, draft(1, {1: 0.25, 2: 0.75}, {1: 0.5, 3: 0.5}, 0.25), final=0.25).requests[0]
    made = ChainRejectionCase(4, TOKEN, (Request((Draft(0, nan, None, 0.5),), row({2: 1.0}), 0.5, 1, False), healthy))
    assert CONTRACT.domain(made) == DEFENSIVE
    outcome = CONTRACT.run(made)[0]
    assert outcome["accepted"] == [Between(0, 0), 1]  # the draft itself has a NaN: no mass
    assert outcome["bonus_token"] == [OneOf((1,)), 0]


@pytest.mark.parametrize("token", [4, -2, 2**31 - 1])
def test_a_draft_outside_the_vocabulary_is_never_kept(token):
    made = case(TOKEN, draft(token, {1: 1.0}, {1: 1.0}, 0.0))
    assert CONTRACT.domain(made) == DEFENSIVE
    assert CONTRACT.run(made)[0]["accepted"] == [Between(0, 0)]


def test_a_row_without_any_mass_may_emit_any_token():
    outcome = CONTRACT.run(case(TOKEN, draft(1, {}, {1: 1.0}, 0.0)))[0]
    assert outcome["accepted"] == [Between(0, 1)] and outcome["bonus_token"] == [Between(0, 3)]


@pytest.mark.parametrize(
    ("changes", "domain"),
    [
        ({}, FUNCTIONAL),
        ({"p": row({1: 0.5, 2: 0.5 - 2.0**-14})}, FUNCTIONAL),
        ({"p": row({1: 0.5})}, DEFENSIVE),
        ({"p": row({1: -0.5, 2: 1.5})}, DEFENSIVE),
        ({"p": row({1: math.inf})}, DEFENSIVE),
        ({"p": row({1: 1.0, 2: 2.0**-90})}, DEFENSIVE),
        ({"q": row({3: 1.0})}, DEFENSIVE),
        ({"token": -1, "q": row({3: 1.0})}, FUNCTIONAL),
        ({"token": -2}, DEFENSIVE),
    ],
)
def test_what_is_functional(changes, domain):
    request = CONTRACT.example.requests[0]
    drafts = (replace(request.drafts[0], **changes), *request.drafts[1:])
    assert CONTRACT.domain(replace(CONTRACT.example, requests=(replace(request, drafts=drafts),))) == domain


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vocabulary": 1}, "vocabulary"),
        ({"rule": "tree"}, "rule"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request((), row({0: 1.0}), 1.0, 0, False),)}, "final_coin"),
        ({"requests": (Request((), row({0: 1.0}), 2.0**-50, 0, False),)}, "final_coin"),
        ({"requests": (Request((), row({9: 1.0}), 0.5, 0, False),)}, "bonus"),
        ({"requests": (Request((), row({0: 1.0}), 0.5, -1, False),)}, "race_seed"),
        ({"requests": (Request((draft(0, {0: 1.0}, None, math.nan),), row({0: 1.0}), 0.5, 0, False),)}, "coin"),
        ({"requests": (Request((draft(2**31, {0: 1.0}, None),), row({0: 1.0}), 0.5, 0, False),)}, "token"),
        ({"requests": (Request((draft(0, {0: 1.0}, None),) * 65, row({0: 1.0}), 0.5, 0, False),)}, "drafts"),
        ({"vocabulary": 2**20, "requests": (Request((), Row((), 0.0), 0.5, 0, False),) * 5}, "requests"),
    ],
)
def test_the_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CONTRACT.example, **changes))


# --- what adapters and readers get


def test_columns_pad_and_spell_out_absent_proposals():
    made = ChainRejectionCase(
        3,
        TOKEN,
        (
            Request((draft(1, {1: 1.0}, None, 0.25), draft(-1, {0: 1.0}, {2: 1.0})), row({2: 1.0}), 0.75, 3, False),
            Request((), row({0: 1.0}), 0.5, 4, True),
        ),
    )
    got = CONTRACT.columns(made)
    assert got["counts"].tolist() == [2, 0] and got["greedy"].tolist() == [False, True]
    assert got["drafts"].tolist() == [[1, -1], [-1, -1]]
    assert got["draft"].tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]
    assert got["target"].tolist() == [[[0, 1, 0], [1, 0, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]]
    assert got["has_q"].tolist() == [[False, True], [False, False]]
    assert got["target"].dtype == got["draft"].dtype == got["coins"].dtype == got["exponentials"].dtype == np.float32


def test_the_claim_names_rule_position_and_margin():
    made = case(TOKEN, draft(1, {1: 0.25, 2: 0.75}, {1: 0.5, 3: 0.5}, 0.75), final=0.25)
    words = CONTRACT.say(made, "accepted", (0,), 1)
    assert words == (
        "request 0, token rule: production accepts 1 of 1 drafts, must be 0: the coin 0.75 of draft 0 (token 1) is not "
        "below 0.5, by 4.19e+06 ULP"
    )
    words = CONTRACT.say(made, "bonus_token", (0,), 1)
    assert "the last token is 1, must be 2: drawn from the residual of position 0" in words and "0 to 1" in words


def test_the_trace_shows_the_distribution_around_the_coin():
    made = case(TOKEN, draft(0, {0: 0.25, 1: 0.25, 2: 0.5}, {0: 1.0}, 0.5), final=0.5)
    steps = {s.name: s.values for s in CONTRACT.run(made)[1].steps}
    assert steps["accept test"]["edge"] == 0.25 and steps["accept test"]["accepted"] is False
    shown = steps["masses of the last token"]
    assert shown["total"] == 0.75
    assert shown["around"] == [(1, 0.0, pytest.approx(1 / 3)), (2, pytest.approx(1 / 3), 1.0)]
