"""Divergences that a team has decided to live with, listed one by one.

``fixtures/known/ENGINE.toml``. An entry names one identity exactly, no patterns,
so that it can never swallow a second bug. The gate reports listed ones, does not
fail on them, and reports an entry that no longer fires or that has expired. An
expired entry still covers: a date that passes must not turn a build red by
itself, ``gate --strict`` asks for that. A reopened entry covers nothing; it stays
in the file, because who decided what and why is worth more than a short list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from fuzz.frozen import CorpusError, read_toml, require_folder
from fuzz.verdict import Identity

IDENTITY = ("contract", "target", "field", "kind")
FIELDS = (*IDENTITY, "versions", "line", "reachable", "reason", "link")
DEVICES = ("cpu", "cuda")
STATES = ("accepted", "reopened")


@dataclass(frozen=True)
class Known:
    """One listed divergence. ``versions`` is a specifier such as ``>=0.5.22``;
    ``line`` the production line; ``reachable`` whether production can get there
    and with which settings; ``device`` is ``None`` when it shows on all; ``by`` and
    ``on`` say who decided and when; ``expires`` is the last day on which the decision
    holds; ``notes`` is what was said since, oldest first."""

    identity: Identity
    versions: str
    line: str
    reachable: str
    reason: str
    link: str
    device: str | None = None
    by: str | None = None
    on: date | None = None
    expires: date | None = None
    state: str = "accepted"
    notes: tuple[str, ...] = ()

    def covers(self, identity: Identity, version: str, device: str) -> bool:
        """True for exactly this identity, at a version inside the range."""
        return identity == self.identity and self.applies(version, device)

    def applies(self, version: str, device: str) -> bool:
        """True when the entry speaks about ``version`` on ``device`` at all."""
        if self.state != "accepted" or self.device not in (None, device.partition(":")[0]):
            return False
        try:
            return Version(version) in SpecifierSet(self.versions)
        except InvalidVersion:
            return False

    def expired(self, today: date) -> bool:
        """True from the day after ``expires`` on."""
        return self.expires is not None and self.expires < today


def path_of(corpus: Path, engine: str) -> Path:
    """Where the list of ``engine`` stands."""
    return corpus / "known" / f"{engine}.toml"


def load(corpus: Path, engine: str) -> list[Known]:
    """The list for ``engine``; empty without a file. Raises CorpusError, also
    when ``corpus`` is no folder."""
    require_folder(corpus)
    path = path_of(corpus, engine)
    return entries(read_toml(path), path) if path.exists() else []


def entries(table: dict[str, Any], path: Path) -> list[Known]:
    """The list that a parsed file holds. Raises CorpusError naming ``path``."""
    found = table.get("known", [])
    if set(table) - {"known"} or not isinstance(found, list):
        raise CorpusError(f"{path}: known: holds [[known]] entries and nothing else")
    return [_entry(path, number, entry) for number, entry in enumerate(found, 1)]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _date(value: Any) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


OPTIONAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "device": (lambda v: _text(v) and v in DEVICES, f"is not one of {', '.join(DEVICES)}"),
    "by": (_text, "is not a name"),
    "on": (_date, "is not a date like 2027-01-31, without quotes"),
    "expires": (_date, "is not a date like 2027-01-31, without quotes"),
    "state": (lambda v: _text(v) and v in STATES, f"is not one of {', '.join(STATES)}"),
    "notes": (_texts, "is not a list of texts"),
}


def _entry(path: Path, number: int, entry: Any) -> Known:
    where = f"{path}: entry {number}"
    if not isinstance(entry, dict):
        raise CorpusError(f"{where}: must be a [[known]] table, found {type(entry).__name__}")
    wrong = [f for f in FIELDS if not isinstance(entry.get(f), str)]
    if wrong:
        raise CorpusError(f"{where}: {wrong[0]}: each entry has the texts {', '.join(FIELDS)}")
    strange = sorted(set(entry) - {*FIELDS, *OPTIONAL})
    if strange:
        words = f"beside the texts there may be {', '.join(OPTIONAL)}"
        raise CorpusError(f"{where}: {strange[0][:60]!a}: no such field; {words}")
    if any(c in entry["target"] for c in "*?["):
        raise CorpusError(f"{where}: target: an identity has no patterns")
    for name, (fits, words) in OPTIONAL.items():
        if name in entry and not fits(entry[name]):
            raise CorpusError(f"{where}: {name}: {str(entry[name])[:60]!a} {words}")
    try:
        SpecifierSet(entry["versions"])
    except InvalidSpecifier:
        raise CorpusError(f"{where}: versions: {entry['versions'][:60]!a} is not like '>=0.5.22'") from None
    given = {name: entry[name] for name in OPTIONAL if name in entry}
    given["notes"] = tuple(given.get("notes", ()))
    return Known(Identity(*(entry[f] for f in IDENTITY)), *(entry[f] for f in FIELDS[4:]), **given)
