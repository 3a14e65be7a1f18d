"""Cases of commit.call_order: small rounds around a boundary."""

from __future__ import annotations

from fuzz.strategies.source import Source, choice
from oracle.commit.call_order import NONE, CallOrderCase, Request


def structure(source: Source) -> CallOrderCase:
    """One round. Simplest: one request that reaches 256 with its first step."""
    grid = choice(source, (256, 128, 64))
    draft_tokens = choice(source, (4, 2, 8, 16))
    recurrent = source.integer(0, 9) < 9
    hook = source.integer(0, 9) < 9
    tracking = source.integer(0, 5) < 5

    def request(source: Source) -> tuple[int, int, bool]:
        committed = source.integer(1, draft_tokens)
        pre = grid * source.integer(1, 4) - source.integer(1, 2 * draft_tokens)
        return pre, committed, source.integer(0, 9) < 9

    drawn = source.records(request, 1, 4) if source.integer(0, 15) < 15 else []
    requests = tuple(Request(p, c, i if slot else NONE) for i, (p, c, slot) in enumerate(drawn))
    return CallOrderCase(grid, draft_tokens, recurrent, hook, tracking, requests)
