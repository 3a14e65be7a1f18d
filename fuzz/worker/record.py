"""What differs between versions of an engine, as data.

``fuzz/engines/NAME/record/*.toml`` holds histories: under ``[symbol.KEY]`` and
``[fact.KEY]`` each entry says from which version on it holds. A value of the
form ``{ missing = "why" }`` says that the version has no such thing. Adapters ask
for a key and never compare versions themselves.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.adapter import Unsupported

NEWEST = (10**6,)


def version_key(version: str) -> tuple[int, ...]:
    """Order of release numbers, a post-release behind its own release; anything that
    is not one counts as newest."""
    release = re.fullmatch(r"(\d+(?:\.\d+)*)(?:\.post(\d+))?", version.split("+")[0])
    if not release:
        return NEWEST
    return tuple(int(p) for p in filter(None, [*release[1].split("."), release[2]]))


class Record:
    """The capability record of one version: its symbols and facts."""

    def __init__(self, histories: Mapping[str, Mapping[str, Mapping[str, Any]]], version: str):
        self._histories = histories
        self.version = version

    @classmethod
    def load(cls, engine: str, version: str) -> Record:
        """Merge the record files shipped for ``engine``, resolved at ``version``."""
        folder = Path(__file__).parent.parent / "engines" / engine / "record"
        merged: dict[str, dict[str, Any]] = {"symbol": {}, "fact": {}}
        for file in sorted(folder.glob("*.toml")):
            data = tomllib.loads(file.read_text(encoding="utf-8"))
            for section, entries in merged.items():
                for key, history in data.get(section, {}).items():
                    if key in entries:
                        raise ValueError(f"{file.name}: {section}.{key} is recorded twice")
                    entries[key] = history
        return cls(merged, version)

    def _at(self, section: str, key: str) -> Any:
        history = self._histories[section][key]
        reached = [v for v in history if version_key(v) <= version_key(self.version)]
        if not reached:
            first = min(history, key=version_key)
            raise Unsupported(f"{key}: not in {self.version}, first in {first}")
        value = history[max(reached, key=version_key)]
        if isinstance(value, dict) and "missing" in value:
            raise Unsupported(f"{key}: {value['missing']}")
        return value

    def symbol(self, key: str) -> str:
        """``module:attribute`` path of a production symbol at this version."""
        return self._at("symbol", key)

    def fact(self, key: str) -> Any:
        """A fact of this version, such as which lengths a caller hands over."""
        return self._at("fact", key)
