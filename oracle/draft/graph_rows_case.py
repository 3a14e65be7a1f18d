"""The case of draft.graph_rows: two batches in one graph's buffers, and what may be asked.

See ``oracle.draft.graph_rows`` for the definition. Every number says whose it is: locations
and hidden states encode the pool row, state slots are no pool rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, INT32_MAX, require
from oracle.trace import Trace

NOBODY = 0  # pool row and location that belong to nobody
NO_SLOT = -1
POOL_ROWS = 64
TABLE = 512  # locations of a pool row, reused for positions beyond
MAX_CAPACITY = 32
MAX_WIDTH = 32
VOCABULARY = 151_936
FIRST_STATE = 100  # state slots are no pool rows


@dataclass(frozen=True)
class Row:
    """``length`` tokens before the block, ``committed`` of the block kept, ``track_slot``
    where its state is saved; ``seed`` its tokens."""

    length: int
    committed: int
    pool_row: int
    track_slot: int
    seed: int


@dataclass(frozen=True)
class GraphRowsCase:
    """``width`` is W, the ``front`` rows included."""

    capacity: int
    bucket: int
    width: int
    front: int
    fill: int
    before: tuple[Row, ...]
    rows: tuple[Row, ...]


BEHAVIOURS = {
    "no_padding": "the batch fills the graph",
    "padding": "rows of the graph belong to nobody",
    "stale_padding": "a padding row stands where the batch before had a request",
    "fresh_padding": "a padding row that no batch used before",
    "batch_before_larger": "the batch before used a larger graph",
    "same_request_again": "a request of the batch before comes again",
    "row_of_finished_request": "a padding row stands where a request was that is not in the batch",
    "half_empty_buffer": "the graph is smaller than the buffers",
    "short_request": "a request is as long as the fill of padding rows",
    "all_committed": "the whole block is kept",
    "only_current_token": "one token of the block is kept",
    "front_rows": "rows of earlier tokens stand before the block",
    "one_token_rows": "one token a request",
    "several_requests": "a request behind another",
}


def domain(case: GraphRowsCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(1 <= case.capacity <= MAX_CAPACITY, f"capacity: must be 1 to {MAX_CAPACITY}")
    require(1 <= case.bucket <= case.capacity, "bucket: must be 1 to capacity")
    require(1 <= case.width <= MAX_WIDTH, f"width: must be 1 to {MAX_WIDTH}")
    require(0 <= case.front < case.width, "front: must be 0 to width - 1")
    require(1 <= case.fill <= 16, "fill: must be 1 to 16")
    require(1 <= len(case.rows) <= case.bucket, "rows: must be 1 to bucket rows")
    require(len(case.before) <= case.capacity, "before: must be at most capacity rows")
    for name in ("before", "rows"):
        rows = getattr(case, name)
        for i, r in enumerate(rows):
            where = f"{name}[{i}]"
            require(case.front < r.length <= INT32_MAX - case.width, f"{where}.length: must be above front, in int32")
            most = case.width - case.front
            require(1 <= r.committed <= most, f"{where}.committed: must be 1 to {most}")
            require(1 <= r.pool_row < POOL_ROWS, f"{where}.pool_row: must be 1 to {POOL_ROWS - 1}")
            require(0 <= r.track_slot < FIRST_STATE, f"{where}.track_slot: must be 0 to {FIRST_STATE - 1}")
            require(0 <= r.seed < 2**32, f"{where}.seed: must be 0 to 2^32 - 1")
        for field in ("pool_row", "track_slot"):
            values = [getattr(r, field) for r in rows]
            require(len(set(values)) == len(values), f"{name}.{field}: two requests share one")
    return FUNCTIONAL


def tokens_of(r: Row, width: int) -> list[int]:
    rng = random.Random(r.seed)
    return [rng.randrange(1, VOCABULARY) for _ in range(width)]


def location(r: Row, position: int) -> int:
    """Where a token lies in KV; 0 is nobody's."""
    return 1 + r.pool_row * TABLE + (5 * position + 3) % TABLE


def hidden_of(r: Row, width: int) -> list[int]:
    """The hidden state of each token, as the number that stamps it."""
    return [1 + r.pool_row * MAX_WIDTH + j for j in range(width)]


def state_slot(pool_row: int) -> int:
    return FIRST_STATE + pool_row


def row_behaviours(case: GraphRowsCase, r: Row, i: int, trace: Trace) -> None:
    for name, reached in (
        ("short_request", r.length == case.fill),
        ("all_committed", r.committed == case.width - case.front > 1),
        ("only_current_token", r.committed == 1 < case.width - case.front),
        ("several_requests", i > 0),
        ("same_request_again", r.pool_row in {b.pool_row for b in case.before}),
    ):
        if reached:
            trace.behaviour(name)


def batch_behaviours(case: GraphRowsCase, trace: Trace) -> None:
    pads = range(len(case.rows), case.bucket)
    mine = {r.pool_row for r in case.rows}
    left = [case.before[p].pool_row for p in pads if p < len(case.before)]
    for name, reached in (
        ("no_padding", not pads),
        ("padding", pads),
        ("stale_padding", left),
        ("row_of_finished_request", set(left) - mine),
        ("fresh_padding", any(p >= len(case.before) for p in pads)),
        ("batch_before_larger", len(case.before) > case.bucket),
        ("half_empty_buffer", case.bucket < case.capacity),
        ("front_rows", case.front),
        ("one_token_rows", case.width == 1),
    ):
        if reached:
            trace.behaviour(name)


def columns(case: GraphRowsCase) -> dict[str, Any]:
    """Scalars, and int64 arrays of the batch and, as ``before_*``, of the one before:
    ``tokens``, ``positions``, ``locations``, ``hidden`` [B, W], the others [B]."""
    found: dict[str, Any] = {n: getattr(case, n) for n in ("capacity", "bucket", "width", "front", "fill")}
    for prefix, rows in (("", case.rows), ("before_", case.before)):
        shape = (len(rows), case.width)
        lengths = np.array([r.length for r in rows], dtype=np.int64)
        pool_rows = np.array([r.pool_row for r in rows], dtype=np.int64)
        positions = (lengths[:, None] - case.front + np.arange(case.width)).reshape(shape)
        arrays = {
            "tokens": np.array([tokens_of(r, case.width) for r in rows], dtype=np.int64).reshape(shape),
            "positions": positions,
            "locations": 1 + pool_rows[:, None] * TABLE + (5 * positions + 3) % TABLE,
            "hidden": 1 + pool_rows[:, None] * MAX_WIDTH + np.arange(case.width),
            "lengths": lengths,
            "pool_rows": pool_rows,
            "committed": np.array([r.committed for r in rows], dtype=np.int64),
            "state_slots": FIRST_STATE + pool_rows,
            "track_slots": np.array([r.track_slot for r in rows], dtype=np.int64),
        }
        found |= {prefix + name: array for name, array in arrays.items()}
    return found
