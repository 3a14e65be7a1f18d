"""Buffers and inputs that the adapters of commit.lengths share.

Buffers that production hands a kernel to fill are handed here full of filler and
between guard zones: what a kernel leaves out, or writes besides, shows. Kernels
that ignore strides get contiguous tensors, as from their callers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.worker.layout import FILLER
from oracle.commit.token_table import table

CONTRACT = "commit.lengths"
GUARD = 64  # elements before and after a result
TABLE_DTYPE = "int32"


class Result:
    """A buffer for a kernel to fill, in a larger one full of filler."""

    def __init__(self, engine: Any, size: int, dtype: str):
        torch = engine.torch
        self._all = torch.full((size + 2 * GUARD,), FILLER, dtype=getattr(torch, dtype), device=engine.device)
        self.tensor = self._all[GUARD : GUARD + size]

    def untouched_behind(self, used: int) -> bool:
        """True when nothing but the first ``used`` elements was written."""
        rest = (self._all[:GUARD], self._all[GUARD + used :])
        return all(bool((part == FILLER).all()) for part in rest)


def split(flat: Any, counts: Any) -> list[list[int]]:
    """A compact result as one list a request."""
    values, out, at = flat.tolist(), [], 0
    for count in counts:
        out.append(values[at : at + int(count)])
        at += int(count)
    return out


def accept_index(case: Any) -> np.ndarray:
    """Global node numbers of the committed paths, -1 behind them."""
    offsets = np.arange(len(case.pre))[:, None] * case.draft_tokens
    return np.where(case.path < 0, -1, case.path + offsets)


def token_table(engine: Any, case: Any) -> Any:
    """``req_to_token`` of the case."""
    return engine.tensor(table(case.table_width), TABLE_DTYPE, contiguous=True)


def block_locations(case: Any) -> np.ndarray:
    """``out_cache_loc`` of the verify block: KV location of every node."""
    positions = case.pre[:, None] + np.arange(case.draft_tokens)
    return table(case.table_width)[case.pool_row[:, None], positions].reshape(-1)


def verified(case: Any) -> str | None:
    if case.simulated:
        return "a real verify, not simulated acceptance"
    return None if len(case.pre) else "the caller of the kernel returns before for an idle batch"


def located(case: Any) -> str | None:
    return verified(case) or (None if case.table_width else "needs a token table")


def on_chain(case: Any) -> str | None:
    depth = np.arange(case.path_width)
    in_order = bool(((case.path == depth) | (case.path < 0)).all())
    return verified(case) or (None if in_order and case.path_width == case.draft_tokens else "chains only")


def bonus_tokens(case: Any) -> np.ndarray:
    last = case.path[np.arange(len(case.pre)), case.committed - 1]
    return case.predicted[np.arange(len(case.pre)), last]


def next_power_of_2(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()
