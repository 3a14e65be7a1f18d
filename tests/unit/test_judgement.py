"""The first illegal field in trace order decides; ties are legal but flagged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oracle.commit.checkpoint_steps import CONTRACT
from oracle.contract import Field
from oracle.judgement import judge
from oracle.legal import Between, OneOf, to_plain

OUTCOME = {"commits": True, "current_step": [1, 2], "checkpoint_step": [-1, 0], "checkpoint_length": [-1, 256]}


def test_what_is_not_observed_is_not_judged():
    assert judge(CONTRACT, OUTCOME, {"current_step": [1, 2]}).agrees


def test_the_first_field_in_trace_order_wins():
    verdict = judge(CONTRACT, OUTCOME, {"checkpoint_step": [0, 0], "current_step": [1, 3]})
    assert (verdict.field, verdict.where, verdict.expected, verdict.observed) == ("current_step", (1,), 2, 3)
    verdict = judge(CONTRACT, OUTCOME, {"checkpoint_step": [0, -1], "current_step": [1, 2]})
    assert (verdict.kind, verdict.illegal) == ("spurious", 2)
    assert judge(CONTRACT, OUTCOME, {"checkpoint_step": [-1, -1]}).kind == "missing"


def test_of_a_story_the_earliest_step_wins_whatever_field_shows_it():
    """And so the claim and the marked row of the table are one."""
    story, observed = replace(CONTRACT, ordered=True), {"current_step": [1, 3], "checkpoint_step": [0, 0]}
    assert (judge(story, OUTCOME, observed).field, judge(story, OUTCOME, observed).where) == ("checkpoint_step", (0,))
    assert judge(CONTRACT, OUTCOME, observed).field == "current_step"


def test_a_wrong_number_of_entries_is_its_own_kind():
    assert judge(CONTRACT, OUTCOME, {"current_step": [1]}).kind == "wrong_shape"


def test_true_is_not_one():
    assert not judge(CONTRACT, OUTCOME, {"commits": 1}).agrees


def test_a_near_tie_agrees_with_its_margin():
    outcome = OUTCOME | {"current_step": [OneOf((1, 2), margin_ulp=0.5), 2]}
    assert judge(CONTRACT, outcome, {"current_step": [1, 2]}).near_tie is False
    tie = judge(CONTRACT, outcome, {"current_step": [2, 2]})
    assert tie.agrees and tie.near_tie and tie.margin_ulp == 0.5
    assert not judge(CONTRACT, outcome, {"current_step": [3, 2]}).agrees


def test_alternatives_without_margin_are_no_tie():
    outcome = OUTCOME | {"current_step": [OneOf((1, 2)), 2]}
    assert judge(CONTRACT, outcome, {"current_step": [2, 2]}).near_tie is False


def test_between_admits_integers_inside():
    legal = Between(-1, 3)
    assert legal.admits(-1) and legal.admits(3) and not legal.admits(4) and not legal.admits("1")
    assert to_plain([legal, OneOf((1, 2))]) == [{"between": [-1, 3]}, {"one_of": [1, 2], "margin_ulp": None}]


def test_arrays_are_compared_cell_by_cell():
    contract = replace(CONTRACT, fields=(Field("pool", "array", "cells"),))
    right = np.arange(6).reshape(2, 3)
    assert judge(contract, {"pool": right}, {"pool": right.copy()}).agrees
    wrong = right.copy()
    wrong[1, 2] = 9
    verdict = judge(contract, {"pool": right}, {"pool": wrong})
    assert (verdict.where, verdict.expected, verdict.observed) == ((1, 2), 5, 9)
    assert judge(contract, {"pool": right}, {"pool": right[:1]}).kind == "wrong_shape"
