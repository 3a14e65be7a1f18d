"""On which stream of a GPU a production call runs, and what is ready there when.

An engine runs production on streams of its own. A kernel that was launched on another
one, such as the default stream where the current one was meant, is right only as long as
that work happens to come in the right order. So production is given a side stream that
is late: it first waits, and only then do the case's tensors get back the values that
were taken out of them. What runs too early reads zeros, which no kernel follows out of
its buffers. What this cannot see: a stray launch that reads neither those tensors nor
what production itself wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

DELAY_CYCLES = 2_000_000  # about a millisecond of a GPU's clock, some hundred times what a launch takes


class AsItIs:
    """Nothing is done to production."""

    def production(self) -> AbstractContextManager[Any]:
        """What stands around each production call."""
        return nullcontext()

    def tensor(self, make: Callable[[], Any]) -> Any:
        """A tensor of the case."""
        return make()


@contextmanager
def aside(cuda: Any, side: Any) -> Iterator[None]:
    """Run on ``side``, behind what the current stream was given and before what it gets next."""
    current = cuda.current_stream(side.device)
    side.wait_stream(current)
    try:
        with cuda.stream(side):
            yield
    finally:
        current.wait_stream(side)


class Late(AsItIs):
    """The side stream of one run of an adapter."""

    def __init__(self, engine: Any):
        self._cuda = engine.torch.cuda
        self._side = self._cuda.Stream(device=engine.device)
        self._made: list[Any] = []

    @contextmanager
    def production(self) -> Iterator[None]:
        values = [tensor.clone() for tensor in self._made]
        for tensor in self._made:
            tensor.zero_()
        with aside(self._cuda, self._side):
            self._cuda._sleep(DELAY_CYCLES)
            for tensor, value in zip(self._made, values, strict=True):
                tensor.copy_(value)
            yield

    def tensor(self, make: Callable[[], Any]) -> Any:
        made = make()
        self._made.append(made.detach())
        return made
