"""A run on several devices, from the import of its engine on each to what all of them say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import click

from fuzz import interrupt
from fuzz.commands.runs import Ending, counted, ending
from fuzz.events import Events
from fuzz.lanes import Lane, Lanes, Lost
from fuzz.progress import Display
from fuzz.supervisor import Launch
from fuzz.verdict import EXIT_AGREED, Kind, exit_code, worst_exit
from reports.events import FAILURES, read
from reports.events import parts as of_one_engine
from reports.model import identity_of, judged

T = TypeVar("T")


@dataclass(frozen=True)
class Said(Generic[T]):
    """What one lane gives back: what it found, and how its work ended."""

    device: str
    found: T
    end: Ending


def in_lanes(
    launch: Launch, devices: Sequence[str], parts: int, events: Events, work: Callable[[Lane], tuple[T, Ending]],
    begin: Callable[[Any], None], show: Callable[[Display, list[int]], None], title: str,
) -> tuple[list[T], Ending, Any]:  # fmt: skip
    """Let every device do its share of ``parts``. ``begin`` is told what stands for a session over all
    of them once every engine is imported. Returns what each found, how the run ended, and that
    session. Raises SessionError when no device could be started."""
    with Lanes(launch, devices, parts) as lanes:
        with Display(launch.label) as display:
            display.show(f"importing the engine on {counted(len(devices), 'device')}", None, stage=True)
            lanes.start(events, partial(_said, work))
        begin(lanes.session)
        results: list[Any] = []
        with Display(title) as display, ending() as end:
            results = lanes.go(partial(show, display))
            interrupt.look()
        gone = [*lanes.failed, *(result for result in results if isinstance(result, Lost))]
        heard = [result for result in results if not isinstance(result, Lost)]
        reasons = [lost.reason for lost in gone]
        reasons += [f"{said.device}: {said.end.reason}" for said in heard if said.end.reason]  # also an interrupted one
        with interrupt.remembered():
            end.lost(reasons, EXIT_AGREED if end.interrupted else _unheard(gone, events))
        return [said.found for said in heard], end, lanes.session


def _said(work: Callable[[Lane], tuple[T, Ending]], lane: Lane) -> Said[T]:
    return Said(lane.device, *work(lane))


def _unheard(lost: list[Lost], events: Events) -> int:
    """Say what devices had found whose lanes were lost before they could, for the journal has it;
    returns the exit code that this and their loss give."""
    if not lost:
        return EXIT_AGREED
    code, devices = worst_exit(each.code for each in lost), {each.device for each in lost}
    try:
        of_engine = of_one_engine(read(events.out))[-1]  # the one whose lanes these are
    except (OSError, ValueError) as error:
        click.echo(f"what lost devices had found cannot be read: {error}", err=True)
        return code
    ends = [end for end in judged(of_engine) if end.get("device") in devices]
    red = {identity_of(end): end for end in ends if end["verdict"] in FAILURES and not end.get("known")}
    for identity, end in red.items():
        click.echo(f"{end['device']} had found before: {end['verdict']}: {' | '.join(identity)}", err=True)
    return worst_exit((code, exit_code(Counter(Kind(end["verdict"]) for end in ends), len(red))))
