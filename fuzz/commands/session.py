"""Open a session for a command, with provisioning and import shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.engines.spec import EngineSpec
from fuzz.launch import launch_for
from fuzz.progress import Display
from fuzz.sanitize import Sanitized
from fuzz.supervisor import Launch, Session


def provisioned(spec: EngineSpec, device: str, python: Path | None, offline: bool) -> Launch:
    """Provision what is missing and say how the engine is started. Raises EngineError."""
    with Display(str(spec)) as display:
        return launch_for(
            spec, device=device, python=python, offline=offline,
            progress=lambda text, done: display.show(text, done, stage=True),
        )  # fmt: skip


@contextmanager
def started(launch: Launch, sanitize: str | None = None, *, alone: bool = False) -> Iterator[Session]:
    """Import the engine once and yield its session, ``sanitize`` names the tool under which
    it runs and ``alone`` gives each case a process of its own there. Raises SessionError."""
    with Display(launch.label) as display:
        display.show("importing the engine", None, stage=True)
        session = Session(launch) if sanitize is None else Sanitized(launch, sanitize, alone=alone)
        try:
            session.start()
        except BaseException:
            session.close()
            raise
        display.show(f"imported in {session.ready['import_s']:.1f} s", 1.0, stage=True)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def open_session(
    spec: EngineSpec, device: str, python: Path | None, offline: bool, sanitize: str | None = None, **how: bool
) -> Iterator[Session]:
    """Provision what is missing, import the engine once, and yield the session.
    Raises EngineError or SessionError."""
    with started(provisioned(spec, device, python, offline), sanitize, **how) as session:
        yield session
