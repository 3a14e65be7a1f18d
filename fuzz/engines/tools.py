"""Running pip and Python as child processes: with a deadline, with progress, and with errors that a person can act on.

pip's exit status says nothing about the reason, so its output is read for the four reasons that have different
remedies: no room, no network, no such version, no wheel for this platform. Anything else is shown as its last
meaningful lines. The trade: these patterns are pip's wording and may age; the fallback then still shows the lines.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from fuzz.engines.home import disk_full
from fuzz.engines.spec import EngineError

SHOWN_LINES = 6
FACTS = "SPECORACLE-FACTS "  # marks the line with the answer, among whatever else an interpreter prints
# Reads the id of a process group, then waits: a byte more means that all is well, end of file without one that our
# process is gone, also by SIGKILL. Parent-death signals would reach pip but not what pip starts, and setting one needs
# code between fork and exec, which may hang where other threads run.
GUARD = """
import contextlib, os, signal, sys
group = sys.stdin.buffer.readline()
if group.endswith(b"\\n") and not sys.stdin.buffer.read(1):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(group), signal.SIGKILL)
"""
NOISE = re.compile(r"^\s*$|^\[notice\]|^Traceback|^\s+File \"|^\s+\^|━|^WARNING: (Retrying|You are)|^DEPRECATION")
NO_ROOM = re.compile(r"No space left on device|Errno 28|Disk quota exceeded", re.I)
NO_NETWORK = re.compile(
    r"NewConnectionError|Failed to establish a new connection|Temporary failure in name resolution"
    r"|Name or service not known|ConnectTimeout|ReadTimeout|ProxyError|Connection (refused|reset|broken)"
    r"|Network is unreachable|Max retries exceeded|Remote end closed|RemoteDisconnected|IncompleteRead",
    re.I,
)
NO_VERSION = re.compile(r"Could not find a version that satisfies the requirement (\S+)(?:.*\(from versions: (.*?)\))?")


class ToolFailed(Exception):
    """A child process failed or passed its deadline (``returncode`` None); `lines` is what it printed."""

    def __init__(self, returncode: int | None, lines: Sequence[str]):
        super().__init__(f"exit status {returncode}")
        self.returncode = returncode
        self.lines = list(lines)


def run(
    command: Sequence[str | Path],
    *,
    deadline_s: float,
    on_line: Callable[[str], None] = lambda line: None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Run `command`, passing each line of its output to `on_line`; returns the lines. Raises `ToolFailed`.

    The child gets a session of its own: on a deadline, or when this process is interrupted or killed, it ends with its
    children. Otherwise a pip would go on writing into a cache folder whose lock is free. Raises OSError when `command`
    cannot be started.
    """
    lines: list[str] = []
    with guard() as announce:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
            start_new_session=True,
        )
        end = time.monotonic() + deadline_s
        try:
            announce(child.pid)
            arrived: queue.Queue[str | None] = queue.Queue()
            threading.Thread(target=_pump, args=(child.stdout, arrived), daemon=True).start()
            while (line := arrived.get(timeout=max(0.0, end - time.monotonic()))) is not None:
                lines.append(line)
                on_line(line)
            returncode = child.wait(timeout=max(1.0, end - time.monotonic()))
        except (queue.Empty, subprocess.TimeoutExpired):
            raise ToolFailed(None, lines) from None
        finally:
            if child.poll() is None:
                _end(child)
    if returncode != 0:
        raise ToolFailed(returncode, lines)
    return lines


@contextlib.contextmanager
def guard() -> Iterator[Callable[[int], None]]:
    """A process that ends the announced process group if this process dies inside the ``with``."""
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # what ends our own group must not end the guard with it
    )

    def announce(group: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # somebody ended the guard; the child can do its work without
            guard.stdin.write(f"{group}\n".encode())

    try:
        yield announce
    finally:
        guard.communicate(b".")


def facts(command: Sequence[str | Path], *, deadline_s: float, env: Mapping[str, str] | None = None) -> str | None:
    """What `command` printed on a line behind `FACTS`, ``None`` where there is no such line. Raises as `run` does."""
    lines = run(command, deadline_s=deadline_s, env=env)
    answer = next((line for line in lines if line.startswith(FACTS)), None)
    return None if answer is None else answer.removeprefix(FACTS).strip()


def explain(failure: ToolFailed, what: str, root: Path) -> EngineError:
    """The error to show for a failed step `what`."""
    text = "\n".join(failure.lines)
    if NO_ROOM.search(text):
        return disk_full(root, f"{what} stopped")
    if NO_NETWORK.search(text):
        return EngineError(
            f"no network: {what} could not reach the package index. Check the connection and pip's index and proxy "
            "settings (`pip config list`), then run the command again: finished parts are kept"
        )
    if missing := NO_VERSION.search(text):
        return EngineError(f"{what}: {missing[1]} has no wheel for this Python and platform; {_versions(missing[2])}")
    if "ensurepip is not available" in text:
        return EngineError(f"{what}: this Python cannot make virtual environments; install its python3-venv package")
    if failure.returncode is None:
        return EngineError(f"{what} passed its deadline and was ended; run the command again: finished parts are kept")
    return EngineError(f"{what} failed (exit status {failure.returncode}):\n{last_lines(failure.lines)}")


def last_lines(lines: Sequence[str]) -> str:
    """The last lines that carry meaning; ERROR lines win over the rest, and of a traceback only its message is kept."""
    starts = [index for index, line in enumerate(lines) if line.startswith("Traceback")]
    if starts:
        lines = [line for line in lines[starts[-1] :] if not line[:1].isspace()]
    kept = [line.rstrip() for line in lines if not NOISE.search(line)]
    errors = [line for line in kept if line.lstrip().startswith(("ERROR", "error:"))]
    return "\n".join("  " + line for line in (errors or kept)[-SHOWN_LINES:])


def _versions(listed: str | None) -> str:
    if not listed or listed == "none":
        return "the package index offers no version of it that fits"
    versions = [version.strip() for version in listed.split(",")]
    return "available: " + ", ".join(versions[-30:])


def _pump(stream, arrived: queue.Queue) -> None:
    with stream:
        for line in stream:
            arrived.put(line.rstrip("\n"))
    arrived.put(None)


def _end(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
