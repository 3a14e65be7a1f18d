"""A gate on several devices: lanes take its targets one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fuzz import interrupt
from fuzz.commands.runs import Ending, counted, ending, found_by
from fuzz.events import Events
from fuzz.gate import GateResult
from fuzz.gate import gate as run_gate
from fuzz.lanes import Lane, Lanes, Lost
from fuzz.progress import Display

if TYPE_CHECKING:
    from fuzz.commands.gate import Part


def run(part: Part, devices: Sequence[str], events: Events, begin: Callable[[Any], None]) -> Any:
    """Fill ``part`` with what all devices found and say how it ended; ``begin`` is told the session
    once every engine is imported. Returns what stands for a session over all devices. Raises
    SessionError when no device could be started."""
    with Lanes(part.launch, devices, len(part.adapters)) as lanes:
        with Display(part.label) as display:
            display.show(f"importing the engine on {counted(len(devices), 'device')}", None, stage=True)
            lanes.start(events, partial(_work, part))
        begin(lanes.session)
        results: list[Any] = []
        with Display("gate") as display, ending() as part.end:
            results = lanes.go(lambda sums: part.show(display, *sums[:2]))
            interrupt.look()
        lost = [lane.reason for lane in lanes.failed]
        for result in results:
            if isinstance(result, Lost):
                lost.append(result.reason)
                continue
            found, end, device = result
            part.result.add(found)
            if end.reason:  # also one that somebody else interrupted
                lost.append(f"{device}: {end.reason}")
        part.end.lost(lost, found_by([r.device for r in results if isinstance(r, Lost)], events.out))
        return lanes.session


def _work(part: Part, lane: Lane) -> tuple[GateResult, Ending, str]:
    """What one lane does. A result that several targets share says which listed divergences of
    all of them were silent, so it is one for the whole lane."""
    result = GateResult()
    with ending(say=False) as end:  # the supervisor says it
        while (taken := lane.next_part()) is not None:
            run_gate(
                lane.session, [part.adapters[taken[0]]], part.cases, lane.events, part.known, result,
                lambda r: lane.tell(r.done, len(r.red)), part.more,
            )  # fmt: skip
    return result, end, lane.device
