"""Version x contract x target: what many gates said, and what became of each fault.

The truth is the event stream of each release's gate; this module only reads them. A
cell is AGREE only when production was asked and agreed. The history of an identity asks
of every release the cases that show it somewhere: a release counts as good only if its
target executed at least one of them and agreed on all it executed. A target that is not
there, or that diverges otherwise on the same cases, leaves a gap, and a gap is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from fuzz.frozen import CorpusError, read_toml
from fuzz.verdict import RED, Kind

BAD, GOOD, GAP = "bad", "good", "gap"
KNOWN, FAULT, NEW = "known", "fault", "new"
Identity = tuple[str, str, str]  # target, field, kind of difference
# What a cell is called: the first of these that one of its cases has.
WORST_FIRST = (
    Kind.CRASH, Kind.HANG, Kind.DIVERGE, Kind.FLAKY, Kind.HARNESS_ERROR, Kind.ORACLE_SUSPECT,
    Kind.OUT_OF_MEMORY, Kind.INVALID_CASE, Kind.AGREE,
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A recorded fault of earlier releases (``faults.toml``)."""

    identity: Identity
    versions: tuple[str, ...]
    issue: str

    def covers(self, identity: Identity, version: str) -> bool:
        """True for this identity at a listed release or at one between two listed ones."""
        listed = [order(v) for v in self.versions]
        return identity == self.identity and min(listed) <= order(version) <= max(listed)


@dataclass(frozen=True)
class Cell:
    """One target at one release: its worst verdict, how many cases had which, and its
    divergences with what each is (known, fault, new)."""

    engine: str
    version: str
    contract: str
    target: str
    verdict: Kind
    counts: dict[Kind, int]
    red: dict[Identity, str]
    reason: str = ""

    @property
    def note(self) -> str:
        """``known``, ``fault``, ``new``: the worst of its divergences; empty without one."""
        return next((n for n in (NEW, FAULT, KNOWN) if n in self.red.values()), "")


@dataclass
class Release:
    """What the gate of one release left: per target and case the verdict and identity."""

    engine: str
    version: str
    cells: list[Cell] = field(default_factory=list)
    # target -> frozen case -> (verdict, identity or None)
    answers: dict[str, dict[str, tuple[Kind, Identity | None]]] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """Where one identity shows. ``states`` is one of bad, good, gap per release, oldest
    first; the versions are ``None`` where there is none."""

    identity: Identity
    states: tuple[tuple[str, str], ...]
    issue: str = ""

    @property
    def first_bad(self) -> str:
        return next(v for v, s in self.states if s == BAD)

    @property
    def last_bad(self) -> str:
        return next(v for v, s in reversed(self.states) if s == BAD)

    @property
    def last_good_before(self) -> str | None:
        """The newest good release before the first bad one."""
        before = self._part(lambda versions: versions[: versions.index(self.first_bad)])
        return next((v for v, s in reversed(before) if s == GOOD), None)

    @property
    def first_good(self) -> str | None:
        """The oldest good release after the last bad one: there it is fixed."""
        behind = self._part(lambda versions: versions[versions.index(self.last_bad) + 1 :])
        return next((v for v, s in behind if s == GOOD), None)

    @property
    def monotone(self) -> bool:
        """False when a good release stands between two bad ones."""
        inside = [s for v, s in self.states][self._at(self.first_bad) : self._at(self.last_bad)]
        return GOOD not in inside

    @property
    def gaps(self) -> list[str]:
        """Releases that say nothing beside or between the bad ones, so that an end of
        the fault is not known to the release."""
        low = self._at(self.last_good_before) if self.last_good_before else 0
        high = self._at(self.first_good) if self.first_good else len(self.states)
        return [v for v, s in self.states[low:high] if s == GAP]

    def _at(self, version: str) -> int:
        return [v for v, _ in self.states].index(version)

    def _part(self, cut: Any) -> list[tuple[str, str]]:
        kept = set(cut([v for v, _ in self.states]))
        return [(v, s) for v, s in self.states if v in kept]


