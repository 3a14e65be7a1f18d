"""Several devices under one supervisor: a process of ours for each, one event stream.

The failure this prevents: one Python process that draws, refers and judges for several
GPUs keeps them waiting for each other. So each device has a lane, a fork of the
supervisor with a session of its own; a lane never touches CUDA, only its worker does.
Work is cut into numbered parts, each a pure function of its number, and a lane takes
the next that nobody has taken: a device that is slow, hangs or is lost takes fewer
(where each has one part only, as in a run bounded by time, nobody does what a lost one had).
Lanes append whole lines to the same file, so a run that is killed leaves one stream.
What this cannot do: tell a lost lane's unfinished part from one that was never begun;
such a run says which device was lost and is never a pass.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from types import SimpleNamespace
from typing import Any, Generic, TypeVar

from fuzz import interrupt
from fuzz.events import Events
from fuzz.orphans import end_with_parent
from fuzz.supervisor import Launch, Session, SessionError
from fuzz.verdict import EXIT_HARNESS, EXIT_INCONCLUSIVE

T = TypeVar("T")

TICK_S = 0.2
START_DEADLINE_S = 900.0  # of an engine's import on every device at once, with kernels compiled on the way
END_PATIENCE_S = 90.0  # what a lane that is told to end gets: its case in flight, a last event, processes to kill
AGAIN_PATIENCE_S = 2.0  # what is left of that when the user interrupts a second time
PULSE_S = 1.0  # a thread of each lane says so often that its process is not stopped
STILL_LOOKS = 600  # ticks without a pulse: two minutes of our own time, which stands still when all of us are stopped
_PART = struct.Struct("<I")


@dataclass(frozen=True)
class Lane:
    """One device's share of a run, inside its own process."""

    number: int
    device: str
    session: Session
    events: Events
    lanes: int
    parts: int
    _queue: int
    _counts: Any

    def next_part(self) -> tuple[int, int] | None:
        """A part from 0 that nobody has taken, and how many were left with it; ``None`` when all
        are taken."""
        raw = os.read(self._queue, _PART.size)  # a pipe gives a short message whole to one reader
        if not raw:
            return None
        (part,) = _PART.unpack(raw)
        return part, self.parts - part

    def tell(self, *counts: int) -> None:
        """Say how far this lane is, for the display."""
        self._counts[self.number][: len(counts)] = counts


@dataclass(frozen=True)
class Lost(Generic[T]):
    """A lane that ended without a result; ``code`` is the exit code that this alone gives a run."""

    device: str
    reason: str
    code: int = EXIT_INCONCLUSIVE


