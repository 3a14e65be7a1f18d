"""What an adapter may ask for: torch, symbols, facts, and the production clock.

``production()`` marks the production call: only time and exceptions inside it
belong to the engine. ``symbol`` and ``fact`` read the version record, so an
adapter never knows which version it runs.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from fuzz.adapter import PathNotTaken, Unsupported
from fuzz.worker.compiling import Compiling
from fuzz.worker.layout import Layout
from fuzz.worker.record import Record


class Engine:
    """The engine under test, inside the worker process."""

    def __init__(self, name: str, version: str, device: str = "cpu"):
        self.name, self.version, self.device = name, version, device
        self.record = Record.load(name, version)
        self.strided = False
        self.production_s = 0.0
        self.failed_in_production = False
        self.compiling = Compiling()
        self._resolved: dict[str, Any] = {}

    @cached_property
    def torch(self) -> Any:
        """The torch module."""
        import torch

        return torch

    @property
    def layout(self) -> Layout:
        """How this call's arrays become tensors."""
        return Layout(self.torch, self.device, self.strided)

    def symbol(self, key: str) -> Any:
        """The production object recorded under ``key``. Raises Unsupported with
        the missing symbol or import when this version does not have it."""
        if key not in self._resolved:
            self._resolved[key] = resolve(self.record.symbol(key))
        return self._resolved[key]

    def fact(self, key: str) -> Any:
        """A fact of this version. Raises Unsupported when there is none."""
        return self.record.fact(key)

    def tensor(self, values: Any, dtype: str, *, contiguous: bool = False) -> Any:
        """A tensor laid out as the case's presentation asks."""
        return self.layout.tensor(values, dtype, contiguous=contiguous)

    @contextmanager
    def production(self) -> Iterator[None]:
        """Clock the production call, with the device synchronised at its end and without the
        compilation of its kernels."""
        start = time.perf_counter()
        self.failed_in_production = True
        try:
            yield
            if self.device != "cpu":
                self.torch.cuda.synchronize(self.device)
            self.failed_in_production = False
        finally:
            end = time.perf_counter()
            self.production_s += end - start - self.compiling.within(start, end)

    def device_fault(self) -> str | None:
        """What the device says once no call on it can succeed any more, such as after
        an illegal address; ``None`` while it works. Only a new process helps then."""
        if self.device == "cpu":
            return None
        try:
            self.torch.cuda.synchronize(self.device)
        except RuntimeError as error:  # sticky: the driver repeats it at every call
            return str(error).partition("\n")[0]
        return None

    def require_path(self, taken: bool, path: str) -> None:
        """Raise PathNotTaken unless production ran through ``path``."""
        if not taken:
            raise PathNotTaken(f"path not taken: {path}")


def location(found: Any) -> str | None:
    """``package/module.py:line`` of a function, method or Triton kernel; a module has none."""
    if inspect.ismodule(found):
        return None
    function = inspect.unwrap(getattr(found, "fn", found))
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    package = getattr(function, "__module__", "").partition(".")[0]
    _, marker, rest = code.co_filename.rpartition(f"/{package}/")
    return f"{package}/{rest}:{code.co_firstlineno}" if marker else None


def resolve(path: str) -> Any:
    """The object at ``module:attribute.attribute``."""
    module_name, _, attributes = path.partition(":")
    try:
        found = importlib.import_module(module_name)
    except Exception as error:  # an import may fail in any way; the reason is the report
        raise Unsupported(f"import {module_name}: {type(error).__name__}: {str(error)[:300]}") from error
    for name in filter(None, attributes.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise Unsupported(f"symbol {path} is missing") from None
        except Exception as error:  # a package may import its parts when they are asked for
            raise Unsupported(f"symbol {path}: {type(error).__name__}: {str(error)[:300]}") from error
    return found
