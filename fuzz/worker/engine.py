"""What an adapter may ask for: torch, symbols, facts, and the production clock.

``production()`` marks the production call: only time and exceptions inside it
belong to the engine. ``symbol`` and ``fact`` read the version record, so an
adapter never knows which version it runs. Nor does it know on which stream, or into
which graph, its production call goes: ``shown`` is what a presentation makes of it.
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
from fuzz.worker.graphs import Graphs
from fuzz.worker.guards import Guards
from fuzz.worker.layout import Layout, overwritten
from fuzz.worker.record import Record
from fuzz.worker.streams import AsItIs


class Engine:
    """The engine under test, inside the worker process."""

    def __init__(self, name: str, version: str, device: str = "cpu"):
        self.name, self.version, self.device = name, version, device
        self.record = Record.load(name, version)
        self.strided = False
        self.guards: Guards | None = None  # of a GPU's memory
        self._wide: list[tuple[Any, int]] = []  # storages of this run's strided tensors
        self.production_s = 0.0
        self.failed_in_production = False
        self.lost = False  # the device will not work again in this process
        self.shown: Any = AsItIs()
        self.compiling = Compiling()
        self._resolved: dict[str, Any] = {}

    @cached_property
    def torch(self) -> Any:
        """The torch module."""
        import torch

        return torch

    @cached_property
    def graphs(self) -> Graphs:
        """What captures and replays production calls."""
        return Graphs(self)

    @property
    def layout(self) -> Layout:
        """How this call's arrays become tensors."""
        return Layout(self.torch, self.device, self.strided, self._wide)

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
        return self.shown.tensor(lambda: self.layout.tensor(values, dtype, contiguous=contiguous))

    @contextmanager
    def production(self) -> Iterator[None]:
        """Clock the production call, with the device synchronised at its end and without the
        compilation of its kernels."""
        start = time.perf_counter()
        self.failed_in_production = True
        try:
            with self.shown.production():
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

    def begin(self) -> None:
        """A run of an adapter starts."""
        self._wide.clear()
        if self.guards is not None:
            self.guards.begin()

    def outside(self) -> str:
        """What this run wrote outside the buffers it was given, in words; empty when nothing."""
        found = [overwritten(self.torch, self._wide) if self._wide else ""]
        self._wide.clear()
        if self.guards is not None:
            found.append(self.guards.outside())
        return "; ".join(filter(None, found))

    def out_of_memory(self) -> bool:
        """The guarded memory was short in this run; production may have wrapped the exception."""
        return self.guards is not None and self.guards.out_of_memory()

    def require_path(self, taken: bool, path: str) -> None:
        """Raise PathNotTaken unless production ran through ``path``."""
        if not taken:
            raise PathNotTaken(f"path not taken: {path}")


def location(found: Any) -> str | None:
    """``package/module.py:line`` of a function, method or Triton kernel; a module has none. Raises
    Unsupported for a stand-in that imports what it stands for only now, and cannot."""
    if inspect.ismodule(found):
        return None
    try:
        function = inspect.unwrap(getattr(found, "fn", found))
        code, module = getattr(function, "__code__", None), getattr(function, "__module__", "")
    except Exception as error:  # an import may fail in any way; the reason is the report
        raise Unsupported(f"symbol: {type(error).__name__}: {str(error)[:300]}") from error
    if code is None:
        return None
    package = module.partition(".")[0]
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
