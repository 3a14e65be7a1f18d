"""What is already known about a divergence: listed, fixed, linked.

From the data of a corpus: ``known/ENGINE.toml`` (a team lives with it), ``faults.toml``
(published releases had it) and ``support.toml`` (which releases were looked at). A file
that is missing says nothing; one that cannot be read is an error that names it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

MAX_BYTES = 4 << 20
Entry = dict[str, Any]
Identity = tuple[str, str, str, str]


@dataclass(frozen=True)
class Past:
    """History of one identity. ``shows_in`` are the releases known to have it,
    ``looked_at`` all that were asked; ``fixed_in`` is the next one asked after them."""

    known: tuple[Entry, ...] = ()
    why: str | None = None
    issue: str | None = None
    shows_in: tuple[str, ...] = ()
    fixed_in: str | None = None
    looked_at: tuple[str, ...] = ()

    @property
    def reachable(self) -> str | None:
        """What was found out about whether production can get there."""
        said = [str(k["reachable"]) for k in self.known if k.get("reachable")]
        if said:
            return said[0]
        for word in ("Reachable", "By reading", "Nothing in that release", "Needs "):
            at = (self.why or "").find(word)
            if at >= 0:
                return self.why[at:]
        return None


@dataclass(frozen=True)
class History:
    """Entries of the known list and of the ground truth, and the releases asked."""

    known: tuple[Entry, ...] = ()
    faults: tuple[Entry, ...] = ()
    releases: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, identity: Identity, engine: str) -> Past:
        """What is known about ``identity``."""
        contract, target, name, kind = identity
        listed = tuple(k for k in self.known if _names(k, target, name, kind) and k.get("contract") == contract)
        fault = next((f for f in self.faults if _names(f, target, name, kind)), None)
        if fault is None:
            return Past(known=listed)
        shows_in = _sorted(fault.get("versions"))
        asked = self.releases.get(engine, ())
        later = [v for v in asked if shows_in and Version(v) > Version(shows_in[-1])]
        why, issue = fault.get("why"), fault.get("issue")
        return Past(
            listed, why and str(why), issue and str(issue), shows_in, later[0] if later else None, asked,
        )  # fmt: skip


def load(corpus: Path) -> History:
    """The history in ``corpus``. Raises ValueError naming the file, or OSError."""
    folder = corpus / "known"
    lists = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    known = [entry for path in lists for entry in _entries(path, "known")]
    releases: dict[str, list[str]] = {}
    for name in _table(corpus / "support.toml"):
        engine, _, version = name.partition("==")
        releases.setdefault(engine, []).append(version)
    return History(
        tuple(known), tuple(_entries(corpus / "faults.toml", "fault")), {e: _sorted(v) for e, v in releases.items()}
    )


def _names(entry: Entry, target: str, name: str, kind: str) -> bool:
    return (entry.get("target"), entry.get("field"), entry.get("kind")) == (target, name, kind)


def _entries(path: Path, key: str) -> list[Entry]:
    entries = _table(path).get(key, [])
    if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
        raise ValueError(f"{path}: {key}: holds [[{key}]] tables and nothing else")
    return entries


def _table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from None


def _sorted(versions: Any) -> tuple[str, ...]:
    """Versions in their order; what is none is left out."""
    found = []
    for version in versions if isinstance(versions, list) else ():
        try:
            found.append((Version(str(version)), str(version)))
        except InvalidVersion:
            continue
    return tuple(text for _, text in sorted(found))
