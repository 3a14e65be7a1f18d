"""How long kernels were being compiled, apart from how long they ran.

On a GPU the first call of a kernel compiles it, for seconds with Triton, for a minute or
more with nvcc; in production's time it would hide what a call costs, and at a deadline
it would look like a hang. Two hooks see it: Triton's ``compile``, and any
compiler that is run as a program, which is how tvm-ffi (SGLang's ``load_jit``), FlashInfer
and torch's extensions build, whenever they are imported. The trade: a compiler that is a library of this
process (NVRTC, CuTe DSL) is not seen, and its time stays production's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

COMPILERS = re.compile(r"(?:.+-)?(?:ninja|nvcc|ptxas|cc|c\+\+|gcc|g\+\+|clang|clang\+\+)(?:-[\d.]+)?")
LOCKS = (("filelock", "BaseFileLock", "acquire"), ("tvm_ffi.utils.lockfile", "FileLock", "blocking_acquire"))
RUNNERS = ("run", "call")  # of ``subprocess``; check_call and check_output go through them


class Compiling:
    """Clocks compilation in this process. ``tell`` is called with true when a compiler
    begins and with false when none is at work any more."""

    def __init__(self, tell: Callable[[bool], None] = lambda compiling: None):
        self.tell = tell
        self._spans: list[tuple[float, float]] = []  # of one case; they do not overlap
        self._running, self._began = 0, 0.0
        self._lock = threading.Lock()

    def reset(self) -> None:
        """A new case begins."""
        self._spans.clear()

    @property
    def seconds(self) -> float:
        """Wall time of this case in which something was compiled."""
        return sum(end - start for start, end in self._spans)

    def within(self, start: float, end: float) -> float:
        """The part of it between two readings of ``time.perf_counter``."""
        return sum(max(min(end, e) - max(start, s), 0.0) for s, e in self._spans)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A compiler is at work; one inside another, or beside it, counts once."""
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._began = time.perf_counter()
                self.tell(True)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._spans.append((self._began, time.perf_counter()))
                    self.tell(False)

    def install(self, *, on_gpu: bool) -> None:
        """Put the hooks in place; that of Triton, which need not be installed, before its
        first kernel looks ``compile`` up."""
        for name in RUNNERS:
            setattr(subprocess, name, self._clocked(getattr(subprocess, name), is_compiler))
        if on_gpu:
            with contextlib.suppress(ImportError):
                compiler = importlib.import_module("triton.compiler")
                compiler.compile = self._clocked(compiler.compile, always)
            for module, name, method in LOCKS:
                with contextlib.suppress(ImportError, OSError):  # the engine need not build anything
                    lock = getattr(importlib.import_module(module), name)
                    setattr(lock, method, self._clocked(getattr(lock, method), always))

    def _clocked(self, function: Callable, compiles: Callable[..., bool]) -> Callable:
        @functools.wraps(function)
        def clocked(*args: Any, **kwargs: Any) -> Any:
            if not compiles(*args, **kwargs):
                return function(*args, **kwargs)
            with self.running():
                return function(*args, **kwargs)

        return clocked


def always(*_: Any, **__: Any) -> bool:
    return True


def is_compiler(command: Any = None, *_: Any, **options: Any) -> bool:
    """Whether ``subprocess.run`` with these arguments starts a compiler."""
    command = options.get("args", command)
    words = command.split() if isinstance(command, str) else command
    program = words[0] if isinstance(words, (list, tuple)) and words else words
    if not isinstance(program, (str, os.PathLike)):
        return False
    return COMPILERS.fullmatch(os.path.basename(os.fspath(program))) is not None
