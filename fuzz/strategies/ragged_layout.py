"""Cases of verify.ragged_layout: lengths, then rows and tokens to spare, then a cap."""

from __future__ import annotations

import random

from fuzz.strategies.source import Source, choice
from oracle.verify.ragged_layout import MAX_BLOCK, MAX_SLOTS, Batch, RaggedLayoutCase


def structure(source: Source) -> RaggedLayoutCase:
    """One case; most batches are small, some as large as a graph may be."""

    def batch(source: Source) -> Batch:
        longest = choice(source, (4, 1, 8, MAX_BLOCK))
        if source.integer(0, 15) < 15:
            lengths = tuple(source.integer(1, longest) for _ in range(source.integer(1, 6)))
        else:
            rng = random.Random(source.integer(0, 2**12))
            lengths = tuple(rng.randint(1, longest) for _ in range(rng.randint(1, MAX_SLOTS)))
        spare = choice(source, (0, 1, 2, 3, 5, 150))
        slots = min(MAX_SLOTS, len(lengths) + spare)
        left = source.integer(0, 3 * max(1, slots - len(lengths)))
        capped = source.integer(0, 3)
        cap = max(lengths) + (source.integer(0, 2) if capped == 1 else 40) if capped in (1, 2) else 0
        return Batch(lengths, slots, sum(lengths) + left, cap)

    return RaggedLayoutCase(tuple(source.records(batch, 1, 3)))
