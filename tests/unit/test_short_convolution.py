"""recurrence.short_convolution: what is fused around the convolution, and what a line may not be used for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle.contract import DEFENSIVE, InvalidCase
from oracle.judgement import judge
from oracle.recurrence import short_convolution as convolution
from oracle.recurrence.formats import rounded
from oracle.recurrence.short_convolution import CONTRACT, explain
from oracle.recurrence.short_convolution_case import (
    NONE,
    Request,
    columns,
    domain,
    inputs_of,
    line_of,
    parts_of,
    weights,
)

EXAMPLE = CONTRACT.example
GATED = replace(EXAMPLE, form="gated", dtype="bfloat16", exact=False)
DILATED = replace(
    EXAMPLE, form="other_residual", operation="verify", width=2, dilation=3, steps=4, activation="silu", exact=False,
    requests=(Request(1, 4, 1, valid=2), Request(3, 4, 2, valid=4)),
)  # fmt: skip
PREFILL = replace(
    EXAMPLE, form="own_residual", operation="prefill", requests=(Request(1, 5, 1), Request(3, 2, 2, initial=False))
)


def legal(case):
    domain(case)
    return CONTRACT.run(case)[0]


def observed(outcome):
    """What a perfect target would be seen to do."""
    return outcome | {n: [w.value for w in outcome[n]] for n in ("output", "states", "state", "taps")}


def test_a_gated_token_by_hand():
    """The line takes before * x as bfloat16 stores it; y = behind * sum."""
    (r,) = GATED.requests
    parts, outcome = parts_of(GATED, r), legal(GATED)
    u = rounded(parts["before"] * parts["x"], "bfloat16")[0]
    line, w = line_of(GATED, r), weights(GATED)
    z = w[:, 0] * line[:, 0] + w[:, 1] * line[:, 1] + w[:, 2] * u
    assert np.allclose(outcome["output"][0].value[0], parts["behind"][0] * z, rtol=1e-14)
    assert np.array_equal(outcome["state"][0].value, np.stack([line[:, 1], u], axis=1))
    assert np.array_equal(outcome["taps"][0].value[0], np.stack([line[:, 0], line[:, 1], u], axis=1))


def test_a_dilated_token_by_hand():
    """Two weights three tokens apart: step 1 meets itself and the second oldest number of the line."""
    r, outcome = DILATED.requests[1], legal(DILATED)
    line, x, w = line_of(DILATED, r), inputs_of(DILATED, r), weights(DILATED)
    z = w[:, 0] * line[:, 1] + w[:, 1] * x[1]
    assert np.allclose(
        outcome["output"][1].value[1], z / (1 + np.exp(-z)) + parts_of(DILATED, r)["before"][1], rtol=1e-13
    )


@pytest.mark.parametrize("form", ["plain", "own_residual", "gated"])
def test_a_prefill_is_decoding_one_by_one(form, monkeypatch):
    case = replace(PREFILL, form=form, requests=PREFILL.requests[:1])
    (r,), whole = case.requests, legal(case)
    line, u, parts = line_of(case, r), inputs_of(case, r), parts_of(case, r)
    one = replace(case, operation="decode", requests=(Request(1, 1, 1),))
    for t in range(r.length):
        monkeypatch.setattr(convolution, "line_of", lambda case, r, line=line: line)
        monkeypatch.setattr(convolution, "inputs_of", lambda case, r, t=t: u[t : t + 1])
        monkeypatch.setattr(convolution, "parts_of", lambda case, r, t=t: {n: p[t : t + 1] for n, p in parts.items()})
        step = legal(one)
        monkeypatch.undo()
        assert np.array_equal(step["output"][0].value[0], whole["output"][0].value[t])
        line = step["state"][0].value
    assert np.array_equal(line, whole["state"][0].value)


def test_padding_of_a_verify_is_zero_or_nobodys():
    outcome = legal(DILATED)
    assert not outcome["output"][0].value[2:].any() and not outcome["states"][0].value[2:].any()
    assert not outcome["output"][0].error[2:].any() and outcome["output"][0].value[:2].any()
    other = legal(replace(DILATED, form="own_residual", dilation=1))
    assert np.isinf(other["output"][0].error[2:]).all() and np.isinf(other["states"][0].error[2:]).all()
    assert np.isfinite(other["output"][0].error[:2]).all()


def test_a_verify_leaves_the_slot():
    outcome = legal(DILATED)
    for r, state in zip(DILATED.requests, outcome["state"], strict=True):
        assert np.array_equal(state.value, line_of(DILATED, r)) and not state.error.any()


def test_a_line_that_is_not_used_may_hold_anything():
    stale = replace(PREFILL, requests=(PREFILL.requests[0], replace(PREFILL.requests[1], stale=True)))
    assert domain(stale) == DEFENSIVE and np.isnan(columns(stale)["lines"][1]).all()
    fresh, outcome = legal(PREFILL), legal(stale)
    for name in ("output", "state"):
        assert np.array_equal(fresh[name][1].value, outcome[name][1].value)
        assert np.array_equal(fresh[name][1].error, outcome[name][1].error)


def test_a_sequence_of_operations_may_round_between_them_and_one_operation_may_not():
    """Rounding the sum into bfloat16 on the way is fine for the fused sequence, and too much for the single layer."""
    for form, fine in (("other_residual", True), ("own_residual", False)):
        case = replace(EXAMPLE, form=form, dtype="bfloat16", channels=64, exact=False)
        (r,), (within,) = case.requests, legal(case)["output"]
        taps = np.concatenate([line_of(case, r), inputs_of(case, r).T], axis=1)
        added = parts_of(case, r)["x" if form == "own_residual" else "before"][0]
        staged = rounded(rounded((taps * weights(case)).sum(1), "bfloat16") + added, "bfloat16")
        assert within.admits(staged[None]) is fine
        assert within.admits(rounded((taps * weights(case)).sum(1) + added, "bfloat16")[None])


def test_null_rows_are_nobodys():
    case = replace(PREFILL, requests=(*PREFILL.requests, Request(NONE, 3, 4)))
    outcome = legal(case)
    seen = observed(outcome)
    seen["output"][2] = np.full((3, 4), np.nan)
    assert judge(CONTRACT, outcome, seen).agrees


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": "round"}, "form"),
        ({"operation": "verify"}, "operation"),
        ({"width": 1}, "width"),
        ({"dilation": 9}, "dilation"),
        ({"width": 4, "dilation": 6}, "dilation"),
        ({"steps": 2}, "steps"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(NONE, 1),) * 1025}, "requests: must be at most 1024"),
        ({"gap": 1, "slots": 1}, "gap"),
        ({"requests": (Request(9, 1),)}, r"requests\[0\].slot"),
        ({"requests": (Request(1, 2),)}, r"requests\[0\].length"),
        ({"requests": (Request(1, 1), Request(1, 1))}, "slot"),
        ({"requests": (Request(1, 1, valid=0),)}, "valid"),
        ({"requests": (Request(1, 1, stale=True),)}, "stale"),
        ({"requests": (Request(1, 1, initial=False),)}, "initial"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(change, words):
    with pytest.raises(InvalidCase, match=words):
        domain(replace(EXAMPLE, **change))


def test_a_wrong_cell_is_named_with_its_place():
    outcome = legal(DILATED)
    seen = observed(outcome)
    seen["states"][1] = seen["states"][1].copy()
    seen["states"][1][3, 2, 1] = 9.0
    judged = judge(CONTRACT, outcome, seen)
    assert (judged.field, judged.where) == ("states", (1, 3, 2, 1))
    words = explain(DILATED, judged.field, judged.where, judged.observed)
    assert "request 1" in words and "step 3" in words and "channel 2" in words and "column 1" in words
