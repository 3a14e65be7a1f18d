"""Which way a call went: counted runs of a Triton kernel.

Wrappers dispatch to a kernel through objects that hold it by reference, so that a
counter under the kernel's module name would see nothing. Every launch, compiled or
interpreted, ends in the kernel's own ``run``; a counter stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock


class Runs:
    """How often a kernel ran."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def counted(kernel: Any) -> Iterator[Runs]:
    """Count the launches of ``kernel`` inside."""
    runs, original = Runs(), kernel.run

    def run(*arguments: Any, **options: Any) -> Any:
        runs.count += not options.get("warmup", False)
        return original(*arguments, **options)

    with mock.patch.object(kernel, "run", run):
        yield runs
