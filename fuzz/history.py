"""Which earlier case it takes for a fault to show.

Production keeps things between calls: descriptors by address, caches, memory that an
earlier kernel wrote next to. A fault that shows behind other cases and not alone would
look like chance. Its process's last requests are therefore sent again in fresh ones,
and halved for as long as the fault still shows. What this cannot find: a fault that
needs more of the past than a session remembers, or that is chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fuzz.supervisor import Session

MAX_SECONDS = 60.0  # a GPU's process costs an import when no spare is warm
MAX_RUNS = 24  # fresh processes; halving 64 requests down to one or two takes about twelve


def needed(
    session: Session,
    past: Sequence[dict[str, Any]],
    request: dict[str, Any],
    shows: Callable[[Any], bool],
    max_seconds: float = MAX_SECONDS,
) -> list[dict[str, Any]] | None:
    """The requests of ``past``, in order, behind which the answer to ``request`` ``shows`` the
    fault in a fresh process; ``None`` if it does not even behind all of them. No single half
    of the result is enough, unless runs or time were used up."""
    runs, until = 0, time.monotonic() + max_seconds

    def again(before: Sequence[dict[str, Any]]) -> bool:
        nonlocal runs
        runs += 1
        session.fresh()
        answers = list(session.stream([*before, request]))
        return shows(answers[-1])

    def spent() -> bool:
        return runs >= MAX_RUNS or time.monotonic() >= until

    kept = list(past)
    if not kept or not again(kept):
        return None
    size = (len(kept) + 1) // 2
    while size and not spent():
        at = 0
        while at < len(kept) and not spent():
            fewer = kept[:at] + kept[at + size :]
            if fewer and again(fewer):
                kept = fewer
            else:
                at += size
        size //= 2
    return kept
