"""recurrence.lightning: the formula, the relations between its operations, its bounds and its domain."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from fuzz.engines import lightning_calls as calls
from fuzz.executor import Columns
from fuzz.mutants.mutant import mutants_of
from fuzz.presentation import Presentation, present
from fuzz.strategies.lightning import structure
from fuzz.strategies.source import RandomSource
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.explain import sentence
from oracle.judgement import judge
from oracle.legal import Branched
from oracle.recurrence.formats import rounded
from oracle.recurrence.lightning import CONTRACT, reference
from oracle.recurrence.lightning_case import LightningCase, Request, columns, decays, domain, slot_state, tokens
from oracle.trace import Trace

EXAMPLE: LightningCase = CONTRACT.example
NONE = -1
BLOCK = 32


def changed(case=EXAMPLE, request=None, **fields):
    """A case with fields replaced, and with ``request`` those of its first request."""
    case = dataclasses.replace(case, **fields)
    if request:
        first = dataclasses.replace(case.requests[0], **request)
        case = dataclasses.replace(case, requests=(first, *case.requests[1:]))
    return case


VERIFY = changed(operation="verify", steps=3, grain=0.0, request={"length": 3})
NULL = Request(1, 1, (NONE,), 1, True, NONE, 0)
PREFILL = changed(operation="prefill", grain=0.0, heads=2, request={"length": 5})
ACCEPTED = changed(operation="accepted", slots=4, grain=0.0, request={"length": 2, "slots": (1, 2, 3), "accepted": 2})


def outcome(case):
    return reference(case, Trace())


def exact(legal):
    """The reference's own numbers, as if production had returned them."""
    return {f: [w.value for w in legal[f]] for f in ("output", "states")} | {"outside": "untouched", "kept": 0}


def test_one_cell_by_hand():
    case = changed(head_dim=1, scaled=False, grain=0.0, request={"length": 2})
    q, k, v = (tokens(case, case.requests[0])[n].ravel() for n in "qkv")
    keep, start = math.exp(-decays(case)[0]), slot_state(case, 1).item()
    first = keep * start + k[0] * v[0]
    second = keep * first + k[1] * v[1]
    legal = outcome(case)
    assert legal["output"][0].value.ravel() == pytest.approx([q[0] * first, q[1] * second], rel=1e-12)
    assert legal["states"][0].value.item() == pytest.approx(second, rel=1e-12)


def test_verifying_and_committing_is_decoding_one_by_one():
    decode = changed(VERIFY, operation="decode", steps=0)
    verified, decoded = outcome(VERIFY), outcome(decode)
    assert np.allclose(verified["output"][0].value, decoded["output"][0].value, rtol=1e-12)
    assert np.allclose(verified["states"][0].value[-1], decoded["states"][0].value[0], rtol=1e-12)


@pytest.mark.parametrize("split", [0, 1, 2, 3, 4, 5])
def test_a_prefill_split_anywhere_is_decoding_one_by_one(split):
    decoded = outcome(changed(PREFILL, operation="decode"))
    legal = outcome(changed(PREFILL, split=split))
    assert np.allclose(legal["output"][0].value, decoded["output"][0].value, rtol=1e-12)
    assert np.allclose(legal["states"][0].value[1], decoded["states"][0].value[0], rtol=1e-12)


def test_a_tracked_state_is_the_state_of_a_shorter_prefill():
    case = changed(PREFILL, slots=4, request={"length": 40, "track_slot": 2, "track_length": 32})
    shorter = changed(case, request={"length": 32, "track_slot": NONE, "track_length": 0})
    assert np.allclose(outcome(case)["states"][0].value[0], outcome(shorter)["states"][0].value[1], rtol=1e-12)
    assert np.isinf(outcome(shorter)["states"][0].error[0]).all()


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_a_round_goes_on_from_the_accepted_step(accepted):
    case = changed(ACCEPTED, request={"accepted": accepted})
    decode = changed(case, operation="decode", request={"slots": (accepted,), "accepted": 1})
    assert np.array_equal(outcome(case)["output"][0].value, outcome(decode)["output"][0].value)


def test_a_round_that_accepted_nothing_starts_from_one_own_state_in_all_it_shows():
    case = changed(ACCEPTED, request={"accepted": 0})
    assert domain(case) == DEFENSIVE and domain(ACCEPTED) == FUNCTIONAL
    legal = outcome(case)
    assert isinstance(legal["output"][0], Branched) and len(legal["output"][0].values) == 4
    seen = exact({f: [legal[f][0].values[3]] for f in ("output", "states")})
    assert judge(CONTRACT, legal, seen).agrees
    verdict = judge(CONTRACT, legal, seen | {"states": [legal["states"][0].values[0].value]})
    assert (verdict.field, verdict.kind) == ("states", "foreign_state")
    assert "none of the request's own slots" in sentence(CONTRACT, case, verdict)


