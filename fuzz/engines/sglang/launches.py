"""Which way a call went: counted kernel launches.

Wrappers fall back from a Triton kernel to plain tensors in silence. A counter in
the kernel's place answers "did it run", and hands every launch on untouched.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock


class Launches:
    """Stands for a kernel under its module's name and counts its launches."""

    def __init__(self, kernel: Any):
        self._kernel = kernel
        self.count = 0

    def __getitem__(self, grid: Any) -> Any:
        launch = self._kernel[grid]

        def counted(*arguments: Any, **options: Any) -> Any:
            self.count += 1
            return launch(*arguments, **options)

        return counted


@contextmanager
def counted(module: ModuleType, name: str) -> Iterator[Launches]:
    """Count the launches of the kernel ``module.name`` inside."""
    launches = Launches(getattr(module, name))
    with mock.patch.object(module, name, launches):
        yield launches
