"""Read the events of a run, also of one that was killed.

A last line that was cut is dropped; anything else that is not an event is an
error that names the line.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE = "events.ndjson"


def read(out: Path) -> list[dict[str, Any]]:
    """Events of the run in ``out``. Raises ValueError or OSError."""
    path = out / FILE
    if not path.is_file():
        raise ValueError(f"{out}: no {FILE} in it; name the folder of a run")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    events = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise ValueError(f"{path}: line {number} is not JSON") from None
        if not isinstance(event, dict) or event.get("schema") != SCHEMA or "event" not in event:
            raise ValueError(f"{path}: line {number} is not an event of schema {SCHEMA}")
        events.append(event)
    return events
