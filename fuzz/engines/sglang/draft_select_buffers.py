"""Inputs and outputs of draft selection, laid out so that a wrong access shows.

Rows of scores lie, where the presentation asks for strides, inside wider rows whose
further columns hold a score that would win: a kernel that reads past its row finds
it. What production allocates itself is poisoned and lies between guard zones for
the length of the call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from fuzz.adapter import Unsupported
from fuzz.engines.bound import forwarded
from fuzz.worker.layout import FILLER

CONTRACT = "verify.draft_select"
GUARD = 64  # elements before and after a buffer
MORE_COLUMNS = 24  # of a wider row
WINNER = 30000.0  # above every finite score, and exact enough in 16 bits
FLOATS = ("float32", "bfloat16", "float16")


class Guarded:
    """A tensor inside a larger one full of filler."""

    def __init__(self, engine: Any, values: Any, dtype: str):
        torch = engine.torch
        inner = torch.as_tensor(values).to(getattr(torch, dtype)).to(engine.device)
        self.whole = torch.full((inner.numel() + 2 * GUARD,), FILLER, dtype=inner.dtype, device=engine.device)
        self.tensor = self.whole[GUARD : GUARD + inner.numel()].view(inner.shape)
        self.tensor.copy_(inner)

    def outside(self) -> int:
        """Guard cells that changed."""
        return int((self.whole[:GUARD] != FILLER).sum()) + int((self.whole[-GUARD:] != FILLER).sum())


class Scores:
    """Rows of scores with columns of stride 1, as logits have, and what they were."""

    def __init__(self, engine: Any, values: Any, dtype: str, winner: float = WINNER):
        torch = engine.torch
        rows = torch.as_tensor(values).to(getattr(torch, dtype))
        more = MORE_COLUMNS if engine.strided else 0
        wide = torch.full((len(rows) + 1, rows.shape[1] + more), winner, dtype=rows.dtype)
        wide[:-1, : rows.shape[1]] = rows
        self._whole = wide.to(engine.device)
        self._before = self._whole.clone()
        self.tensor = self._whole[:-1, : rows.shape[1]]

    def whole_rows(self) -> Any:
        """The wider rows, for a target that is told how many columns count."""
        return self._whole[:-1]

    def changed(self) -> int:
        """Cells that are not what they were."""
        same = (self._whole == self._before) | ((self._whole != self._whole) & (self._before != self._before))
        return int((~same).sum())


class Allocations:
    """What ``torch.empty`` gave inside ``allocations``."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, int]] = []

    def add(self, whole: Any, size: int) -> None:
        self._made.append((whole, size))

    def outside(self) -> int:
        """Guard cells that changed, over all allocations."""
        return sum(
            int((whole[:GUARD] != FILLER).sum()) + int((whole[GUARD + size :] != FILLER).sum())
            for whole, size in self._made
        )


@contextmanager
def allocations(torch: Any) -> Iterator[Allocations]:
    """``torch.empty`` gives poisoned memory between guard zones."""
    original, made = torch.empty, Allocations()

    @forwarded
    def empty(*shape: Any, dtype: Any = None, device: Any = None, **other: Any) -> Any:
        kind = torch.get_default_dtype() if dtype is None else dtype
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if other or kind == torch.bool or kind == torch.uint8:
            return original(*shape, dtype=dtype, device=device, **other)
        size = math.prod(sizes)
        whole = torch.full((size + 2 * GUARD,), FILLER, dtype=kind, device=device)
        made.add(whole, size)
        return whole[GUARD : GUARD + size].view(sizes)

    with mock.patch.object(torch, "empty", empty):
        yield made


def form(name: str, case: Any) -> str | None:
    return None if case.form == name else f"selects a {name}"


def rows_of_one(values: Any) -> list[list[Any]]:
    """[B] or [B, 1] as one list a request."""
    return [[v] for v in values.reshape(-1).tolist()]


def refuse_nan_in_interpreter(engine: Any, case: Any) -> None:
    """Triton's argmax over NaN depends on the order of its tree on a GPU, and
    Triton's interpreter asks NumPy, which answers otherwise."""
    if engine.device == "cpu" and (case.scores != case.scores).any():
        raise Unsupported("NaN in tl.argmax: the interpreter does not answer as a GPU does")
