"""commit.call_order: what must happen, what may, and in which order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oracle.commit.call_order import COMMIT, CONTRACT, PREPARE, PUBLISH, VERIFY, Request
from oracle.contract import InvalidCase
from oracle.judgement import judge

CASE = replace(CONTRACT.example, requests=(Request(255, 1, 0),))


def test_two_definitions_agree_on_a_small_scope():
    for grid, recurrent, hook, tracking, pre, committed, slot in product(
        (4, 8), (False, True), (False, True), (False, True), range(1, 18), range(1, 5), (-1, 0)
    ):
        case = replace(CASE, grid=grid, recurrent=recurrent, hook=hook, tracking=tracking,
                       requests=(Request(pre, committed, slot),))  # fmt: skip
        assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def verdict(case, order, current=(0,), saved=(0,), published=(256,)):
    observed = {
        "order": order,
        "current_step": list(current),
        "checkpoint_step": list(saved),
        "published": list(published),
    }
    return judge(CONTRACT, CONTRACT.run(case)[0], observed)


def test_the_right_order_is_the_only_one_for_a_tracked_round():
    assert verdict(CASE, [PREPARE, VERIFY, COMMIT, PUBLISH]).agrees
    assert verdict(CASE, [PREPARE, VERIFY, PUBLISH, COMMIT]).kind == "wrong_order"
    assert verdict(CASE, [VERIFY, COMMIT, PUBLISH]).kind == "tracks_not_prepared"
    assert verdict(CASE, [PREPARE, VERIFY, PUBLISH], (), ()).kind == "commit_missing"


def test_preparing_is_optional_when_nothing_is_tracked():
    case = replace(CASE, tracking=False)
    for order in ([VERIFY, COMMIT, PUBLISH], [PREPARE, VERIFY, COMMIT, PUBLISH]):
        assert verdict(case, order, saved=(-1,)).agrees


def test_a_model_without_state_commits_nothing():
    case = replace(CASE, recurrent=False)
    assert verdict(case, [VERIFY, PUBLISH], (), ()).agrees
    assert verdict(case, [VERIFY, COMMIT, PUBLISH]).kind == "commit_spurious"


def test_an_idle_batch_publishes_nothing():
    case = replace(CASE, requests=())
    assert verdict(case, [], (), (), ()).agrees
    assert not verdict(case, [VERIFY, PUBLISH], (), (), ()).agrees


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grid": 0}, "grid"),
        ({"draft_tokens": 1}, "draft_tokens"),
        ({"requests": (Request(0, 1, 0),)}, "pre"),
        ({"requests": (Request(1, 5, 0),)}, "committed"),
        ({"requests": (Request(1, 1, 0), Request(1, 1, 0))}, "share a slot"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CASE, **changes))
