"""recurrence.selective_scan: the formula, the relations between its operations, its bounds and its domain."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fuzz.presentation import Presentation, present
from fuzz.strategies.selective_scan import structure
from fuzz.strategies.source import RandomSource
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.explain import sentence
from oracle.judgement import judge
from oracle.legal import Branched
from oracle.recurrence.approximate import Approximate
from oracle.recurrence.formats import rounded
from oracle.recurrence.selective_scan import CONTRACT, reference
from oracle.recurrence.selective_scan_case import Request, SelectiveScanCase, domain
from oracle.recurrence.selective_scan_values import columns, parents_of, tensors
from oracle.recurrence.selective_scan_walk import Terms, advance, terms
from oracle.recurrence.words import POISON
from oracle.trace import Trace

EXAMPLE: SelectiveScanCase = CONTRACT.example
NONE = -1


def changed(case=EXAMPLE, request=None, **fields):
    """A case with fields replaced, and with ``request`` those of its first request."""
    case = dataclasses.replace(case, **fields)
    if request:
        first = dataclasses.replace(case.requests[0], **request)
        case = dataclasses.replace(case, requests=(first, *case.requests[1:]))
    return case


VERIFY = changed(operation="verify", steps=3, grain=0.0, request={"length": 3, "destinations": ()})
ACCEPTED = changed(
    operation="accepted", slots=4, grain=0.0,
    request={"length": 2, "slots": (1, 2, 3), "destinations": (1, 2, 3), "accepted": 2},
)  # fmt: skip


def outcome(case):
    return reference(case, Trace())


def exact(legal):
    """The reference's own numbers, as if production had returned them."""
    return {f: [w.value for w in legal[f]] for f in ("output", "states")} | {"outside": "untouched", "kept": 0}


def test_one_cell_by_hand():
    case = changed(heads=1, head_dim=1, state_dim=1, gate=True, grain=0.0)
    t = tensors(case)
    x, dt, B, C, z, A, bias, D, start = (
        float(v.ravel()[-1]) for v in (t.x, t.dt, t.B, t.C, t.z, t.A, t.dt_bias, t.D, t.pool)
    )
    d = math.log1p(math.exp(dt + bias))
    state = math.exp(d * A) * start + d * x * B
    output = (state * C + D * x) * z / (1 + math.exp(-z))
    legal = outcome(case)
    assert legal["states"][0].value.item() == pytest.approx(state, rel=1e-12)
    assert legal["output"][0].value.item() == pytest.approx(output, rel=1e-12)


def test_verifying_and_committing_is_decoding_one_by_one():
    """The state after each step of a verify is the state of a decode of as many tokens."""
    decode = changed(VERIFY, operation="decode", steps=0, request={"destinations": (1,)})
    verified = outcome(VERIFY)
    decoded = outcome(decode)
    assert np.allclose(verified["output"][0].value, decoded["output"][0].value, rtol=1e-12)
    assert np.allclose(verified["states"][0].value[-1], decoded["states"][0].value[0], rtol=1e-12)


@pytest.mark.parametrize("parents", [(-1, 0, 0, 1, 3), (-1, 0, 1, 1, 0), (-1, 0, 0, 0, 2)])
def test_a_path_of_a_tree_is_the_chain_of_its_tokens(parents):
    case = changed(VERIFY, tree=True, steps=5, request={"length": 5, "parents": parents})
    domain(case)
    request, numbers = case.requests[0], tensors(case)
    made = terms(case, numbers)
    output, states = advance(case, made, slice(0, 5), request, numbers.pool[1])
    for leaf in range(5):
        path = [leaf]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        chosen = {n: part[path] if isinstance(part, Approximate) else part for n, part in vars(made).items()}
        chain = dataclasses.replace(request, length=len(path), parents=())
        on_chain, after = advance(case, Terms(**chosen), slice(0, len(path)), chain, numbers.pool[1])
        assert np.array_equal(on_chain.value, output.value[path])
        assert np.array_equal(after.value, states.value[path])


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_a_round_goes_on_from_the_accepted_step(accepted):
    """As a decode does from that slot."""
    case = changed(ACCEPTED, request={"accepted": accepted})
    decode = changed(
        case, operation="decode", request={"slots": (accepted,), "destinations": (accepted,), "accepted": 1}
    )
    assert np.array_equal(outcome(case)["output"][0].value, outcome(decode)["output"][0].value)


