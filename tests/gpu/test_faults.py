"""Faults of real kernels on a real GPU: each case has its verdict, and the next one is answered."""

from __future__ import annotations

import os
import time

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from tests.gpu.fault_engine import FAULTS
from tests.gpu.launches import launch_of
from tests.unit.test_isolation import case_with

adapters.BUILT_IN["gpu_faults"] = "tests.gpu.fault_modules"
pytestmark = pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="UNSUPPORTED: no GPU here")

EXPECTED = {
    "illegal_address": (Kind.CRASH, "device:an illegal memory access was encountered"),
    "device_assert": (Kind.CRASH, "device:device-side assert triggered"),
    "endless_kernel": (Kind.HANG, "hang"),
    "misaligned": (Kind.CRASH, "device:misaligned address"),
    "memory": (Kind.OUT_OF_MEMORY, None),
    "exit": (Kind.CRASH, "died:exit 7"),
    "segfault": (Kind.CRASH, "died:SIGSEGV"),
    "kill": (Kind.CRASH, "died:SIGKILL"),
    "write_after": (Kind.DIVERGE, "wrong_step"),
    "write_before": (Kind.DIVERGE, "wrong_step"),
    "read_past": (Kind.DIVERGE, "wrong_step"),
}


@pytest.fixture(scope="module")
def session():
    launch = launch_of("gpu_faults", "tests.gpu.fault_engine", torch=True)
    with Session(launch, deadline_s=20.0) as made:
        yield made


@pytest.mark.parametrize("fault", EXPECTED)
def test_each_fault_has_its_verdict_and_the_next_case_agrees(session, fault):
    target = adapters.load("gpu_faults")["gpu_faults/gpu/commit.checkpoint_steps/misbehaves"]
    code = next(k for k, v in FAULTS.items() if v == fault)
    assert execute(session, target, case_with(5)).kind is Kind.AGREE
    verdict = execute(session, target, case_with(code))
    kind, difference = EXPECTED[fault]
    assert verdict.kind is kind, verdict
    assert (verdict.identity.kind if verdict.identity else None) == difference
    began = time.perf_counter()
    assert execute(session, target, case_with(5)).kind is Kind.AGREE
    print(f"{fault}: {verdict.kind} {difference}; next case after {time.perf_counter() - began:.2f} s")
