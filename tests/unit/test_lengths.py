"""commit.lengths: named cases, two definitions, the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.strategies.checkpoint_steps import tree_path
from oracle.commit.lengths import CONTRACT, NOBODY, STAND_IN, Request
from oracle.commit.token_table import POOL_ROWS, location, table, tokens
from oracle.contract import InvalidCase
from oracle.judgement import judge

CASE = CONTRACT.example


def run(case):
    CONTRACT.domain(case)
    outcome, trace = CONTRACT.run(case)
    assert outcome == CONTRACT.second(case)
    return outcome, trace


def test_a_chain_publishes_its_length_and_the_prediction_behind_it():
    request = CASE.requests[0]
    outcome, _ = run(CASE)
    predicted = tokens(request.path, CASE.draft_tokens, request.seed)[1]
    assert outcome["committed"] == [2] and outcome["post"] == [12]
    assert outcome["emitted_tokens"] == [predicted[:2]] and outcome["bonus_token"] == [predicted[1]]
    assert outcome["next_positions"] == [[12, 13, 14, 15]]
    assert outcome["accepted_locations"] == outcome["committed_locations"]


def test_a_tree_path_lies_apart_and_belongs_together():
    case = replace(CASE, draft_tokens=8, path_width=3, requests=(Request(10, (0, 2, 5), 1, 1),))
    outcome, trace = run(case)
    assert outcome["accepted_locations"] == [[location(1, 10 + n, 256) for n in (0, 2, 5)]]
    assert outcome["committed_locations"] == [[location(1, 10 + j, 256) for j in range(3)]]
    assert {"path_leaves_chain", "narrow_accept_index"} <= trace.behaviours


@pytest.mark.parametrize(("asked", "committed"), [(1, 1), (3, 3), (4, 4), (9, 4)])
def test_simulated_acceptance_commits_what_was_asked_for_within_the_block(asked, committed):
    case = replace(CASE, simulated=asked, token_mode="fixed")
    outcome, _ = run(case)
    assert outcome["committed"] == [committed] and outcome["post"] == [10 + committed]
    assert outcome["emitted_tokens"] == [[STAND_IN] * committed]


def test_simulated_acceptance_emits_drafts_and_the_prediction_behind_the_last():
    case = replace(CASE, simulated=3, token_mode="real")
    block, predicted = tokens(CASE.requests[0].path, 4, CASE.requests[0].seed)
    assert run(case)[0]["emitted_tokens"] == [[block[1], block[2], predicted[2]]]


def test_lengths_beyond_32_bits_have_no_table():
    case = replace(CASE, table_width=0, requests=(Request(2**31 - 2, (0, 1), 1, 1),))
    outcome, trace = run(case)
    assert outcome["post"] == [2**31] and outcome["next_locations"] == [[]]
    assert "length_beyond_int32" in trace.behaviours


def test_an_idle_batch_publishes_nothing():
    outcome, _ = run(replace(CASE, requests=()))
    assert outcome["post"] == [] and outcome["outside_untouched"] is True


def test_two_definitions_agree_on_a_small_scope():
    for drafts, pre, c, row, simulated, mode, dtype in product(
        (1, 2, 5), (0, 1, 9), (1, 2, 5), (0, 3), (0, 1, 4), ("real", "fixed"), ("int32", "int64")
    ):
        if c > drafts:
            continue
        chain = Request(pre, tuple(range(c)), row, pre + c)
        case = replace(CASE, draft_tokens=drafts, path_width=drafts, simulated=simulated, token_mode=mode,
                       length_dtype=dtype, requests=(chain,))  # fmt: skip
        run(case)
    for seed, c in product(range(60), (1, 2, 3)):
        tree = Request(7, tree_path(c, 6, seed), 2, seed)
        run(replace(CASE, draft_tokens=6, path_width=3, requests=(tree, Request(3, (0,), NOBODY, 1))))


def test_the_table_never_repeats_and_neighbours_are_apart():
    values = table(256)
    assert len(set(values.reshape(-1).tolist())) == POOL_ROWS * 256 and values.min() == 1
    assert (abs(values[:, 1:].astype(int) - values[:, :-1]) > 1).all()


def test_kinds_say_how_a_length_is_wrong():
    outcome, _ = run(CASE)
    assert judge(CONTRACT, outcome, outcome | {"post": [11]}).kind == "too_short"
    assert judge(CONTRACT, outcome, outcome | {"post": [13]}).kind == "too_long"
    assert judge(CONTRACT, outcome, outcome | {"emitted_tokens": [[1]]}).kind == "wrong_count"
    assert judge(CONTRACT, outcome, outcome | {"outside_untouched": False}).kind == "written_outside"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"draft_tokens": 0}, "draft_tokens"),
        ({"path_width": 5}, "path_width"),
        ({"table_width": 100}, "power of two"),
        ({"length_dtype": "int8"}, "length_dtype"),
        ({"token_mode": "dreamt"}, "token_mode"),
        ({"simulated": -1}, "simulated"),
        ({"requests": (Request(0, (), 1, 0),)}, "path"),
        ({"requests": (Request(0, (1,), 1, 0),)}, "root"),
        ({"requests": (Request(0, (0, 2, 1), 1, 0),)}, "rising"),
        ({"requests": (Request(-1, (0,), 1, 0),)}, "pre"),
        ({"requests": (Request(252, (0,), 1, 0),)}, "at or below 256"),
        ({"requests": (Request(0, (0,), 32, 0),)}, "pool_row"),
        ({"requests": (Request(0, (0,), 3, 0), Request(0, (0,), 3, 0))}, "share a row"),
        ({"simulated": 1, "requests": (Request(0, (0, 2), 1, 0),)}, "verify chains"),
        ({"table_width": 0, "length_dtype": "int32", "requests": (Request(2**31 - 1, (0,), 1, 0),)}, "pre"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CASE, **changes))


def test_padding_rows_of_nobody_may_repeat():
    padding = CONTRACT.padding(CASE)
    case = replace(CASE, requests=(*CASE.requests, padding, padding))
    assert run(case)[0]["post"] == [12, 1, 1]