def test_a_round_that_accepted_nothing_starts_from_one_own_state_in_all_it_shows():
    case = changed(ACCEPTED, request={"accepted": 0})
    assert domain(case) == DEFENSIVE and domain(ACCEPTED) == FUNCTIONAL
    legal = outcome(case)
    assert isinstance(legal["output"][0], Branched) and len(legal["output"][0].values) == 4
    for branch in range(4):
        seen = exact({f: [legal[f][0].values[branch]] for f in ("output", "states")})
        assert judge(CONTRACT, legal, seen).agrees
        mixed = seen | {"states": [legal["states"][0].values[(branch + 1) % 4].value]}
        verdict = judge(CONTRACT, legal, mixed)
        assert (verdict.field, verdict.kind) == ("states", "foreign_state")
        assert "none of the request's own slots" in sentence(CONTRACT, case, verdict)


def float32_scan(case, order):
    """The recurrence in NumPy float32, sums taken in ``order``."""
    t = {n: v.astype(np.float32) for n, v in vars(tensors(case)).items()}
    state, outputs, states = t["pool"][case.requests[0].source], [], []
    heads = np.arange(case.heads) // (case.heads // case.groups)
    for i in range(case.requests[0].length):
        d = t["dt"][i] + t["dt_bias"]
        d = np.log(np.exp(d) + np.float32(1)) if case.softplus else d
        keep = np.exp(d * t["A"])[:, None, None]
        state = state * keep + (t["B"][i][heads] * d[:, None])[:, None, :] * t["x"][i][:, :, None]
        products = (state * t["C"][i][heads][:, None, :])[..., order]
        total = products[..., 0]
        for k in range(1, len(order)):
            total = total + products[..., k]
        outputs.append(total + t["x"][i] * t["D"][:, None])
        states.append(state)
    return np.stack(outputs), np.stack(states)


def test_float32_arithmetic_stays_within_its_bound_and_comes_near_it():
    worst = 0.0
    for seed in range(40):
        case = changed(
            VERIFY, seed=seed, heads=2, head_dim=4, state_dim=8, softplus=seed % 2 == 0, request={"seed": seed}
        )
        legal = outcome(case)
        for order in (np.arange(8), np.arange(8)[::-1], np.array([3, 1, 7, 0, 2, 6, 5, 4])):
            output, states = float32_scan(case, order)
            verdict = judge(CONTRACT, legal, exact(legal) | {"output": [output], "states": [states]})
            assert verdict.agrees
            worst = max(worst, verdict.error_of_bound)
    assert 0.02 < worst < 1


def test_rounding_of_stored_states_is_inside_the_bound_where_they_are_read_back():
    case = changed(VERIFY, tree=True, state_dtype="bfloat16", request={"parents": (-1, 0, 1)})
    legal = outcome(case)
    narrow = legal["states"][0].error / outcome(changed(VERIFY, state_dtype="bfloat16"))["states"][0].error
    assert (narrow[0] == 1).all() and (narrow[2] > 1.5).any()
    stored = rounded(legal["states"][0].value, "bfloat16")
    assert judge(CONTRACT, legal, exact(legal) | {"states": [stored]}).agrees


def test_a_null_row_stores_nothing_and_its_output_is_nobodys():
    case = changed(VERIFY, request={"slots": (NONE,)})
    legal = outcome(case)
    seen = exact(legal) | {"output": [np.full((3, 2, 4), np.nan)]}
    assert judge(CONTRACT, legal, seen).agrees
    written = seen["states"][0].copy()
    assert (written == POISON).all()
    written[1, 0, 0, 0] = 0.0
    verdict = judge(CONTRACT, legal, seen | {"states": [written]})
    assert (verdict.field, verdict.where) == ("states", (0, 1, 0, 0, 0))


