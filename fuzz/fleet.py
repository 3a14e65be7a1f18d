"""Many gates at once, each in a process of its own, as many as memory and cores allow.

Each job writes into ``NAME.part``; a job that reached its end is renamed to ``NAME``, so
what stands there is whole and is not run again, and what was killed is readable under
its other name and starts anew. A result remembers the key it was made under (corpus,
selection, this project's own code): another key makes it stale. When this process ends,
however it ends, its jobs end with it. Nothing is written through a link: one that stands
where a result or a log belongs is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fuzz.engines import tools

WORKER_BYTES = 1_500_000_000  # an engine with torch, its zygote and a worker
POLL_S = 0.2
JOB_DEADLINE_S = 3600.0  # a gate takes minutes; every call inside it has a deadline of its own
END_PATIENCE_S = 20.0  # what a job that is told to end gets to write its last event
KEY = "matrix.key"
PART = ".part"


@dataclass(frozen=True)
class Job:
    """One command that fills ``folder``; ``name`` is for people."""

    name: str
    folder: Path
    command: tuple[str, ...]

    @property
    def part(self) -> Path:
        """Where it writes until it has reached its end."""
        return self.folder.with_name(self.folder.name + PART)

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder.with_name(self.folder.name + ".log")


def finished(job: Job, key: str) -> bool:
    """True when the result of ``job`` stands and was made under ``key``."""
    try:
        return not job.folder.is_symlink() and (job.folder / KEY).read_text(encoding="utf-8") == key
    except (OSError, UnicodeError):
        return False


def clear(path: Path) -> None:
    """Remove what stands at ``path``; of a link the link, never what it points to."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def places(jobs: int) -> int:
    """How many of ``jobs`` run at once: by cores, and by the memory that is free now."""
    return max(1, min(jobs, os.cpu_count() or 1, free_bytes() // WORKER_BYTES))


def free_bytes() -> int:
    """Memory that processes may still take; the whole where the system does not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", encoding="ascii") as lines:
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def run(
    jobs: list[Job],
    key: str,
    at_once: int,
    whole: Callable[[Path], bool],
    on_end: Callable[[Job, int | None], None],
    on_tick: Callable[[list[Job]], None] = lambda running: None,
) -> None:
    """Run ``jobs``. ``whole`` says whether a folder holds a run that reached its end;
    ``on_end`` gets each job with its exit status, ``None`` past the deadline."""
    waiting = list(jobs)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Running(waiting.pop(0)))
            for one in [r for r in running if r.ended()]:
                running.remove(one)
                code = one.close()
                if code is not None and whole(one.job.part):
                    _put(one.job, key)
                on_end(one.job, code)
            on_tick([one.job for one in running])
            time.sleep(POLL_S)
    finally:
        for one in running:
            one.tell()
        for one in running:
            one.close(END_PATIENCE_S)


def _put(job: Job, key: str) -> None:
    """The result stands under its own name from here on."""
    (job.part / KEY).write_text(key, encoding="utf-8")
    clear(job.folder)
    job.part.rename(job.folder)


class _Running:
    """One started job. A guard ends its process group when this process is gone."""

    def __init__(self, job: Job):
        self.job = job
        job.part.parent.mkdir(parents=True, exist_ok=True)
        clear(job.part)
        clear(job.log)
        self._stack = contextlib.ExitStack()
        log: IO[Any] = self._stack.enter_context(job.log.open("xb"))
        announce = self._stack.enter_context(tools.guard())
        self._child = subprocess.Popen(
            job.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        announce(self._child.pid)
        self._deadline = time.monotonic() + JOB_DEADLINE_S
        self._late = False

    def ended(self) -> bool:
        self._late = self._child.poll() is None and time.monotonic() > self._deadline
        return self._child.poll() is not None or self._late

    def tell(self) -> None:
        """Ask it to end as Ctrl-C would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGTERM)

    def close(self, patience_s: float = 0.0) -> int | None:
        """End it, if need be by force; its exit status, ``None`` past the deadline."""
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=patience_s)
        finally:
            if self._child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._child.pid, signal.SIGKILL)
                self._child.wait()
            self._stack.close()
        return None if self._late else self._child.returncode
