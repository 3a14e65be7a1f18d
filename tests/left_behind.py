"""Which processes a test has left behind, by a mark in their environment."""

from __future__ import annotations

import contextlib
from pathlib import Path

MARK = "SPECORACLE_TEST_RUN"


def alive_with(mark: Path) -> set[int]:
    """Processes that inherited ``MARK=mark``."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in entry.read_bytes().split(b"\0"):
                found.add(int(entry.parent.name))
    return found
