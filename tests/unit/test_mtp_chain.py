"""draft.mtp_chain: the reference against its second definition, what it refuses, and its words."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.mutants.mtp_chain import MUTANTS
from fuzz.strategies.mtp_chain import structure
from fuzz.strategies.source import RandomSource
from oracle import explain
from oracle.contract import InvalidCase
from oracle.draft.mtp_chain import CONTRACT
from oracle.draft.mtp_chain_case import BEAM, FROZEN, WINDOW, MtpChainCase, Request, beams_of, bonus_of, kept_of
from oracle.draft.mtp_chain_second import second
from oracle.draft.proposer import (
    GAP,
    HIDDEN,
    NOBODY,
    PARTS,
    VOCABULARY,
    numbers,
    proposal,
    proposals,
    read,
    rows,
    stamp,
    unstamp,
)
from oracle.judgement import judge
from oracle.trace import Trace

CHAIN = MtpChainCase(WINDOW, True, 3, 1, (2,), (), (Request(10, 2, 1, 1), Request(20, 4, 3, 2)))


def outcome(case):
    return CONTRACT.reference(case, Trace())


def test_the_two_definitions_agree_on_all_small_windows():
    for steps, chained, captured in product((1, 2, 3), (False, True), ((), (1,), (1, 2), (4,))):
        kept = range(1, steps + 2)
        for first, last in product(kept, kept):
            requests = (Request(9, first, 4, 7), Request(30, last, 1, 8))
            case = MtpChainCase(WINDOW, chained, steps, 1, captured, (), requests)
            assert CONTRACT.domain(case) == "functional"
            assert outcome(case) == second(case)


def test_the_two_definitions_agree_on_all_small_beams():
    seen = 0
    for form, steps, width, seed in product((BEAM, FROZEN), (1, 2, 3, 4), (1, 2, 4), range(6)):
        case = MtpChainCase(form, True, steps, width, (), (), (Request(9, 1, 4, seed), Request(30, steps + 1, 1, 90)))
        try:
            CONTRACT.domain(case)
        except InvalidCase as refused:
            assert "almost the same score" in str(refused)
            continue
        seen += 1
        assert outcome(case) == second(case)
    assert seen > 100


def test_a_chained_step_is_fed_what_the_step_before_produced():
    fed = outcome(CHAIN)["hidden"][0]
    assert [[unstamp(cell) for cell in step] for step in fed] == [
        [(1, 1, producer, 10), (1, 1, producer, 11)] for producer in (0, 1, 2)
    ]


def test_a_step_that_is_not_chained_is_fed_the_targets_state():
    fed = outcome(replace(CHAIN, chained=False))["hidden"]
    assert {unstamp(cell)[2] for steps in fed for step in steps for cell in step} == {0}


def test_a_window_moves_its_tokens_on_by_one_and_appends_the_draft():
    found, r = outcome(CHAIN), CHAIN.requests[0]
    first, bonus = kept_of(r)
    drafts = found["drafts"][0]
    assert found["tokens"][0] == [[first, bonus], [bonus, drafts[0]], drafts[:2]]
    assert drafts == [proposal(bonus, 0), proposal(drafts[0], 1), proposal(drafts[1], 2)]


def test_a_prompt_is_a_window_of_which_everything_is_kept():
    case = MtpChainCase(WINDOW, True, 2, 1, (), (), (Request(0 + 2, 20, 1, 5), Request(7, 3, 3, 6)))
    assert CONTRACT.domain(case) == "functional"
    kept = kept_of(case.requests[0])
    assert outcome(case)["tokens"][0] == [kept, [*kept[1:], proposal(kept[-1], 0)]]


def test_the_smallest_graph_that_holds_the_batch_is_replayed():
    sizes = {(): 0, (1,): 0, (1, 2): 2, (2, 4): 2, (4, 8): 4}
    for captured, size in sizes.items():
        assert outcome(replace(CHAIN, captured=captured))["replayed"] == [size] * 3


def test_rows_of_a_beam_are_fed_the_state_of_their_parent():
    r = Request(10, 2, 1, 1)
    case = MtpChainCase(BEAM, True, 4, 2, (), (), (r,))
    CONTRACT.domain(case)
    found, levels = outcome(case), beams_of(case, r)
    for step, rows_of_step in enumerate(found["hidden"][0]):
        parents = [11, 11] if step == 0 else [parent for _, parent in levels[step]]
        assert [unstamp(cell)[2:] for cell in rows_of_step] == [(step, parent) for parent in parents]
    assert found["positions"][0] == [[12 + step] * 2 for step in range(3)]
    places = [place for step in found["locations"][0] for place in step]
    assert len(set(places)) == len(places)


def test_the_best_continuations_are_kept_best_first():
    """By hand, for one step of two rows: the two largest of four products."""
    r = Request(10, 2, 1, 1)
    case = MtpChainCase(BEAM, True, 2, 2, (), (), (r,))
    scored = [
        (score + more, token, row)
        for row, (start, score) in enumerate(proposals(bonus_of(r), 0)[:2])
        for token, more in proposals(start, 1)[:2]
    ]
    best = sorted(scored, reverse=True)[:2]
    assert beams_of(case, r)[1] == [(token, row) for _, token, row in best]


def test_a_frozen_chain_starts_with_the_bonus_token_and_stays_where_it_is():
    case = MtpChainCase(FROZEN, True, 3, 1, (), (), (Request(10, 2, 1, 1),))
    found = outcome(case)
    assert found["tokens"][0][0] == [bonus_of(case.requests[0])]
    assert found["positions"][0] == [[11]] * 3 and len(found["hidden"][0]) == 3


def test_a_stamp_survives_being_a_hidden_state():
    for parts in product((0, 1), (0, 1, 31), (0, 1, 6), (0, 1, 1023)):
        of = stamp(*parts)
        assert unstamp(of) == parts and read(numbers(of)) == of and len(numbers(of)) == HIDDEN


def test_a_torn_or_empty_state_is_nobodys():
    whole = numbers(stamp(1, 3, 2, 40))
    torn = whole[:-PARTS] + numbers(stamp(1, 3, 1, 40))[-PARTS:]
    for state in (torn, [0.0] * HIDDEN, [-977.0] * HIDDEN, [x + 0.5 for x in whole], [float("nan")] * HIDDEN):
        assert read(state) == NOBODY


def test_candidates_of_a_row_are_different_tokens_well_apart():
    assert len(rows()) == VOCABULARY
    for tokens, logits in rows():
        assert len(set(tokens)) == len(tokens)
        assert all(GAP[0] <= a - b <= GAP[1] for a, b in zip(logits, logits[1:], strict=False)) and logits[-1] > 0


GOOD = MtpChainCase(BEAM, True, 3, 2, (), (), (Request(10, 2, 1, 1),))
BAD = {
    "form": replace(GOOD, form="ring"),
    "steps": replace(GOOD, steps=0),
    "chained": replace(GOOD, chained=False),
    "width": replace(CHAIN, width=2),
    "captured, earlier": replace(GOOD, captured=(2,)),
    "captured: must ascend": replace(CHAIN, captured=(4, 2)),
    "requests: must not be empty": replace(CHAIN, requests=()),
    "requests: must be at most": replace(CHAIN, requests=tuple(Request(10, 1, 1 + i, 1) for i in range(13))),
    "pool_row: two": replace(CHAIN, requests=CHAIN.requests[:1] * 2),
    "earlier.pool_row": replace(CHAIN, earlier=CHAIN.requests[:1] * 2),
    "pre": replace(CHAIN, requests=(Request(1023, 1, 1, 1),)),
    "committed: must be 1 to 4": replace(CHAIN, requests=(Request(10, 5, 1, 1),)),
    "committed: must be 1 to 40": replace(CHAIN, captured=(), requests=(Request(10, 41, 1, 1),)),
    r"\.pool_row: must be": replace(CHAIN, requests=(Request(10, 1, 32, 1),)),
    "seed": replace(CHAIN, requests=(Request(10, 1, 1, -1),)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_case_outside_the_domain_names_its_field(name):
    with pytest.raises(InvalidCase, match=name):
        CONTRACT.domain(BAD[name])


def test_continuations_that_float32_could_not_order_are_refused():
    """Two candidates of one row that lead to equal scores, by a draw that finds some."""
    cases = (MtpChainCase(BEAM, True, 5, 4, (), (), (Request(10, 1, 1, seed),)) for seed in range(3000))
    with pytest.raises(InvalidCase, match="almost the same score"):
        for case in cases:
            CONTRACT.domain(case)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.name for m in MUTANTS])
def test_each_mutant_is_told_apart_within_a_few_draws(mutant):
    assert any(mutant.killed_by(CONTRACT, structure(RandomSource(seed))) for seed in range(60))


KINDS = {
    stamp(1, 1, 0, 10): "target_state_again",
    stamp(1, 1, 2, 10): "state_of_another_step",
    stamp(1, 3, 1, 10): "state_of_another",
    stamp(0, 1, 1, 10): "state_of_an_earlier_round",
    stamp(1, 1, 1, 9): "state_of_another_row",
    NOBODY: "no_state",
}


@pytest.mark.parametrize("seen", KINDS, ids=list(KINDS.values()))
def test_a_wrong_state_is_named_by_what_is_wrong_with_it(seen):
    observed = outcome(CHAIN)
    observed["hidden"][0][1][0] = seen
    found = judge(CONTRACT, outcome(CHAIN), observed)
    assert (found.field, found.kind) == ("hidden", KINDS[seen])
    said = explain.sentence(CONTRACT, CHAIN, found)
    assert "request 0: draft step 1, row 0" in said and "the state that run 1 of the draft model produced at 10" in said


def test_a_missing_row_and_a_wrong_graph_have_words_too():
    short, other = outcome(CHAIN), outcome(CHAIN)
    short["positions"][1][2].pop()
    other["replayed"] = [4, 4, 4]
    for observed, kind in ((short, "wrong_count"), (other, "other_graph")):
        found = judge(CONTRACT, outcome(CHAIN), observed)
        assert found.kind == kind and found.field in explain.sentence(CONTRACT, CHAIN, found)
