"""Long stories: a thousand requests through an engine's pools and prefix cache.

    python -m fuzz.lifecycle.soak --engine sglang==0.5.23

For 1, 4, 8 and 16 requests at a time and checkpoints every 128 and 256 tokens, 1,024
requests with shared prefixes enter, verify across boundaries, finish, are retracted and
come back, while the cache is emptied now and then. After every step every filed state,
every running state and every slot is compared with the model, so each hit is shown to
resume from the state of exactly its length. The exit code is 0 when all agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from fuzz.adapter import select
from fuzz.engines.spec import parse
from fuzz.executor import execute
from fuzz.launch import launch_for
from fuzz.lifecycle.long import hits, long_story
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle.lifecycle.story import long_stories

CONTRACT = "commit.lifecycle"
AT_A_TIME = (1, 4, 8, 16)
GRIDS = (128, 256)
DEADLINE_S = 1800.0  # of one story


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", required=True, help="such as sglang==0.5.23")
    parser.add_argument("--requests", type=int, default=1024, help="lives of each story")
    parser.add_argument("--target", default="*", help="glob of target ids; all targets of the contract without it")
    parser.add_argument("--seed", default="soak")
    chosen = parser.parse_args(arguments)
    launch = launch_for(parse(chosen.engine))
    targets = select(launch.engine, chosen.target, CONTRACT)
    wrong = told = 0
    with Session(launch, deadline_s=DEADLINE_S) as session, long_stories():
        for target in targets:
            for at_a_time in AT_A_TIME:
                for grid in GRIDS:
                    lazy = "lazy" in target.id
                    overlap = lazy or grid == GRIDS[0]
                    seed = f"{chosen.seed}:{at_a_time}:{grid}"
                    case = long_story(seed, chosen.requests, at_a_time, grid, overlap, lazy)
                    began = time.perf_counter()
                    verdict: Any = execute(session, target, case)
                    seconds = time.perf_counter() - began
                    if verdict.kind is Kind.UNSUPPORTED:
                        print(f"{target.id}: {verdict.evidence['reason']}", flush=True)
                        continue
                    resumed, filed = hits(case)
                    told += 1
                    wrong += verdict.kind is not Kind.AGREE
                    words = "" if verdict.kind is Kind.AGREE else f": {str(verdict.evidence)[:2000]}"
                    what = f"{chosen.requests} requests, {at_a_time} at a time, every {grid} tokens"
                    how = f"{len(case.steps)} steps, {resumed} hits, {filed} states filed, {seconds:.0f} s"
                    print(f"{target.id}: {verdict.kind}: {what}: {how}{words}", flush=True)
    print(f"{told} stories, {wrong} not in agreement")
    return 0 if told and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
