"""The case of commit.aligned_states: requests, block tables, and what may be asked.

See ``oracle.commit.aligned_states`` for the definition.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from oracle.commit.stamps import RAW_DTYPE
from oracle.contract import FUNCTIONAL, INT32_MAX, require, require_size

NONE = -1
NULL_BLOCK = 0  # no request's; what a table holds where a block was given back
MAX_CELLS = {2: 2**16 - 1, 4: 2**20}  # by bytes of a cell: distinct patterns; memory of a case
MAX_TABLE = 2**16  # entries of all rows together
MAX_ELEMENTS = 2**33  # of one tensor with its idle blocks


@dataclass(frozen=True)
class Request:
    """``computed`` tokens are in the state before the pass; the pass feeds ``fed`` tokens that are
    certain (the current one, or a chunk of the prompt) and ``drafts`` draft tokens.

    ``committed``: after_verify: certain token and drafts that stay, 1 to ``drafts`` + 1. before_step:
    the count that the previous pass left. ``column``: before_step: where the previous pass left the
    state, -1 for a request without one. after_verify: -1, because it follows from the tokens.
    """

    computed: int
    fed: int
    drafts: int
    committed: int
    column: int


@dataclass(frozen=True)
class AlignedStatesCase:
    """One batch.

    operation      ``after_verify`` or ``before_step``
    block          tokens that a block of the table stands for
    drafts         draft tokens of a pass at most; a request has so many blocks behind its running one
    layers         layers, each with its own tensors
    grouped        each layer has block tables of its own
    state_entry    shape of one recurrent state; a zero means there is none
    channels       channels of the convolution; 0 means there is none
    window         inputs that a convolution looks back on; an entry keeps ``window`` + ``drafts``
    window_first   an entry is (inputs, channels) instead of (channels, inputs)
    state_dtype, window_dtype  float32, bfloat16 or float16
    gap            idle blocks below the upper half of the blocks used
    seed           shuffles block numbers; 0 counts upwards
    """

    operation: str
    block: int
    drafts: int
    layers: int
    grouped: bool
    state_entry: tuple[int, ...]
    channels: int
    window: int
    window_first: bool
    state_dtype: str
    window_dtype: str
    gap: int
    seed: int
    requests: tuple[Request, ...]

    @property
    def state_cells(self) -> int:
        return prod(self.state_entry)

    @property
    def inputs(self) -> int:
        """Inputs that one convolution entry holds."""
        return self.window + self.drafts


def domain(case: AlignedStatesCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.operation in ("after_verify", "before_step"), "operation: must be after_verify or before_step")
    for name, low, high in (
        ("block", 2, 2**20), ("drafts", 0, 64), ("layers", 1, 16), ("channels", 0, 2**12), ("window", 1, 16),
        ("gap", 0, INT32_MAX - 2**20), ("seed", 0, 2**32),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(
        len(case.state_entry) == 3 and all(0 <= n <= 2**12 for n in case.state_entry),
        f"state_entry: three sizes of 0 to {2**12}",
    )
    require(case.layers > 1 or not case.grouped, "grouped: needs several layers")
    require(bool(case.state_cells or case.channels), "state_entry, channels: nothing to keep")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", 64)
    for i, r in enumerate(case.requests):
        _request(case, r, f"requests[{i}]")
    width = table_width(case)
    require(len(case.requests) * width <= MAX_TABLE, f"requests: a block table of more than {MAX_TABLE} entries")
    blocks = block_count(case)
    for name, cells in (("state_dtype", case.state_cells), ("window_dtype", case.inputs * case.channels)):
        dtype = getattr(case, name)
        require(dtype in RAW_DTYPE, f"{name}: must be one of {', '.join(RAW_DTYPE)}")
        numbers, most = case.layers * blocks * cells, MAX_CELLS[RAW_DTYPE[dtype].itemsize]
        require(numbers <= most, f"{name}: {numbers} cells, at most {most} can be told apart")
        laid_out = case.layers * (blocks + case.gap) * cells
        require(laid_out <= MAX_ELEMENTS, f"gap: {laid_out} elements, at most {MAX_ELEMENTS} are laid out")
    return FUNCTIONAL


def _request(case: AlignedStatesCase, r: Request, where: str) -> None:
    require(0 <= r.computed <= 2**30, f"{where}.computed: must be 0 to 2^30")
    require(1 <= r.fed <= 2**20, f"{where}.fed: must be 1 to 2^20")
    require(0 <= r.drafts <= case.drafts, f"{where}.drafts: must be 0 to {case.drafts}")
    if case.operation == "after_verify":
        require(r.column == NONE, f"{where}.column: follows from the tokens after a verify; must be -1")
        require(1 <= r.committed <= r.drafts + 1, f"{where}.committed: must be 1 to {r.drafts + 1}")
        return
    require(1 <= r.committed <= case.drafts + 1, f"{where}.committed: must be 1 to {case.drafts + 1}")
    require(NONE <= r.column <= 2**20, f"{where}.column: must be -1 to 2^20")
    if r.column == NONE:
        require((r.computed, r.committed) == (0, 1), f"{where}.column: a request without a state has computed nothing")
    else:
        require(r.computed >= 1, f"{where}.computed: a request with a state has computed something")


def running_column(case: AlignedStatesCase, r: Request) -> int:
    """The column that the pass of ``r`` writes its state to: the one of its last token."""
    return -(-(r.computed + r.fed + r.drafts) // case.block) - 1


def held_columns(case: AlignedStatesCase, r: Request) -> list[int]:
    """The columns of the request that hold a block; the others were given back."""
    running = running_column(case, r)
    behind = case.drafts // case.block + 1  # blocks that drafts alone can fill, and one more
    wanted = set(range(running - behind, running + case.drafts + 1))
    if r.column != NONE:
        wanted |= set(range(r.column, r.column + case.drafts + 1))
    return sorted(c for c in wanted if c >= 0)


def table_width(case: AlignedStatesCase) -> int:
    return max(held_columns(case, r)[-1] for r in case.requests) + 1


def block_count(case: AlignedStatesCase) -> int:
    """Blocks in use, the null block included; idle ones not."""
    return 1 + sum(len(held_columns(case, r)) for r in case.requests)


def tables(case: AlignedStatesCase) -> np.ndarray:
    """Block of each request and column, int64 [requests, columns]; ``NULL_BLOCK`` where there is none."""
    found = np.full((len(case.requests), table_width(case)), NULL_BLOCK, np.int64)
    blocks = list(range(1, block_count(case)))
    if case.seed:
        random.Random(case.seed).shuffle(blocks)
    free = iter(blocks)
    for i, r in enumerate(case.requests):
        for column in held_columns(case, r):
            found[i, column] = next(free)
    return found


def columns(case: AlignedStatesCase) -> dict[str, Any]:
    """The case's scalars as they are, int64 [B] arrays of the request fields, ``table`` as `tables` gives
    it, ``blocks`` in use and ``running`` [B], the column that the pass writes to."""
    plain = {n: getattr(case, n) for n in AlignedStatesCase.__dataclass_fields__ if n != "requests"}
    arrays = {n: np.array([getattr(r, n) for r in case.requests], np.int64) for n in Request.__dataclass_fields__}
    arrays["running"] = np.array([running_column(case, r) for r in case.requests], np.int64)
    # The draft tokens of each request, beside the case's own bound of that name.
    arrays["request_drafts"] = arrays.pop("drafts")
    return plain | arrays | {"table": tables(case), "blocks": block_count(case)}
