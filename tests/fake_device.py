"""A device without a GPU: memory by address, streams that are only names, graphs of closures.

Enough to show what a graph captures and what a stream orders: a launch runs at once, or
goes into the graph that is being captured on the current stream. ``log`` is what was
asked of the device, in order.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from fuzz.worker.compiling import Compiling
from fuzz.worker.engine import Engine


class Stream:
    def __init__(self, device: Any, name: str, fake: FakeDevice):
        self.device, self.name, self._fake = device, name, fake

    def wait_stream(self, other: Stream) -> None:
        self._fake.log.append(f"{self.name} waits for {other.name}")


class Graph:
    def __init__(self, fake: FakeDevice):
        self._fake, self._work = fake, []
        self.number = fake.graphs = fake.graphs + 1

    def capture_begin(self, capture_error_mode: str) -> None:
        self._fake.log.append(f"capture {self.number} {capture_error_mode}")
        if self._fake.broken:
            raise RuntimeError("CUDA error: operation not permitted")
        self._fake.capturing = (self._fake.current, self._work)

    def capture_end(self) -> None:
        self._fake.log.append(f"captured {self.number}")
        self._fake.capturing = None
        if self._fake.invalid:
            self._fake.invalid = False
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        if not self._work:
            warnings.warn("The CUDA Graph is empty. This usually means ...", stacklevel=1)

    def replay(self) -> None:
        self._fake.log.append(f"replay {self.number}")
        for work in self._work:
            work()


class FakeDevice:
    """Also the guarded allocator: ``begin`` goes back to the start."""

    def __init__(self):
        self.log: list[str] = []
        self.memory: dict[int, list[int]] = {}
        self.graphs, self.capturing, self.invalid, self.broken = 0, None, False, False
        self._allocated: list[tuple[int, int]] = []
        self.current = Stream("cuda:0", "default", self)
        self._names = iter(("side", "beside", "third"))
        self.cuda = SimpleNamespace(
            Stream=lambda device: Stream(device, next(self._names), self),
            CUDAGraph=lambda: Graph(self),
            current_stream=lambda device=None: self.current,
            stream=self._on,
            synchronize=lambda device=None: None,
            _sleep=lambda cycles: self.log.append(f"sleep on {self.current.name}"),
        )

    @contextmanager
    def _on(self, stream: Stream) -> Any:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def engine(self, guarded: bool = True) -> Engine:
        engine = Engine.__new__(Engine)
        engine.__dict__.update(name="fake", device="cuda:0", torch=SimpleNamespace(cuda=self.cuda), strided=False)
        engine.__dict__.update(
            production_s=0.0, failed_in_production=False, lost=False, shown=None, _wide=[], compiling=Compiling()
        )
        engine.guards = self if guarded else None
        return engine

    def begin(self) -> None:
        self._allocated.clear()

    def outside(self) -> str:
        return ""

    def out_of_memory(self) -> bool:
        return False

    def sequence(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._allocated)

    def allocate(self, values: list[int]) -> int:
        """The address of a new buffer, filled on the current stream."""
        address = sum(size for _, size in self._allocated)
        self._allocated.append((address, len(values)))
        self.launch(lambda: self.memory.__setitem__(address, list(values)))
        return address

    def launch(self, work: Callable[[], None]) -> None:
        if self.capturing is not None and self.capturing[0] is self.current:
            self.capturing[1].append(work)
        else:
            work()

    def read(self, address: int) -> list[int]:
        """To the host: not while the current stream is captured."""
        if self.capturing is not None and self.capturing[0] is self.current:
            self.invalid = True
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nand more lines")
        return self.memory[address]
