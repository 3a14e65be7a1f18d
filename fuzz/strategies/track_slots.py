"""Cases of commit.track_slots.

Simplest first: one request at the first position of a buffer of two, that
reaches 256 with its first token. As in commit.checkpoint_steps the length is
drawn as a boundary and a distance before it; here also a little behind it,
because a run that was cut goes wrong just after a boundary.
"""

from __future__ import annotations

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.track_slots import NONE, POOL_ROWS, Request, TrackSlotsCase

GRIDS = (256, 64, 128, 8, 3, 1)
MAX_REQUESTS = 6
MOST_SKIPPED_ROWS = (POOL_ROWS - 1) // MAX_REQUESTS - 1


def structure(source: Source) -> TrackSlotsCase:
    """One case. Every draw is an integer within bounds, or a record."""
    grid = choice(source, GRIDS)
    draft_tokens = choice(source, (4, 2, 8, 16, 1, 64))
    tracking = source.integer(0, 9) < 9
    lazy = source.integer(0, 3) == 3
    size = 2 if lazy or source.integer(0, 4) < 4 else 1
    backwards = flag(source)

    def request(source: Source) -> tuple[int, int, int, int, int, bool, int]:
        committed = source.integer(1, draft_tokens)
        cut = source.integer(0, committed - 1) if not lazy and flag(source) else 0
        boundary = grid * source.integer(0, 2**20 if source.integer(0, 9) == 9 else 4)
        pre = boundary + (source.integer(0, draft_tokens) if flag(source) else -source.integer(1, grid))
        position = NONE if source.integer(0, 7) == 7 else source.integer(0, size - 1)
        planned = source.integer(0, size - 1) if lazy else 0
        second_slot = not lazy or source.integer(0, 3) < 3
        return (
            max(0, pre),
            committed,
            committed - cut,
            position,
            planned,
            second_slot,
            source.integer(0, MOST_SKIPPED_ROWS),
        )

    requests, row, slot = [], 0, 0
    for pre, committed, retained, position, planned, second_slot, skipped in source.records(request, 1, MAX_REQUESTS):
        row += 1 + skipped
        slots = list(range(slot + 1, slot + 1 + size))
        if not second_slot and position != NONE:
            slots[1 - position], planned = NONE, position
        slot += size
        requests.append(Request(pre, committed, retained, position, planned, tuple(slots), row))
    return TrackSlotsCase(grid, draft_tokens, tracking, lazy, tuple(requests[::-1] if backwards else requests))
