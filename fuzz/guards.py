"""The guard allocator as a library of this machine, compiled once.

No wheel can carry it for every C++ library there is, and no CUDA toolkit is needed: the
source lies beside the worker, any C++ compiler takes two seconds for it, and the result is
kept in the cache folder under the digest of what it was made from. Without a compiler the run
goes on without guards and says so, because what is judged by values is judged all the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

from fuzz.engines.home import Home
from fuzz.engines.spec import EngineError

SOURCE = Path(__file__).parent / "worker" / "guard_allocator.cpp"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC")
LIBRARIES = ("-ldl", "-pthread")  # behind the source, where older linkers want them
COMPILE_DEADLINE_S = 120  # it takes 2 s on an idle core
ELF = b"\x7fELF"  # how a library begins
PLAIN_ALLOCATOR = "PYTORCH_NO_CUDA_MEMORY_CACHING"  # torch's own switch; a sanitizer knows each plain allocation


_given_up: dict[Path, str] = {}  # where a compiler hung, it is not waited for again with every worker


class GuardsError(Exception):
    """There is no library; the message says why, and what would help."""


def offer(env: dict[str, str], wanted: bool = True) -> dict[str, str | None]:
    """What a worker on a GPU is told: the ``library``, or the ``reason`` why there is none."""
    if not wanted:
        return {"library": None, "reason": "off: not wanted"}
    if env.get(PLAIN_ALLOCATOR):
        return {"library": None, "reason": f"off: {PLAIN_ALLOCATOR} asks for the plain allocator"}
    try:
        return {"library": str(library()), "reason": None}
    except GuardsError as error:
        return {"library": None, "reason": str(error)}


def library(home: Home | None = None) -> Path:
    """The compiled allocator, made where it is missing. Raises GuardsError."""
    digest = hashlib.sha256(" ".join(FLAGS).encode() + SOURCE.read_bytes()).hexdigest()[:16]
    try:
        place = (home or Home.locate()).platform / "guards" / f"{digest}.so"
        if place in _given_up:
            raise GuardsError(_given_up[place])
        if not _whole(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            _compile(place)
    except EngineError as error:
        raise GuardsError(str(error)) from None
    except OSError as error:
        raise GuardsError(f"the guard allocator cannot be kept: {error}") from None
    return place


def _whole(place: Path) -> bool:
    """Whether a library stands there; a machine that lost its power may leave an empty file."""
    try:
        with place.open("rb") as file:
            return file.read(len(ELF)) == ELF
    except FileNotFoundError:
        return False


def _compile(place: Path) -> None:
    """Compile into ``place``, which appears whole: another run may be looking for it."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise GuardsError(f"no C++ compiler ({', '.join(COMPILERS)}) is on the PATH; install one to have guards")
    scrap = place.with_suffix(f".{os.getpid()}")
    command = [compiler, *FLAGS, "-o", str(scrap), str(SOURCE), *LIBRARIES]
    try:
        code, said = _ran(command)
        if code:
            raise GuardsError(f"{compiler} does not compile the guard allocator: {said.strip()[:300]}")
        os.replace(scrap, place)
    except subprocess.TimeoutExpired:
        _given_up[place] = f"{compiler} did not end within {COMPILE_DEADLINE_S} s"
        raise GuardsError(_given_up[place]) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            scrap.unlink()


def _ran(command: list[str]) -> tuple[int, str]:
    """Run a compiler; its exit status and what it said. Nothing that it started outlives it."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace", start_new_session=True,
    ) as child:  # fmt: skip
        try:
            said = child.communicate(timeout=COMPILE_DEADLINE_S)[1]
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode, said