def test_columns_are_exact_in_the_dtypes_they_are_sent_in():
    case = changed(input_dtype="bfloat16", state_dtype="float16", grain=0.0, request={"shift": 24})
    made = columns(case)
    for name, dtype in (
        ("x", "bfloat16"),
        ("dt", "bfloat16"),
        ("D", "bfloat16"),
        ("pool", "float16"),
        ("A", "float32"),
    ):
        assert np.array_equal(rounded(made[name], dtype), made[name]), name
    assert made["dt"].min() > 20 and made["A"].max() < 0
    assert (made["start"].tolist(), made["slot"].tolist(), made["parent"].tolist()) == ([0, 1], [[1]], [[-1]])


def test_a_request_has_the_same_numbers_whoever_stands_beside_it():
    other = Request(9, 2, (0,), 1, (0,), (), 0)
    alone, beside = EXAMPLE, changed(requests=(other, *EXAMPLE.requests))
    assert np.array_equal(outcome(alone)["output"][0].value, outcome(beside)["output"][1].value)


def test_padded_cases_are_valid_in_every_operation():
    for number in range(60):
        case = structure(RandomSource(f"padding:{number}"))
        shown = present(CONTRACT, case, Presentation(padding=2, order=3))
        assert domain(shown) == domain(case) and len(shown.requests) == len(case.requests) + 2
        assert shown.requests[-1].null and len(parents_of(shown.requests[-1])) == shown.requests[-1].length


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (changed(operation="prefill"), "operation: must be"),
        (changed(groups=3), "groups: must divide"),
        (changed(grain=0.5), "grain: must be"),
        (changed(tree=True), "tree: only a verify"),
        (changed(steps=2), "steps: verify has some"),
        (changed(rows_before=1), "rows_before: only verify"),
        (changed(slots=1, gap=1, request={"slots": (0,), "destinations": (0,)}), "gap: needs"),
        (changed(gap=2**31 - 300), "gap: at most"),
        (changed(heads=64, head_dim=64, state_dim=64), "slots: the pool has more"),
        (changed(seed=-1), "seed: must be 0"),
        (changed(VERIFY, rows_before=2**30), "rows_before: at most"),
        (changed(VERIFY, steps=64, heads=32, head_dim=16, state_dim=16), "requests: at most"),
        (changed(request={"seed": -1}), r"requests\[0\].seed: must be"),
        (
            changed(VERIFY, slots=4, requests=(VERIFY.requests[0], Request(1, 2, (2,), 1, (), (), 0))),
            r"requests\[1\].length: all requests of a verify",
        ),
        (changed(requests=()), "requests: must not be empty"),
        (changed(requests=(EXAMPLE.requests[0],) * 2), "share a slot"),
        (changed(request={"length": 0}), r"requests\[0\].length: must be 1"),
        (changed(request={"shift": 1}), r"requests\[0\].shift: must be one of"),
        (changed(softplus=False, request={"shift": -24}), r"requests\[0\].shift: below 0"),
        (changed(request={"slots": (2,)}), r"requests\[0\].slots: must be -1 to 1"),
        (changed(request={"slots": (0, 1)}), r"requests\[0\].slots: must be one slot"),
        (changed(request={"accepted": 0}), r"requests\[0\].accepted: must be 1"),
        (changed(request={"destinations": ()}), r"requests\[0\].destinations: must be 1"),
        (changed(request={"destinations": (NONE,)}), r"requests\[0\].destinations: needs a slot"),
        (changed(request={"slots": (NONE,)}), r"requests\[0\].destinations: a null row"),
        (changed(request={"parents": (-1,)}), r"requests\[0\].parents: of a tree"),
        (changed(VERIFY, tree=True, request={"parents": (-1, 1, 0)}), r"requests\[0\].parents: must be smaller"),
        (changed(VERIFY, tree=True, request={"parents": (0, 0, 0)}), r"requests\[0\].parents: one for each"),
        (changed(ACCEPTED, request={"accepted": 4}), r"requests\[0\].accepted: must be 0 to 3"),
        (changed(ACCEPTED, request={"length": 4}), r"requests\[0\].slots: must be at least length"),
        (changed(ACCEPTED, request={"slots": (1, NONE, 3)}), r"requests\[0\].slots: all of them"),
        (changed(ACCEPTED, request={"slots": (1, 1, 3)}), r"requests\[0\].slots: a slot stands twice"),
    ],
)
def test_what_is_outside_the_domain_names_its_field(case, words):
    with pytest.raises(InvalidCase, match=words):
        domain(case)
