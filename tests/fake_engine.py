"""An engine without torch whose targets misbehave on purpose.

It lets the isolation be tested thousands of times: a worker starts in
milliseconds. The case's first request says what happens: ``pre`` selects the
fault, everything else is answered rightly.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

from fuzz.adapter import PathNotTaken, adapter
from fuzz.engines.closed import ClosedStub
from oracle.commit.checkpoint_steps import closed_form

FAULTS = {
    1001: "exit", 1002: "segfault", 1003: "kill", 1004: "hang", 1005: "garbage", 1006: "flood", 1007: "harness",
    1008: "stub", 1009: "memory", 1010: "path", 1011: "wrong", 1012: "swallowed_stub", 1013: "flaky",
    1014: "device", 1015: "device_of_ours", 1016: "stopped", 1017: "deaf", 1018: "busy",
    1019: "compiles", 1020: "hangs_after_compiling", 1021: "looks_for_its_import",
}  # fmt: skip


def right(case: Any) -> dict[str, Any]:
    """The right answer for a chain in which every row is tracked."""
    if case.situation != "verify":
        return {"current_step": [], "checkpoint_step": []}
    current, saved, _ = closed_form(case.pre, case.committed, case.grid)
    saved[(case.track_slot < 0) | (not case.tracking)] = -1
    return {"current_step": current.tolist(), "checkpoint_step": saved.tolist()}


def lose_device(engine: Any, *, in_production: bool) -> None:
    """From now on every call on the device fails, as after an illegal address."""

    def synchronize(device: str) -> None:
        if lost:
            raise RuntimeError("CUDA error: device-side assert triggered\nand more lines")

    lost = in_production
    engine.device = "cuda:0"
    engine.__dict__["torch"] = SimpleNamespace(cuda=SimpleNamespace(synchronize=synchronize))
    with engine.production():
        pass
    lost = True
    engine.torch.cuda.synchronize("cuda:0")


def compile_kernel(seconds: float) -> None:
    """What a build with ninja looks like from here."""
    with tempfile.TemporaryDirectory() as folder:
        ninja = os.path.join(folder, "ninja")
        os.symlink(shutil.which("sleep"), ninja)
        subprocess.run([ninja, str(seconds)], check=True)


def functional_chain(case: Any) -> str | None:
    if case.form != "chain" or (case.committed == 0).any():
        return "functional chains only"
    return None


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="misbehaves", engine="fake",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def misbehaves(engine: Any, case: Any) -> dict[str, Any]:
    with engine.production():
        pass
    fault = FAULTS.get(int(case.pre[0])) if len(case.pre) else None
    if fault is None:
        return right(case)
    if fault == "exit":
        os._exit(7)
    if fault == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        time.sleep(3600)
    if fault in ("compiles", "hangs_after_compiling"):
        with engine.production():
            compile_kernel(0.4)
            compile_kernel(0.4)
        if fault == "compiles":
            return right(case)
        time.sleep(3600)
    if fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "deaf":  # as in a driver call that never returns: no signal but SIGKILL reaches it
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(3600)
    while fault == "busy":
        pass
    if fault == "garbage":
        for fd in range(3, 64):
            try:
                if os.fstat(fd).st_mode & 0o170000 == 0o140000:  # sockets
                    os.write(fd, b"\xff" * 64)
            except OSError:
                continue
    if fault == "flood":
        sys.stdout.write("x" * 5_000_000)
        sys.stdout.flush()
        return right(case)
    if fault == "harness":
        raise KeyError("in the adapter")
    if fault == "stub":
        return ClosedStub("batch").nothing_promised
    if fault == "swallowed_stub":
        with contextlib.suppress(Exception):
            _ = ClosedStub("batch").nothing_promised
        return right(case)
    if fault == "memory":
        raise MemoryError("asked for too much")
    if fault == "path":
        raise PathNotTaken("path not taken: fused kernel")
    if fault in ("device", "device_of_ours"):
        lose_device(engine, in_production=fault == "device")
    if fault == "flaky" and os.getpid() % 2:
        return right(case)
    if fault == "looks_for_its_import" and not any(o is misbehaves for o in gc.get_objects()):
        return right(case)
    answer = right(case)
    return {"current_step": [s + 1 for s in answer["current_step"]], "checkpoint_step": answer["checkpoint_step"]}


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="two_bugs", engine="fake",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def two_bugs(engine: Any, case: Any) -> dict[str, Any]:
    """Wrong in two distinct ways: a missing checkpoint on grid 64, and a current
    step one too far when all 17 tokens or more are committed."""
    answer = right(case)
    if case.grid == 64:
        answer["checkpoint_step"] = [-1] * len(answer["checkpoint_step"])
    answer["current_step"] = [s + (s >= 16) for s in answer["current_step"]]
    return answer


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="right", engine="fake",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def right_target(engine: Any, case: Any) -> dict[str, Any]:
    return right(case)


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="remembers", engine="fake",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def remembers(engine: Any, case: Any) -> dict[str, Any]:
    """Right for itself, and wrong about length 1200 once its process has met both 1100 and 1101."""
    with engine.production():
        met = engine.__dict__.setdefault("met", set())
        met.update(case.pre.tolist())
    answer = right(case)
    if {1100, 1101} <= met and case.pre.tolist() == [1200]:
        answer["current_step"] = [-2]
    return answer
