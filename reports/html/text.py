"""Text as a page may hold it: visible, bounded, and linked only to the web.

Control characters and the marks that turn the direction of text could make a page
show something else than the file says, so they are replaced by a visible sign.
"""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
REPLACED = "\ufffd"


def clean(text: str) -> str:
    """``text`` without characters that cannot be seen."""
    return text if text.isascii() and text.isprintable() else INVISIBLE.sub(REPLACED, text)


def short(text: str, most: int) -> str:
    """``text``, cut to ``most`` characters with a sign that it was."""
    return text if len(text) <= most else text[: most - 1] + "…"


def breakable(text: str) -> Markup:
    """``text`` that a browser may break behind the marks inside a name."""
    return Markup(re.sub(r"([/._(])", r"\1<wbr>", str(escape(clean(text)))))


def link(text: Any) -> str | None:
    """``text`` when it is an address that a reader may follow."""
    return text if isinstance(text, str) and re.match(r"https?://[^\s]+\Z", text) else None


def listed(items: Any, most: int = 12) -> str:
    """Items with commas, the rest counted."""
    words = [str(i) for i in items]
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def number(value: float) -> str:
    """A measured number, short."""
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}"
