"""Faults of the lightning-attention kernels that no release read so far is without: red by
identity on the oldest and the newest, beside a sibling that agrees and a kernel that is right."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz import adapter as adapters
from fuzz import known
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.executor import execute
from fuzz.mutants.mutant import mutants_of
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle import contracts
from tests.e2e.test_ground_truth import CASES, Row, ask, assert_red, each

pytestmark = pytest.mark.engine

CONTRACT = "recurrence.lightning"
LATE = f"lightning_attn/{CONTRACT}/jit_linear_forward_prefix(history)"
DECODE = f"lightning_attn/{CONTRACT}/linear_decode_forward_triton"
SEGMENTED = f"sglang/seg_la/{CONTRACT}/seg_la_fwd"
WRONG, ELSEWHERE = ("output", "wrong_value"), ("outside", "written_outside")
STAYS = "prefills-on-top-of-a-state-that-stays"
BELOW = "just-below-int32"
VLLM = "0.33.0"
EVER = {"red": "10 23", "green": ""}

ROWS = [
    # What stands before a block of 256 tokens decays one token late; without a decay nobody can tell.
    *(
        Row("late history", f"sglang/{LATE}", trigger, STAYS, WRONG, **EVER)
        for trigger in ("prefills-on-top-of-a-state", "one-block-of-256-and-a-tail", "split-after-three")
    ),
    # Slots and scratch rows are multiplied in 32 bits.
    Row("wrap", f"sglang/{DECODE}(large)", "slot-beyond-int32", f"slot-{BELOW}", ELSEWHERE, **EVER),
    Row(
        "wrap", f"{SEGMENTED}(decode_large)", "decode-of-128-beyond-int32", f"decode-of-128-{BELOW}", ELSEWHERE, **EVER
    ),
    Row(
        "wrap",
        f"{SEGMENTED}(prefill_large)",
        "prefilled-slot-beyond-int32",
        f"prefilled-slot-{BELOW}",
        ELSEWHERE,
        **EVER,
    ),
    Row("wrap", f"{SEGMENTED}(verify_large)", "scratch-row-beyond-int32", f"verified-slot-{BELOW}", ELSEWHERE, **EVER),
    Row("wrap", f"{SEGMENTED}(verify_large)", "verified-slot-beyond-int32", f"verified-slot-{BELOW}", WRONG, **EVER),
    # A batch of one token a row reads slots that hold nothing of the request's.
    Row(
        "one token each",
        f"{SEGMENTED}(single_token_prefill)",
        "prefills-one-token-each-from-nothing",
        "prefills-one-token-each-after-states",
        WRONG,
        **EVER,
    ),
]


@pytest.fixture(scope="module")
def vllm(engine_session) -> Session:
    return engine_session(f"vllm=={VLLM}")


@each("red", ROWS)
def test_red_by_identity_and_listed(engine_session, row, version):
    assert_red(engine_session, row, version)
    identity = ask(engine_session, row, version, row.trigger).identity
    assert any(entry.covers(identity, version, "cpu") for entry in known.load(DEFAULT_CORPUS, "sglang"))


@pytest.mark.parametrize("slug", ["prefills-on-top-of-a-state", "two-blocks-of-32-and-a-tail"])
def test_the_segmented_prefill_is_right_about_history(engine_session, slug):
    adapter = adapters.load("sglang")[f"{SEGMENTED}(prefill)"]
    assert execute(engine_session("0.5.23"), adapter, CASES[(CONTRACT, slug)]).kind is Kind.AGREE


def test_vllm_has_the_late_history_too(vllm):
    """What it returns is what the mutant of that name does, within the bound."""
    adapter = adapters.load("vllm")[f"vllm/{LATE}"]
    case = CASES[(CONTRACT, "prefills-on-top-of-a-state")]
    red = execute(vllm, adapter, case)
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, *WRONG)
    assert execute(vllm, adapter, CASES[(CONTRACT, STAYS)]).kind is Kind.AGREE
    assert any(entry.covers(red.identity, VLLM, "cpu") for entry in known.load(DEFAULT_CORPUS, "vllm"))
    (late,) = (m for m in mutants_of(CONTRACT) if m.name == "history_decays_late")
    bound = contracts.get(CONTRACT).run(case)[0]["output"][0].error
    observed, explained = np.array(red.evidence["all_observed"]["output"][0]), late.observe(case)["output"][0]
    assert (np.abs(observed - explained) <= bound).all()


def test_vllm_multiplies_slots_in_64_bits(vllm):
    adapter = adapters.load("vllm")[f"vllm/{DECODE}"]
    for slug in ("slot-beyond-int32", f"slot-{BELOW}"):
        assert execute(vllm, adapter, CASES[(CONTRACT, slug)]).kind is Kind.AGREE
