"""Cases of commit.checkpoint_steps.

Draws that matter for shrinking come first and simplest first: one request, one
committed token, the boundary one token ahead, grid 256 in int64, a chain. The
length is drawn as a boundary and a distance before it, because a uniform length
would cross a boundary once in 256 draws.
"""

from __future__ import annotations

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.checkpoint_steps import LENGTH_MAX, NONE, SITUATIONS, CheckpointStepsCase, Request

GRIDS = (256, 128, 64, 512, 32, 16, 8, 96, 1, 2, 3, 7)
PRODUCTION_GRIDS = (256, 128, 64)


def structure(source: Source) -> CheckpointStepsCase:
    """One case. Every draw is an integer within bounds, or a record."""
    grid = choice(source, PRODUCTION_GRIDS if not flag(source) else GRIDS)
    draft_tokens = source.integer(1, 64)
    situation = SITUATIONS[0] if source.integer(0, 15) < 15 else choice(source, SITUATIONS)
    form = choice(source, ("chain", "tree"))
    tracking = source.integer(0, 9) < 9
    length_dtype = choice(source, ("int64", "int32"))
    committed_dtype = choice(source, ("int32", "int64"))
    path_width = draft_tokens - (source.integer(0, draft_tokens - 1) if form == "tree" and flag(source) else 0)
    high = LENGTH_MAX["int32"] if length_dtype == "int32" else 2**33

    def request(source: Source) -> tuple[int, int, bool, int]:
        committed = source.integer(1, path_width)
        distance = source.integer(1, grid)
        where = source.integer(0, 9)
        if where < 7:
            boundary = grid * source.integer(1, 4)
        elif where < 9:
            boundary = grid * source.integer(1, 2**20)
        else:
            boundary = (2**31 // grid + source.integer(-1, 2)) * grid
        pre = max(0, min(boundary - distance, high - committed))
        has_slot = source.integer(0, 9) < 9
        if source.integer(0, 63) == 63:
            committed = 0  # defensive
        return pre, committed, has_slot, source.integer(0, 2**16) if form == "tree" else 0

    empty = situation in ("idle", "empty_accept_index")
    drawn = [] if empty else source.records(request, 1, 8)
    requests = tuple(
        Request(pre, committed, i if slot else NONE, tree_path(committed, draft_tokens, seed) if form == "tree" else ())
        for i, (pre, committed, slot, seed) in enumerate(drawn)
    )
    return CheckpointStepsCase(
        grid, draft_tokens, path_width, form, length_dtype, committed_dtype, situation, tracking, requests
    )


def tree_path(length: int, draft_tokens: int, seed: int) -> tuple[int, ...]:
    """A rising path of ``length`` nodes from the root; seed 0 is the chain."""
    path, node = [0][:length], 0
    for step in range(1, length):
        slack = draft_tokens - 1 - node - (length - 1 - step)
        seed, skip = divmod(seed, 3)
        node += 1 + min(skip, max(0, slack - 1))
        path.append(node)
    return tuple(path)
