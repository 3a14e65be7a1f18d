"""Ctrl-C that cannot get lost.

An interruption is remembered besides being raised. Raised inside a callback of the
garbage collector it is printed and forgotten (Hypothesis installs one), and code that
it passes on its way out may fail an assertion that hides it. Every request to a
worker looks here first, so that a run ends at its next case at the latest.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_heard = 0  # how often


def listen() -> None:
    """From here on SIGINT, SIGTERM and SIGHUP end the run: everything written, nothing left.
    One that whoever started us had ignored stays so (``nohup`` does that)."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _hear)
    sys.unraisablehook = _unraisable


def deafen() -> None:
    """The exit code stands: nothing that comes now may replace it by a signal's."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def heard() -> bool:
    """True once one of them came."""
    return _heard > 0


def times() -> int:
    """How many of them came."""
    return _heard


@contextmanager
def remembered() -> Iterator[None]:
    """Inside, one that comes is remembered and raises nothing: what is being collected is not lost."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is _hear:
            signal.signal(number, _remember)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is _hear:
                signal.signal(number, _hear)


def look() -> None:
    """Raise ``KeyboardInterrupt`` once one of them came."""
    if _heard:
        raise KeyboardInterrupt


def _hear(signum: int, frame: Any) -> None:
    _remember(signum, frame)
    raise KeyboardInterrupt


def _remember(signum: int, frame: Any) -> None:
    global _heard
    _heard += 1


def _unraisable(what: Any) -> None:
    """One that was remembered is no news; everything else is said as ever."""
    if what.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(what)
