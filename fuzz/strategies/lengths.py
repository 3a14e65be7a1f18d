"""Cases of commit.lengths.

Simplest first: one request that commits its current token, a chain of four
tokens, a table of 256 positions, no simulated acceptance. A pool row is drawn as
a step ahead of the row before it, so that rows never repeat, and batches are
shuffled by the presentation and by the direction drawn here.
"""

from __future__ import annotations

from fuzz.strategies.checkpoint_steps import tree_path
from fuzz.strategies.source import Source, choice, flag
from oracle.commit.lengths import LENGTH_MAX, NOBODY, LengthsCase, Request
from oracle.commit.token_table import POOL_ROWS

MAX_REQUESTS = 8
MOST_SKIPPED_ROWS = (POOL_ROWS - 1) // MAX_REQUESTS - 1


def structure(source: Source) -> LengthsCase:
    """One case. Every draw is an integer within bounds, or a record."""
    draft_tokens = source.integer(1, 128) if source.integer(0, 4) == 4 else choice(source, (4, 2, 8, 1, 16, 64))
    simulated = source.integer(1, draft_tokens + 2) if source.integer(0, 3) == 3 else 0
    token_mode = choice(source, ("fixed", "real"))
    tree = not simulated and flag(source)
    path_width = draft_tokens - (source.integer(0, draft_tokens - 1) if tree and flag(source) else 0)
    length_dtype = choice(source, ("int64", "int32"))
    committed_dtype = choice(source, ("int32", "int64"))
    table_width = choice(source, (512, 1024)) if source.integer(0, 5) < 5 else 0
    backwards = flag(source)
    limit = table_width or LENGTH_MAX[length_dtype]

    def request(source: Source) -> tuple[tuple[int, ...], int, int, int]:
        committed = source.integer(1, path_width)
        room = limit - draft_tokens - max(committed, min(simulated, path_width))
        where = source.integer(0, 9)
        if table_width or where < 5:
            pre = room - source.integer(0, 3) if where == 9 else min(source.integer(0, 300), room)
        else:
            pre = min(room, 2**31 - source.integer(0, 2 * draft_tokens))
        path = tree_path(committed, draft_tokens, source.integer(0, 2**16)) if tree else tuple(range(committed))
        return path, pre, source.integer(0, MOST_SKIPPED_ROWS + 1), source.integer(0, 2**16)

    drawn = source.records(request, 1, MAX_REQUESTS) if source.integer(0, 31) < 31 else []
    requests, row = [], 0
    for path, pre, skipped, seed in drawn:
        if skipped > MOST_SKIPPED_ROWS:
            requests.append(Request(pre, path, NOBODY, seed))
            continue
        row += 1 + skipped
        requests.append(Request(pre, path, row, seed))
    return LengthsCase(
        draft_tokens, path_width, table_width, length_dtype, committed_dtype, simulated, token_mode,
        tuple(requests[::-1] if backwards else requests),
    )  # fmt: skip
