"""The guard zones of a real GPU: what goes beside a plain tensor is seen, what does not is left in peace."""

from __future__ import annotations

import os

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.presentation import PLAIN, Presentation
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from tests.gpu.guard_engine import COUNT, WAYS, WIDE
from tests.gpu.launches import launch_of
from tests.unit.test_isolation import case_with

adapters.BUILT_IN["gpu_guards"] = "tests.gpu.guard_modules"
pytestmark = pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="UNSUPPORTED: no GPU here")

BUFFER = f"a buffer of {4 * COUNT} bytes: 4 bytes changed, first"
BEHIND = f"{BUFFER} 0 bytes behind it"
EXPECTED = {
    "write_behind": (Kind.DIVERGE, "written_outside", BEHIND),
    "write_before": (Kind.DIVERGE, "written_outside", f"{BUFFER} 4 bytes before it"),
    "freed_write_behind": (Kind.DIVERGE, "written_outside", BEHIND),
    "side_stream": (Kind.DIVERGE, "written_outside", BEHIND),
    "graph_write_behind": (Kind.DIVERGE, "written_outside", BEHIND),
    "wide_write_behind": (
        Kind.DIVERGE, "written_outside", f"a buffer of {4 * WIDE} bytes: 4 bytes changed, first 0 bytes behind it",
    ),
    "read_behind": (Kind.DIVERGE, "wrong_step", None),
    "unwritten": (Kind.DIVERGE, "wrong_step", None),
    "memory": (Kind.OUT_OF_MEMORY, None, None),
    "swallowed_memory": (Kind.OUT_OF_MEMORY, None, None),
    "graph": (Kind.AGREE, None, None),
    "wide": (Kind.AGREE, None, None),
}  # fmt: skip


def session_of(**launch):
    return Session(launch_of("gpu_guards", "tests.gpu.guard_engine", **launch), deadline_s=60.0)


@pytest.fixture(scope="module")
def session():
    with session_of() as made:
        assert made.ready["guards"] == "on"
        yield made


def shown(session, way, how=PLAIN):
    target = adapters.load("gpu_guards")["gpu_guards/gpu/commit.checkpoint_steps/beside"]
    code = next((k for k, v in WAYS.items() if v == way), 5)
    return execute(session, target, case_with(code), how)


@pytest.mark.parametrize("way", EXPECTED)
def test_each_way_has_its_verdict_and_the_next_case_agrees(session, way):
    assert shown(session, None).kind is Kind.AGREE
    verdict = shown(session, way)
    kind, difference, words = EXPECTED[way]
    assert verdict.kind is kind, verdict
    assert (verdict.identity.kind if verdict.identity else None) == difference
    assert verdict.evidence.get("outside") == words
    assert shown(session, None).kind is Kind.AGREE


def test_filler_of_a_strided_tensor_is_looked_at(session):
    assert shown(session, "filler").kind is Kind.AGREE
    verdict = shown(session, "filler", Presentation(strided=True))
    assert verdict.identity.kind == "written_outside" and "1 cells between" in verdict.evidence["outside"]


def test_runs_that_ask_for_the_same_get_the_same_addresses(session):
    """The first run of a process leaves what it keeps behind, so it does not count."""
    for how in (PLAIN, Presentation(repeat=True), PLAIN):
        assert shown(session, "graph", how).kind is Kind.AGREE
        assert shown(session, "addresses", how).kind is Kind.AGREE


def test_repeated_and_strided_runs_are_watched_too(session):
    how = Presentation(repeat=True, strided=True)
    assert shown(session, "write_behind", how).identity.kind == "written_outside"
    assert shown(session, None, how).kind is Kind.AGREE


@pytest.mark.parametrize("launch", [{"guards": False}, {"env": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}}])
def test_guards_can_be_left_out(launch):
    with session_of(**launch) as session:
        assert session.ready["guards"].startswith("off:")
        assert shown(session, None).kind is Kind.AGREE
