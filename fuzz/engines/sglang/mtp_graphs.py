"""What stands for a CUDA graph, and for the engine's keeper of graphs.

On a GPU the captured function is captured and replayed, so that whatever was read at
capture time stays read from there. A CPU has no graphs: there a replay calls the function
again and puts its results where those of the capture were, which shows what is in the
buffers and not what an address was bound to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WARMUPS = 2  # runs before a capture, as the engines make


class Graph:
    """One captured function, and the object it returned."""

    def __init__(self, engine: Any, size: int, replayed: list[int]):
        self._engine, self._size, self._replayed = engine, size, replayed
        self._run: Callable[[], Any] | None = None
        self._graph: Any = None
        self.out: Any = None

    def capture(self, run: Callable[[], Any]) -> Any:
        torch = self._engine.torch
        if self._engine.device == "cpu":
            self._run, self.out = run, run()
            return self.out
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARMUPS):
                run()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        # Only calls of this thread may spoil the capture: nothing else of a worker belongs to it.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.out = run()
        return self.out

    def replay(self) -> Any:
        self._replayed.append(self._size)
        if self._graph is not None:
            self._graph.replay()
        else:
            again = self._run()
            for kept, new in zip(_listed(self.out), _listed(again), strict=True):
                kept.__dict__.update(new.__dict__)
        return self.out

    def pool(self) -> None:
        """No memory pool to share."""


def _listed(out: Any) -> list[Any]:
    return out if isinstance(out, list) else [out]


class Keeper:
    """The engine's backend of graphs: captures under a key and replays by it.

    ``replayed`` gets the batch size of every replayed graph.
    """

    def __init__(self, engine: Any, replayed: list[int]):
        self._engine, self._replayed = engine, replayed
        self._graphs: dict[int, Graph] = {}

    def capture_one(self, key: Any, run: Callable[[], Any], **_: Any) -> None:
        graph = self._graphs[key.size] = Graph(self._engine, key.size, self._replayed)
        graph.capture(run)

    def replay(self, key: Any, *_: Any) -> Any:
        return self._graphs[key.size].replay()

    def can_run(self, forward_batch: Any, key: Any) -> bool:
        return key.size in self._graphs
