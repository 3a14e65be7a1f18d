"""How production code is attached to a contract.

An adapter is one function that translates a case to a production call and the
result back; it holds no engine code and no judgement. The decorator carries the
facts that the supervisor needs without importing torch, so adapter modules must
import nothing heavy at the top: inside the function, ``engine.torch`` is torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ENTRY_POINTS = "specoracle.adapters"
BUILT_IN = {name: f"fuzz.engines.{name}" for name in ("fla", "flashinfer", "sglang", "vllm")}


class AdapterError(Exception):
    """Adapters that an installed package brings cannot be used; the message says which."""


class Unsupported(Exception):
    """This target cannot run here: a symbol, import, device or path is missing."""


class PathNotTaken(Unsupported):
    """Production answered, but not through the code this target is about."""


@dataclass(frozen=True)
class Adapter:
    """One target.

    contract   name of the contract it implements
    module     worker or module of the engine, second part of the target id
    symbol     last part of the target id, the production symbol under test
    run        (engine, case columns) -> {outcome field: observed value}
    observes   outcome fields that ``run`` returns, all of them, every time
    needs      keys of the version record's symbols that must resolve
    execution  "torch" (plain tensors), "triton" (kernel; slow in the
               interpreter), "python" (no tensors) or "worker" (a worker method
               behind stubs)
    accepts    case columns -> None, or why the target cannot be shown this case
    rounding_ulp  how much further from an edge than the contract's own rounding model
               this target may decide otherwise, in ULP; what it is derived from stands
               in the adapter
    sweep      (engine, ``fuzz.worker.sweep.Rows``) -> {field: device tensor [rows]}, for an
               exhaustive sweep on the device; without it rows go through ``run``
    """

    engine: str
    contract: str
    module: str
    symbol: str
    run: Callable[[Any, Any], dict[str, Any]]
    observes: tuple[str, ...]
    needs: tuple[str, ...]
    execution: str
    accepts: Callable[[Any], str | None]
    rounding_ulp: float = 0.0
    sweep: Callable[[Any, Any], dict[str, Any]] | None = None

    @property
    def id(self) -> str:
        return f"{self.engine}/{self.module}/{self.contract}/{self.symbol}"


_ADAPTERS: dict[str, Adapter] = {}


def accept_all(case: Any) -> str | None:
    return None


def adapter(
    *,
    contract: str,
    module: str,
    symbol: str,
    observes: tuple[str, ...],
    needs: tuple[str, ...],
    execution: str = "torch",
    accepts: Callable[[Any], str | None] = accept_all,
    engine: str = "sglang",
    rounding_ulp: float = 0.0,
    sweep: Callable[[Any, Any], dict[str, Any]] | None = None,
) -> Callable[[Callable[[Any, Any], dict[str, Any]]], Callable[[Any, Any], dict[str, Any]]]:
    """Register the decorated function as a target. See ``Adapter``."""

    def register(run: Callable[[Any, Any], dict[str, Any]]) -> Callable[[Any, Any], dict[str, Any]]:
        made = Adapter(engine, contract, module, symbol, run, observes, needs, execution, accepts, rounding_ulp, sweep)
        if made.id in _ADAPTERS and _ADAPTERS[made.id].run.__code__ != run.__code__:
            raise AdapterError(f"two adapters are called {made.id}")
        _ADAPTERS[made.id] = made
        return run

    return register


def modules(engine: str) -> list[str]:
    """Modules that hold an engine's adapters: the built-in ones and those that
    installed packages name in the entry-point group, under the engine's name.
    Raises AdapterError."""
    return _built_in(engine) + [_module(entry) for entry in entry_points(group=ENTRY_POINTS, name=engine)]


def installed_engines() -> dict[str, str]:
    """Engines that installed packages bring adapters for, each with the name of its
    distribution: an entry point is called like the engine it is for."""
    return {e.name: e.dist.name if e.dist else e.name for e in entry_points(group=ENTRY_POINTS)}


def installed_packages(engine: str) -> dict[str, str]:
    """Top-level names of the installed adapter modules of an engine, and where each
    lies: an engine's own interpreter need not have them."""
    found = {}
    for entry in entry_points(group=ENTRY_POINTS, name=engine):
        top = _module(entry).partition(".")[0]
        spec = find_spec(top)
        if spec is not None and spec.origin:
            origin = Path(spec.origin)
            found[top] = str(origin.parent if spec.submodule_search_locations else origin)
    return found


def registered(engine: str) -> dict[str, Adapter]:
    """The adapters of one engine by id that were imported so far."""
    return {i: a for i, a in sorted(_ADAPTERS.items()) if a.engine == engine}


def load(engine: str) -> dict[str, Adapter]:
    """Import all adapter modules of one engine and return its adapters by id. Raises
    AdapterError for an installed package whose adapters cannot be had: a run without
    them would say less than its user believes."""
    for module in _built_in(engine):
        import_module(module)
    for entry in entry_points(group=ENTRY_POINTS, name=engine):
        _import(entry, engine)
    return registered(engine)


def _built_in(engine: str) -> list[str]:
    return list(import_module(BUILT_IN[engine]).ADAPTER_MODULES) if engine in BUILT_IN else []


def _module(entry: EntryPoint) -> str:
    """The module that an entry point names. Raises AdapterError."""
    match = EntryPoint.pattern.match(entry.value)
    if match is None or not all(part.isidentifier() for part in match["module"].split(".")):
        raise AdapterError(_said(entry, f"{entry.value!a} names no module; write it like package.module"))
    return match["module"]


def _import(entry: EntryPoint, engine: str) -> None:
    """Import what an entry point names. The package is foreign code that may fail in any
    way, so every failure, also an exit, becomes one line that names it."""
    module = _module(entry)
    try:
        import_module(module)
        _contracts_known(engine)
    except AdapterError as error:
        raise AdapterError(_said(entry, str(error))) from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise AdapterError(_said(entry, f"importing {module} raised {what}")) from error


def _contracts_known(engine: str) -> None:
    from oracle import contracts  # a worker, which imports this module, needs no contract

    for each in registered(engine).values():
        if each.contract not in contracts.all_contracts():
            there = ", ".join(contracts.all_contracts())
            raise AdapterError(f"{each.id} is for an unknown contract {each.contract!r}; there are {there}")


def _said(entry: EntryPoint, what: str) -> str:
    name = entry.dist.name if entry.dist else "an installed package"
    text = f"adapters of {name} (entry point {entry.name} = {entry.value}): {what}; mend or uninstall {name}"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def select(engine: str, target: str = "*", contract: str = "*") -> list[Adapter]:
    """Adapters of an engine whose id and contract match shell-style patterns."""
    return [a for i, a in load(engine).items() if fnmatchcase(i, target) and fnmatchcase(a.contract, contract)]
