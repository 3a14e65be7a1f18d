"""commit.checkpoint_steps: the named cases, two definitions, the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fuzz.sweep import blocks, check_closed_form
from oracle.commit.checkpoint_steps import CONTRACT, Request, closed_form
from oracle.contract import InvalidCase

CASE = replace(CONTRACT.example, draft_tokens=64, path_width=64)


def one(pre: int, committed: int, grid: int = 256, **changes):
    return replace(CASE, grid=grid, requests=(Request(pre, committed, 0),), **changes)


@pytest.mark.parametrize("grid", [64, 128, 256])
@pytest.mark.parametrize(
    ("before_grid", "committed", "step"),
    [(1, 1, 0), (2, 2, 1), (6, 3, -1), (0, 1, -1), (1, 64, 0), (64, 64, 63)],
)
def test_named_cases(grid, before_grid, committed, step):
    """255→256, 254→2, 250→3, 256→1 and their twins at 64 and 128."""
    outcome, _ = CONTRACT.run(one(grid - before_grid, committed, grid))
    assert outcome["current_step"] == [committed - 1]
    assert outcome["checkpoint_step"] == [step]
    assert outcome["checkpoint_length"] == [grid if step >= 0 else -1]


def test_last_of_several_boundaries_counts():
    outcome, trace = CONTRACT.run(one(7, 20, grid=8))
    assert outcome["checkpoint_step"] == [16] and outcome["checkpoint_length"] == [24]
    assert "crossed_several" in trace.behaviours


def test_tree_saves_the_node_of_the_path_step():
    request = Request(pre=254, committed=3, track_slot=0, path=(0, 3, 5))
    outcome, _ = CONTRACT.run(replace(CASE, form="tree", requests=(request,)))
    assert outcome["current_step"] == [5] and outcome["checkpoint_step"] == [3]


def test_two_definitions_agree_on_every_small_chain():
    for grid, pre, committed, tracking, slot in product(
        (1, 2, 3, 5, 8), range(18), range(1, 14), (False, True), (-1, 0)
    ):
        case = replace(one(pre, committed, grid), tracking=tracking, requests=(Request(pre, committed, slot),))
        assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def test_two_definitions_agree_on_the_whole_sweep_domain():
    assert check_closed_form(blocks()) > 200_000


@pytest.mark.parametrize("situation", ["idle", "empty_accept_index"])
def test_empty_batches_commit_nothing(situation):
    case = replace(CASE, situation=situation, requests=())
    assert CONTRACT.run(case)[0] == CONTRACT.second(case)
    assert CONTRACT.run(case)[0]["commits"] is False


@pytest.mark.parametrize("situation", ["no_recurrent_state", "no_commit_hook"])
def test_without_state_or_hook_nothing_is_committed(situation):
    case = one(255, 1, situation=situation)
    assert CONTRACT.run(case)[0]["commits"] is False


def test_lengths_beyond_32_bits():
    for pre in (2**31 - 1, 2**31, 2**32 - 1, 2**33 - 1):
        case = one(pre, 1)
        assert CONTRACT.run(case)[0] == CONTRACT.second(case)
        assert CONTRACT.run(case)[0]["checkpoint_step"] == [0 if (pre + 1) % 256 == 0 else -1]


def test_closed_form_keeps_int64():
    current, step, length = closed_form(np.array([2**40 - 1]), np.array([1]), 256)
    assert (current[0], step[0], length[0]) == (0, 0, 2**40)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"grid": 0}, "grid"),
        ({"form": "bush"}, "form"),
        ({"situation": "asleep"}, "situation"),
        ({"length_dtype": "int8"}, "length_dtype"),
        ({"path_width": 65}, "path_width"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(-1, 1, 0),)}, "pre"),
        ({"requests": (Request(0, 65, 0),)}, "committed"),
        ({"requests": (Request(0, 1, 3), Request(0, 1, 3))}, "share a slot"),
        ({"requests": (Request(0, 1, -2),)}, "track_slot"),
        ({"length_dtype": "int32", "requests": (Request(2**31 - 1, 1, 0),)}, "does not fit int32"),
        ({"requests": (Request(0, 2, 0, (0, 1)),)}, "path"),
        ({"form": "tree", "requests": (Request(0, 2, 0, (0, 0)),)}, "path"),
        ({"form": "tree", "requests": (Request(0, 2, 0, (1, 2)),)}, "path"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CASE, **changes))


def test_committed_zero_is_defensive():
    case = one(255, 0)
    assert CONTRACT.domain(case) == "defensive"
    legal = CONTRACT.run(case)[0]["current_step"][0]
    assert legal.admits(-1) and legal.admits(63) and not legal.admits(64)
