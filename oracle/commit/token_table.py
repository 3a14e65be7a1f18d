"""The token table and the tokens of a verify block, stamped so that errors show.

A KV location encodes pool row and position, but neighbouring positions are not
neighbours in memory: code that adds an offset to the location of the first token
instead of looking each one up goes wrong at once. Tokens come from a large
vocabulary, so that a token taken from another node or row is another token.
"""

from __future__ import annotations

import random

import numpy as np

POOL_ROWS = 32  # rows of the table; row 0 belongs to nobody
VOCABULARY = 151_936


def location(pool_row: int, position: int, table_width: int) -> int:
    """Where the table says that a token lies. Neighbouring positions are not
    neighbours in memory, and location 0 belongs to nobody."""
    return 1 + pool_row * table_width + (5 * position + 3) % table_width


def table(table_width: int) -> np.ndarray:
    """The whole table, int32 [POOL_ROWS, table_width]."""
    position = np.arange(table_width, dtype=np.int64)
    base = np.arange(POOL_ROWS, dtype=np.int64)[:, None] * table_width
    return (1 + base + (5 * position + 3) % max(table_width, 1)).astype(np.int32)


def tokens(path: tuple[int, ...], draft_tokens: int, seed: int) -> tuple[list[int], list[int]]:
    """Tokens of the verify block and the target's prediction behind each node;
    along the path every token is the prediction behind its parent."""
    rng = random.Random(seed)
    predicted = [rng.randrange(VOCABULARY) for _ in range(draft_tokens)]
    block = [rng.randrange(VOCABULARY) for _ in range(draft_tokens)]
    for parent, node in zip(path, path[1:]):
        block[node] = predicted[parent]
    return block, predicted
