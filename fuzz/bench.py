"""What a case costs, and how much of it is production code.

Cases go the way of a campaign's volume: drawn, journalled, sent in batches, judged
while the worker is at the next. A benchmark measures and asserts nothing. Figures
are of one run; the machine may be shared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from fuzz.adapter import Adapter
from fuzz.campaign import Campaign, Options
from fuzz.events import Events
from fuzz.supervisor import Session

MAX_SECONDS = 60.0  # for one target
WARM_UP = 40  # cases before those that are counted: imports, caches, compilation
HEADER = f"{'target':<92} {'cases/s':>8} {'production':>10} {'adapter':>9} {'harness ms':>10}"


def bench(session: Session, adapters: list[Adapter], cases: int, say: Callable[[str], None]) -> None:
    """Print, per target: cases per second, shares of time in production code and in the
    adapter around it, and what the harness adds to the worker's own time, in milliseconds
    a case."""
    say(HEADER)
    for adapter in adapters:
        if adapter.id in session.ready["unsupported"]:
            continue
        measure(session, adapter, WARM_UP)
        row = measure(session, adapter, cases)
        if row is None:
            say(f"{adapter.id:<92} no case executed")
            continue
        rate, production, around, harness_ms = row
        say(f"{adapter.id:<92} {rate:>8.0f} {100 * production:>9.0f}% {100 * around:>8.0f}% {harness_ms:>10.3f}")


def measure(session: Session, adapter: Adapter, cases: int) -> tuple[float, float, float, float] | None:
    """Cases per second, production share, adapter share, harness ms a case."""
    options = Options(max_seconds=MAX_SECONDS, max_examples=cases, bare=True)
    with tempfile.TemporaryDirectory(prefix="specoracle-bench-") as folder, Events(Path(folder)) as events:
        campaign = Campaign(session, [adapter], options, events)
        campaign.run()
        wall_s = campaign.elapsed_s
    (state,) = campaign.states
    if not state.executed or not state.worker_s:
        return None
    return (
        state.executed / wall_s,
        state.production_s / wall_s,
        (state.worker_s - state.production_s) / wall_s,
        1e3 * (wall_s - state.worker_s) / state.executed,
    )
