"""How often rows of draft selection are hostile: one in eight, so that what else a
batch shows is judged exactly in most cases."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.strategies.source import Source, choice

ONE_IN = 8


def kind_of(source: Source, healthy: Sequence[str], hostile: Sequence[str]) -> str:
    """A healthy kind, seldom a hostile one."""
    return choice(source, hostile) if source.integer(0, ONE_IN - 1) == ONE_IN - 1 else choice(source, healthy)
