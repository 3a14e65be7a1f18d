"""recurrence.causal_convolution: the forms fit together, the bound holds what it must, hostile input stays local."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest

from fuzz.engines.convolution import requests_of, tree_tables
from fuzz.strategies.causal_convolution import structure
from fuzz.strategies.source import RandomSource
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.recurrence import causal_convolution as convolution
from oracle.recurrence.causal_convolution import CONTRACT, EXAMPLE, explain
from oracle.recurrence.causal_convolution_case import (
    NONE,
    Request,
    columns,
    domain,
    inputs_of,
    line_of,
    path_of,
    weights,
)
from oracle.recurrence.formats import rounded
from oracle.recurrence.words import POISON

VERIFY = replace(
    EXAMPLE,
    operation="verify",
    steps=4,
    scratch_rows=2,
    exact=False,
    requests=(Request(1, 4, 1, row=0), Request(3, 4, 2, row=1)),
)
ROLLING = replace(EXAMPLE, operation="accepted", steps=3, requests=(Request(1, 3, 1, accepted=2), Request(3, 3, 2)))
PREFILL = replace(EXAMPLE, operation="prefill", requests=(Request(1, 6, 1), Request(3, 2, 2, initial=False)))
TREES = [(NONE, *above) for above in product((0,), (0, 1), (0, 1, 2))]  # every tree of four tokens


def legal(case):
    domain(case)
    return CONTRACT.run(case)[0]


def observed(outcome):
    """What a perfect target would be seen to do."""
    arrays = {n: [w.value for w in outcome[n]] for n in ("output", "states", "state")}
    return outcome | arrays


def test_a_token_by_hand():
    """Two weights: y = silu(bias + w0 * window + w1 * x), and the window becomes x."""
    case = replace(EXAMPLE, width=2)
    (r,), (weight, bias) = case.requests, weights(case)
    z = bias + weight[:, 0] * line_of(case, r)[:, 0] + weight[:, 1] * inputs_of(case, r)[0]
    outcome = legal(case)
    assert np.allclose(outcome["output"][0].value[0], z / (1 + np.exp(-z)), rtol=1e-14)
    assert outcome["state"][0].value[:, 0].tolist() == inputs_of(case, r)[0].tolist()


@pytest.mark.parametrize("parents", TREES)
def test_a_path_of_a_tree_is_the_chain_of_its_tokens(parents, monkeypatch):
    tree = replace(VERIFY, requests=(replace(VERIFY.requests[0], parents=parents),))
    (r,), outcome, inputs = tree.requests, legal(tree), inputs_of(tree, tree.requests[0])
    for token in range(4):
        path = path_of(r, token)
        chain = replace(tree, steps=len(path), requests=(replace(r, length=len(path), parents=()),))
        monkeypatch.setattr(convolution, "inputs_of", lambda case, r, path=path: inputs[path])
        on_path = legal(chain)
        monkeypatch.undo()
        for name in ("output", "states"):
            assert np.array_equal(outcome[name][0].value[token], on_path[name][0].value[-1])


def test_a_verify_is_decoding_one_by_one(monkeypatch):
    verified, r = legal(VERIFY), VERIFY.requests[0]
    line, inputs = line_of(VERIFY, r), inputs_of(VERIFY, r)
    decode = replace(VERIFY, operation="decode", steps=1, scratch_rows=0, requests=(Request(1, 1, 1),))
    for token in range(4):
        monkeypatch.setattr(convolution, "line_of", lambda case, r, line=line: line)
        monkeypatch.setattr(convolution, "inputs_of", lambda case, r, token=token: inputs[token : token + 1])
        one = legal(decode)
        monkeypatch.undo()
        assert np.array_equal(one["output"][0].value[0], verified["output"][0].value[token])
        line = one["state"][0].value
        assert np.array_equal(line, verified["states"][0].value[token])


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_the_rolling_form_goes_on_behind_the_accepted_tokens(accepted, monkeypatch):
    """Two rounds of three tokens, of which the first `accepted` of the first round count, are one packed request."""
    first, r = replace(ROLLING, requests=ROLLING.requests[:1]), ROLLING.requests[0]
    line, window = legal(first)["state"][0].value, line_of(first, r)[:, r.accepted - 1 : r.accepted + 2]
    second = replace(first, requests=(replace(r, seed=7, accepted=accepted),))
    monkeypatch.setattr(convolution, "line_of", lambda case, r: line)
    rolled = legal(second)["output"][0].value
    tokens = np.concatenate([inputs_of(first, r)[:accepted], inputs_of(second, second.requests[0])])
    monkeypatch.setattr(convolution, "line_of", lambda case, r: window)
    monkeypatch.setattr(convolution, "inputs_of", lambda case, r: tokens)
    whole = legal(replace(PREFILL, requests=(Request(1, len(tokens), 1),)))["output"][0].value
    assert np.array_equal(rolled, whole[accepted:])


def test_requests_do_not_depend_on_each_other():
    for case in (VERIFY, ROLLING, PREFILL):
        both, alone = legal(case), legal(replace(case, requests=case.requests[1:]))
        turned = legal(replace(case, requests=case.requests[::-1]))
        for name in ("output", "states", "state"):
            assert np.array_equal(both[name][1].value, alone[name][0].value)
            assert np.array_equal(both[name][1].value, turned[name][0].value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_float32_sums_in_any_order_and_products_of_either_precision_are_within_the_bound(dtype):
    case = replace(EXAMPLE, activation="none", exact=False, channels=64, input_dtype=dtype, state_dtype=dtype)
    (r,), (weight, bias) = case.requests, weights(case)
    (within,) = legal(case)["output"]
    taps = np.concatenate([line_of(case, r), inputs_of(case, r).T], axis=1)
    for step in ("float32", dtype):
        terms = np.concatenate([bias[:, None], rounded(taps * weight, step)], axis=1).astype(np.float32)
        for order in permutations(range(5)):
            total = np.zeros(64, np.float32)
            for k in order:
                total = total + terms[:, k]
            assert within.admits(rounded(total, dtype)[None])


def test_a_cell_just_beyond_its_bound_is_illegal_and_the_bound_itself_is_not():
    outcome = legal(VERIFY)
    for share, fine in ((1.0, True), (1.01, False), (-1.01, False)):
        seen = observed(outcome)
        seen["output"] = [w.value + share * (1 - 1e-9) * w.error for w in outcome["output"]]
        assert judge(CONTRACT, outcome, seen).agrees is fine


def test_windows_are_exact():
    outcome = legal(VERIFY)
    seen = observed(outcome)
    seen["states"][1] = seen["states"][1] * (1 + 2.0**-23)
    judged = judge(CONTRACT, outcome, seen)
    assert (judged.field, judged.kind, judged.where[0]) == ("states", "wrong_value", 1)


def test_a_nan_reaches_its_channel_from_its_token_on_and_nothing_else():
    r = PREFILL.requests[0]
    case = replace(PREFILL, requests=(replace(r, bad=3), PREFILL.requests[1]))
    assert (domain(case), domain(PREFILL)) == (DEFENSIVE, FUNCTIONAL)
    clean, outcome = legal(PREFILL), legal(case)
    reached = np.isinf(outcome["output"][0].error)
    assert np.argwhere(reached).tolist() == [[3, 0], [4, 0], [5, 0]]
    assert np.array_equal(outcome["output"][0].value[~reached], clean["output"][0].value[~reached])
    assert np.isinf(outcome["state"][0].error).tolist() == [[True, False, False], *[[False] * 3] * 3]
    assert not np.isinf(outcome["output"][1].error).any()


@pytest.mark.parametrize("accepted", [0, 4, 5])
def test_an_accepted_count_without_a_window_asks_for_safety_only(accepted):
    case = replace(ROLLING, requests=(replace(ROLLING.requests[0], accepted=accepted), ROLLING.requests[1]))
    assert domain(case) == DEFENSIVE
    outcome = legal(case)
    seen = observed(outcome)
    assert judge(CONTRACT, outcome, seen).agrees
    seen["output"][0] = seen["output"][0] + 3.0
    assert judge(CONTRACT, outcome, seen).agrees
    for value, kind in ((np.nan, "not_finite"), (POISON, "not_written")):
        bad = observed(outcome)
        bad["output"][0] = np.full_like(bad["output"][0], value)
        assert (judge(CONTRACT, outcome, bad).field, judge(CONTRACT, outcome, bad).kind) == ("output", kind)
    beside = observed(outcome)
    beside["output"][1] = beside["output"][1] + 3.0
    assert judge(CONTRACT, outcome, beside).where[0] == 1


def test_a_row_without_tokens_and_a_null_row_change_nothing():
    case = replace(PREFILL, requests=(*PREFILL.requests, Request(2, 0, 5), Request(NONE, 3, 6)))
    outcome = legal(case)
    assert np.array_equal(outcome["state"][2].value, line_of(case, case.requests[2]))
    seen = observed(outcome)
    seen["output"][3] = np.full((3, 4), np.nan)
    assert judge(CONTRACT, outcome, seen).agrees


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"operation": "encode"}, "operation"),
        ({"width": 5}, "width"),
        ({"channels": 0}, "channels"),
        ({"input_dtype": "float64"}, "input_dtype"),
        ({"split": 1}, "split"),
        ({"tokens_before": 1}, "tokens_before"),
        ({"steps": 2}, "steps"),
        ({"scratch_rows": 1}, "scratch_rows"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(NONE, 1),) * 1025}, "requests: must be at most 1024"),
        ({"gap": 2**31 - 513}, "gap"),
        ({"gap": 1, "slots": 1}, "gap"),
        ({"requests": (Request(4, 1),)}, r"requests\[0\].slot"),
        ({"requests": (Request(1, 2),)}, r"requests\[0\].length"),
        ({"requests": (Request(1, 1), Request(1, 1))}, "slot"),
        ({"requests": (Request(1, 1, accepted=2),)}, "accepted"),
        ({"requests": (Request(1, 1, initial=False),)}, "initial"),
        ({"requests": (Request(1, 1, row=0),)}, "row"),
        ({"requests": (Request(NONE, 1, bad=0),)}, "bad"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(change, words):
    with pytest.raises(InvalidCase, match=words):
        domain(replace(EXAMPLE, **change))


@pytest.mark.parametrize("parents", [(0, 0, 0, 0), (NONE, 1, 0, 0), (NONE, NONE, 0, 0), (NONE, 0)])
def test_parents_come_before_their_children(parents):
    with pytest.raises(InvalidCase, match="parents"):
        domain(replace(VERIFY, requests=(replace(VERIFY.requests[0], parents=parents),)))


def test_a_wrong_cell_is_named_with_its_place_and_its_bound():
    outcome = legal(VERIFY)
    seen = observed(outcome)
    seen["output"][1] = seen["output"][1].copy()
    seen["output"][1][2, 3] += 1.0
    judged = judge(CONTRACT, outcome, seen)
    words = explain(VERIFY, judged.field, judged.where, judged.observed)
    assert "request 1" in words and "token 2" in words and "channel 3" in words and "times its bound" in words
    assert "is nan" in (words := explain(VERIFY, judged.field, judged.where, np.nan)) and "times" not in words


@pytest.mark.parametrize("parents", TREES)
def test_first_children_and_siblings_spell_the_tree(parents):
    """Read back as the engine does: a child has the token as its parent, a sibling has the token's parent."""
    child, sibling = tree_tables(np.array([parents]))
    back = [NONE] * 4
    for token in range(4):
        if child[0, token] != NONE:
            back[child[0, token]] = token
        if sibling[0, token] != NONE:
            back[sibling[0, token]] = back[token]
    assert tuple(back) == parents


def test_columns_hold_the_requests_packed():
    """Inputs in the order of the requests, NaN only where one is asked for."""
    for i in range(200):
        case = structure(RandomSource(f"columns:{i}"))
        made = columns(case)
        assert len(made["x"]) == sum(r.length for r in case.requests) and made["hostile"] == (domain(case) == DEFENSIVE)
        parts = requests_of(type("Columns", (), {"x": made["x"], "length": made["length"]}))
        for r, part in zip(case.requests, parts, strict=True):
            bad = np.isnan(part)
            assert bad.sum() == (r.bad != NONE)
            assert np.array_equal(part[~bad], inputs_of(case, r)[~bad])
