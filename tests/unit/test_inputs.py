"""draft.inputs: the rolled stash and the position alone say the same, round after round."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.frozen import plain_outcome
from oracle.contract import InvalidCase
from oracle.draft.inputs import CONTRACT
from oracle.draft.inputs_case import Request, columns, history, location

EXAMPLE = CONTRACT.example


def small_cases():
    for front, width, prompt in product((1, 2, 3), (1, 2, 3), (1, 2, 4)):
        for warmup, chunk in product(range(front + 1), range(1, prompt + 1)):
            for commits in product(range(1, width + 1), repeat=2):
                row = Request(prompt, chunk, 0, commits, 1, 1)
                yield replace(EXAMPLE, front=front, warmup=warmup, width=width, requests=(row,))


def test_both_definitions_agree_on_every_small_case():
    for case in small_cases():
        CONTRACT.domain(case)
        assert plain_outcome(CONTRACT.run(case)[0]) == plain_outcome(CONTRACT.second(case)), case


def test_front_rows_and_block_stand_at_consecutive_positions():
    for case in small_cases():
        (positions,) = CONTRACT.run(case)[0]["positions"]
        window = case.front + case.width
        for at in range(0, len(positions), window):
            rows = positions[at : at + window]
            known = [p for p in rows[: case.front] if p] + rows[case.front :]
            assert known == list(range(known[0], known[0] + len(known)))


def test_only_rows_that_have_a_position_and_do_not_warm_up_are_written():
    for case in small_cases():
        (r,), outcome = case.requests, CONTRACT.run(case)[0]
        window = case.front + case.width
        for at in range(0, len(outcome["positions"][0]), window):
            pre = outcome["positions"][0][at + case.front]
            known = min(case.front, pre - (r.prompt - r.chunk))
            written = [p for p in outcome["locations"][0][at : at + case.front] if p]
            assert len(written) == max(0, known - case.warmup)
            assert written == [location(1, q) for q in range(pre - len(written), pre)]


def test_a_request_is_not_changed_by_others():
    row, other = Request(5, 5, 0, (2, 1), 1, 1), Request(1, 1, 1, (1,), 3, 2)
    alone = CONTRACT.run(replace(EXAMPLE, requests=(row,)))[0]
    beside = CONTRACT.run(replace(EXAMPLE, requests=(other, row)))[0]
    fields = [f.name for f in CONTRACT.fields if f.axis == "request"]
    assert all(alone[name][0] == beside[name][1] for name in fields)


def test_columns_hold_what_the_rounds_need():
    c = columns(replace(EXAMPLE, requests=(Request(5, 3, 0, (2, 1), 1, 1), Request(1, 1, 2, (), 3, 2))))
    assert c["rounds"].tolist() == [2, 0] and c["commits"].tolist() == [[2, 1], [0, 0]]
    assert c["history"][0].tolist() == history(EXAMPLE, EXAMPLE.requests[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"front": 0}, "front: must be 1"),
        ({"warmup": 3}, "warmup: must be 0 to front"),
        ({"width": 0}, "width: must be 1"),
        ({"requests": ()}, "requests: must be 1"),
        ({"requests": (Request(5, 6, 0, (1,), 1, 1),)}, r"requests\[0\].chunk: must be 1 to prompt"),
        ({"requests": (Request(5, 5, 0, (5,), 1, 1),)}, r"requests\[0\].commits: must be 1 to width"),
        ({"requests": (Request(5, 5, 5, (1, 1), 1, 1),)}, r"requests\[0\].commits: beyond round"),
        ({"requests": (Request(5, 5, 0, (1,), 0, 1),)}, r"requests\[0\].pool_row: must be 1"),
        (
            {"requests": (Request(5, 5, 0, (1, 1), 4, 1), Request(5, 5, 1, (1,), 4, 1))},
            "requests.pool_row: two requests are in one row",
        ),
    ],
)
def test_a_case_outside_the_domain_names_its_field(change, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(replace(EXAMPLE, **change))


def test_a_pool_row_may_be_taken_when_it_was_left():
    rows = (Request(5, 5, 0, (1, 1), 4, 1), Request(5, 5, 2, (1,), 4, 1))
    assert CONTRACT.domain(replace(EXAMPLE, requests=rows)) == "functional"


@pytest.mark.parametrize(
    ("field", "expected", "observed", "kind"),
    [
        ("front_tokens", [0, 5], [7, 5], "stale_row"),
        ("front_tokens", [4, 5], [0, 5], "row_lost"),
        ("front_tokens", [4, 5], [5, 5], "wrong_row"),
        ("locations", [0, 5], [7, 5], "written_besides"),
        ("stash_tokens", [4, 5], [5], "too_few"),
        ("stash_tokens", [5], [4, 5], "too_many"),
        ("others_changed", 0, 1, "written_outside"),
    ],
)
def test_what_is_wrong_in_a_word(field, expected, observed, kind):
    assert CONTRACT.kind(field, expected, observed) == kind