def in_blocks(case, dtype):
    """A prefill of one head in float32, block by block, operands of each product of matrices rounded into ``dtype``."""

    def operand(values):
        return rounded(values.astype(np.float64), dtype).astype(np.float32)

    request = case.requests[0]
    q, k, v = (tokens(case, request)[n][:, 0].astype(np.float32) for n in "qkv")
    state, s = slot_state(case, request.source)[0].astype(np.float32), np.float32(decays(case)[0])
    outputs = []
    for first in range(0, len(q), BLOCK):
        rows = slice(first, min(first + BLOCK, len(q)))
        size = rows.stop - rows.start
        ahead = np.exp(-s * np.arange(size - 1, -1, -1, dtype=np.float32))
        queries, keys = q[rows] / ahead[:, None], k[rows] * ahead[:, None]
        scores = np.tril(operand(queries) @ operand(keys).T)
        after = np.exp(-s * np.float32(size))
        outputs.append(operand(scores) @ operand(v[rows]) + operand(queries) @ operand(state) * after)
        state = state * after + operand(keys).T @ operand(v[rows])
    return np.concatenate(outputs)[:, None], np.stack([state, state])[:, None]


@pytest.mark.parametrize("length", [3, 32, 40, 70])
def test_blocks_in_float32_stay_within_the_bound_and_come_near_it(length):
    worst = 0.0
    for seed in range(12):
        case = changed(PREFILL, heads=1, seed=seed, request={"length": length, "seed": seed})
        legal = outcome(case)
        output, states = in_blocks(case, "float32")
        verdict = judge(CONTRACT, legal, exact(legal) | {"output": [output], "states": [states]})
        assert verdict.agrees
        worst = max(worst, verdict.error_of_bound)
    assert 1e-3 < worst < 1


def test_a_tensor_cores_products_are_legal_only_where_the_case_says_so():
    worst = 0.0
    for seed in range(12):
        case = changed(PREFILL, heads=1, seed=seed, request={"length": 40, "seed": seed})
        output, states = in_blocks(case, "tfloat32")
        for multiplier, allowed in (("float32", False), ("tfloat32", True)):
            legal = outcome(changed(case, multiplier=multiplier))
            verdict = judge(CONTRACT, legal, exact(legal) | {"output": [output], "states": [states]})
            assert verdict.agrees is allowed
        worst = max(worst, verdict.error_of_bound)
    assert 1e-2 < worst < 1


def test_history_that_decays_one_token_late_is_seen_wherever_there_is_history_and_decay():
    (late,) = (m for m in mutants_of(CONTRACT.name) if m.name == "history_decays_late")
    assert late.killed_by(CONTRACT, PREFILL)
    assert not late.killed_by(CONTRACT, changed(PREFILL, request={"initial": False}))
    stays = changed(PREFILL, heads=1, grain=0.25, seed=4)
    assert decays(stays) == [0.0] and not late.killed_by(CONTRACT, stays)
    whole = changed(PREFILL, heads=1, request={"length": 256, "initial": False})
    assert not late.killed_by(CONTRACT, whole)
    assert late.killed_by(CONTRACT, changed(whole, request={"length": 257}))


def test_a_case_is_asked_of_one_target_of_a_pair():
    """What has a listed divergence has a target of its own, and nothing falls between the two."""
    pairs = (
        (calls.prefill_accepts, calls.history_accepts),
        (calls.near(calls.decode_accepts), calls.large(calls.decode_accepts)),
    )
    asked = [[0, 0], [0, 0]]
    for number in range(700):
        columns_ = Columns(columns(structure(RandomSource(f"pairs:{number}"))))
        for pair, count in zip(pairs, asked, strict=True):
            refusals = [accepts(columns_) for accepts in pair]
            if refusals[0] != refusals[1]:
                assert refusals.count(None) == 1
                count[refusals.index(None)] += 1
            else:
                assert refusals[0] is not None
    assert min(min(count) for count in asked) > 2


def test_history_is_a_state_or_tokens_before_the_block():
    fresh = {"length": 256, "initial": False}
    base = changed(PREFILL, heads=1, head_dim=64, request=fresh)
    for case, history in (
        (base, False),
        (changed(base, request={"length": 257}), True),
        (changed(base, request={"initial": True}), True),
        (changed(base, split=256), False),
        (changed(base, split=255), True),
        (changed(base, request={"initial": True, "slots": (NONE,)}), False),
    ):
        refusal = (calls.history_accepts if history else calls.prefill_accepts)(Columns(columns(case)))
        assert refusal is None, case


