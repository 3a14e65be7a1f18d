"""compute-sanitizer on a real GPU: each report is charged to the case that caused it, and a right kernel has none.

``pytest tests/gpu/test_sanitize.py -s`` prints what the tool said and how long a case takes.
"""

from __future__ import annotations

import os
import time
from functools import cache

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.sanitize import NoSanitizer, Sanitized, program
from fuzz.sanitizer_log import TOOLS
from fuzz.verdict import Kind
from tests.gpu.fault_engine import FAULTS
from tests.gpu.launches import launch_of
from tests.unit.test_isolation import case_with

adapters.BUILT_IN["gpu_faults"] = "tests.gpu.fault_modules"
TARGET = "gpu_faults/gpu/commit.checkpoint_steps/misbehaves"
CODES = {fault: code for code, fault in FAULTS.items()}


@cache
def missing() -> str | None:
    if not os.path.exists("/dev/nvidia0"):
        return "UNSUPPORTED: no GPU here"
    try:
        program()
    except NoSanitizer as error:
        return f"UNSUPPORTED: {error}"
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

# fault, how the identity begins and ends, what the claim says
CASES = {
    "memcheck": [
        ("write_after", "memcheck:invalid-global-write", "store", "1 bytes after the nearest allocation of size 256"),
        ("write_before", "memcheck:invalid-global-write", "store", "the nearest allocation"),
        ("read_past", "memcheck:invalid-global-read", "load", "1 bytes after the nearest allocation of size 256"),
    ],
    "initcheck": [("uninitialised", "initcheck:uninitialized-global-memory-read", "load", "fault_kernels.py:")],
    "racecheck": [("race", "racecheck:race-reported-between-", "race", "race.cu:")],
    "synccheck": [("divergent_barrier", "synccheck:barrier-error-detected-divergent-thread", "divergent_barrier", "")],
}


@pytest.fixture(scope="module", params=TOOLS)
def session(request):
    launch = launch_of("gpu_faults", "tests.gpu.fault_engine", torch=True)
    with Sanitized(launch, request.param) as made:
        print(f"\n{request.param}: imported in {made.ready['import_s']:.1f} s, a process a case: {made.alone}")
        yield made


def shown(session: Sanitized, fault: str | None):
    began = time.perf_counter()
    verdict = execute(session, adapters.load("gpu_faults")[TARGET], case_with(CODES.get(fault, 5)))
    print(f"{session.tool} {fault}: {verdict.kind} in {time.perf_counter() - began:.2f} s, {verdict.evidence}")
    return verdict


def test_each_report_is_charged_to_its_case_and_a_right_kernel_has_none(session):
    for fault, begins, ends, said in CASES[session.tool]:
        assert shown(session, None).kind is Kind.AGREE
        verdict = shown(session, fault)
        if verdict.kind is Kind.UNSUPPORTED:
            pytest.skip(f"UNSUPPORTED: {verdict.evidence['reason']}")
        claim = verdict.evidence.get("sanitizer", {}).get("said", [""])[0]
        assert verdict.red and said in claim, verdict
        # What was read may be a wrong value, and a barrier may take the process along: red by themselves.
        if fault not in ("read_past", "divergent_barrier"):
            assert verdict.identity.field == "sanitizer", verdict
            assert verdict.identity.kind.startswith(begins) and verdict.identity.kind.endswith(f":{ends}"), verdict
        assert shown(session, None).kind is Kind.AGREE
    assert session.late() == []


def test_what_would_lose_the_device_is_named_too(session):
    if session.tool != "memcheck":
        pytest.skip("UNSUPPORTED: only memcheck looks at addresses")
    for fault in ("illegal_address", "misaligned"):
        verdict = shown(session, fault)
        assert verdict.red and "Invalid __global__ write" in verdict.evidence["sanitizer"]["said"][0], verdict
        assert shown(session, None).kind is Kind.AGREE
