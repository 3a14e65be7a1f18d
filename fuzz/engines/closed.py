"""Closed stubs: stand-ins that fail loudly when production code touches what nobody promised.

A stand-in that answers everything makes every ``hasattr`` true and turns a wrong call into a wrong verdict. Here each
name is granted one by one; anything else raises `StubTouched`, which is a fault of the harness and never a finding.
`StubTouched` is no AttributeError, so that ``hasattr`` and ``getattr(x, name, default)`` cannot swallow it; where
production may probe for an optional attribute, the adapter declares it in ``absent``. Production also has broad
``except Exception`` blocks, so every touch is noted as well: call `take_touches` after each call into the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_touches: list[str] = []


class StubTouched(Exception):
    """Production code used a part of a stub that the adapter did not provide."""


class StubNameMissing(StubTouched, ImportError):
    """A name asked of a stub package that it does not have.

    Also an ImportError, because a guarded ``from package import name`` must fall back exactly as without the package.
    """


def touch(what: str) -> StubTouched:
    """Note a touch and return the exception to raise."""
    _touches.append(what)
    return StubTouched(what)


def take_touches() -> tuple[str, ...]:
    """Touches since the last call, in order; empties the list."""
    taken = tuple(_touches)
    _touches.clear()
    return taken


def closed_function(name: str) -> Callable:
    """A function that may be imported, stored and compared with None, but not called."""

    def stub(*args, **kwargs):
        raise touch(f"{name} is a stub without behaviour and was called")

    stub.__name__ = stub.__qualname__ = name.rpartition(".")[2]
    return stub


class ClosedStub:
    """A namespace with the given attributes; production may set more, but not read what nobody set.

    `absent` lists attributes that production may probe: they answer like a plain object without them. Dunder names do
    too, because the interpreter, copy and torch probe them on any object and mean no engine attribute.
    """

    def __init__(self, label: str, /, absent: Iterable[str] = (), **attributes: object):
        self.__dict__.update(attributes)
        self.__dict__["_closed_label"] = label
        self.__dict__["_closed_absent"] = frozenset(absent)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__") or name in self.__dict__.get("_closed_absent", ()):
            raise AttributeError(name)
        raise touch(f"{self.__dict__.get('_closed_label', 'stub')} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<stub {self._closed_label}>"
