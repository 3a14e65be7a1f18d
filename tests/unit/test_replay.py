"""recurrence.replay: a ring is only a way of doing it, so how rounds are cut must not show."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fuzz import adapter as adapters
from fuzz import corpus
from fuzz.executor import Columns
from fuzz.mutants.replay_machine import Machine
from oracle import contracts
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.recurrence.formats import unit_roundoff
from oracle.recurrence.replay import CONTRACT, explain, histories
from oracle.recurrence.replay_bound import bounded
from oracle.recurrence.replay_case import KERNELS_DIFFER, NONE, ReplayCase, Request, Round, inputs, weights
from oracle.recurrence.replay_walk import advance, prepared, read, walk


def case_of(*rounds: tuple[int, int], operation: str = "circular", **changes) -> ReplayCase:
    fold = "every" if operation == "every" else "capacity"
    case = ReplayCase(
        operation, "head", fold, 1, 1, 2, 8, 4, 8, 4, 4, 4, "float32", "float32", True, False, "numbers", 5, 0, 0.0,
        (Request(7, 1, 1, NONE, tuple(Round(n, a) for n, a in rounds)),),
    )  # fmt: skip
    return replace(case, **changes)


def last(case: ReplayCase) -> np.ndarray:
    return CONTRACT.run(case)[0]["state"][0].value


@pytest.mark.parametrize("operation", ["every", "circular"])
def test_split_at_every_point_equals_whole(operation):
    """Six tokens, cut into rounds in all 29 ways with windows of at most four: one state."""
    cuts = [c for n in range(1, 7) for c in itertools.product(range(1, 5), repeat=n) if sum(c) == 6]
    assert len(cuts) == 29
    states = [last(case_of(*((n, n) for n in cut), operation=operation)) for cut in cuts]
    assert all(np.array_equal(s, states[0]) for s in states)


def test_a_rejected_tail_changes_nothing_but_its_own_outputs():
    """The tensors of a request are one stream: the same tokens with a tail that is rejected."""
    case = case_of((4, 2))
    shared, request = weights(case), case.requests[0]
    x = inputs(case, request)
    each, state = prepared(case, x, shared), x["state"]
    for t in range(2):
        state = advance(state, each.k[:, t], each.v[:, t], each.g[:, t], each.beta[:, t])
    assert np.array_equal(walk(case, request, shared).state, state)


def test_an_output_sees_its_own_token():
    case = case_of((1, 1))
    shared, request = weights(case), case.requests[0]
    x = inputs(case, request)
    each = prepared(case, x, shared)
    after = advance(x["state"], each.k[:, 0], each.v[:, 0], each.g[:, 0], each.beta[:, 0])
    assert np.array_equal(walk(case, request, shared).output[:, 0], read(after, each.q[:, 0]))


def test_one_step_by_hand():
    """K = V = 1: S = 2, e^g = 1/2, k = 1, v = 3, beta = 1/2: S becomes 1 + (3 - 1) / 2 = 2."""
    state, one = np.full((1, 1, 1, 1), 2.0), np.ones((1, 1, 1))
    assert advance(state, one, 3 * one, np.log(0.5) * one, 0.5 * one[..., 0]).item() == pytest.approx(2.0)


def test_every_history_of_a_small_ring_leaves_room_for_the_next_window():
    """All accepted counts of four rounds over rings of 4 and 8 with windows of 1 to 4."""
    for ring, window in ((4, 1), (4, 2), (8, 1), (8, 3), (8, 4)):
        for accepted in itertools.product(range(1, window + 1), repeat=4):
            case = case_of(*((window, a) for a in accepted), ring=ring, window=window)
            left = histories(case, case.requests[0])
            assert all(h + 2 * window <= ring for h in left)
            total, folded = np.cumsum(accepted), [t - h for t, h in zip(np.cumsum(accepted), left, strict=True)]
            assert all(f in (0, *total) for f in folded) and folded == sorted(folded)


def test_a_machine_with_cursors_agrees_with_both_definitions_exhaustively():
    """Three rounds, all accepted counts, all saved steps, NaN left in the ring: wrapped places included."""
    for accepted in itertools.product((1, 2), repeat=3):
        for saved in itertools.product(*((NONE, *range(a)) for a in accepted)):
            rounds = tuple(Round(2, a, s) for a, s in zip(accepted, saved, strict=True))
            case = case_of(ring=4, window=2, leftover="nan", requests=(Request(3, 1, 2, 3, rounds),))
            outcome = CONTRACT.run(case)[0]
            assert judge(CONTRACT, outcome, Machine(case).observation()).agrees


def test_a_window_that_the_ring_cannot_hold_is_committed_whole():
    """A ring of 4 and a window of 6: the state is that of a ring of 16."""
    short, long = (case_of((6, 5), (6, 6), ring=ring, window=6) for ring in (4, 16))
    assert histories(short, short.requests[0]) == [0, 0]
    assert np.array_equal(last(short), last(long))
    assert judge(CONTRACT, CONTRACT.run(short)[0], Machine(short).observation()).agrees


def test_a_decoding_ring_is_folded_by_the_token_that_fills_it_or_is_saved():
    ones = (Round(1, 1),) * 3 + (Round(1, 1, 0),) + (Round(1, 1),) * 3
    case = case_of(operation="decode", ring=3, window=1, requests=(Request(3, 1, 1, 2, ones),))
    assert histories(case, case.requests[0]) == [1, 2, 0, 0, 1, 2, 0]


def test_the_bound_grows_with_the_formats():
    """float32 everywhere, 16-bit records, a 16-bit state: each costs its own roundings and no more than a few."""

    def worst(**formats):
        case = case_of((4, 4), (4, 3), operation="every", **formats)
        return float(bounded(case, case.requests[0], weights(case)).state.error.max())

    plain, stored = worst(), worst(state_dtype="bfloat16")
    assert plain < 2**8 * unit_roundoff("float32")
    assert unit_roundoff("bfloat16") / 2**4 < stored < 2**4 * unit_roundoff("bfloat16")


def test_an_idle_row_is_asked_nothing():
    case = case_of(
        (2, 2), requests=(Request(1, NONE, NONE, NONE, (Round(2, 2),)), Request(1, 1, 1, NONE, (Round(2, 2),)))
    )
    outcome = CONTRACT.run(case)[0]
    seen = {"state": [np.full((1, 2, 8, 4), np.nan), outcome["state"][1].value]}
    assert judge(CONTRACT, outcome, seen).agrees
    assert not judge(CONTRACT, outcome, {"state": seen["state"][::-1]}).agrees


@pytest.mark.parametrize("name", ["recurrence.replay", "recurrence.kda_convolution_verify"])
def test_every_frozen_case_is_for_some_target_and_every_target_has_one(name):
    targets = adapters.select("sglang", contract=name)
    cases = [Columns(contracts.get(name).columns(f.case)) for _, f in corpus.load(corpus.DEFAULT_CORPUS / name)]
    taken = [[t.accepts(case) is None for t in targets] for case in cases]
    assert len(targets) >= 1 and all(map(any, taken)) and all(map(any, zip(*taken, strict=True)))


def test_the_words_name_the_cell_and_the_bits():
    case = case_of((2, 2))
    said = explain(case, "state", (0, 0, 1, 3, 2), 9.0)
    assert said.startswith("state of request 0: layer 0, head 1, K 3, V 2 is 9; it must be ")
    assert explain(case, "history", (0,), [1]) == "request 0: tokens left to fold are [1], must be [0]"
    assert explain(case, "outside", (), f"{KERNELS_DIFFER} 3 cells") == f"{KERNELS_DIFFER} 3 cells"
    assert explain(case, "kept", (), 5).startswith("5 cells changed of what had to stay")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ring": 6}, "ring: a circular one must be a power of two"),
        ({"window": 0}, "window: must be 1 to"),
        ({"gate": "channel"}, "gate: only a gate per head"),
        ({"operation": "decode"}, "window: decoding takes one token"),
        ({"operation": "every", "fold": "capacity"}, "fold: is a choice for a circular ring only"),
        ({"key_heads": 3}, "value_heads: must be a multiple"),
        ({"slots": 1}, r"requests\[0\].slot: must be -1 to 0"),
        ({"grain": 0.5}, "grain: must be"),
        ({"leftover": "dust"}, "leftover: must be one of"),
        ({"requests": ()}, "requests: must not be empty"),
        (
            {
                "operation": "every",
                "fold": "every",
                "rows": 8,
                "slots": 8,
                "window": 32,
                "ring": 32,
                "key_size": 64,
                "value_size": 64,
                "requests": tuple(Request(1, s, s, NONE, (Round(32, 1),) * 16) for s in range(8)),
            },
            "requests: [0-9]+ cells of states",
        ),
        ({"requests": (Request(1, 1, NONE, NONE, (Round(1, 1),)),)}, "an idle row of the batch has neither"),
        ({"requests": (Request(1, 1, 1, 1, (Round(1, 1),)),)}, "slots and track slots must be distinct"),
        ({"requests": (Request(1, 1, 1, NONE, (Round(2, 3),)),)}, r"rounds\[0\].accepted: must be 1 to 2"),
        ({"requests": (Request(1, 1, 1, 2, (Round(2, 1, 1),)),)}, r"rounds\[0\].track_step: must be -1 to 0"),
        ({"requests": (Request(1, 1, 1, NONE, ()),)}, r"rounds: must be 1 to"),
    ],
)
def test_outside_the_domain_the_field_is_named(changes, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(case_of((1, 1), **changes))
