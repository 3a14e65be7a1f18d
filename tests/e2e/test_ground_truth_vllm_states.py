"""Real faults of vLLM's and flash-linear-attention's recurrent states: red on the release that has one, for the
right reason, and green on the one that fixed it or beside it. See ``test_ground_truth``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz import adapter as adapters
from fuzz import known
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.executor import execute
from fuzz.frozen import read
from fuzz.verdict import Kind, Verdict

pytestmark = pytest.mark.engine

ALIGNED, GATED, KDA = "commit.aligned_states", "recurrence.gated_delta", "recurrence.kda"
RUNNER_2 = f"vllm/gpu_mamba/{ALIGNED}/run_fused_postprocess_align"
RUNNER_1 = f"vllm/mamba/{ALIGNED}/run_fused_postprocess"
CASES = {
    (f.contract, f.slug): f.case
    for contract in (ALIGNED, GATED, KDA)
    for f in map(read, sorted((DEFAULT_CORPUS / contract).glob("*.json")))
}
ON_BOUNDARY = (
    "all-accepted-on-boundary", "two-layers-on-boundary", "three-requests", "channels-first",
    "layers-with-tables-of-their-own",
)  # fmt: skip


@pytest.fixture(scope="module")
def ask(engine_session) -> Callable[[str, str, str], Verdict]:
    """``ask(engine, target, slug)``."""

    def answer(engine: str, target: str, slug: str) -> Verdict:
        adapter = adapters.load(engine.partition("==")[0])[target]
        return execute(engine_session(engine), adapter, CASES[(adapter.contract, slug)])

    return answer


def listed(engine: str, red: Verdict) -> bool:
    name, _, version = engine.partition("==")
    return any(entry.covers(red.identity, version, "cpu") for entry in known.load(DEFAULT_CORPUS, name))


@pytest.mark.parametrize("slug", ON_BOUNDARY)
def test_one_program_overwrote_the_count_that_the_others_read(ask, slug):
    """50432: three accepted tokens end a block; the first of several states is moved, its program resets the
    accepted count in place, and the programs of the other states see that nothing is to be moved."""
    red = ask("vllm==0.27.1", RUNNER_2, slug)
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "checkpoint", "wrong_state")
    assert red.evidence["where"] == [1 if slug == "channels-first" else 0]
    assert "the prefix cache finds the state of layer 0" in red.evidence["claim"]
    for sibling in ("boundary-inside", "boundary-on-certain-token", "windows-alone", "states-alone"):
        assert ask("vllm==0.27.1", RUNNER_2, sibling).kind is Kind.AGREE
    assert ask("vllm==0.27.1", RUNNER_1, slug).kind is Kind.AGREE  # its count goes to another buffer
    for version in ("0.28.0", "0.33.0"):
        assert ask(f"vllm=={version}", RUNNER_2, slug).kind is Kind.AGREE


def test_the_copies_worked_out_on_the_host_were_right(ask):
    for slug in ("all-accepted-on-boundary", "two-layers-on-boundary", "boundary-inside", "two-boundaries"):
        assert ask("vllm==0.19.0", f"vllm/mamba/{ALIGNED}/postprocess_mamba", slug).kind is Kind.AGREE
    for engine, form in (("vllm==0.19.0", ""), ("vllm==0.33.0", ""), ("vllm==0.33.0", "(fused)")):
        for slug in ("moves-with-accepted-drafts", "moves-back", "stays-in-column", "first-pass"):
            assert ask(engine, f"vllm/mamba/{ALIGNED}/preprocess_mamba{form}", slug).kind is Kind.AGREE


NOTHING_ACCEPTED = (
    (f"vllm/delta/{GATED}/fused_recurrent_gated_delta_rule", "accepted-nothing", "accepted-counts"),
    (f"vllm/delta/{GATED}/fused_sigmoid_gating_delta_rule_update", "accepted-nothing-computed",
     "accepted-counts-computed"),
    (f"vllm/delta/{KDA}/fused_recurrent_kda_fwd", "accepted-nothing", "accepted-step-not-kept"),
)  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm==0.19.0", "vllm==0.33.0"])
@pytest.mark.parametrize(("target", "slug", "sibling"), NOTHING_ACCEPTED)
def test_a_count_of_0_starts_from_the_slot_of_the_request_before(ask, engine, target, slug, sibling):
    """48475, 50021: the second request reads its start in front of its row of the table."""
    red = ask(engine, f"{target}(nothing_accepted)", slug)
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "output", "wrong_value")
    assert red.evidence["where"][0] == 1 and listed(engine, red)
    assert ask(engine, target, sibling).kind is Kind.AGREE


def test_the_kernel_for_several_drafts_bounds_the_count(ask):
    target = f"vllm/delta/{GATED}/fused_gdn_decode_post_conv_mtp_triton"
    for slug in ("accepted-nothing-computed", "accepted-counts-computed", "accepted-null-row-computed"):
        assert ask("vllm==0.33.0", target, slug).kind is Kind.AGREE
    assert ask("vllm==0.28.0", target, "accepted-counts-computed").kind is Kind.UNSUPPORTED


@pytest.mark.parametrize("engine", ["vllm==0.19.0", "vllm==0.33.0"])
def test_gates_of_a_channel_are_read_from_the_tokens_before(ask, engine):
    """The pointer to KDA's gate inputs advances by heads, not by heads times channels: the second token is wrong."""
    target = f"vllm/delta/{KDA}/fused_sigmoid_gating_delta_rule_update"
    red = ask(engine, f"{target}(is_kda)", "accepted-computed-gates")
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "output", "wrong_value")
    assert red.evidence["where"][:2] == [0, 1] and listed(engine, red)
    for form in ("(is_kda)", "(is_kda,one_token)"):
        assert ask(engine, f"{target}{form}", "decode-computed-gates").kind is Kind.AGREE


def test_flash_linear_attention_follows_a_count_of_0_too(ask):
    target = f"fla/kda/{KDA}/fused_recurrent_kda_fwd"
    red = ask("fla==0.6.0", f"{target}(nothing_accepted)", "accepted-nothing")
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "output", "wrong_value")
    assert listed("fla==0.6.0", red)
    for slug in ("accepted-counts", "accepted-computed-gates", "decode-bounded-gates"):
        assert ask("fla==0.6.0", target, slug).kind is Kind.AGREE


def test_its_plain_definitions_agree_with_its_kernels_and_the_reference(ask):
    for contract, module, kernel, plain in (
        (GATED, "gated_delta_rule", "fused_recurrent_gated_delta_rule", "naive_recurrent_gated_delta_rule"),
        (KDA, "kda", "fused_recurrent_kda", "naive_recurrent_kda"),
    ):
        for symbol in (kernel, plain):
            for slug in ("chain-of-tokens", "gate-forgets-everything"):
                assert ask("fla==0.6.0", f"fla/{module}/{contract}/{symbol}", slug).kind is Kind.AGREE
