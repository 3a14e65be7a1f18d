"""Real faults of published releases in the convolution kernels, judged as in ``test_ground_truth``: red by identity
where the fault is, green where it is right. What the newest release still has is listed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz import adapter as adapters
from fuzz import known
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.executor import execute
from fuzz.presentation import PLAIN, Presentation
from fuzz.verdict import Kind, Verdict
from tests.e2e.test_ground_truth import CASES, Row, assert_green, assert_red, each

pytestmark = pytest.mark.engine

CONTRACT, SHORT = "recurrence.causal_convolution", "recurrence.short_convolution"
UPDATE, PREFILL = f"conv/{CONTRACT}/causal_conv1d_update", f"conv/{CONTRACT}/causal_conv1d_fn"
BEYOND, BELOW = "prefill-tokens-beyond-32-bits", "prefill-tokens-just-below-32-bits"
ZERO, ONE = "accepted-zero-in-second-request", "accepted-one-in-second-request"
ELSEWHERE, NOT_FINITE = ("outside", "written_outside"), ("output", "not_finite")

ROWS = [
    # 33665: offsets of packed tokens were computed in 32 bits; 12 and 14 have the kernel of 16.
    Row("33665", f"sglang/{PREFILL}", BEYOND, BELOW, ELSEWHERE, red="10 16", green="18 23"),
]
LISTED = [
    # 48475, 50021: the accepted count is followed without a bound.
    (f"sglang/{UPDATE}", ZERO, ONE, NOT_FINITE),
    (f"sglang/{UPDATE}", "accepted-beyond-the-line", "accepted-first-and-last", NOT_FINITE),
    # Slots of 32 bits times a stride wrap.
    *(
        (
            f"sglang/lfm_short_conv/{SHORT}/fused_lfm_short_conv_{operation}",
            f"gated-{operation}-slot-beyond-32-bits",
            sibling,
            ELSEWHERE,
        )
        for operation, sibling in (("decode", "gated-decode-slot-just-below-32-bits"), ("prefill", "gated-prefill"))
    ),
    # What must not be used is multiplied by 0.
    (
        f"sglang/inkling_sconv/{SHORT}/causal_conv1d",
        "own-residual-prefill-stale-line",
        "own-residual-prefill-fresh-line",
        NOT_FINITE,
    ),
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


@pytest.mark.parametrize(("target", "trigger", "sibling", "identity"), LISTED)
def test_the_newest_sglang_diverges_as_listed(engine_session, target, trigger, sibling, identity):
    session, adapter = engine_session("0.5.23"), adapters.load("sglang")[target]
    red = execute(session, adapter, CASES[(adapter.contract, trigger)])
    assert red.kind is Kind.DIVERGE and (red.identity.field, red.identity.kind) == identity
    assert any(entry.covers(red.identity, "0.5.23", "cpu") for entry in known.load(DEFAULT_CORPUS, "sglang"))
    assert execute(session, adapter, CASES[(adapter.contract, sibling)]).kind is Kind.AGREE


@pytest.mark.parametrize("how", [PLAIN, Presentation(strided=True, order=3, padding=2, repeat=True)])
@pytest.mark.parametrize("slug", ["verify-tree", "verify-overlapping-windows", "accepted-between-bfloat16"])
def test_a_presentation_changes_nothing(engine_session, slug, how):
    adapter = adapters.load("sglang")[f"sglang/{UPDATE}"]
    verdict = execute(engine_session("0.5.23"), adapter, CASES[(CONTRACT, slug)], how)
    assert verdict.kind is Kind.AGREE
    # A bound that correct kernels come nowhere near would admit wrong ones.
    assert 1e-3 < verdict.evidence["error_of_bound"] < 1


@pytest.fixture(scope="module")
def ask(engine_session) -> Callable[[str, str, str], Verdict]:
    """``ask(version, target, slug)`` of vLLM."""

    def answer(version: str, target: str, slug: str) -> Verdict:
        adapter = adapters.load("vllm")[target]
        return execute(engine_session(f"vllm=={version}"), adapter, CASES[(adapter.contract, slug)])

    return answer


@pytest.mark.parametrize("target", [PREFILL, f"{PREFILL}(metadata)"])
def test_vllm_computed_token_offsets_in_32_bits(ask, target):
    """40905: until 0.20; from 0.22 on the strides of tokens are 64-bit numbers."""
    red = ask("0.19.0", f"vllm/{target}", BEYOND)
    assert red.kind is Kind.DIVERGE and (red.identity.field, red.identity.kind) == ELSEWHERE
    assert ask("0.19.0", f"vllm/{target}", BELOW).kind is Kind.AGREE
    for slug in (BEYOND, BELOW):
        assert ask("0.33.0", f"vllm/{target}", slug).kind is Kind.AGREE


@pytest.mark.parametrize(("version", "target"), [("0.19.0", UPDATE), ("0.33.0", UPDATE), ("0.33.0", f"{UPDATE}(out)")])
def test_vllm_follows_an_accepted_count_of_zero(ask, version, target):
    """48475, 50021: two requests, accepted 2 and 0; the second one's window starts in front of its slot."""
    red = ask(version, f"vllm/{target}", ZERO)
    assert red.kind is Kind.DIVERGE and (red.identity.field, red.identity.kind) == NOT_FINITE
    assert red.evidence["where"][0] == 1
    assert any(entry.covers(red.identity, version, "cpu") for entry in known.load(DEFAULT_CORPUS, "vllm"))
    assert ask(version, f"vllm/{target}", ONE).kind is Kind.AGREE
