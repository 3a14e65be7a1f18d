"""Which engine is meant: the text of ``--engine`` as a value.

``NAME`` | ``NAME==VERSION`` | ``NAME==local`` | ``NAME@PATH``. The text is checked against the engines this project can
provision, so that a misspelt name or a version outside the known range fails here, before anything is downloaded. The
trade: a release newer than the data in this package is refused although it might work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from fuzz.adapter import installed_engines
from fuzz.engines import imports

EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3


class EngineError(Exception):
    """An engine cannot be had; the message says what to do.

    ``exit_code`` is 2, or 3 where only ``--offline`` forbade it.
    """

    def __init__(self, message: str, *, exit_code: int = EXIT_USAGE):
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class EngineSpec:
    """One engine: a published ``version``, a checkout at ``path``, or whatever an interpreter has (``local``).

    A checkout that is ``local`` too, and a version from a ``bundle``, run in the user's own interpreter instead of a
    provisioned one.
    """

    name: str
    version: str | None = None
    path: Path | None = None
    local: bool = False
    bundle: Path | None = None

    @property
    def own_python(self) -> bool:
        """True when it runs in the interpreter that ``--python`` names."""
        return self.local or self.bundle is not None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{self.name}@{self.path}"
        return f"{self.name}==local" if self.local else f"{self.name}=={self.version}"


def parse(text: str, *, has_python: bool = False) -> EngineSpec:
    """Read the text of ``--engine``; raises `EngineError` naming the remedy.

    A bare name is what the interpreter of ``--python`` has installed (``has_python``), else the default version. A
    published version is provisioned with an interpreter of its own, so together with ``--python`` it is refused: a run
    that left the given interpreter aside in silence would say something about another one.
    """
    text = text.strip()
    name, at, path = text.partition("@")
    if at:
        _known(name)
        return EngineSpec(name, path=_checkout(name, path), local=has_python)
    name, equals, version = (part.strip() for part in text.partition("=="))
    table = _known(name)
    if version == "local" or (not equals and has_python):
        return EngineSpec(name, local=True)
    if name not in imports.ENGINES:
        raise EngineError(f"{name} cannot be provisioned: say with --python PATH which interpreter has it installed")
    if not equals:
        return EngineSpec(name, version=table.default)
    spec = EngineSpec(name, version=_version(table, version))
    if has_python:
        raise EngineError(
            f"--python goes with {name}, {name}==local or {name}@CHECKOUT; {spec} is provisioned with an interpreter "
            "of its own: leave out --python or the version"
        )
    return spec


def _known(name: str) -> imports.EngineImports:
    known = sorted({*imports.ENGINES, *installed_engines()})
    if name not in known:
        packages = {imports.load(each).distribution: each for each in known}
        meant = f"the engine of the package {name} is called {packages[name]}; " if name in packages else ""
        raise EngineError(
            f"unknown engine {name!r}: {meant}write NAME, NAME==VERSION, NAME==local or NAME@PATH with one of: "
            f"{', '.join(known)}"
        )
    return imports.load(name)


def _version(table: imports.EngineImports, text: str) -> str:
    remedy = f"supported versions of {table.name}: {', '.join(table.supported)}"
    try:
        version = Version(text)
    except InvalidVersion:
        raise EngineError(f"{table.name}=={text}: {text!r} is not a version; {remedy}") from None
    if not Version(table.oldest) <= version <= Version(table.newest):
        raise EngineError(f"{table.name}=={text} is outside {table.oldest} to {table.newest}; {remedy}")
    return str(version)


def _checkout(name: str, text: str) -> Path:
    try:
        path = Path(text).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # a user that is not there, links in a circle, a null byte
        path = None
    if not text or path is None or not os.path.isdir(path):  # pathlib's is_dir raises for a name that is too long
        raise EngineError(f"{name}@{text}: no such folder; give the root of a source checkout of {name}")
    return path
