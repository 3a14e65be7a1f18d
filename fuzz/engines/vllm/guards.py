"""Buffers that production allocates itself, laid between guard zones.

Samplers make their own outputs, so nobody else can put something beside them. For
the call, the factory they use hands out the middle of a larger buffer; what is
changed around it was written outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from fuzz.worker.layout import FILLER

GUARD = 64  # elements before and behind a buffer


class Zones:
    """The guard zones of the buffers that were handed out."""

    def __init__(self) -> None:
        self._zones: list[Any] = []

    def between(self, torch: Any, shape: tuple[int, ...], dtype: Any, device: Any, inside: Any) -> Any:
        """A contiguous tensor of ``shape`` filled with ``inside``, guarded on both sides."""
        size = 1
        for extent in shape:
            size *= extent
        whole = torch.empty(size + 2 * GUARD, dtype=dtype, device=device)
        whole.fill_(FILLER)
        self._zones += [whole[:GUARD], whole[GUARD + size :]]
        middle = whole[GUARD : GUARD + size].view(shape)
        middle.fill_(inside)
        return middle

    def changed(self) -> int:
        """How many guard cells hold something else by now."""
        return sum(int((zone != FILLER).sum()) for zone in self._zones)


@contextmanager
def guarded_full(torch: Any) -> Iterator[Zones]:
    """``torch.full`` inside hands out guarded buffers."""
    zones = Zones()

    def full(shape: Any, value: Any, *, dtype: Any, device: Any = None) -> Any:
        return zones.between(torch, tuple(shape), dtype, device, value)

    with mock.patch.object(torch, "full", full):
        yield zones


@contextmanager
def guarded_new_empty(torch: Any, dtype: Any) -> Iterator[Zones]:
    """``Tensor.new_empty`` of ``dtype`` inside hands out guarded buffers, full of filler."""
    zones, original = Zones(), torch.Tensor.new_empty

    def new_empty(tensor: Any, *shape: Any, **options: Any) -> Any:
        if options.get("dtype", tensor.dtype) != dtype:
            return original(tensor, *shape, **options)
        extents = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return zones.between(torch, tuple(extents), dtype, tensor.device, FILLER)

    with mock.patch.object(torch.Tensor, "new_empty", new_empty):
        yield zones
