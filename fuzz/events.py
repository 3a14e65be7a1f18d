"""The truth of a run: ``events.ndjson``, one event a line, flushed as it happens.

A START stands in the file before the case is sent and an END after its verdict,
so a run that was killed still names the case in flight. Everything else (JUnit,
tables, summaries) is derived from this file.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import platform
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fuzz.verdict import Verdict

SCHEMA = 1
FILE = "events.ndjson"


class EventsError(Exception):
    """The run's folder cannot be written. The message names it."""


class Events:
    """Writes the events of one run into ``out``, which must not hold a run yet.
    Use as a context manager. Raises EventsError, also when the disk is full."""

    def __init__(self, out: Path):
        self.out = out
        try:
            out.mkdir(parents=True, exist_ok=True)
            # Exclusive: of two runs that name the same folder, the second is refused. Unbuffered: the processes of
            # a run over several devices share it, and write a line in one call.
            self._file = os.open(out / FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            raise EventsError(f"--out {out} already holds a run; name another folder or move that one away") from None
        except OSError as error:
            raise EventsError(f"--out {out} cannot be written: {error.strerror}") from None
        self._cases, self._step = 0, 1
        self.about: dict[str, str] = {}  # engine and version, in each event of a run over several

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk was reported by the write
            os.close(self._file)

    def for_lane(self, number: int, lanes: int, device: str) -> Events:
        """The same stream for one of several processes, from ``number`` 0 on: it numbers its cases
        so that no two have the same, and each of its events names its ``device``."""
        own = copy.copy(self)
        own._cases, own._step = number + 1 - lanes, lanes
        own.about = self.about | {"device": device}
        return own

    def emit(self, event: str, **values: Any) -> None:
        """Write one event."""
        line = {"schema": SCHEMA, "event": event, "time": round(time.time(), 3), **self.about, **values}
        raw = (json.dumps(line, separators=(",", ":"), default=str) + "\n").encode()
        try:
            while raw:
                raw = raw[os.write(self._file, raw) :]
        except OSError as error:
            raise EventsError(f"{self.out} cannot be written any more: {error.strerror}") from None

    def write(self, name: str, text: str) -> None:
        """Write a file beside the events. Raises EventsError."""
        try:
            (self.out / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise EventsError(f"{self.out / name} cannot be written: {error.strerror}") from None

    def start(self, target: str, **source: Any) -> int:
        """Journal a case before it is sent; returns its number."""
        self._cases += self._step
        self.emit("start", case=self._cases, target=target, **source)
        return self._cases

    def end(self, number: int, verdict: Verdict, *, known: bool = False) -> None:
        """Journal the verdict of a case. AGREE is short, all else has evidence;
        ``known`` marks a divergence that is listed."""
        values: dict[str, Any] = {"target": verdict.target, "verdict": str(verdict.kind)}
        if known:
            values["known"] = True
        if verdict.compile_s:
            values["compile_s"] = round(verdict.compile_s, 3)
        if verdict.identity is not None:
            values["identity"] = asdict(verdict.identity)
        if verdict.evidence:
            values["evidence"] = verdict.evidence
        if verdict.flags:
            values["flags"] = list(verdict.flags)
        if verdict.behaviours:
            values["behaviours"] = sorted(verdict.behaviours)
        self.emit("end", case=number, contract=verdict.contract, production_s=round(verdict.production_s, 6), **values)

    def rejudge(self, verdict: Verdict, **case: int) -> None:
        """Journal what an identity turned out to be after it was doubted; with
        ``case=NUMBER`` only that case of it."""
        self.emit(
            "verdict",
            target=verdict.target,
            contract=verdict.contract,
            verdict=str(verdict.kind),
            identity=asdict(verdict.identity),
            evidence=verdict.evidence,
            **case,
        )


def environment() -> dict[str, Any]:
    """Where a run happened: platform, Python, cores, commit of this project."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    try:
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return git.stdout.strip()
