"""Forty-four faults behind production kernels of a real engine: each case has one verdict, the culprit is named, and
behind a warm spare the campaign goes on within two seconds.

``SPECORACLE_GPU_BUNDLE`` names a bundle with SGLang, whose import is what makes a spare worth its while. The faults are
dealt to as many sessions as ``SPECORACLE_GPU_SESSIONS`` says, side by side on the device, because each waits for its
spare first.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import adapter as adapters
from fuzz.engines.bundle import read
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT, Session
from fuzz.verdict import Kind
from reports import events as event_reader
from tests.gpu.fault_engine import FAULTS
from tests.gpu.test_faults import EXPECTED
from tests.unit.test_isolation import case_with

BUNDLE = os.environ.get("SPECORACLE_GPU_BUNDLE")
SESSIONS = int(os.environ.get("SPECORACLE_GPU_SESSIONS", "4"))
DEVICE = os.environ.get("SPECORACLE_GPU_DEVICE", "cuda:0")
ENGINE = os.environ.get("SPECORACLE_GPU_ENGINE", "sglang==0.5.23")
TARGET = "sglang/faults/commit.checkpoint_steps/fused_commit_track_indices"
ROUNDS = 4  # of all eleven faults
DEADLINE_S = 20.0
SPARE_DEADLINE_S = 240.0  # several processes import the engine at once
CODES = {fault: code for code, fault in FAULTS.items()}
# Without guards of its own, the buffer's neighbours are the allocator's zones, and what lies there is no number of it.
HERE = EXPECTED | {name: (Kind.DIVERGE, "written_outside") for name in ("write_after", "write_before")}
LETHAL = [f for f, (kind, _) in HERE.items() if kind in (Kind.CRASH, Kind.HANG)]

pytestmark = pytest.mark.skipif(
    not (BUNDLE and os.path.exists("/dev/nvidia0")), reason="UNSUPPORTED: no GPU here, or no SPECORACLE_GPU_BUNDLE"
)


def launched():
    spec = replace(read(Path(BUNDLE)).spec(ENGINE), bundle=Path(BUNDLE))
    launch = launch_for(spec, device=DEVICE, python=Path(sys.executable))
    adapters.load("sglang")
    import tests.gpu.engine_faults  # noqa: F401  its target stands beside the engine's own

    return replace(
        launch, modules=(*launch.modules, "tests.gpu.engine_faults"), targets=(*launch.targets, TARGET),
        packages=launch.packages | {"tests": str(PROJECT_ROOT / "tests")},
    )  # fmt: skip


def wait_for_spare(session: Session) -> None:
    """Until the spare has said that it imported the engine; its answer stays unread."""
    import select

    ready, _, _ = select.select([session._spare.control], [], [], SPARE_DEADLINE_S)
    assert ready, "the spare did not import the engine in time"


def battery(launch, faults, out):
    """Run the faults, each between two cases that agree; returns what it took to go on after those that kill."""
    target, took = adapters.registered("sglang")[TARGET], {}
    with Session(launch, deadline_s=DEADLINE_S) as session, Events(out) as events:
        events.emit("run_started")
        for fault in faults:
            if fault in LETHAL:
                wait_for_spare(session)
            for code in (5, CODES[fault], 5):
                number = events.start(TARGET, choices=[code])
                began = time.perf_counter()
                verdict = execute(session, target, case_with(code))
                seconds = time.perf_counter() - began
                events.end(number, verdict)
                said = (verdict.kind, verdict.identity.kind if verdict.identity else None)
                assert said == (HERE[fault] if code != 5 else (Kind.AGREE, None)), (fault, verdict)
            if fault in LETHAL:
                took.setdefault(fault, []).append(seconds)
    return took


def test_forty_faults_behind_a_real_kernel_have_one_verdict_each(tmp_path):
    launch, every = launched(), [fault for _ in range(ROUNDS) for fault in HERE]
    with ThreadPoolExecutor(SESSIONS) as pool:
        runs = [pool.submit(battery, launch, every[i::SESSIONS], tmp_path / str(i)) for i in range(SESSIONS)]
        took = [run.result() for run in runs]
    journal = [e for i in range(SESSIONS) for e in event_reader.read(tmp_path / str(i))]
    verdicts = Counter(e["verdict"] for e in journal if e["event"] == "end")
    assert sum(e["event"] == "start" for e in journal) == verdicts.total() == 3 * len(every)
    assert verdicts["AGREE"] == 2 * len(every)
    print(f"\n{len(every)} faults, {dict(verdicts)}")
    seconds = {f: [s for t in took for s in t.get(f, ())] for f in LETHAL}
    for fault, found in seconds.items():
        print(f"{fault}: {HERE[fault][0]} {HERE[fault][1]}, goes on after {', '.join(f'{s:.2f}' for s in found)} s")
    print(f"median {statistics.median(s for found in seconds.values() for s in found):.2f} s")
