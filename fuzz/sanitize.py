"""The same cases under NVIDIA's compute-sanitizer, and each report charged to its case.

A worker is started by the tool instead of by us, and what the tool adds to its log
between two cases belongs to the case before. The failure this finds: a kernel that
reads or writes where nothing is judged, races, or reads what nobody wrote, and answers
rightly all the same. The trade is time: everything is 10 to 100 times slower, so this
is a pass of its own.

What could blame the wrong case, and what is done: reports that came before the case
was sent are the last one's; once reports came late, or where the log is not written as
it happens, each case has a process of its own and is charged with all that its process
says. A tool that did not look ends the run: nothing was judged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

from fuzz import interrupt
from fuzz.engines.memory import SANITIZER
from fuzz.executor import interpret
from fuzz.presentation import Presentation
from fuzz.sanitizer_log import Report, reports, trouble
from fuzz.supervisor import Died, Hung, Launch, Session, SessionError
from fuzz.verdict import Identity, Kind, Verdict
from oracle.contract import Contract

PROGRAM = "compute-sanitizer"
FOLDERS = ("bin", "compute-sanitizer")  # of a CUDA toolkit
TOOLKITS = ("/usr/local/cuda", *sorted(glob("/usr/local/cuda-*"), reverse=True), "/opt/cuda")
FIELD = "sanitizer"  # of an identity, and what the evidence calls the tool's words
START_DEADLINE_S = 600.0
CALL_DEADLINE_S = 300.0
END_DEADLINE_S = 60.0  # racecheck still analyses when the process ends
QUIET_S = 0.1  # a log that did not grow for so long is complete: the worker has synchronised and waits
HEAD_BYTES = 1000  # a log's first line lies within
SETTLE_S = 20.0  # but a case's reports may be many
PADDING_BYTES = 4096  # between allocations, so that a stray access does not land in the next one
PRINT_LIMIT = 10_000  # reports that a process prints; then it is silent
RENEW_AFTER = 1000  # so a new process is started long before
MAX_LOG_BYTES = 64 << 20  # of what a tool writes between two looks; its print limit is far below
HEAD = "COMPUTE-SANITIZER"  # how a log begins
MAX_SAID = 5  # sentences in an event
LATE = "came after the next case or the end of the process; the last case before it is named"


class NoSanitizer(Exception):
    """The tool is not installed. The message says what to do."""


def program(env: Mapping[str, str] = os.environ) -> str:
    """The path of compute-sanitizer. Raises NoSanitizer."""
    toolkits = [env[name] for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    places = [os.path.join(t, folder, PROGRAM) for t in (*toolkits, *TOOLKITS) for folder in FOLDERS]
    found = shutil.which(PROGRAM, path=env.get("PATH")) or next((p for p in places if os.access(p, os.X_OK)), None)
    if found is None:
        raise NoSanitizer(
            f"no {PROGRAM} on PATH, under CUDA_HOME or /usr/local/cuda; install cuda-sanitizer of the CUDA toolkit "
            "(with apt cuda-sanitizer-13-0, with conda cuda-sanitizer-api), or set CUDA_HOME to a toolkit that has it"
        )
    return found


def prefix(tool: str) -> list[str]:
    """The command in front of an interpreter, but for its log."""
    options = {
        "--tool": tool,
        "--launch-timeout": 0,  # the import of an engine comes before its first call to CUDA
        "--target-processes": "all",  # an interpreter may be a script that starts one
        "--print-limit": PRINT_LIMIT,
        "--show-backtrace": "device",
    }
    if tool == "memcheck":  # a context that lives costs no new process; errors that an engine provokes are no faults
        options |= {"--destroy-on-device-error": "kernel", "--report-api-errors": "no", "--padding": PADDING_BYTES}
    return [program(), *(str(word) for option in options.items() for word in option)]


class Sanitized(Session):
    """A session whose workers run under ``tool``. ``alone``: each case in a process of its
    own. ``notes`` counts what was said and blames nobody."""

    spares = False  # it would double the memory and the time of a start that nobody waits for
    start_deadline_s = START_DEADLINE_S
    reap_deadline_s = END_DEADLINE_S

    def __init__(self, launch: Launch, tool: str, *, alone: bool = False, deadline_s: float = CALL_DEADLINE_S):
        # Cached memory is one large allocation, in which nothing is out of bounds and all was written once.
        env = launch.env | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", SANITIZER: tool}
        super().__init__(replace(launch, env=env), deadline_s)
        self.tool, self.alone = tool, alone
        self.notes: Counter[str] = Counter()
        self._log, self._read, self._printed = Path(os.devnull), 0, 0
        self._headed = False  # whether the process's log began as one does
        self._said: list[Report] = []  # of the case that was answered last
        self._verdict: Verdict | None = None  # of that case
        self._late: list[tuple[Verdict, Verdict]] = []

    def call(self, request: dict[str, Any], deadline_s: float | None = None) -> dict[str, Any] | Died | Hung:
        """The answer to one request; what the tool says of it is kept for its verdict."""
        self._charge_late()
        self._verdict = None
        answer = super().call(request, deadline_s)
        if self.alone:
            self.fresh()
        self._said = self._news()
        if self.alone and isinstance(answer, dict) and not self._headed:  # it ended, and so its log is whole
            raise SessionError(f"{PROGRAM} did not do its work: its log {self._log} does not begin with {HEAD}")
        if self._printed >= RENEW_AFTER:
            self.fresh()
        return answer

    def interpret(self, contract: Contract, adapter: Any, case: Any, how: Presentation, answer: Any) -> Verdict:
        """The verdict of the answer and the reports."""
        plain = interpret(contract, adapter, case, how, answer)
        self.notes.update(r.words(self.tool) for r in self._said if not r.blames(self.tool))
        self._verdict = charged(plain, self.tool, self._said)
        return self._verdict

    def late(self) -> list[tuple[Verdict, Verdict]]:
        """End the process; returns each verdict after which reports came late, with what they make of it."""
        self.fresh()
        self._charge_late()
        late, self._late = self._late, []
        return late

    def fresh(self) -> None:
        """Give up the current worker. It ends by itself, so that the tool can say all it has."""
        if self._worker is not None:
            self._lose(kill=False)

    def _charge_late(self) -> None:
        news = self._news()
        if self._verdict is None or not any(r.blames(self.tool) for r in news):
            return
        self.alone = True  # from here on nothing can be late
        after = charged(self._verdict, self.tool, news)
        self._late.append((self._verdict, replace(after, evidence=after.evidence | {"late": LATE})))

    def _news(self) -> list[Report]:
        """What the tool wrote since the last look, once it is silent. Raises SessionError when it did not look."""
        if not self._log.exists():
            return []
        until, before = time.monotonic() + SETTLE_S, -1
        while before != self._log.stat().st_size and time.monotonic() < until:
            before = self._log.stat().st_size
            if before - self._read > MAX_LOG_BYTES:
                raise SessionError(f"{PROGRAM} wrote more than {MAX_LOG_BYTES >> 20} MiB into its log about one case")
            time.sleep(QUIET_S)
        with self._log.open("rb") as log:
            log.seek(self._read)
            raw = log.read()
        self._read += len(raw)
        text = raw.decode(errors="replace")
        self._headed = self._headed or HEAD in text
        if problem := trouble(text):
            raise SessionError(f"{PROGRAM} did not do its work: {problem}")
        news = reports(text)
        self._printed += sum(r.count for r in news)
        return news

    def _command(self, where: str) -> list[str]:
        self._log, self._read, self._printed = Path(self._folder.name) / f"{self.tool}-{self._spawned}.log", 0, 0
        self._headed = False
        return [*prefix(self.tool), "--log-file", str(self._log), *super()._command(where)]

    def _connected(self, log: Path) -> tuple[subprocess.Popen, socket.socket]:
        """By a path: whether the tool hands descriptors on is its own affair."""
        name = f"control-{self._spawned}"
        folder = os.open(self._folder.name, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"/proc/self/fd/{folder}/{name}")  # a path of a socket has 107 characters at most
                listener.listen()
                listener.settimeout(QUIET_S)
                process = self._popen(name, log, [])
                try:
                    return process, self._accepted(listener, process, log)
                except BaseException:
                    self._kill(process)
                    raise
        finally:
            os.close(folder)

    def _accepted(self, listener: socket.socket, process: subprocess.Popen, log: Path) -> socket.socket:
        until = time.monotonic() + self.start_deadline_s
        while process.poll() is None and time.monotonic() < until:
            interrupt.look()
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
        how = "is silent" if process.returncode is None else f"ended with {process.returncode}"
        raise SessionError(
            f"{PROGRAM} {how} before the engine's process answered\n{self._tail(log)}{self._tail(self._log)}"
        )

    def _take(self, zygote: Any) -> None:
        super()._take(zygote)
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            self._headed = HEAD.encode() in log.read(HEAD_BYTES)
        self.alone = self.alone or not self._headed  # its first line is said at once, or it is not live


def charged(verdict: Verdict, tool: str, said: list[Report]) -> Verdict:
    """The verdict with what the tool said. A report that blames the engine makes DIVERGE of
    AGREE, with the kernel in its identity; a verdict that is red for another reason keeps
    it and has the words in its evidence, as has one that says nothing of production."""
    if not said:
        return verdict
    blaming = [r for r in said if r.blames(tool)]
    rest = [r for r in said if not r.blames(tool)]
    words = {"tool": tool, "said": [r.words(tool) for r in (blaming or rest)[:MAX_SAID]]}
    if not blaming:
        return replace(verdict, evidence=verdict.evidence | {"sanitizer_notes": words["said"]})
    evidence = verdict.evidence | {FIELD: words | {"text": blaming[0].text}}
    if verdict.kind is not Kind.AGREE:
        return replace(verdict, evidence=evidence)
    identity = Identity(verdict.contract, verdict.target, FIELD, blaming[0].identity(tool))
    return replace(verdict, kind=Kind.DIVERGE, identity=identity, evidence=evidence | {"claim": blaming[0].words(tool)})


def lines(verdict: Verdict) -> list[str]:
    """What a person is told of a verdict's reports beside its own words."""
    found = verdict.evidence.get(FIELD, {})
    own = verdict.identity is not None and verdict.identity.field == FIELD
    said = [f"{FIELD}: {words}" for words in found.get("said", [])[own:]]
    return said + ([f"{FIELD}: {verdict.evidence['late']}"] if "late" in verdict.evidence else [])


def may_show(session: Any, identity: Identity) -> bool:
    """Whether a divergence of this identity could show in the session at all: reports of a tool only under it."""
    return identity.field != FIELD or identity.kind.startswith(f"{getattr(session, 'tool', None)}:")
