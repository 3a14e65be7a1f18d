"""Divergences that the newest release still has, listed one by one.

``fixtures/known/ENGINE.toml``. An entry names one identity exactly, no patterns,
so that it can never swallow a second bug. The gate reports known ones, does not
fail on them, and reports an entry that no longer fires.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from fuzz.frozen import CorpusError, read_toml, require_folder
from fuzz.verdict import Identity

FIELDS = ("contract", "target", "field", "kind", "versions", "line", "reachable", "reason", "link")
OPTIONAL = ("device",)
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Known:
    """One listed divergence. ``versions`` is a specifier such as ``>=0.5.22``;
    ``line`` the production line; ``reachable`` whether production can get there
    and with which settings; ``device`` is ``None`` when it shows on all."""

    identity: Identity
    versions: str
    line: str
    reachable: str
    reason: str
    link: str
    device: str | None = None

    def covers(self, identity: Identity, version: str, device: str) -> bool:
        """True for exactly this identity, at a version inside the range."""
        return identity == self.identity and self.applies(version, device)

    def applies(self, version: str, device: str) -> bool:
        """True when the entry speaks about ``version`` on ``device`` at all."""
        if self.device not in (None, device.partition(":")[0]):
            return False
        try:
            return Version(version) in SpecifierSet(self.versions)
        except InvalidVersion:
            return False


def load(corpus: Path, engine: str) -> list[Known]:
    """The list for ``engine``; empty without a file. Raises CorpusError, also
    when ``corpus`` is no folder."""
    require_folder(corpus)
    path = corpus / "known" / f"{engine}.toml"
    if not path.exists():
        return []
    table = read_toml(path)
    entries = table.get("known", [])
    if set(table) - {"known"} or not isinstance(entries, list):
        raise CorpusError(f"{path}: known: holds [[known]] entries and nothing else")
    return [_entry(path, number, entry) for number, entry in enumerate(entries, 1)]


def _entry(path: Path, number: int, entry: Any) -> Known:
    if not isinstance(entry, dict):
        raise CorpusError(f"{path}: entry {number}: must be a [[known]] table, found {type(entry).__name__}")
    wrong = [f for f in FIELDS if not isinstance(entry.get(f), str)] + sorted(set(entry) - {*FIELDS, *OPTIONAL})
    if wrong:
        raise CorpusError(f"{path}: entry {number}: {wrong[0]}: each entry has the texts {', '.join(FIELDS)}, no more")
    if any(c in entry["target"] for c in "*?["):
        raise CorpusError(f"{path}: entry {number}: target: an identity has no patterns")
    device = entry.get("device")
    if device not in (None, *DEVICES):
        raise CorpusError(f"{path}: entry {number}: device: {device!r} is not one of {', '.join(DEVICES)}")
    try:
        SpecifierSet(entry["versions"])
    except InvalidSpecifier:
        raise CorpusError(f"{path}: entry {number}: versions: {entry['versions']!r} is not like '>=0.5.22'") from None
    identity = Identity(entry["contract"], entry["target"], entry["field"], entry["kind"])
    return Known(identity, *(entry[f] for f in FIELDS[4:]), device)
