"""What each engine release needs to be imported without a GPU, as data.

Reads ``<engine>/imports.toml`` and answers for one version: which family of pinned packages, which stub names, which
environment. Differences between releases are ranges in that file, so supporting another release is an edit of data.
Standard library only: a worker reads it too.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fuzz.adapter import installed_engines

HERE = Path(__file__).parent
ENGINES = tuple(sorted(path.parent.name for path in HERE.glob("*/imports.toml")))
LOCKS = HERE / "locks"
OVERLAY_BYTES = 400_000_000  # room for a wheel and what is unpacked from it, where a table says nothing else


@dataclass(frozen=True)
class EngineImports:
    """The whole table of one engine; `oldest` and `newest` bound the versions that have data.

    `name` is what is imported and what a user writes; `distribution` is what an index calls it.
    """

    name: str
    distribution: str
    overlay_bytes: int
    default: str
    supported: tuple[str, ...]
    smoke: str
    drop: tuple[str, ...]
    env: dict[str, str]
    unset: tuple[str, ...]
    families: tuple[dict, ...]
    stub_rows: tuple[dict, ...]
    kernel_rows: tuple[dict, ...] = ()

    @property
    def oldest(self) -> str:
        return self.families[0]["from"]

    @property
    def newest(self) -> str:
        return self.families[-1]["to"]

    def pins(self, version: str | None) -> str:
        """Name of the lock of `version`'s family; a checkout (None) gets the newest. Raises LookupError outside all."""
        if version is None:
            return self.families[-1]["pins"]
        for family in self.families:
            if _within(version, family):
                return family["pins"]
        raise LookupError(f"{self.name} {version} belongs to no family of pins")

    def stubs(self, version: str | None) -> dict[str, list[str]]:
        """Stub module -> the names it has, for `version`; a checkout (None) gets those of the newest release."""
        wanted: dict[str, list[str]] = {}
        for row in self.stub_rows:
            if _within(version or self.newest, row):
                wanted.setdefault(row["module"], []).extend(row["names"])
        return wanted

    def kernels(self, version: str) -> list[dict]:
        """Wheels with kernels, compiled or compiled on first use, that `version` looks for on a GPU."""
        return [row for row in self.kernel_rows if _within(version, row)]


def without_data(name: str) -> EngineImports:
    """An engine that an installed package brings adapters for: nothing of it can be provisioned."""
    return EngineImports(
        name=name, distribution=installed_engines()[name], overlay_bytes=0, default="", supported=(), smoke=name,
        drop=(), env={}, unset=(), families=(), stub_rows=(),
    )  # fmt: skip


@cache
def load(name: str) -> EngineImports:
    """The table of engine `name`: one of `ENGINES`, or one that is installed."""
    if name not in ENGINES:
        return without_data(name)
    data = tomllib.loads((HERE / name / "imports.toml").read_text(encoding="utf-8"))
    engine = data["engine"]
    return EngineImports(
        name=name,
        distribution=engine.get("distribution", name),
        overlay_bytes=engine.get("overlay_bytes", OVERLAY_BYTES),
        default=engine["default"],
        supported=tuple(engine["supported"]),
        smoke=engine["smoke"],
        drop=tuple(engine["drop"]),
        env=dict(data["env"]),
        unset=tuple(data.get("unset", {}).get("names", ())),
        families=tuple(data["family"]),
        stub_rows=tuple(data.get("stub", ())),
        kernel_rows=tuple(data.get("kernels", ())),
    )


def _within(version: str, row: dict) -> bool:
    key = _release(version)
    return ("from" not in row or _release(row["from"]) <= key) and ("to" not in row or key <= _release(row["to"]))


def _release(version: str) -> tuple[int, ...]:
    """The release numbers alone: 0.5.10.post2 takes the data of 0.5.10."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version).group().split("."))
