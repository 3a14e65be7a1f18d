"""Buffers whose surroundings are watched, and buffers too large to exist.

The failure this finds: a kernel that writes beside the slot it was given. Every
allocation lies between guard zones and is compared whole after the call, so a
stray write is seen wherever it lands. An offset that passes 2^31 elements needs
gigabytes of address space but only a few pages of memory: such a buffer is a
sparse file in memory with the same amount of empty space reserved below it, where
a 32-bit offset that wrapped lands instead of killing the worker. The file itself
then tells which of its pages were written. On a GPU such a buffer is really
allocated, with the same empty space below. What this cannot see: reads, and a
stray write that stores what was there. Under memcheck, which sees both, there are no
guard zones: they would be memory that may be used.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any

from fuzz.adapter import Unsupported

GUARD_BYTES = 4096
SANITIZER = "SPECORACLE_SANITIZER"  # names, in the environment, the tool under which this process runs
GUARD_PATTERN = 0xA5
SPARSE_BYTES = 64 << 20  # from here on an allocation is a sparse file
WRAP_ELEMENTS = 2**31  # how far below its base a 32-bit element offset can land
PAGE_BYTES = 2 << 20  # alignment, so that reserved space and buffer share no page
BITS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
NAMED = 4  # stray slots named in a message
CHUNK_ELEMENTS = 1 << 28  # looked at in one step on a device


def bits(torch: Any, tensor: Any) -> Any:
    """The cells of ``tensor`` as integers of their size, so that NaN equals itself and -0 is not 0."""
    return tensor.view(getattr(torch, BITS[tensor.dtype.itemsize]))


def slot_places(slots: int, gap: int, first: int = 0, step: int = 1) -> list[int]:
    """Where the slots of a case lie in a pool: the first at ``first``, ``step`` apart, the upper half of them
    ``gap`` places further, so that they can pass 2^31 elements."""
    return [first + step * s + (0 if s < slots // 2 else gap) for s in range(slots)]


class Watched:
    """Cells that a call must leave as they are, compared bit for bit."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._held: list[tuple[Any, Any]] = []

    def watch(self, *tensors: Any) -> None:
        """These must stay as they are now."""
        self._held += [(t, bits(self._torch, t).clone()) for t in tensors if t.numel()]

    def changed(self) -> int:
        """How many did not."""
        return sum(int((bits(self._torch, now) != was).sum()) for now, was in self._held)


@dataclass
class Region:
    """One allocation. ``flat`` is all of it as bytes, or for a sparse file the buffer.
    A large buffer starts at byte ``base``, everything of it is 0 at first and ``fd`` is
    its file, on a GPU there is none. ``known``: tensors with the places
    on their second axis (``None`` for all) whose cells are judged by name."""

    name: str
    flat: Any
    known: list[tuple[Any, list[int] | None]] = field(default_factory=list)
    before: Any = None
    fd: int | None = None
    base: int = 0
    guard: int = GUARD_BYTES
    mapping: Any = None