def test_a_null_row_stores_nothing_and_its_output_is_nobodys():
    case = changed(VERIFY, request={"slots": (NONE,)})
    legal = outcome(case)
    seen = exact(legal) | {"output": [np.full((3, 1, 32), np.nan)]}
    assert judge(CONTRACT, legal, seen).agrees
    written = seen["states"][0].copy()
    written[2, 0, 31, 31] = 0.0
    verdict = judge(CONTRACT, legal, seen | {"states": [written]})
    assert (verdict.field, verdict.where) == ("states", (0, 2, 0, 31, 31))


def test_columns_are_exact_in_the_dtypes_they_are_sent_in():
    case = changed(input_dtype="bfloat16", state_dtype="bfloat16", grain=0.0, scaled=True)
    made = columns(case)
    for name in ("q", "k", "v", "pool"):
        assert np.array_equal(rounded(made[name], "bfloat16"), made[name]), name
    assert made["scale"] == 32**-0.5 and 0 <= made["decay"].min() <= made["decay"].max() <= 1


def test_padded_cases_are_valid_in_every_operation():
    for number in range(60):
        case = structure(RandomSource(f"padding:{number}"))
        shown = present(CONTRACT, case, Presentation(padding=2, order=3))
        assert domain(shown) == domain(case) and len(shown.requests) == len(case.requests) + 2
        assert shown.requests[-1].null


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (changed(operation="replay"), "operation: must be"),
        (changed(multiplier="tfloat32"), "multiplier: only a prefill"),
        (changed(split=1), "split: prefill only"),
        (changed(steps=1), "steps: verify has some"),
        (changed(rows_before=1), "rows_before: only verify"),
        (changed(slots=1, gap=1, request={"slots": (0,)}), "gap: needs"),
        (changed(gap=2**23), "gap: at most"),
        (changed(heads=64, head_dim=128), "slots: the pool has more"),
        (changed(seed=-1), "seed: must be 0"),
        (changed(VERIFY, rows_before=2**23), "rows_before: at most"),
        (changed(VERIFY, steps=64, head_dim=256), "steps: scratch of more"),
        (changed(heads=2, head_dim=256, request={"length": 64}), "requests: 8388608 cells"),
        (changed(PREFILL, heads=64, request={"length": 300}), "requests: 5760000 cells"),
        (changed(requests=(NULL,) * 1025), "requests: must be at most 1024"),
        (changed(PREFILL, requests=(dataclasses.replace(NULL, length=512),) * 64, heads=1), "requests: 16777216 cells"),
        (changed(request={"seed": -1}), r"requests\[0\].seed: must be"),
        (changed(requests=()), "requests: must not be empty"),
        (changed(requests=(EXAMPLE.requests[0],) * 2), "a slot stands twice"),
        (changed(request={"length": 65}), r"requests\[0\].length: must be 1 to 64"),
        (changed(request={"slots": (2,)}), r"requests\[0\].slots: must be -1 to 1"),
        (changed(request={"slots": (0, 1)}), r"requests\[0\].slots: must be one slot"),
        (changed(request={"accepted": 2}), r"requests\[0\].accepted: must be 1"),
        (changed(request={"initial": False}), r"requests\[0\].initial: only a prefill"),
        (changed(request={"track_slot": 0, "track_length": 1}), r"requests\[0\].track_slot: of a prefill"),
        (changed(PREFILL, request={"track_slot": 0}), r"requests\[0\].track_length: goes with"),
        (
            changed(PREFILL, request={"track_slot": 0, "track_length": 6}),
            r"requests\[0\].track_length: must be at most",
        ),
        (
            changed(PREFILL, split=2, request={"track_slot": 0, "track_length": 2}),
            r"requests\[0\].track_slot: of a prefill",
        ),
        (changed(ACCEPTED, request={"accepted": 4}), r"requests\[0\].accepted: must be 0 to 3"),
        (changed(ACCEPTED, request={"length": 4}), r"requests\[0\].slots: must be at least length"),
        (changed(ACCEPTED, request={"slots": (1, NONE, 3)}), r"requests\[0\].slots: all of them"),
        (
            changed(VERIFY, slots=4, requests=(VERIFY.requests[0], Request(1, 2, (2,), 1, True, NONE, 0))),
            r"requests\[1\].length: all requests of a verify",
        ),
    ],
)
def test_what_is_outside_the_domain_names_its_field(case, words):
    with pytest.raises(InvalidCase, match=words):
        domain(case)
