"""commit.draft_inputs: the reference against its second definition, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.mutants.draft_inputs import MUTANTS
from fuzz.strategies.draft_inputs import structure
from fuzz.strategies.source import RandomSource
from oracle.commit.draft_inputs import CONTRACT, FORMS, MASK, PAGES, DraftInputsCase, Request, second
from oracle.contract import InvalidCase
from oracle.trace import Trace


def outcome(case):
    return CONTRACT.reference(case, Trace())


def test_the_two_definitions_agree_on_all_small_batches():
    rows = [Request(pre, n, c, 1, 7) for pre in (0, 1, 3) for n in (1, 2, 3) for c in range(1, n + 1)]
    for form, drafts, page in product(FORMS, (1, 2, 3), (1, 2, 4)):
        for first in rows:
            case = DraftInputsCase(form, drafts, page, (first, replace(rows[0], pages=9), replace(rows[-1], pages=4)))
            assert CONTRACT.domain(case) == "functional"
            assert outcome(case) == second(case)


def test_the_two_definitions_agree_on_drawn_cases():
    for seed in range(400):
        case = structure(RandomSource(seed))
        CONTRACT.domain(case)
        assert outcome(case) == second(case)


def rows_of(form: str, drafts: int = 3):
    found = outcome(DraftInputsCase(form, drafts, 4, (Request(pre=10, rows=4, committed=2, pages=1, seed=1),)))
    return {name: value[0] for name, value in found.items() if isinstance(value, list)}


def test_the_shifted_form_puts_each_token_at_the_position_before_it():
    found = rows_of("shifted")
    assert found["positions"] == [10, 11, 12, 13] and found["sampled_rows"] == [1, 2, 3]
    assert found["tokens"][2:] == [MASK, MASK] and found["rejected_rows"] == 2


def test_the_appended_form_keeps_tokens_at_their_positions():
    assert rows_of("appended")["positions"] == [10, 11, 12, 13, 14]
    assert rows_of("appended")["tokens"][1] == rows_of("shifted")["tokens"][0]


def test_the_forms_with_a_context_start_behind_the_committed_tokens():
    block, anchored = rows_of("block"), rows_of("anchored")
    assert block["positions"] == [12, 13, 14, 15] and block["sampled_rows"] == [1, 2, 3]
    assert anchored["positions"] == [12, 13, 14] and anchored["sampled_rows"] == [0, 1, 2]
    assert block["context_positions"] == anchored["context_positions"] == [10, 11]


def test_neighbouring_pages_are_not_neighbours_in_memory():
    found = rows_of("block")
    at_page = [found["locations"][i] // 4 for i in range(4)]
    assert len(set(at_page)) == 1  # positions 12 to 15 are one page
    assert found["context_locations"][-1] // 4 != at_page[0] - 1


GOOD = DraftInputsCase("shifted", 2, 4, (Request(5, 4, 2, 1, 0),))
BAD = {
    "form": replace(GOOD, form="sideways"),
    "drafts": replace(GOOD, drafts=0),
    "page": replace(GOOD, page=3),
    "requests": replace(GOOD, requests=()),
    "committed": replace(GOOD, requests=(Request(5, 4, 5, 1, 0),)),
    "pages": replace(GOOD, requests=GOOD.requests * 2),
    "rows": replace(GOOD, requests=(Request(5, 0, 0, 1, 0),)),
    "pre": replace(GOOD, requests=(Request(4 * PAGES - 5, 4, 2, 1, 0),)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_case_outside_the_domain_names_its_field(name):
    with pytest.raises(InvalidCase, match=name):
        CONTRACT.domain(BAD[name])


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.name for m in MUTANTS])
def test_each_mutant_is_told_apart_within_a_few_draws(mutant):
    assert any(mutant.killed_by(CONTRACT, structure(RandomSource(seed))) for seed in range(60))


def test_drawn_cases_reach_every_behaviour():
    reached = set()
    for seed in range(400):
        trace = Trace()
        CONTRACT.reference(structure(RandomSource(seed)), trace)
        reached |= set(trace.behaviours)
    assert reached == set(CONTRACT.behaviours)
