"""Real faults of published releases in the delta-rule kernels, judged as in
``test_ground_truth``: red by identity where the fault is, green where it is right.

Offsets beyond 32 bits are reached by a mapping that is reserved and hardly used; a
wrapped offset lands in the empty space in front of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.presentation import PLAIN, Presentation
from fuzz.verdict import Kind
from tests.e2e.test_ground_truth import CASES, Row, assert_green, assert_red, each

pytestmark = pytest.mark.engine

GATED, KDA = "sglang/delta/recurrence.gated_delta", "sglang/delta/recurrence.kda"
UPDATE, FUSED = "fused_recurrent_gated_delta_rule_update", "fused_sigmoid_gating_delta_rule_update"
READ_FROM_NOTHING = ("output", "wrong_value")
WRITTEN_ELSEWHERE = ("outside", "written_outside")
WRAPS = {"red": "10 16", "green": "18 23"}  # 12 and 14 have the same kernels as 10 and 16

ROWS = [
    # 31934: offsets of slots and of scratch rows are computed with the width of their integers.
    *(
        Row("31934", f"{target}/{symbol}", f"verify-{trigger}{how}", f"verify-{sibling}{how}", identity, **WRAPS)
        for target, symbol, how in ((GATED, UPDATE, ""), (GATED, FUSED, "-computed"), (KDA, FUSED, ""))
        for trigger, sibling, identity in (
            ("slot-beyond-32-bits", "slot-just-below-32-bits", READ_FROM_NOTHING),
            ("row-beyond-32-bits", "row-just-below-32-bits", WRITTEN_ELSEWHERE),
        )
    ),
    # The same where a slot is written, with 64-bit integers as the sibling.
    *(
        Row(
            "31934",
            f"{target}/{FUSED}",
            f"slot-written-beyond-32-bits{how}",
            f"slot-written-beyond-32-bits{how}-wide-index",
            WRITTEN_ELSEWHERE,
            **WRAPS,
        )
        for target, how in ((GATED, "-computed"), (KDA, ""))
    ),
    # Without verify scratch the wrapper asked the missing scratch index for its size; Jet-Nemotron calls it so.
    Row(
        "no scratch",
        f"{GATED}/{UPDATE}",
        "chain-of-tokens",
        "verify-chain",
        ("call", f"raised:AttributeError:{UPDATE}"),
        red="10 20",
        green="",
        verdict=Kind.CRASH,
    ),
    Row("no scratch", f"{GATED}/{UPDATE}", "chain-of-tokens", "verify-chain", ("", ""), red="", green="22 23"),
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


APART = Presentation(strided=True)


@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
@pytest.mark.parametrize(
    ("slug", "identity"),
    [("slots-lie-apart", ("state", "wrong_value")), ("slots-lie-apart-second-call", ("output", "wrong_value"))],
)
def test_a_pool_whose_slots_lie_apart_is_copied_before_it_is_updated(engine_session, slug, identity, version):
    """Red with the pool's slots apart, green with the same case in a contiguous pool."""
    target, case = adapters.load("sglang")[f"{GATED}/{UPDATE}"], CASES[("recurrence.gated_delta", slug)]
    red = execute(engine_session(version), target, case, APART)
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, *identity)
    assert execute(engine_session(version), target, case, PLAIN).kind is Kind.AGREE


@pytest.mark.parametrize("version", ["0.5.18", "0.5.23"])
@pytest.mark.parametrize(("contract", "name"), [("recurrence.gated_delta", GATED), ("recurrence.kda", KDA)])
def test_the_fused_kernel_updates_a_pool_whose_slots_lie_apart(engine_session, contract, name, version):
    """The same presentation on the kernel beside it, which is not given a copy."""
    case = CASES[(contract, "slot-written-beyond-32-bits" + ("-computed" if name == GATED else ""))]
    target, near = adapters.load("sglang")[f"{name}/{FUSED}"], replace(case, gap=0)
    verdict = execute(engine_session(version), target, near, APART)
    assert verdict.kind is Kind.AGREE, verdict
