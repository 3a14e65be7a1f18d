"""commit.track_slots: named cases, two definitions, the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.frozen import plain_outcome
from oracle.commit.track_slots import CONTRACT, Request
from oracle.contract import InvalidCase

CASE = CONTRACT.example


def one(pre=255, committed=1, retained=None, position=0, planned=0, slots=(3, 4), **changes):
    kept = committed if retained is None else retained
    return replace(CASE, requests=(Request(pre, committed, kept, position, planned, slots, 1),), **changes)


def run(case):
    CONTRACT.domain(case)
    outcome, trace = CONTRACT.run(case)
    assert plain_outcome(outcome) == plain_outcome(CONTRACT.second(case))
    return outcome, trace.behaviours


@pytest.mark.parametrize(("position", "slot", "following"), [(0, 3, 1), (1, 4, 0)])
def test_a_crossed_boundary_is_filed_and_the_other_slot_is_next(position, slot, following):
    outcome, _ = run(one(position=position))
    assert outcome["track_slot"] == [slot]
    assert outcome["filed_length"] == [256] and outcome["next_position"] == [following]


def test_without_a_boundary_nothing_changes():
    outcome, _ = run(one(pre=250, committed=3))
    assert outcome["filed_length"] == [-1] and outcome["next_position"] == [0]


def test_a_request_without_a_position_gets_no_slot():
    outcome, reached = run(one(position=-1))
    assert outcome["track_slot"] == [-1] and outcome["filed_length"] == [-1]
    assert "no_position" in reached


def test_one_slot_stays():
    outcome, _ = run(one(slots=(3,)))
    assert outcome["filed_length"] == [256] and outcome["next_position"] == [0]


def test_a_lazy_plan_is_followed_and_promoted():
    outcome, _ = run(one(lazy=True, planned=1))
    assert outcome["track_slot"] == [4] and outcome["next_position"] == [1]
    outcome, reached = run(one(lazy=True, planned=0, slots=(3, -1)))
    assert outcome["track_slot"] == [3] and outcome["next_position"] == [0]
    assert "second_slot_not_handed_out" in reached


def test_a_cut_run_files_only_what_it_kept():
    outcome, reached = run(one(pre=254, committed=3, retained=1))
    assert outcome["filed_length"] == [-1] and "cut_before_boundary" in reached
    outcome, reached = run(one(pre=254, committed=4, retained=2))
    assert outcome["filed_length"] == [256] and "cut_after_boundary" in reached


def test_a_cut_run_does_not_file_an_old_boundary_again():
    outcome, reached = run(one(pre=257, committed=3, retained=1))
    assert outcome["filed_length"] == [-1] and "cut_behind_old_boundary" in reached


def test_nothing_is_handed_over_or_filed_when_nothing_is_tracked():
    outcome, _ = run(one(tracking=False))
    assert outcome["prepared"] is False and outcome["track_slot"] == []
    assert outcome["filed_length"] == [-1] and outcome["mask_cleared"].admits(False)


def test_two_definitions_agree_on_a_small_scope():
    for grid, pre, committed, cut, position, tracking, slots in product(
        (1, 3, 4), range(10), (1, 2, 5), (0, 1, 3), (-1, 0, 1), (False, True), ((3, 4), (3,))
    ):
        if position >= len(slots) or cut >= committed:
            continue
        run(one(pre, committed, committed - cut, position, slots=slots, grid=grid, draft_tokens=8, tracking=tracking))
    for grid, pre, committed, position, planned in product((1, 3), range(8), (1, 2, 5), (-1, 0, 1), (0, 1)):
        run(one(pre, committed, None, position, planned, grid=grid, draft_tokens=8, lazy=True))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grid": 0}, "grid"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(-1, 1, 1, 0, 0, (3, 4), 1),)}, "pre"),
        ({"requests": (Request(0, 5, 1, 0, 0, (3, 4), 1),)}, "committed"),
        ({"requests": (Request(0, 1, 2, 0, 0, (3, 4), 1),)}, "retained"),
        ({"requests": (Request(0, 1, 1, 2, 0, (3, 4), 1),)}, "position"),
        ({"requests": (Request(0, 1, 1, 0, 1, (3, 4), 1),)}, "planned"),
        ({"requests": (Request(0, 1, 1, 0, 0, (3, -1), 1),)}, "only in the lazy form"),
        ({"requests": (Request(0, 1, 1, 0, 0, (3, 3), 1),)}, "share a slot"),
        ({"requests": (Request(0, 1, 1, 0, 0, (3, 4), 1), Request(0, 1, 1, 0, 0, (5,), 2))}, "one size"),
        ({"lazy": True, "requests": (Request(0, 1, 1, 0, 1, (3, -1), 1),)}, "not handed out"),
        ({"lazy": True, "requests": (Request(0, 2, 1, 0, 0, (3, 4), 1),)}, "not cut here"),
        ({"requests": (Request(0, 1, 1, 0, 0, (3, 4), 1), Request(0, 1, 1, 0, 0, (5, 6), 1))}, "share a row"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CASE, **changes))
