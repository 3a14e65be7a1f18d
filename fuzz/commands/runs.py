"""What every run shares: its first and last event, and how it may stop early.

A run that is interrupted, whose engine cannot be started again or whose disk is
full still prints what it has, writes its last event and its JUnit file, and says
why it stopped. Such a run is never a pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fuzz import interrupt
from fuzz.events import Events, EventsError, environment
from fuzz.frozen import CorpusError
from fuzz.supervisor import Session, SessionError
from fuzz.verdict import EXIT_AGREED, EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, worst_exit
from reports.junit import write_junit


def counted(number: int, noun: str) -> str:
    """``1 divergence``, ``2 divergences``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def compiled_words(seconds: float) -> str:
    """``, compiled 41 s``; nothing for less than a second, which tells nobody anything."""
    return f", compiled {seconds:.0f} s" if seconds >= 1 else ""


@dataclass
class Ending:
    """How the body of a run ended: ``None`` when it reached its end."""

    code: int | None = None
    reason: str | None = None
    unheard: int = EXIT_AGREED  # the exit code that lost devices and what they had found give

    @property
    def interrupted(self) -> bool:
        return self.code == EXIT_INTERRUPTED

    def lost(self, reasons: list[str], unheard: int) -> None:
        """Devices were lost on the way: whatever the others found, the run did not do all it should."""
        self.unheard = unheard
        for reason in reasons:
            if not self.interrupted:
                click.echo(f"the run stopped early: {reason}", err=True)
            self.code, self.reason = self.code or EXIT_INCONCLUSIVE, self.reason or reason

    def exit_code(self, code: int) -> int:
        """The exit code of the run whose verdicts alone would give ``code``."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        code = worst_exit((code, self.unheard))
        return EXIT_INCONCLUSIVE if self.code is not None and code == EXIT_AGREED else code


@contextmanager
def ending(*, say: bool = True) -> Iterator[Ending]:
    """Catch what may stop the body of a run early, and ``say`` so."""
    end = Ending()
    try:
        yield end
    except (KeyboardInterrupt, Exception) as error:
        if isinstance(error, KeyboardInterrupt) or interrupt.heard():
            end.code, end.reason = EXIT_INTERRUPTED, "interrupted; what was found so far is written"
        elif isinstance(error, (CorpusError, EventsError, SessionError)):
            end.code, end.reason = EXIT_INCONCLUSIVE, f"the run stopped early: {error}" if say else str(error)
        else:
            raise
    if end.reason and say:
        click.echo(end.reason, err=True)


def run_started(events: Events, session: Session, command: str, **values: Any) -> None:
    """The first event of every run: what, where, with which engine."""
    events.emit("run_started", command=command, **_engine(session), environment=environment(), **values)
    _say_guards(session)


def several_started(events: Events, command: str, engines: list[str], device: str, **values: Any) -> None:
    """The first event of a run over several engines; each gets ``engine_started``."""
    events.emit("run_started", command=command, engines=engines, device=device, environment=environment(), **values)


def engine_started(events: Events, session: Session) -> None:
    """The first event of one engine in a run over several."""
    events.emit("engine_started", **_engine(session))
    _say_guards(session)


def _say_guards(session: Session) -> None:
    """Tell the user when a GPU's buffers lie between no guards; the event holds it anyway."""
    if session.ready.get("guards", "on") != "on":
        click.echo(f"no guard zones around this engine's GPU buffers: {session.ready['guards']}", err=True)


def _engine(session: Session) -> dict[str, Any]:
    launch = session.launch
    return {
        "engine": launch.engine,
        "version": launch.version,
        "device": launch.device,
        "worker": {k: v for k, v in session.ready.items() if k not in ("unsupported", "ready", "places")},
        "places": {target: place for target, place in session.ready["places"].items() if place},
    }


def run_finished(events: Events, code: int, end: Ending, **values: Any) -> None:
    """The last event, the JUnit file, and where the results lie."""
    with contextlib.suppress(EventsError):  # a full disk was reported already
        events.emit("run_finished", exit=code, stopped=end.reason, **values)
    write_reports(events.out)


def write_reports(folder: Path) -> None:
    """Derive the JUnit file; the events stay the truth when that fails."""
    try:
        write_junit(folder)
    except (OSError, ValueError) as error:
        click.echo(f"junit.xml could not be written: {error}", err=True)
    click.echo(f"results: {folder}")
