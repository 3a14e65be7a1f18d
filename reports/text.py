"""Text of a run for other places: one line, no control characters, bounded.

Whatever a worker printed, a case held or a stranger wrote may be in an event.
"""

from __future__ import annotations

from typing import Any

MAX_TEXT = 1000  # characters; a report names the case file for the rest


def many(count: int, what: str) -> str:
    """``count`` of something, in its singular or plural."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def one_line(value: Any, limit: int = MAX_TEXT) -> str:
    """``value`` as one printable line; what cannot be printed is spelled out, and a
    cut is shown."""
    text = str(value)
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    spelled = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return spelled if len(spelled) <= limit else spelled[: limit - 1] + "…"
