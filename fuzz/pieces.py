"""What an exhaustive sweep asks: pieces of its domain, and the rows in each that are walked.

A piece is one request. It is as large as the device's memory allows with the accepted nodes of all its rows; on a CPU
it is as large as is answered within a second. In Triton's interpreter a row costs a millisecond; there a
seeded sample of short pieces takes the place of 4 * 10^8 rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fuzz.adapter import Adapter
from fuzz.sweep import PRODUCTION_GRIDS, SAMPLE_ROWS

MAX_LENGTH = 2**20
LENGTH_DTYPES = ("int64", "int32")
DEVICE_ROWS = 2**22  # of a block: 1 GiB of accepted nodes at 64 a row, 0.3 GiB of lengths, answers and yardsticks
CPU_ROWS = 2**18
SAMPLE_LENGTHS = 4  # of a block in the interpreter
SPOT_ROWS = 4096  # walked by the reference, over the whole domain


@dataclass(frozen=True)
class Piece:
    """Every length from ``first`` to ``last``, each with every committed count from 1 to ``commits``."""

    grid: int
    length_dtype: str
    first: int
    last: int
    commits: int

    @property
    def rows(self) -> int:
        return (self.last - self.first + 1) * self.commits

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Which of the rows [k, 2], (length, committed), lie in it."""
        length, committed = rows.T
        return (self.first <= length) & (length <= self.last) & (committed >= 1) & (committed <= self.commits)


def pieces(max_length: int, commits: int, rows: int) -> list[Piece]:
    """The whole domain, lengths 0 to ``max_length``, in pieces of at most ``rows`` rows (one length at least)."""
    step = max(1, rows // commits)
    return [
        Piece(grid, dtype, first, min(first + step - 1, max_length), commits)
        for dtype in LENGTH_DTYPES
        for grid in PRODUCTION_GRIDS
        for first in range(0, max_length + 1, step)
    ]


def sampled(max_length: int, commits: int, rows: int, seed: int) -> list[Piece]:
    """About ``rows`` rows in short pieces, at least two for each grid and type; half of them in front of a boundary."""
    rng = np.random.default_rng(seed)
    each = -(-rows // (len(LENGTH_DTYPES) * len(PRODUCTION_GRIDS) * SAMPLE_LENGTHS * commits))
    made = []
    for dtype in LENGTH_DTYPES:
        for grid in PRODUCTION_GRIDS:
            for i in range(2 * -(-each // 2)):
                first = int(rng.integers(max_length + 1))
                if i % 2:
                    first = max(0, (first // grid + 1) * grid - int(rng.integers(1, commits + 1)))
                first = min(first, max_length)
                made.append(Piece(grid, dtype, first, min(first + SAMPLE_LENGTHS - 1, max_length), commits))
    return made


def domain(adapter: Adapter, device: str, max_length: int, commits: int, seed: int) -> tuple[list[Piece], bool]:
    """What a target is asked on a device, and whether that is every row."""
    rows = CPU_ROWS if device == "cpu" else DEVICE_ROWS
    whole = pieces(max_length, commits, rows)
    if device != "cpu" or adapter.execution != "triton" or sum(p.rows for p in whole) <= SAMPLE_ROWS:
        return whole, True
    return sampled(max_length, commits, SAMPLE_ROWS, seed), False


def spots(asked: list[Piece], seed: int) -> Iterator[np.ndarray]:
    """For each piece the rows [k, 2] that the reference shall walk, about SPOT_ROWS in all: by its share random ones
    and as many that end at, just before or just behind a boundary, and always the named ones that lie in it."""
    rng = np.random.default_rng(seed)
    total, longest = sum(p.rows for p in asked), max(p.last for p in asked)
    for piece in asked:
        share = max(1, -(-SPOT_ROWS * piece.rows // (2 * total)))
        committed = rng.integers(1, piece.commits + 1, size=2 * share)
        length = rng.integers(piece.first, piece.last + 1, size=2 * share)
        post = (length[:share] // piece.grid + 1) * piece.grid + rng.integers(-1, 2, size=share)
        length[:share] = post - committed[:share]
        rows = np.concatenate([np.stack([length, committed], axis=1), _named(piece, longest)])
        yield np.unique(rows[piece.holds(rows)], axis=0)


def _named(piece: Piece, longest: int) -> np.ndarray:
    """Rows next to the first boundary and to the longest length, and the corners of the piece."""
    grid, most = piece.grid, piece.commits
    rows = [(grid - 1, 1), (grid - 2, 2), (grid - 6, 3), (grid, 1), (longest - 1, 1), (longest - 1, 2)]
    rows += [(longest - most, most), (longest + 1 - most, most)]
    rows += [(length, committed) for length in (piece.first, piece.last) for committed in (1, most)]
    return np.array(rows, dtype=np.int64)
