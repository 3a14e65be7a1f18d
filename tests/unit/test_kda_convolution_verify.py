"""recurrence.kda_convolution_verify: the two halves fit together, and what is kept is what a commit needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuzz.mutants.kda_convolution_verify import MUTANTS
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.recurrence import replay_walk
from oracle.recurrence.kda_convolution_case import NONE, KdaConvolutionCase, Request, inputs, taps
from oracle.recurrence.kda_convolution_verify import CONTRACT, TILE, explain

CASE = KdaConvolutionCase(
    1, 2, 8, 6, 5, 0, "softplus", True, True, "float32", "float32", 4, 4, 3, 0.0, (Request(1, 1, 0), Request(2, 3, 2))
)


def outcome(**changes):
    return CONTRACT.run(replace(CASE, **changes))[0]


def test_the_first_steps_do_not_depend_on_how_many_follow():
    """The tensors of a request are streams: three steps are the first three of five."""
    five, three = outcome(), outcome(steps=3)
    for name in ("output", "windows", "states"):
        assert np.array_equal(five[name][1].value[:3], three[name][1].value)


def test_a_ring_changes_what_is_kept_and_nothing_else():
    plain, ringed = outcome(), outcome(ring=4)
    for name in ("output", "windows"):
        assert np.array_equal(plain[name][0].value, ringed[name][0].value)
    assert len(plain["records"][0].value) == len(ringed["states"][0].value) == 0
    assert len(ringed["records"][0].value) == 4 and len(plain["states"][0].value) == 5


def test_records_replayed_give_the_states():
    """What a commit does with the ring, against what verify would have written."""
    k_size, v_size = CASE.key_size, CASE.value_size
    record, states = outcome(ring=8)["records"][0].value, outcome()["states"][0].value
    k, v, g, beta = np.split(record, np.cumsum([k_size, 2 * v_size, 2 * k_size]), axis=1)
    state = inputs(CASE, CASE.requests[0])["state"][None]
    for t in range(CASE.steps):
        key = replay_walk.unit(k[t]).reshape(1, 1, k_size).repeat(2, 1)
        gates = g[t].reshape(1, 2, k_size)
        state = replay_walk.advance(state, key, v[t].reshape(1, 2, v_size), gates, beta[t].reshape(1, 2))
        assert np.abs(state[0] - states[t]).max() < 1e-12


def test_windows_are_the_last_three_inputs():
    x = inputs(CASE, CASE.requests[1])
    windows = outcome()["windows"][1].value
    assert np.array_equal(windows[4], x["x"][2:5].T) and np.array_equal(windows[0][:, :2], x["line"][:, 1:])
    assert np.array_equal(taps(x["x"], x["line"])[1][:, -1], x["x"][1])


def test_a_history_overwritten_too_early_shows_behind_the_first_tile_only():
    """The fault of a published release: it needs a second program, so one tile agrees."""
    (mutant,) = [m for m in MUTANTS if m.name == "history_overwritten"]
    verdict = judge(CONTRACT, outcome(), mutant.observe(CASE))
    assert (verdict.field, verdict.kind, verdict.where[3]) == ("output", "wrong_value", TILE)
    assert not mutant.killed_by(CONTRACT, replace(CASE, value_size=TILE))


def test_of_an_idle_row_nothing_is_asked():
    legal = outcome(requests=(Request(1, NONE, NONE), Request(2, 1, 0)))
    noise = {"output": [np.full((5, 2, 6), np.nan), legal["output"][1].value]}
    assert judge(CONTRACT, legal, noise).agrees
    assert not judge(CONTRACT, legal, {"output": noise["output"][::-1]}).agrees


def test_the_words_name_step_head_and_cell():
    said = explain(CASE, "states", (1, 2, 1, 7, 5), 9.0)
    assert said.startswith("states of request 1: step 2, head 1, K 7, V 5 is 9; it must be ")
    assert explain(CASE, "kept", (), 3).startswith("3 cells changed")
    assert explain(CASE, "outside", (), "a buffer: 4 bytes").endswith("but: a buffer: 4 bytes")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key_size": 12}, "key_size: must be a power of two"),
        ({"steps": 2}, "steps: must be 3 to"),
        ({"value_heads": 3, "key_heads": 2}, "value_heads: must be a multiple"),
        ({"ring": -1}, "ring: must be 0 to"),
        ({"gate": "open"}, "gate: must be softplus or bounded"),
        ({"input_dtype": "float16"}, "input_dtype: must be one of"),
        ({"requests": (Request(1, 1, NONE),)}, "an idle row of the batch has neither"),
        ({"requests": (Request(1, 1, 0), Request(2, 1, 1))}, "each slot must be used once"),
        ({"requests": (Request(1, 1, 2), Request(2, 2, 2))}, "each row must be used once"),
        ({"requests": (Request(1, 4, 0),)}, r"requests\[0\].slot: must be -1 to 3"),
    ],
)
def test_outside_the_domain_the_field_is_named(changes, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(replace(CASE, **changes))
