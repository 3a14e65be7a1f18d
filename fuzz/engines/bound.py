"""Stand-ins for an object whose methods call each other.

``bound`` gives a closed stub every method of the real class, so that the engine's
methods find each other, and no attribute besides those named: data that nobody
provided is still a touch. ``forwarded`` is for the few functions of ours that
stand in the middle of a call from the engine to torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType, MethodType
from typing import Any
from unittest import mock

from fuzz.engines.closed import ClosedStub


def bound(cls: type, label: str, **attributes: Any) -> ClosedStub:
    """A closed stub with ``attributes`` and the methods of ``cls``."""
    stub = ClosedStub(label, **attributes)
    for name, method, is_static in _methods(cls):
        if name not in attributes:
            stub.__dict__[name] = method if is_static else MethodType(method, stub)
    return stub


@cache
def _methods(cls: type) -> tuple[tuple[str, FunctionType, bool], ...]:
    """Plain and static methods of a class, without its dunder methods."""
    found = []
    for name in dir(cls):
        kept = inspect.getattr_static(cls, name)
        if isinstance(kept, staticmethod):
            found.append((name, kept.__func__, True))
        elif isinstance(kept, FunctionType) and not (name.startswith("__") and name.endswith("__")):
            found.append((name, kept, False))
    return tuple(found)


def forwarded(function: FunctionType) -> Callable:
    """Mark a function that only forwards the engine's call to torch.

    An exception that passes through it belongs to whoever called it, so its
    frame must not count as ours when blame is decided.
    """
    function.__code__ = function.__code__.replace(co_filename="<forwarded to torch>")
    return function


@contextmanager
def pinning_dropped(torch: Any) -> Iterator[None]:
    """``torch.tensor(..., pin_memory=True)`` builds a plain tensor: a CPU torch
    refuses to pin."""
    original = torch.tensor

    @forwarded
    def tensor(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    with mock.patch.object(torch, "tensor", tensor):
        yield


@contextmanager
def cuda_becomes_cpu(torch: Any) -> Iterator[None]:
    """``torch.full(..., device="cuda")`` allocates on the CPU."""
    original = torch.full

    @forwarded
    def full(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return original(*args, device="cpu" if device == "cuda" else device, **kwargs)

    with mock.patch.object(torch, "full", full):
        yield
