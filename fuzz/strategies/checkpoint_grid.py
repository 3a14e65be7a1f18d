"""Cases of commit.checkpoint_grid: sizes that engines use, and small odd ones."""

from __future__ import annotations

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.checkpoint_grid import CheckpointGridCase, Setting

SIZES = (64, 1, 256, 128, 16, 32, 512, 96, 192, 1024)
MAX_ODD = 60


def structure(source: Source) -> CheckpointGridCase:
    """Up to three settings; simplest: all of them 64."""

    def one(source: Source) -> Setting:
        def size() -> int:
            return source.integer(1, MAX_ODD) if flag(source) else choice(source, SIZES)

        interval, page, chunk = size(), size(), size()
        return Setting(interval, page, chunk)

    return CheckpointGridCase(tuple(source.records(one, 1, 3)))
