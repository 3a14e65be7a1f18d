"""Whether anything was written beside a buffer: the guard zones of a GPU, looked at after every run.

``guard_allocator.cpp`` lays every buffer of the process between guard zones; here they are
compared with their pattern on the device, in a handful of kernels and one wait whatever the
number of buffers. Only when something differs is it brought to the host and put in words.
The trade: engines run on another allocator than in production, one without statistics
(``torch.cuda.memory_stats`` raises) and without pools.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

PAGE_BYTES = 4096  # as in guard_allocator.cpp
PATTERN = 0xFFA5
PAGE, FIRST, ROW, OFFSET = range(4)  # columns of a guard zone, see so_zones
TABLE = np.dtype([("data", "u8"), ("size", "u8"), ("alive", "u8"), ("recent", "u8")])
ROOM = 512  # rows at first
NAMED = 4  # buffers named in a message


class Guards:
    """The guard zones of this process. ``library`` is the loaded allocator, which torch uses."""

    def __init__(self, torch: Any, library: Any, device: str):
        self._torch, self._library, self._device = torch, library, device
        self._rows = np.zeros((ROOM, 4), dtype=np.int64)
        self._clean, self._failures = True, 0
        self._arena: Any = None

    def begin(self) -> None:
        """A run of an adapter starts: what is free may be used again."""
        if self._arena is None:
            self._open()
        self._failures = self._library.so_failures()
        self._ask(self._library.so_begin(not self._clean))
        self._clean = False

    def outside(self) -> str:
        """What was written beside which buffer since `begin`, in words; empty when nothing was.
        A device that is lost raises here."""
        self._torch.cuda.synchronize(self._device)  # kernels of other streams write too
        zones = self._zones()  # before the check itself allocates
        there = self._torch.from_numpy(zones).to(self._device, non_blocking=True)
        byte = self._torch.uint8
        wrong = differing(self._arena, there[:, PAGE], there[:, FIRST : FIRST + 1], byte, self._pattern, self._columns)
        words = in_words(wrong.cpu().numpy(), zones, self.table()) if bool(wrong.any()) else ""
        self._ask(self._library.so_settle())
        self._clean = not words
        return words

    def sequence(self) -> tuple[tuple[int, int], ...]:
        """Address and bytes of every buffer since `begin`, in order. Ask before `outside`,
        which allocates as well."""
        return tuple((int(row["data"]), int(row["size"])) for row in self.table() if row["recent"])

    def out_of_memory(self) -> bool:
        """Memory was short since `begin`, whatever production made of it."""
        return self._library.so_failures() > self._failures

    def table(self) -> np.ndarray:
        """Every buffer that lives or was allocated since `begin`."""
        found = np.zeros(ROOM, dtype=TABLE)
        count = self._ask(self._library.so_table(found.ctypes.data, len(found)))
        if count > len(found):
            found = np.zeros(count, dtype=TABLE)
            self._ask(self._library.so_table(found.ctypes.data, count))
        return found[:count]

    def _zones(self) -> np.ndarray:
        count = self._ask(self._library.so_zones(self._rows.ctypes.data, len(self._rows)))
        if count > len(self._rows):
            self._rows = np.zeros((2 * count, 4), dtype=np.int64)
            self._ask(self._library.so_zones(self._rows.ctypes.data, len(self._rows)))
        return self._rows[:count]

    def _open(self) -> None:
        """What the check needs, made before the first case, so that it lies before its buffers."""
        pattern = np.full(PAGE_BYTES // 2, PATTERN, dtype=np.uint16).view(np.uint8)
        self._pattern = self._torch.from_numpy(pattern).to(self._device)
        self._columns = self._torch.arange(PAGE_BYTES, device=self._device)
        address = ctypes.c_uint64()
        pages = self._library.so_arena(ctypes.byref(address))
        arena = self._torch.as_tensor(_Memory(address.value, (pages, PAGE_BYTES // 8)), device=self._device)
        if arena.data_ptr() != address.value:  # guards of a copy never change
            raise RuntimeError("torch copied the arena of the guard allocator instead of looking at it")
        self._arena = arena

    def _ask(self, answer: int) -> int:
        if answer < 0:
            self._torch.cuda.synchronize(self._device)  # raises what the device says
            raise RuntimeError("the guard allocator cannot reach the device")
        return answer


class _Memory:
    """Memory of a device as torch takes it over without a copy; 64-bit words, because that is
    what it gathers fastest."""

    def __init__(self, address: int, shape: tuple[int, int]):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": "<i8", "version": 2}


def differing(arena: Any, pages: Any, first: Any, byte: Any, pattern: Any, columns: Any) -> Any:
    """Which bytes of the zones are not as the pattern, one row a zone: its page, from byte ``first``
    on. Arrays of NumPy do as tensors of torch do."""
    wrong = arena[pages].view(byte) != pattern
    wrong &= columns >= first
    return wrong


def in_words(wrong: np.ndarray, zones: np.ndarray, table: np.ndarray) -> str:
    """Which buffers they lie beside. A page between two buffers counts for the one that is nearer."""
    nearest: dict[int, tuple[int, int, bool, np.ndarray]] = {}  # page -> distance, buffer, behind it, places
    for zone in np.flatnonzero(wrong.any(axis=1)):
        page, _, row, offset = (int(cell) for cell in zones[zone])
        places = np.flatnonzero(wrong[zone]) + offset
        behind = offset >= 0
        distance = int(places[0]) - int(table[row]["size"]) if behind else -int(places[-1]) - 1
        if page not in nearest or distance < nearest[page][0]:
            nearest[page] = (distance, row, behind, places)
    sides: dict[tuple[int, bool], list[int]] = {}
    for _, row, behind, places in nearest.values():
        sides.setdefault((row, behind), []).extend(places.tolist())
    words = [_beside(int(table[row]["size"]), behind, places) for (row, behind), places in sides.items()]
    return "; ".join(words[:NAMED]) + (f"; and beside {len(words) - NAMED} more" if len(words) > NAMED else "")


def _beside(size_bytes: int, behind: bool, places: list[int]) -> str:
    where = f"{min(places) - size_bytes} bytes behind" if behind else f"{-min(places)} bytes before"
    return f"a buffer of {size_bytes} bytes: {len(places)} bytes changed, first {where} it"


def install(torch: Any, path: str, device: str) -> Guards | str:
    """Make torch allocate between guards from now on; must come before its first use of the device.
    Returns the reason when it cannot."""
    try:
        library = ctypes.CDLL(path)
        chosen = torch.cuda.memory.CUDAPluggableAllocator(path, "so_malloc", "so_free")
        torch.cuda.memory.change_current_allocator(chosen)
    except (OSError, AttributeError, RuntimeError) as error:  # another torch, one without CUDA, an older C++ library
        return f"torch takes no other allocator here: {str(error).splitlines()[0]}"
    return Guards(torch, typed(library), device)


def typed(library: Any) -> Any:
    """The library with the signatures of its functions."""
    rows = [ctypes.c_void_p, ctypes.c_long]
    arguments = {"so_begin": [ctypes.c_int], "so_zones": rows, "so_table": rows, "so_arena": [ctypes.c_void_p]}
    for name in ("so_begin", "so_zones", "so_table", "so_settle", "so_arena", "so_failures"):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_long, arguments.get(name, [])
    return library
