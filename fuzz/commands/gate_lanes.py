"""A gate on several devices: lanes take its targets one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fuzz.commands.in_lanes import in_lanes
from fuzz.commands.runs import Ending, ending
from fuzz.events import Events
from fuzz.gate import GateResult
from fuzz.gate import gate as run_gate
from fuzz.lanes import Lane

if TYPE_CHECKING:
    from fuzz.commands.gate import Part


def run(part: Part, devices: Sequence[str], events: Events, begin: Callable[[Any], None]) -> Any:
    """Fill ``part`` with what all devices found and say how it ended; ``begin`` is told the session
    once every engine is imported. Returns what stands for a session over all devices. Raises
    SessionError when no device could be started."""
    results, part.end, session = in_lanes(
        part.launch, devices, len(part.adapters), events, partial(_work, part), begin,
        lambda display, sums: part.show(display, *sums[:2]), "gate",
    )  # fmt: skip
    for found in results:
        part.result.add(found)
    return session


def _work(part: Part, lane: Lane) -> tuple[GateResult, Ending]:
    """What one lane does. A result that several targets share says which listed divergences of
    all of them were silent, so it is one for the whole lane."""
    result = GateResult()
    with ending(say=False) as end:  # the supervisor says it
        while (taken := lane.next_part()) is not None:
            run_gate(
                lane.session, [part.adapters[taken[0]]], part.cases, lane.events, part.known, result,
                lambda r: lane.tell(r.done, len(r.red)), part.more,
            )  # fmt: skip
    return result, end
