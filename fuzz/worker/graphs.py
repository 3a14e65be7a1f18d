"""Production in a CUDA graph that was captured for another batch.

An engine captures a graph once and replays it for every later batch, with other contents
in the same buffers. Whatever host code read at capture time is in the graph for good. So
production is captured while it is called for the batch before, and that graph is
replayed for the batch in question: its own production call is captured too, so that
nothing of it runs but the buffers it allocates get their addresses, and thrown away. The
guarded allocator gives both runs the same addresses; where they differ, or production
synchronises with the host, there is no graph of it, and the case is UNSUPPORTED.

Both batches run plainly first. That compiles and caches what a capture must not, and
leaves an error in a capture only one cause: the capture.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from fuzz.adapter import PathNotTaken, Unsupported
from fuzz.worker import litter
from fuzz.worker.streams import aside

PLAIN, CAPTURE, REPLAY = "plain", "capture", "replay"
# An adapter may make its tensors inside the call; they are filled beside the capture, which the
# stricter modes of CUDA forbid. Production's own copies from the host torch refuses by itself.
MODE = "relaxed"
EMPTY = "CUDA Graph is empty"  # part of what torch warns of


class Graphs:
    """The graphs of production calls, by the order in which the adapter makes them. Made
    once a process: torch's libraries keep buffers for every stream they meet."""

    def __init__(self, engine: Any):
        self._engine = engine
        self._step, self._at, self._capturing, self._launched = PLAIN, 0, False, False
        self._recorded: list[tuple[Any, Any]] = []  # a graph, and what was allocated by the end of its call
        self._kept: Any = None

    def observe(self, run: Callable[[dict[str, Any]], Any], before: dict[str, Any], now: dict[str, Any]) -> Any:
        """What ``run`` observes of the columns ``now`` when production is replayed from graphs
        captured with those of ``before``. Raises Unsupported."""
        if self._engine.guards is None:
            raise Unsupported("graph presentations need the guarded allocator")
        self._prepare()
        self._engine.shown = self
        try:
            for step, columns in ((PLAIN, now), (PLAIN, before), (CAPTURE, before)):
                self._run(step, run, columns)
            if not self._launched:
                raise PathNotTaken("path not taken: production launches nothing that a graph could hold")
            observed = self._run(REPLAY, run, now)
            if self._at != len(self._recorded):
                raise PathNotTaken("path not taken: a graph needs the same production calls")
            return observed
        finally:
            self._recorded.clear()

    def _prepare(self) -> None:
        self._launched = False
        if self._kept is not None:
            return
        cuda = self._engine.torch.cuda
        self._side, self._beside = (cuda.Stream(device=self._engine.device) for _ in range(2))
        with aside(cuda, self._side):
            # The first graph allocates what all graphs share, and the last one frees it: a graph
            # that stays keeps it out of the comparison of two runs.
            self._kept = self._empty()

    def _run(self, step: str, run: Callable[[dict[str, Any]], Any], columns: dict[str, Any]) -> Any:
        self._step, self._at = step, 0
        litter.collect()  # what the run before left would keep its memory, and move this one's
        return run(columns)

    @contextmanager
    def production(self) -> Iterator[None]:
        at, self._at = self._at, self._at + 1
        with aside(self._engine.torch.cuda, self._side):
            if self._step == PLAIN:
                yield
                return
            graph = self._engine.torch.cuda.CUDAGraph()
            with self._captured(graph):
                yield
            allocated = self._engine.guards.sequence()
            if self._step == CAPTURE:
                self._recorded.append((graph, allocated))
            else:
                graph = self._graph(at, allocated)
            self._side.wait_stream(self._beside)  # tensors that the adapter made inside the call
            graph.replay()

    def _graph(self, at: int, allocated: Any) -> Any:
        """The graph to replay in place of a call that allocated the same."""
        if at >= len(self._recorded):
            raise PathNotTaken("path not taken: a graph needs the same production calls")
        graph, before = self._recorded[at]
        if before != allocated:
            raise PathNotTaken("path not taken: a graph needs the same buffers")
        return graph

    def tensor(self, make: Callable[[], Any]) -> Any:
        """A tensor of the case. An adapter may make it inside the production call: it is no
        part of production, so it is filled beside the capture."""
        if not self._capturing:
            return make()
        with self._engine.torch.cuda.stream(self._beside):
            return make()

    @contextmanager
    def _captured(self, graph: Any) -> Iterator[None]:
        graph.capture_begin(capture_error_mode=MODE)
        self._capturing = True
        try:
            yield
            self._capturing = False
            self._launched |= self._end(graph)
        except Exception as error:  # production may refuse a capture in any way
            self._capturing = False
            self._abandon(graph)
            if isinstance(error, Unsupported):
                raise
            words = str(error).partition("\n")[0][:300]
            raise PathNotTaken(
                f"path not taken: production cannot be captured: {type(error).__name__}: {words}"
            ) from error

    @staticmethod
    def _end(graph: Any) -> bool:
        """End a capture; whether there is anything in the graph."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            graph.capture_end()
        return not any(EMPTY in str(warning.message) for warning in said)

    def _empty(self) -> Any:
        graph = self._engine.torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode=MODE)
        self._end(graph)
        return graph

    def _abandon(self, graph: Any) -> None:
        """Leave a capture that failed. torch's random numbers stay in it until another one
        ends well; where none does, the process is given up."""
        with suppress(RuntimeError):
            self._end(graph)
        try:
            self._empty()
            self._engine.torch.cuda.synchronize(self._engine.device)
        except RuntimeError:
            self._engine.lost = True
