"""Keeps production code in processes that may die.

The failure this prevents: a kernel that segfaults, hangs or exits takes only its
worker with it, and the verdict goes to the case that was in flight. The
mechanism: one zygote per engine (it imported the engine once) forks a worker on
request; the supervisor talks to the worker over a socket with a deadline, asks a
silent one for its stack, kills it and forks the next. With a GPU the zygote is
the worker, because CUDA does not survive a fork; a spare one imports the engine
meanwhile, so that a death costs milliseconds there too. What it cannot prevent:
code that damages files or the machine itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz import guards, interrupt, wire

PROJECT_ROOT = Path(__file__).parents[1]
WORKER_PACKAGES = ("fuzz", "oracle")
START_DEADLINE_S = 180.0  # an engine import takes 10 to 18 s on an idle core
REAP_DEADLINE_S = 5.0  # a zygote that does not say how its worker ended is lost as well
END_DEADLINE_S = 30.0  # a killed process may have 100 GB to give back
CALL_DEADLINE_S = 30.0  # a call in the interpreter takes up to 3 s
COMPILE_DEADLINE_S = 600.0  # nvcc takes 60 to 100 s for one module of templates, and builds several at a time
STACK_WAIT_S = 0.5  # time a hanging worker gets to write its stack
LOG_TAIL_BYTES = 4000
VISIBLE = "CUDA_VISIBLE_DEVICES"
HISTORY = 64  # requests of a worker that are remembered, to find out which of them it takes for a fault to show


class SessionError(Exception):
    """The engine's process could not be started. A failure of the set-up, not
    of a case."""


@dataclass(frozen=True)
class Launch:
    """How an engine's interpreter is started. ``env`` is its whole environment,
    with a PYTHONPATH on which the engine is found; ``fuzz`` and ``oracle`` are
    added behind it, and so are ``packages`` (name -> path: adapters of installed
    packages). ``torch`` is false for an engine that may do without. ``shims`` is
    false for an interpreter that has the engine's whole dependencies: nothing may be
    declared in their place. ``guards``: lay every buffer on a GPU between guard zones."""

    engine: str
    version: str
    python: str
    env: dict[str, str]
    stubs: dict[str, list[str]] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    device: str = "cpu"
    torch: bool = True
    shims: bool = True
    packages: dict[str, str] = field(default_factory=dict)
    guards: bool = True

    @property
    def label(self) -> str:
        """The engine as ``--engine`` names it."""
        return f"{self.engine}=={self.version}"


@dataclass(frozen=True)
class Died:
    """The worker ended while a case was in flight. ``exit`` is ``None`` when the
    process that could have said how ended with it."""

    exit: int | None
    output: str

    @property
    def signal_name(self) -> str:
        if self.exit is None:
            return "with its zygote"
        if self.exit >= 0:
            return f"exit {self.exit}"
        try:
            return signal.Signals(-self.exit).name
        except ValueError:  # a real-time signal has a number and no name
            return f"signal {-self.exit}"


@dataclass(frozen=True)
class Hung:
    """The worker did not answer in time; ``stack`` is where it was."""

    deadline_s: float
    stack: str


@dataclass(frozen=True)
class _Zygote:
    """A process that imports the engine, or has done so."""

    process: subprocess.Popen
    control: socket.socket
    log: Path


class Session:
    """One engine, its zygote and the current worker. Use as a context manager."""

    spares = True  # with a GPU, a second process imports the engine while the first one works

    def __init__(self, launch: Launch, deadline_s: float = CALL_DEADLINE_S):
        self.launch, self.deadline_s = launch, deadline_s
        self.direct = launch.device != "cpu"
        self.workers = 0  # that cases were sent to, one after the other
        try:
            self._folder = tempfile.TemporaryDirectory(prefix="specoracle-")
        except OSError as error:
            raise SessionError(f"no temporary folder can be made ({error.strerror}); set TMPDIR to one") from None
        self._zygote: _Zygote | None = None
        self._spare: _Zygote | None = None
        self._spawned = 0
        self._quarantine: str | None = None
        self._worker: socket.socket | None = None
        self._unread = 0
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY)
        self._pid = 0
        self._own_pid = 0  # of the process that imported the engine, which need not be the one we started
        self.ready: dict[str, Any] = {}

    @property
    def start_deadline_s(self) -> float:
        """How long an import may take."""
        return START_DEADLINE_S

    @property
    def reap_deadline_s(self) -> float:
        """How long a process whose worker is gone may take to end."""
        return REAP_DEADLINE_S

    def __enter__(self) -> Session:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the interpreter and import the engine, or take the spare that has done
        so. Raises SessionError."""
        if self._quarantine:
            raise SessionError(self._quarantine)
        spare, self._spare = self._spare, None
        if spare is not None and spare.process.poll() is not None:  # of its end while it waited no case is guilty
            self._end(spare)
            spare = None
        try:
            self._take(spare or self._spawn())
        except SessionError:
            if spare is None or self._quarantine:
                raise
            self._end_zygote()  # it may have said that it failed, and be there still
            self._take(self._spawn())  # what befell the spare, such as memory that was short, may have passed
        if self.direct and self.spares:
            self._spare = self._spawn()

    def _spawn(self) -> _Zygote:
        """Start a process and tell it what to import; its answer is not waited for."""
        self._spawned += 1
        log = Path(self._folder.name) / f"zygote-{self._spawned}.log"
        process, ours = self._connected(log)
        hello = {
            "engine": self.launch.engine, "version": self.launch.version,
            "device": "cpu" if self.launch.device == "cpu" else "cuda:0",  # the only one that it sees
            "direct": self.direct, "log": str(log), "stubs": self.launch.stubs,
            "targets": list(self.launch.targets), "modules": list(self.launch.modules), "torch": self.launch.torch,
            "shims": self.launch.shims,
            "guards": guards.offer(self.launch.env, self.launch.guards) if self.launch.device != "cpu" else None,
        }  # fmt: skip
        ours.settimeout(self.start_deadline_s)
        with contextlib.suppress(wire.Closed):  # it is dead already: whoever takes it reads the same
            wire.send(ours, hello)
        return _Zygote(process, ours, log)

    def _connected(self, log: Path) -> tuple[subprocess.Popen, socket.socket]:
        """A new process and our end of its socket, which it inherits."""
        ours, theirs = socket.socketpair()
        with theirs:
            return self._popen(str(theirs.fileno()), log, [theirs.fileno()]), ours

    def _popen(self, where: str, log: Path, fds: list[int]) -> subprocess.Popen:
        """Start the interpreter; ``where`` is its end of the socket."""
        env = {**self.launch.env, "PYTHONPATH": self._python_path()} | self._visible()
        try:
            return subprocess.Popen(
                self._command(where), pass_fds=fds, env=env, start_new_session=True, cwd=self._folder.name,
                stdin=subprocess.DEVNULL, stdout=log.open("ab"), stderr=subprocess.STDOUT,
            )  # fmt: skip
        except OSError as error:
            raise SessionError(f"cannot start {self.launch.python}: {error.strerror}") from None

    def _visible(self) -> dict[str, str]:
        """Show a worker its own device and no other: production that says ``cuda`` or launches on the
        current device means this one, and nothing is allocated on its neighbours."""
        if self.launch.device == "cpu":
            return {}
        number, listed = int(self.launch.device.partition(":")[2] or 0), self.launch.env.get(VISIBLE)
        names = None if listed is None else [name.strip() for name in listed.split(",") if name.strip()]
        if names is not None and number >= len(names):
            raise SessionError(f"{self.launch.device} is not among the devices that {VISIBLE}={listed} shows")
        return {VISIBLE: str(number) if names is None else names[number]}

    def _command(self, where: str) -> list[str]:
        return [self.launch.python, "-m", "fuzz.worker.zygote", where]

    def _take(self, zygote: _Zygote) -> None:
        """Wait until it has imported the engine and make it this session's own."""
        self._zygote = zygote
        try:
            self.ready = wire.receive(zygote.control)
        except TimeoutError:
            self._end_zygote()
            what = f"was silent for {self.start_deadline_s:.0f} s"
            raise SessionError(f"the engine's process {what} while importing\n{self._tail(zygote.log)}") from None
        except (wire.Closed, wire.WireError):
            how = Died(self._end_zygote(), "").signal_name
            raise SessionError(
                f"the engine's process ended ({how}) while importing\n{self._tail(zygote.log)}"
            ) from None
        if "failed" in self.ready:
            hint = "" if self.launch.device == "cpu" else "; --device cuda needs a GPU and a torch that is built for it"
            raise SessionError(f"the engine does not import: {self.ready['failed']}{hint}\n{self._tail(zygote.log)}")
        self._own_pid = self.ready.pop("pid")

    def _python_path(self) -> str:
        """The engine's path, then a folder with links to our two packages and to
        installed adapters: the folders they lie in may hold other versions of the
        engine's packages."""
        links = Path(self._folder.name) / "path"
        links.mkdir(exist_ok=True)
        own = {package: str(PROJECT_ROOT / package) for package in WORKER_PACKAGES}
        for package, place in (self.launch.packages | own).items():
            link = links / (package if os.path.isdir(place) else f"{package}.py")
            if not link.is_symlink():
                link.symlink_to(place)
        return os.pathsep.join(filter(None, [self.launch.env.get("PYTHONPATH"), str(links)]))

    def close(self) -> None:
        """End the worker and the zygote, whatever state they are in."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        spare, self._spare = self._spare, None
        try:
            self._end_zygote(patience_s=2.0)
        finally:
            if spare is not None:
                self._end(spare)
            self._folder.cleanup()

    def _end_zygote(self, patience_s: float = 0.0) -> int | None:
        """End this session's own zygote; returns its exit status."""
        zygote, self._zygote = self._zygote, None
        return self._end(zygote, patience_s) if zygote is not None else None

    def _end(self, zygote: _Zygote, patience_s: float = 0.0) -> int | None:
        """End a zygote and everything in its process group, also a worker that
        is stopped and would outlive it. Returns the zygote's exit status."""
        zygote.control.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                zygote.process.wait(timeout=patience_s)
        finally:  # a second Ctrl-C may end the wait; nobody is left behind all the same
            status = self._kill(zygote.process)
        return status

    def _kill(self, process: subprocess.Popen) -> int | None:
        """Kill a process group and return its leader's exit status. With a GPU, one that does not
        even end then sits in a driver call: its device is in quarantine, nothing new is started
        there, and ``None`` is returned."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            return process.wait(timeout=END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            if self.direct:
                self._quarantine = (
                    f"{self.launch.device} hangs: process {process.pid} was killed and has not ended after "
                    f"{END_DEADLINE_S:.0f} s, so nothing more is run there"
                )
            return None

    def call(self, request: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any] | Died | Hung:
        """Send one request to the worker and wait for its answer, its death or
        the deadline. The next call gets a fresh worker if this one was lost."""
        (answer,) = self.stream([request], deadline_s)
        return answer

    def stream(
        self, requests: Sequence[dict[str, Any]], deadline_s: float | None = None
    ) -> Iterator[dict[str, Any] | Died | Hung]:
        """Send several requests in one message and return their answers, in order, as they come:
        the worker goes on while its answers are looked at. It finishes a request, with the device
        synchronised, before it looks at the next, so a death or silence belongs to the first that
        was not answered; those behind it go to the next worker."""
        requests = list(requests)
        if requests:
            self._post(requests)
        return self._answers(requests, deadline_s or self.deadline_s)

    def _post(self, requests: Sequence[dict[str, Any]]) -> None:
        interrupt.look()
        if self._unread:  # whoever asked was stopped before all answers had come
            self.fresh()
        if self._worker is None:
            self._fork()
        self._worker.settimeout(END_DEADLINE_S)  # it reads a message before it does anything else
        self._unread = len(requests)
        # A worker that died meanwhile, or stands still, is found out where its answer is read.
        with contextlib.suppress(wire.Closed, TimeoutError):
            wire.send(self._worker, {"requests": requests})

    def _answers(self, requests: Sequence[dict[str, Any]], limit_s: float) -> Iterator[dict[str, Any] | Died | Hung]:
        for at, request in enumerate(requests):
            if not self._unread:  # the worker was lost with the last one
                self._post(requests[at:])
            self.history.append(request)
            answer = self._receive(limit_s)
            self._unread = 0 if self._worker is None else self._unread - 1
            yield answer

    def _receive(self, limit_s: float) -> dict[str, Any] | Died | Hung:
        limit = limit_s
        self._worker.settimeout(limit)
        try:
            answer = wire.receive(self._worker)
            while "compiling" in answer:  # a compiler began or ended: its time is not the call's
                limit = COMPILE_DEADLINE_S if answer["compiling"] else limit_s
                self._worker.settimeout(limit)
                answer = wire.receive(self._worker)
            if answer.get("lost"):  # it answered, but its device will not work again
                self._lose(kill=True)
            return answer
        except TimeoutError:
            stack = self._stack()
            self._lose(kill=True)
            return Hung(limit, stack)
        except (wire.Closed, wire.WireError) as error:
            code = self._lose(kill=isinstance(error, wire.WireError))
            return Died(code, f"{error}\n{self._tail(self._worker_log)}".strip())

    def fresh(self) -> None:
        """Give up the current worker, so that the next call starts in a new one."""
        if self._worker is not None:
            self._lose(kill=True)

    def late(self) -> list[Any]:
        """Verdicts that became known only after their case was answered: none here."""
        return []

    @property
    def zygote_pid(self) -> int:
        """Process id of the zygote (for tests that kill it)."""
        return self._zygote.process.pid

    @property
    def worker_pid_if_any(self) -> int | None:
        """Process id of the current worker, ``None`` between workers."""
        return self._pid if self._worker is not None else None

    def _fork(self, retries: int = 1) -> None:
        self.history.clear()
        if self._zygote is None:  # lost with the last worker, or direct mode after a death
            self.start()
        self.workers += 1
        if self.direct:
            self._worker, self._pid, self._worker_log = self._zygote.control, self._own_pid, self._zygote.log
            return
        ours, theirs = socket.socketpair()
        self._worker_log = Path(self._folder.name) / f"worker-{self.workers}.log"
        control = self._zygote.control
        control.settimeout(REAP_DEADLINE_S)
        try:
            socket.send_fds(control, [b"f"], [theirs.fileno()])
            wire.send(control, {"op": "fork", "log": str(self._worker_log)})
            self._pid = wire.receive(control)["pid"]
        except (OSError, wire.Closed, wire.WireError):
            ours.close()
            self._end_zygote()
            if not retries:
                raise SessionError("the engine's process ends whenever it is to fork a worker") from None
            self._fork(retries - 1)  # from a fresh zygote; one that cannot be started raises SessionError
            return
        finally:
            theirs.close()
        self._worker = ours

    def _lose(self, *, kill: bool) -> int | None:
        """Forget the worker and return how it ended, ``None`` when the zygote, which
        alone could say, is gone too."""
        self._unread = 0
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._worker.close()
        self._worker = None
        if self.direct:
            return self._end_zygote(patience_s=self.reap_deadline_s)
        control = self._zygote.control
        control.settimeout(REAP_DEADLINE_S)
        try:
            control.sendall(b"r")  # no descriptor goes with it: the zygote would keep it open
            wire.send(control, {"op": "reap", "pid": self._pid})
            return wire.receive(control)["exit"]
        except (OSError, wire.Closed, wire.WireError):
            self._end_zygote()
            return None

    def _stack(self) -> str:
        before = self._worker_log.stat().st_size if self._worker_log.exists() else 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGUSR1)
        time.sleep(STACK_WAIT_S)
        if not self._worker_log.exists():
            return ""
        with self._worker_log.open("rb") as log:
            log.seek(before)
            return log.read(LOG_TAIL_BYTES).decode(errors="replace")

    @staticmethod
    def _tail(log: Path) -> str:
        if not log.exists():
            return ""
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
