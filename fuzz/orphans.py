"""A process that ends with its parent: whoever is killed leaves nobody behind.

Linux sends the signal, also to a process that is stopped or in a kernel that never ends
and would not see its socket close. Elsewhere nothing is asked, and closed sockets do.
"""

from __future__ import annotations

import contextlib
import ctypes
from signal import Signals

PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def end_with_parent(signal: Signals) -> None:
    """Ask for ``signal`` when this process's parent dies."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal))
