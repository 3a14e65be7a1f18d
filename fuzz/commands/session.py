"""Open a session for a command, with provisioning and import shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.engines.spec import EngineSpec
from fuzz.launch import launch_for
from fuzz.progress import Display
from fuzz.supervisor import Session


@contextmanager
def open_session(spec: EngineSpec, device: str, python: Path | None, offline: bool) -> Iterator[Session]:
    """Provision what is missing, import the engine once, and yield the session.
    Raises EngineError or SessionError."""
    with Display(str(spec)) as display:
        launch = launch_for(
            spec, device=device, python=python, offline=offline,
            progress=lambda text, done: display.show(text, done, stage=True),
        )  # fmt: skip
        display.show("importing the engine", None, stage=True)
        session = Session(launch)
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
