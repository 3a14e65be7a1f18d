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
import subprocess
from pathlib import Path

from fuzz.engines.home import Home
from fuzz.engines.spec import EngineError

SOURCE = Path(__file__).parent / "worker" / "guard_allocator.cpp"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O2", "-shared", "-fPIC")
LIBRARIES = ("-ldl", "-pthread")  # behind the source, where older linkers want them
COMPILE_DEADLINE_S = 120  # it takes 2 s on an idle core
PLAIN_ALLOCATOR = "PYTORCH_NO_CUDA_MEMORY_CACHING"  # torch's own switch; a sanitizer knows each plain allocation


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
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _compile(place)
    except EngineError as error:
        raise GuardsError(str(error)) from None
    except OSError as error:
        raise GuardsError(f"the guard allocator cannot be kept: {error}") from None
    return place


def _compile(place: Path) -> None:
    """Compile into ``place``, which appears whole: another run may be looking for it."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise GuardsError(f"no C++ compiler ({', '.join(COMPILERS)}) is on the PATH; install one to have guards")
    scrap = place.with_suffix(f".{os.getpid()}")
    command = [compiler, *FLAGS, "-o", str(scrap), str(SOURCE), *LIBRARIES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=COMPILE_DEADLINE_S)
        if done.returncode:
            raise GuardsError(f"{compiler} does not compile the guard allocator: {done.stderr.strip()[:300]}")
        os.replace(scrap, place)
    except subprocess.TimeoutExpired:
        raise GuardsError(f"{compiler} did not end within {COMPILE_DEADLINE_S} s") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            scrap.unlink()
