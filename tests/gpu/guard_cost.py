"""What guard zones cost on this GPU: ``python -m tests.gpu.guard_cost`` prints microseconds, medians of many runs.

The interpreter needs torch and NumPy, and what ``fuzz.guards`` imports to find the cache folder.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from fuzz import guards as build
from fuzz.worker import guards

COUNTS = (5, 50, 500)  # buffers
SIZE = 20_000  # bytes of one
RUNS = 200
WARM_UP = 20


def main() -> None:
    found = guards.install(torch, str(build.library()), "cuda:0")
    if isinstance(found, str):
        sys.exit(found)
    for count in COUNTS:
        times = [measured(found, count) for _ in range(WARM_UP + RUNS)][WARM_UP:]
        begin, allocate, outside = (statistics.median(column) * 1e6 for column in zip(*times, strict=True))
        print(f"{count} buffers: begin {begin:.0f}, allocation of all {allocate:.0f}, check {outside:.0f}")


def measured(found: guards.Guards, count: int) -> tuple[float, float, float]:
    """Seconds of one run: its begin, its allocations, its check."""
    marks = [time.perf_counter()]
    found.begin()
    marks.append(time.perf_counter())
    held = [torch.empty(SIZE, dtype=torch.uint8, device="cuda:0") for _ in range(count)]
    torch.cuda.synchronize()
    marks.append(time.perf_counter())
    assert found.outside() == ""
    marks.append(time.perf_counter())
    del held
    return tuple(after - before for before, after in zip(marks, marks[1:], strict=False))


if __name__ == "__main__":
    main()
