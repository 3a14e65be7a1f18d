"""Stories told to the pools and prefix caches of published releases.

The fault that shows: SGLang 0.5.10 counted a round's tokens without the one that verify
adds, so a round that begins one token before a boundary did not count as crossing it and
its checkpoint was never filed.
"""

from __future__ import annotations

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.lifecycle.long import long_story
from fuzz.verdict import Kind
from tests.e2e.test_ground_truth import Row, assert_green, assert_red, each

pytestmark = pytest.mark.engine

CACHE = "sglang/mamba_radix_cache/commit.lifecycle/MambaRadixCache"
UNIFIED = "sglang/unified_radix_cache/commit.lifecycle/UnifiedRadixCache"
LAZY = "sglang/lazy_tracks/commit.lifecycle/ScheduleBatch.mamba_lazy_spec_prepare"
NOT_FILED = ("filed", "checkpoint_not_filed")

ROWS = [
    Row("crossing", CACHE, trigger, "filter-the-first-row", NOT_FILED, red="10", green="12 20")
    for trigger in ("resumes-from-the-longest", "published-late")
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


@pytest.mark.parametrize(
    ("target", "overlap", "lazy"),
    [(UNIFIED, False, False), (UNIFIED, True, False), (UNIFIED + ".python_core", True, False), (LAZY, True, True)],
)
def test_a_long_story_ends_well(engine_session, target, overlap, lazy):
    case = long_story("e2e", 40, 4, 128, overlap, lazy)
    verdict = execute(engine_session("0.5.23"), adapters.load("sglang")[target], case)
    assert verdict.kind is Kind.AGREE, verdict


def test_a_long_story_ends_well_in_align_mode(engine_session):
    """vLLM's block manager."""
    target = adapters.load("vllm")["vllm/block_manager/commit.lifecycle/MambaManager"]
    verdict = execute(engine_session("vllm==0.33.0"), target, long_story("e2e", 40, 4, 128, overlap=False))
    assert verdict.kind is Kind.AGREE, verdict
