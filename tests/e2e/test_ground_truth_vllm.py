"""Real faults of published vLLM releases: red on the release that has one, for the
right reason, and green on the one that fixed it. See ``test_ground_truth``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fuzz import adapter as adapters
from fuzz import corpus, known
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.executor import execute
from fuzz.verdict import Kind, Verdict

pytestmark = pytest.mark.engine

CASES = {(f.contract, f.slug): f.case for _, f in corpus.load()}
CONTRACT = "verify.chain_rejection"
RUNNER_1 = f"vllm/rejection_sampler/{CONTRACT}/rejection_sample"
RUNNER_2 = f"vllm/gpu_rejection_sampler/{CONTRACT}/"


@pytest.fixture(scope="module")
def ask(engine_session) -> Callable[[str, str, str], Verdict]:
    """``ask(version, target, slug)`` of vLLM."""

    def answer(version: str, target: str, slug: str) -> Verdict:
        adapter = adapters.load("vllm")[target]
        return execute(engine_session(f"vllm=={version}"), adapter, CASES[(adapter.contract, slug)])

    return answer


@pytest.mark.parametrize("target", [RUNNER_1, f"{RUNNER_1}(generators)"])
def test_a_placeholder_reads_the_row_of_the_request_before(ask, target):
    """46533: the draft -1 of a second request is looked up in front of its row."""
    red = ask("0.19.0", target, "placeholder-in-second-request")
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "race_token", "wrong_token")
    assert red.evidence["where"] == [1]
    assert ask("0.19.0", target, "ngram-accepted").kind is Kind.AGREE
    for version in ("0.28.0", "0.33.0"):
        for slug in ("placeholder-in-second-request", "ngram-accepted"):
            assert ask(version, target, slug).kind is Kind.AGREE


@pytest.mark.parametrize("version", ["0.19.0", "0.33.0"])
def test_coin_zero_accepts_a_draft_without_mass_and_is_listed(ask, version):
    target = f"{RUNNER_1}(edges)"
    red = ask(version, target, "zero-coin-impossible-draft")
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "accepted", "too_many")
    listed = known.load(DEFAULT_CORPUS, "vllm")
    assert any(entry.covers(red.identity, version, "cpu") for entry in listed)


def test_runner_2_rejects_the_placeholder_and_takes_the_target_row(ask):
    for slug in ("placeholder-first", "placeholder-behind-accepted", "placeholder-in-second-request"):
        assert ask("0.33.0", f"{RUNNER_2}rejection_sample", slug).kind is Kind.AGREE


@pytest.mark.parametrize("slug", ["block-by-token-rule", "block-clamped-prefix", "block-all-accepted"])
def test_block_verification_is_the_block_rule(ask, slug):
    target = f"{RUNNER_2}rejection_sample(use_block_verification)"
    assert ask("0.33.0", target, slug).kind is Kind.AGREE
    missing = ask("0.19.0", target, slug)
    assert missing.kind is Kind.UNSUPPORTED


def test_runner_2_drew_the_token_at_a_placeholder_from_the_residual_before_0_28(ask):
    """Nothing was drafted there, so the target's own row is what to draw from."""
    target, slug = f"{RUNNER_2}rejection_sample", "rejection-sample-edges-final-coin-last-greedy-accepted"
    red = ask("0.27.1", target, slug)
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "race_token", "wrong_token")
    for version in ("0.28.0", "0.33.0"):
        assert ask(version, target, slug).kind is Kind.AGREE


def test_block_verification_accepted_a_placeholder_before_0_28(ask):
    """The draft -1 passed the accept test and would be emitted."""
    target = f"{RUNNER_2}rejection_sample(use_block_verification)"
    red = ask("0.27.1", target, "placeholder-block")
    assert (red.kind, red.identity.field, red.identity.kind) == (Kind.DIVERGE, "accepted", "too_many")
    assert ask("0.27.1", target, "block-clamped-prefix").kind is Kind.AGREE
    for version in ("0.28.0", "0.33.0"):
        assert ask(version, target, "placeholder-block").kind is Kind.AGREE