class Lanes(Generic[T]):
    """Lanes whose sessions were started. Use as a context manager. Raises SessionError when no
    device could be started; ``failed`` are those that could not while others could."""

    def __init__(self, launch: Launch, devices: Sequence[str], parts: int, width: int = 3):
        self.devices, self.parts = list(devices), parts
        self._context = multiprocessing.get_context("fork")
        self._counts = [self._context.Array("q", width, lock=False) for _ in devices]
        self._pulses = self._context.Array("q", len(self.devices), lock=False)
        self._seen = [(-1, 0)] * len(self.devices)  # of each lane: its last pulse, and how often it was the same
        self._told, self._patience = False, float("inf")  # lanes to end, and until when they may live then
        try:  # theirs lie in it: a lane that is killed cannot remove its own
            self._folder = tempfile.TemporaryDirectory(prefix="specoracle-", ignore_cleanup_errors=True)
        except OSError as error:
            raise SessionError(f"no temporary folder can be made ({error.strerror}); set TMPDIR to one") from None
        self._queue, self._filled = os.pipe()
        self._launch = launch
        self._running: dict[int, tuple[Any, Any]] = {}
        self.ready: dict[str, dict[str, Any]] = {}
        self.failed: list[Lost] = []

    def __enter__(self) -> Lanes[T]:
        return self

    def __exit__(self, *_: object) -> None:
        with interrupt.remembered():  # nobody is left behind, however often the user asks
            self._end()
        os.close(self._queue)
        self._folder.cleanup()

    def start(self, events: Events, work: Callable[[Lane], T]) -> None:
        """Start every lane and wait until its engine is imported; ``work`` is then what each does
        once ``go`` is called."""
        for number, device in enumerate(self.devices):
            ours, theirs = self._context.Pipe()
            arguments = (number, device, events, work, theirs, ours)
            process = self._context.Process(target=self._lane, args=arguments, name=device, daemon=False)
            before = signal.pthread_sigmask(signal.SIG_BLOCK, interrupt.SIGNALS)  # no lane hears one before it listens
            process.start()
            self._running[number] = (process, ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        deadline = time.monotonic() + START_DEADLINE_S
        for number, (process, pipe) in list(self._running.items()):
            interrupt.look()
            said = self._hear(pipe, process, deadline)
            if isinstance(said, Lost):
                self.failed.append(said)
                self._drop(number)
            else:
                self.ready[process.name] = said
        if not self.ready:
            raise SessionError(self.failed[0].reason)

    @property
    def session(self) -> Any:
        """What the first event of a run says about its session, of all devices."""
        numbers = ",".join(d.partition(":")[2] for d in self.devices)
        ready = next(iter(self.ready.values()))
        return SimpleNamespace(launch=replace(self._launch, device=f"cuda:{numbers}"), ready=ready)

    def go(self, show: Callable[[list[int]], None]) -> list[T | Lost]:
        """Let the lanes work until all have ended; ``show`` gets the sums of what they tell. When the run
        is interrupted the lanes are told, and what they give back is still returned."""
        with interrupt.remembered():
            return self._go(show)

    def _go(self, show: Callable[[list[int]], None]) -> list[T | Lost]:
        for part in range(self.parts):
            os.write(self._filled, _PART.pack(part))
        os.close(self._filled)
        self._filled = -1
        for _, pipe in self._running.values():
            with contextlib.suppress(OSError):
                pipe.send("go")
        results: list[T | Lost] = []
        while self._running and time.monotonic() < self._patience:
            if interrupt.heard():
                self._interrupt()
            connection.wait([p for _, p in self._running.values()], timeout=TICK_S)
            show([sum(column) for column in zip(*self._counts, strict=True)])
            for number, (process, pipe) in list(self._running.items()):
                if pipe.poll() or not process.is_alive():
                    results.append(self._hear(pipe, process, time.monotonic() + TICK_S))
                    self._drop(number)
                elif self._stands_still(number):
                    process.kill()
                    results.append(Lost(process.name, f"{process.name}: its supervising process stood still"))
                    self._drop(number)
        return results

    def _stands_still(self, number: int) -> bool:
        """True once a lane showed no sign of life for long: it is stopped and would never answer."""
        pulse, (last, looks) = self._pulses[number], self._seen[number]
        self._seen[number] = (pulse, looks + 1 if pulse == last else 0)
        return looks >= STILL_LOOKS

    def _interrupt(self) -> None:
        """Tell every lane once that it is to end, and wait less for them when the user asks again."""
        now = time.monotonic()
        if interrupt.times() > 1:
            self._patience = min(self._patience, now + AGAIN_PATIENCE_S)
        if self._told:
            return
        self._told, self._patience = True, min(self._patience, now + END_PATIENCE_S)
        for process, _ in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)

    def _hear(self, pipe: Any, process: Any, deadline: float) -> Any:
        while not pipe.poll(TICK_S):
            if time.monotonic() > deadline:
                return Lost(process.name, f"{process.name}: its engine was not imported in time")
            if not process.is_alive() and not pipe.poll():
                return self._ended(process)
        try:
            said = pipe.recv()
        except (EOFError, OSError):
            process.join(TICK_S)
            return self._ended(process)
        return said

    @staticmethod
    def _ended(process: Any) -> Lost:
        """Killed by somebody, or by a fault of ours that it has printed."""
        code = EXIT_HARNESS if (process.exitcode or 0) > 0 else EXIT_INCONCLUSIVE
        return Lost(process.name, f"{process.name}: its supervising process ended with {process.exitcode}", code)

    def _drop(self, number: int) -> None:
        process, pipe = self._running.pop(number)
        until = min(self._patience, time.monotonic() + END_PATIENCE_S)
        while process.is_alive() and time.monotonic() < until:
            process.join(TICK_S)
            if interrupt.heard():
                self._interrupt()
                until = min(until, self._patience)
        if process.is_alive():
            process.kill()
            process.join()
        pipe.close()

    def _end(self) -> None:
        """End the lanes that are left: told first, killed when they do not."""
        if self._filled >= 0:
            os.close(self._filled)
        for _, pipe in self._running.values():
            pipe.close()
        self._interrupt()
        for number in list(self._running):
            self._drop(number)

    def _lane(self, number: int, device: str, events: Events, work: Callable[[Lane], T], pipe: Any, ours: Any) -> None:
        """The body of one lane's process."""
        end_with_parent(signal.SIGTERM)  # in order; without it nobody would read the result
        parent = os.getppid()
        tempfile.tempdir = self._folder.name
        threading.Thread(target=self._beat, args=(number,), daemon=True).start()
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # as of a worker that is silent
        os.setpgid(0, 0)  # Ctrl-C reaches the supervisor, which says it once to each lane
        ours.close()
        if self._filled >= 0:
            os.close(self._filled)  # else the queue would never end
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, interrupt.SIGNALS)
            with contextlib.closing(Session(replace(self._launch, device=device))) as session:
                session.start()  # inside: a device that does not start is left in order too
                pipe.send(session.ready)
                pipe.recv()  # "go"
                own = events.for_lane(number, len(self.devices), device)
                pipe.send(
                    work(Lane(number, device, session, own, len(self.devices), self.parts, self._queue, self._counts))
                )
        except SessionError as error:
            with contextlib.suppress(ConnectionError):
                pipe.send(Lost(device, f"{device}: {error}"))
        except (EOFError, ConnectionError, KeyboardInterrupt):  # the supervisor is gone or ends; all is written
            sys.exit(0)
        finally:
            if os.getppid() != parent:  # nobody else removes it now
                with contextlib.suppress(OSError):  # the last lane can
                    os.rmdir(self._folder.name)

    def _beat(self, number: int) -> None:
        while True:
            self._pulses[number] += 1
            time.sleep(PULSE_S)
