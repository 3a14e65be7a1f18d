"""Buffers for a kernel to fill, and the chains that vLLM's input kernels get."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.worker.layout import FILLER

GUARD = 64  # elements before and behind a buffer


class Buffer:
    """A one-dimensional buffer full of filler, between guard zones."""

    def __init__(self, engine: Any, size: int, dtype: str, filler: int = FILLER):
        torch = engine.torch
        self._whole = torch.full((size + 2 * GUARD,), filler, dtype=getattr(torch, dtype), device=engine.device)
        self._filler = filler
        self.tensor = self._whole[GUARD : GUARD + size]

    def untouched(self) -> bool:
        """True when nothing around the buffer was written."""
        zones = (self._whole[:GUARD], self._whole[GUARD + self.tensor.numel() :])
        return all(bool((zone == self._filler).all()) for zone in zones)


def verified_chain(case: Any) -> str | None:
    """Why a case of commit.lengths is no verified batch of chains, or ``None``."""
    if case.simulated:
        return "a real verify, not simulated acceptance"
    if not len(case.pre):
        return "an idle batch drafts nothing"
    depth = np.arange(case.path_width)
    in_order = bool(((case.path == depth) | (case.path < 0)).all())
    return None if in_order and case.path_width == case.draft_tokens else "chains only"
