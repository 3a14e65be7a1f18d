"""Decide what the gate shall live with: edit ``fixtures/known/ENGINE.toml``.

Only a divergence that a run saw and believed can be accepted, at a range of
versions that holds the one where it was seen. A near tie is AGREE, so there is
nothing to accept; a flaky verdict or a suspect oracle is refused, because an entry
for it would hide whatever comes next. An edit keeps every other line of the file,
comments too, is read back with the gate's own reader before it is written, and
replaces the file whole or not at all. Nothing is ever deleted: a reopened entry
stays, with who said so.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import filelock
import tomlkit
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Table

from fuzz.candidates import Candidate, TriageError
from fuzz.corpus import put
from fuzz.frozen import content, printable, require_folder
from fuzz.known import DEVICES, FIELDS, Known, entries, load, path_of
from fuzz.verdict import RED, Kind

ENGINE_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")  # it becomes a file name
MIN_REASON = 10  # characters; a reason is words
MAX_TEXT = 4000  # characters of one text of an entry
ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
LOCK_DEADLINE_S = 30.0  # an edit takes milliseconds
HEADER = "# Divergences that are listed for {}, each by identity; see docs/triage.md.\n"


@dataclass(frozen=True)
class Decision:
    """What ``accept`` writes into an entry."""

    versions: str
    line: str
    reachable: str
    reason: str
    link: str
    by: str
    on: date
    device: str | None = None
    expires: date | None = None


def accept(corpus: Path, candidate: Candidate, decision: Decision, today: date) -> Path:
    """List ``candidate``; returns the file written. Raises TriageError."""
    _believed(candidate)
    _checked(candidate, decision, today)
    with _locked(corpus, candidate.engine):
        return _accept(corpus, candidate, decision)


def _accept(corpus: Path, candidate: Candidate, decision: Decision) -> Path:
    listed = _list(corpus, candidate.engine)
    for number, entry in enumerate(listed, 1):
        if entry.covers(candidate.identity, candidate.version, candidate.device):
            raise TriageError(
                f"entry {number} of {path_of(corpus, candidate.engine)} lists it already, for {entry.versions}; "
                "`triage note` adds a remark, `triage reopen` takes the decision back"
            )
    same = (candidate.identity, decision.versions, decision.device)
    old = [i for i, e in enumerate(listed) if e.state == "reopened" and (e.identity, e.versions, e.device) == same]

    def edit(known: AoT) -> None:
        table = known[old[-1]] if old else tomlkit.table()
        values = vars(candidate.identity) | vars(decision)
        if old:
            _said(table, decision.on, decision.by, f"accepted again: {decision.reason}")
            table.pop("state", None)
        for name in (*FIELDS, "device", "by", "on", "expires"):
            if values[name] is not None:
                table[name] = values[name]
            elif name in table:
                table.remove(name)
        if not old:
            if known:
                known[-1].add(tomlkit.nl())
            known.append(table)

    return _edit(corpus, candidate.engine, edit)


def reopen(corpus: Path, engine: str, index: int, by: str, reason: str, on: date) -> Path:
    """Take the decision of an entry back: the gate fails on it again."""
    _words("--by", by, 1)
    _words("--reason", reason, MIN_REASON)

    def edit(known: AoT) -> None:
        known[index]["state"] = "reopened"
        _said(known[index], on, by, f"reopened: {reason}")

    with _locked(corpus, engine):
        if _list(corpus, engine)[index].state == "reopened":
            raise TriageError(f"entry {index + 1} is reopened already")
        return _edit(corpus, engine, edit)


def note(corpus: Path, engine: str, index: int, by: str, text: str, on: date) -> Path:
    """Add a remark to an entry."""
    _words("--by", by, 1)
    _words("--text", text, 1)
    with _locked(corpus, engine):
        return _edit(corpus, engine, lambda known: _said(known[index], on, by, text))


def engine_name(text: str) -> str:
    """``text`` when it can name a list; raises TriageError."""
    if not ENGINE_NAME.match(text):
        raise TriageError(f"{printable(text)[:60]!r} is no engine; write a name such as sglang")
    return text


def _list(corpus: Path, engine: str) -> list[Known]:
    return load(corpus, engine_name(engine))


def _believed(candidate: Candidate) -> None:
    kind = candidate.verdict
    if kind == Kind.FLAKY:
        raise TriageError("FLAKY: it does not always repeat, so an entry would come and go; find out why first")
    if kind == Kind.ORACLE_SUSPECT:
        raise TriageError("ORACLE_SUSPECT: nothing shows that reference and adapter are right; settle that first")
    if kind not in RED:
        raise TriageError(f"{kind}: only a divergence, a crash or a hang can be listed")


def _checked(candidate: Candidate, decision: Decision, today: date) -> None:
    if any(c in candidate.identity.target for c in "*?["):
        raise TriageError(f"{candidate.identity.target}: an identity has no patterns")
    for option in ("versions", "line", "reachable", "link", "by"):
        _words(f"--{option}", getattr(decision, option), 1)
    _words("--reason", decision.reason, MIN_REASON)
    try:
        if not len(SpecifierSet(decision.versions)):  # "," is a specifier that says nothing
            raise TriageError(f"--versions {decision.versions[:60]!r} limits nothing; write a range like '>=0.5.22'")
        if Version(candidate.version) not in SpecifierSet(decision.versions):
            raise TriageError(
                f"--versions {decision.versions!r} does not hold {candidate.version}, where the run saw it"
            )
    except InvalidSpecifier:
        raise TriageError(f"--versions {decision.versions[:60]!r} is not like '>=0.5.22'") from None
    except InvalidVersion:
        raise TriageError(
            f"the run saw it in {candidate.version[:60]!r}, which is no release; take a run of a release"
        ) from None
    if decision.device not in (None, *DEVICES):
        raise TriageError(f"--device {decision.device!r} is not one of {', '.join(DEVICES)}")
    if decision.device not in (None, candidate.device.partition(":")[0]):
        raise TriageError(f"--device {decision.device}: the run saw it on {candidate.device}")
    if decision.expires is not None and decision.expires < today:
        raise TriageError(f"--expires {decision.expires} lies in the past; today is {today}")


def _words(option: str, text: str, least: int) -> None:
    if len(text.strip()) < least:
        raise TriageError(f"{option} needs words" + (f", {least} characters at least" if least > 1 else ""))
    if len(text) > MAX_TEXT:
        raise TriageError(f"{option} is longer than {MAX_TEXT} characters; link to a page that says it all")
    if not text.isprintable():
        bad = next(c for c in text if not c.isprintable())
        raise TriageError(f"{option}: {bad!a} cannot be printed; write one line of plain text")


def _said(table: Table, on: date, by: str, text: str) -> None:
    if "notes" not in table:
        table["notes"] = tomlkit.array()
    notes = table["notes"]
    notes.append(f"{on} {by}: {text}")
    notes.multiline(True)


@contextmanager
def _locked(corpus: Path, engine: str) -> Iterator[None]:
    """Hold the list of ``engine`` from reading to writing: of two edits at once the
    second sees what the first wrote. The lock lies beside the file and stays there."""
    require_folder(corpus)
    path = _place(corpus, engine_name(engine))
    beside = path.with_name(f".{path.name}.lock")
    if beside.is_symlink():
        raise TriageError(f"{beside}: a link where the lock of the list should be; remove it")
    try:
        path.parent.mkdir(exist_ok=True)
        with filelock.FileLock(beside, timeout=LOCK_DEADLINE_S):
            yield
    except filelock.Timeout:
        raise TriageError(f"{path}: somebody else has been editing it for {LOCK_DEADLINE_S:.0f} s; try again") from None
    except OSError as error:
        raise TriageError(f"{path}: cannot be edited: {error.strerror}") from None


def _place(corpus: Path, engine: str) -> Path:
    """The file that is to be edited: where the list is a link, what it points to."""
    listed = path_of(corpus, engine)
    try:
        path = listed.resolve(strict=True) if listed.is_symlink() else listed
    except (OSError, RuntimeError):  # nothing there, links in a circle
        raise TriageError(f"{listed}: a link to nothing; mend or remove it") from None
    if path.exists() and not (path.stat().st_mode & ANY_WRITE and os.access(path, os.W_OK)):
        raise TriageError(f"{path}: is not writable, so it is not edited")
    return path


def _edit(corpus: Path, engine: str, change: Callable[[AoT], None]) -> Path:
    """Apply ``change`` to the list of ``engine`` and write the file."""
    require_folder(corpus)
    path = _place(corpus, engine_name(engine))
    there = path.exists()
    before = content(path) if there else HEADER.format(engine).encode()
    try:
        document = tomlkit.parse(before)
        if not isinstance(document.get("known"), AoT):
            if document.get("known"):
                raise TriageError(f"{path}: write its entries as [[known]] tables first; only those can be edited")
            document.pop("known", None)
            document.append("known", tomlkit.aot())
        change(document["known"])
        after = tomlkit.dumps(document).encode()
        if before.count(b"\n") == before.count(b"\r\n") > 0:  # a file of Windows stays one
            after = re.sub(rb"\r?\n", b"\r\n", after)
    except (TOMLKitError, UnicodeError, RecursionError) as error:
        raise TriageError(f"{path}: cannot be edited: {printable(str(error))[:200]}") from None
    # What the gate would read, read before anything is lost.
    entries(tomllib.loads(after.decode()), path)
    if (content(path) if path.exists() else None) != (before if there else None):
        raise TriageError(f"{path}: was changed by somebody else meanwhile; nothing is written, try again")
    put(path, after)
    return path_of(corpus, engine)