class Memory:
    """The allocations of one call. Use as a context manager."""

    def __init__(self, torch: Any, device: str = "cpu"):
        self.torch, self.device = torch, device
        self._regions: dict[int, Region] = {}  # by address of the storage

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        for region in self._regions.values():
            if region.fd is not None:
                os.close(region.fd)
        self._regions.clear()

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A zeroed contiguous tensor between guards, sparse when it is large."""
        size_bytes = prod(shape) * dtype.itemsize
        if size_bytes >= SPARSE_BYTES:
            return (self._sparse if self.device == "cpu" else self._allocated)(shape, dtype, size_bytes)
        guard = 0 if size_bytes and os.environ.get(SANITIZER) == "memcheck" else GUARD_BYTES
        flat = self.torch.full((2 * guard + size_bytes,), GUARD_PATTERN, dtype=self.torch.uint8, device=self.device)
        self._regions[flat.untyped_storage().data_ptr()] = Region("a buffer", flat, guard=guard)
        return flat[guard : guard + size_bytes].zero_().view(dtype).reshape(shape)

    def poisoned(self, shape: tuple[int, ...], dtype: Any, poison: float) -> Any:
        """A contiguous tensor between guards that holds ``poison``: an output that a
        kernel must write. Its cells are judged by name. For buffers that are not large."""
        tensor = self.zeros(shape, dtype).fill_(poison)
        self.know("an output", tensor)
        region = self._regions[tensor.untyped_storage().data_ptr()]
        region.before = None if region.base else region.flat.clone()  # it may be allocated inside the call
        return tensor

    def _allocated(self, shape: tuple[int, ...], dtype: Any, size_bytes: int) -> Any:
        base = _base(dtype)
        self.torch.cuda.empty_cache()  # what an earlier call held goes back first: two of these may not fit
        flat = self.torch.zeros(base + size_bytes + PAGE_BYTES, dtype=self.torch.uint8, device=self.device)
        self._regions[flat.untyped_storage().data_ptr()] = Region("a buffer", flat, base=base)
        return flat[base : base + size_bytes].view(dtype).reshape(shape)

    def _sparse(self, shape: tuple[int, ...], dtype: Any, size_bytes: int) -> Any:
        base = _base(dtype)
        total = base + size_bytes + PAGE_BYTES
        try:
            fd = os.memfd_create("specoracle")
            os.ftruncate(fd, total)
            mapping = mmap.mmap(fd, total)
        except (AttributeError, OSError, ValueError) as error:
            raise Unsupported(f"cannot reserve {total >> 20} MiB of address space here: {error}") from None
        tensor = self.torch.frombuffer(mapping, dtype=dtype, offset=base, count=prod(shape)).view(shape)
        key = tensor.untyped_storage().data_ptr()
        self._regions[key] = Region("a buffer", tensor, fd=fd, base=base, mapping=mapping)
        return tensor

    def know(self, name: str, tensor: Any, places: list[int] | None = None) -> None:
        """The cells of ``tensor``, which lies in memory allocated here and does
        not overlap itself, are judged elsewhere; with ``places`` only those on
        its second axis are."""
        region = self._regions[tensor.untyped_storage().data_ptr()]
        region.name = name
        region.known.append((tensor, places))

    def seal(self) -> None:
        """Remember everything as it is now, just before the call."""
        for region in self._regions.values():
            if not region.base:
                region.before = region.flat.clone()

    def outside(self) -> str:
        """Where anything but known cells changed since ``seal``, in words; empty
        when nothing did."""
        found = [self._in_large(r) if r.base else self._beside(r) for r in self._regions.values()]
        return "; ".join(f for f in found if f)

    def _beside(self, region: Region) -> str:
        after = region.flat.clone()
        for tensor, places in region.known:  # put the known cells back: what differs then was not theirs
            again, old = (_like(tensor, flat) for flat in (after, region.before))
            if places is None:
                again.copy_(old)
            else:
                again[:, places] = old[:, places]
        changed = (after != region.before).nonzero().flatten()
        if not len(changed):
            return ""
        return f"{region.name}: {len(changed)} bytes, first at byte {int(changed[0]) - region.guard} of the buffer"

    def _in_large(self, region: Region) -> str:
        ((tensor, places),) = region.known
        per_layer = tensor.shape[1]
        owned = {layer * per_layer + p for layer in range(tensor.shape[0]) for p in places or range(per_layer)}
        stray: set[int] = set()
        for cells in self._nonzero_in_file(region) if region.fd is not None else self._nonzero(region):
            places_hit = (cells - region.base // tensor.dtype.itemsize).div(tensor.stride(1), rounding_mode="floor")
            stray.update(self.torch.unique(places_hit).tolist())
        words = [_place(s, per_layer) for s in sorted(stray - owned)]
        if not words:
            return ""
        return f"{region.name}: written in {', '.join(words[:NAMED])}" + (" and more" if len(words) > NAMED else "")

    def _nonzero_in_file(self, region: Region) -> Iterator[Any]:
        """Element numbers, from the start of the file, that hold something."""
        itemsize = region.flat.dtype.itemsize
        integers = getattr(self.torch, BITS[itemsize])
        for start, end in _written(region.fd):
            cells = self.torch.frombuffer(region.mapping, dtype=integers, offset=start, count=(end - start) // itemsize)
            yield cells.nonzero().flatten() + start // itemsize

    def _nonzero(self, region: Region) -> Iterator[Any]:
        """The same of an allocation on a device."""
        ((tensor, _),) = region.known
        cells = region.flat.view(getattr(self.torch, BITS[tensor.dtype.itemsize]))
        for start in range(0, len(cells), CHUNK_ELEMENTS):
            yield cells[start : start + CHUNK_ELEMENTS].nonzero().flatten().cpu() + start


def _base(dtype: Any) -> int:
    """Bytes in front of a large buffer."""
    return -(-WRAP_ELEMENTS * dtype.itemsize // PAGE_BYTES) * PAGE_BYTES


def _place(index: int, per_layer: int) -> str:
    layer, place = divmod(index, per_layer)
    return f"place {index} (before the buffer)" if index < 0 else f"place {place} of layer {layer}"


def _like(tensor: Any, flat: Any) -> Any:
    """The cells of ``tensor`` in another copy of its region's bytes."""
    whole = len(flat) // tensor.dtype.itemsize * tensor.dtype.itemsize
    typed = flat[:whole].view(tensor.dtype)
    return typed.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _written(fd: int) -> list[tuple[int, int]]:
    """The extents of a sparse file that were ever written."""
    extents, position = [], 0
    while True:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError:
            return extents
        position = os.lseek(fd, start, os.SEEK_HOLE)
        extents.append((start, position))