def load_faults(corpus: Path) -> list[Fault]:
    """The recorded faults of a corpus; none without a file. Raises CorpusError."""
    path = corpus / "faults.toml"
    if not path.exists():
        return []
    try:
        return [
            Fault((f["target"], f["field"], f["kind"]), tuple(f["versions"]), f["issue"])
            for f in read_toml(path)["fault"]
            if [Version(v) for v in f["versions"]]
        ]
    except (KeyError, TypeError, InvalidVersion) as error:
        raise CorpusError(f"{path}: a [[fault]] has target, field, kind, versions and issue: {error!r}") from None


def read_release(events: list[dict[str, Any]], faults: Iterable[Fault]) -> Release:
    """One release's gate from the events of a run over one engine."""
    run = events[0]
    release = Release(run["engine"], run["version"])
    files = {e["case"]: e.get("file", "") for e in events if e["event"] == "start"}
    again = {_key(e): Kind(e["verdict"]) for e in events if e["event"] == "verdict" and "case" not in e}
    ends: dict[tuple[str, str], list[tuple[dict[str, Any], Kind]]] = defaultdict(list)
    for event in events:
        if event["event"] != "end":
            continue
        kind = Kind(event["verdict"])
        if kind in RED:
            kind = again.get(_key(event), kind)
        ends[(event["contract"], event["target"])].append((event, kind))
        of_target = release.answers.setdefault(event["target"], {})
        of_target[files.get(event["case"], "")] = (kind, _key(event) if kind in RED else None)
    known_faults = list(faults)
    for (contract, target), cases in sorted(ends.items()):
        release.cells.append(_cell(release, contract, target, cases, known_faults))
    return release


def _cell(
    release: Release, contract: str, target: str, cases: list[tuple[dict[str, Any], Kind]], faults: list[Fault]
) -> Cell:
    counts = Counter(kind for _, kind in cases)
    executed = [kind for kind in counts if kind is not Kind.UNSUPPORTED]
    worst = next((kind for kind in WORST_FIRST if kind in executed), Kind.UNSUPPORTED)
    red: dict[Identity, str] = {}
    for event, kind in cases:
        if kind in RED:
            recorded = any(f.covers(_key(event), release.version) for f in faults)
            red[_key(event)] = KNOWN if event.get("known") else FAULT if recorded else NEW
    reasons = [e.get("evidence", {}) for e, kind in cases if kind is worst and kind is not Kind.AGREE]
    reason = next((str(r.get("reason") or r.get("message") or "") for r in reasons), "")
    return Cell(release.engine, release.version, contract, target, worst, dict(counts), red, reason)


def _key(event: dict[str, Any]) -> Identity:
    return event["target"], event["identity"]["field"], event["identity"]["kind"]


def histories(releases: Iterable[Release], faults: Iterable[Fault]) -> list[History]:
    """The history of every identity that one of the releases shows, per engine."""
    by_engine: dict[str, list[Release]] = defaultdict(list)
    for release in releases:
        by_engine[release.engine].append(release)
    issues = {f.identity: f.issue for f in faults}
    found = []
    for rows in by_engine.values():
        rows.sort(key=lambda r: order(r.version))
        shown: dict[Identity, set[str]] = defaultdict(set)
        for release in rows:
            for cases in release.answers.values():
                for case, (_, identity) in cases.items():
                    if identity is not None:
                        shown[identity].add(case)
        for identity, cases in sorted(shown.items()):
            states = tuple((r.version, state(r, identity, cases)) for r in rows)
            found.append(History(identity, states, issues.get(identity, "")))
    return found


def state(release: Release, identity: Identity, cases: set[str]) -> str:
    """What a release says about ``identity`` on the ``cases`` that show it somewhere."""
    answers = [a for case, a in release.answers.get(identity[0], {}).items() if case in cases]
    if any(found == identity for _, found in answers):
        return BAD
    asked = [kind for kind, _ in answers if kind is not Kind.UNSUPPORTED]
    return GOOD if asked and set(asked) == {Kind.AGREE} else GAP


def order(version: str) -> tuple[bool, Any]:
    """Releases by version; a checkout, which has none, is newest."""
    try:
        return (False, Version(version))
    except InvalidVersion:
        return (True, version)
