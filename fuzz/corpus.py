"""The corpus: find, check, format and add frozen cases.

A corpus is a folder with one folder per contract. A case that was never seen red
asserts nothing, so each names the mutants it kills, and ``lint`` recomputes that
together with the legal outcome. What is written replaces a file whole or
not at all, and no case file is removed before its successor stands.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.frozen import (
    CorpusError,
    FrozenCase,
    content,
    content_hash,
    drifted,
    parse,
    plain_outcome,
    printable,
    read,
    require_folder,
    to_bytes,
)
from fuzz.mutants.mutant import mutants_of
from fuzz.presentation import PLAIN, Presentation
from oracle import contracts

DEFAULT_CORPUS = Path(__file__).parents[1] / "fixtures"
NOT_CASES = frozenset({"schema", "known"})


def files(corpus: Path = DEFAULT_CORPUS) -> list[Path]:
    """Every case file of a corpus, in a stable order. A corpus may also be one
    file. Raises CorpusError when there is nothing."""
    if os.path.isfile(corpus):
        return [corpus]
    found = files_in(corpus)
    if not found:
        raise CorpusError(f"{corpus}: no case files in it")
    return found


def files_in(corpus: Path) -> list[Path]:
    """The case files of a folder, also none. Raises CorpusError when it is none."""
    require_folder(corpus)
    return [p for p in sorted(corpus.rglob("*.json")) if not NOT_CASES & set(p.relative_to(corpus).parts[:-1])]


def load(corpus: Path = DEFAULT_CORPUS) -> Iterator[tuple[Path, FrozenCase]]:
    """Read every case. Raises CorpusError at the first bad file."""
    for path in files(corpus):
        yield path, read(path)


def make(
    contract_name: str,
    case: Any,
    *,
    slug: str,
    reason: str,
    flags: tuple[str, ...] = (),
    links: tuple[str, ...] = (),
    provenance: dict[str, Any] | None = None,
    presentation: Presentation = PLAIN,
) -> FrozenCase:
    """A frozen case with the legal outcome and the kills worked out.

    Raises InvalidCase when the case is outside the contract's domain.
    """
    contract = contracts.get(contract_name)
    contract.domain(case)
    outcome = contract.run(case)[0]
    kills = tuple(sorted(m.name for m in mutants_of(contract_name) if m.killed_by(contract, case, outcome)))
    legal = plain_outcome(outcome)
    return FrozenCase(
        contract_name, contract.version, slug, case, legal, reason, flags, links, provenance or {}, kills, presentation
    )


def write(frozen: FrozenCase, corpus: Path) -> Path:
    """Write a case under its canonical name and return the path. Raises
    CorpusError naming the path."""
    path = corpus / f"{frozen.name}.json"
    put(path, to_bytes(frozen, str(path)))
    return path


def put(path: Path, raw: bytes) -> None:
    """Make ``raw`` the content of ``path``, whole or not at all: written beside
    it and renamed. A file that was there keeps its mode. Raises CorpusError naming the
    path."""
    # Not named .json: a corpus that is read meanwhile must not see half a case.
    beside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CorpusError(f"{printable(str(path))}: cannot be written: {error.strerror}") from None


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a case file."""

    path: Path
    message: str


def lint(corpus: Path = DEFAULT_CORPUS) -> list[Problem]:
    """Check every file: readable, canonical, rightly named, outcome and kills
    as recomputed, no twins."""
    problems: list[Problem] = []
    seen: dict[str, Path] = {}
    for path in files(corpus):
        try:
            raw = content(path)
            frozen = parse(raw, str(path))
        except CorpusError as error:
            problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
            continue
        fresh = refresh(frozen)
        if drifted(frozen):
            problems.append(Problem(path, "legal: is not what the reference says today"))
        if fresh.kills != frozen.kills:
            problems.append(Problem(path, f"kills: recomputed as {', '.join(fresh.kills) or 'none'}"))
        if not fresh.kills:
            problems.append(Problem(path, "kills: no mutant; a case that was never seen red asserts nothing"))
        if f"{path.parent.name}/{path.stem}" != frozen.name:
            problems.append(Problem(path, f"name: must be {frozen.name}.json"))
        if raw != to_bytes(frozen, str(path)):
            problems.append(Problem(path, "format: not canonical; run `specoracle corpus fmt`"))
        twin = seen.setdefault(content_hash(frozen.contract, frozen.case), path)
        if twin != path:
            problems.append(Problem(path, f"twin of {twin.name}"))
    return problems


def refresh(frozen: FrozenCase) -> FrozenCase:
    """The case with its outcome and kills recomputed."""
    fresh = make(frozen.contract, frozen.case, slug=frozen.slug, reason=frozen.reason)
    return replace(frozen, legal=fresh.legal, kills=fresh.kills)


def format_all(corpus: Path = DEFAULT_CORPUS) -> list[Path]:
    """Rewrite files that are not canonical, with kills recomputed; a file whose
    legal outcome changed keeps the frozen one, because that needs a person.

    Everything is read and every name checked before the first write. Raises
    CorpusError, with nothing changed, for a bad file, for a corpus that is no
    folder, and when a file would take the name of another one.
    """
    require_folder(corpus)
    planned: list[tuple[Path, Path, bytes]] = []
    taken: dict[Path, Path] = {}
    for path in files(corpus):
        raw = content(path)
        frozen = parse(raw, str(path))
        new = to_bytes(replace(frozen, kills=refresh(frozen).kills), str(path))
        target = corpus / f"{frozen.name}.json"
        other = taken.setdefault(target, path)
        if other == path and target != path and os.path.lexists(target) and not _same(path, target):
            other = target
        if other != path:
            raise CorpusError(f"{path}: its canonical name is {target.name}, which {other} would lose; remove one")
        if raw != new or target != path:
            planned.append((path, target, new))
    for path, target, new in planned:
        put(target, new)
        if target != path and not _same(path, target):
            try:
                path.unlink()
            except OSError as error:
                raise CorpusError(f"{path}: is {target.name} now, but cannot be removed: {error.strerror}") from None
    return [target for _, target, _ in planned]


def _same(path: Path, target: Path) -> bool:
    """True for two names of one folder entry, where case does not count."""
    return path.name.lower() == target.name.lower() and target.exists() and path.samefile(target)


def statistics(corpus: Path = DEFAULT_CORPUS) -> dict[str, Any]:
    """Per contract: cases, behaviours reached and not, mutants killed and not."""
    by_contract: dict[str, list[FrozenCase]] = {}
    for _, frozen in load(corpus):
        by_contract.setdefault(frozen.contract, []).append(frozen)
    result = {}
    for name, contract in contracts.all_contracts().items():
        cases = by_contract.get(name, [])
        reached = Counter(b for f in cases for b in contract.run(f.case)[1].behaviours)
        killed = {k for f in cases for k in f.kills}
        result[name] = {
            "cases": len(cases),
            "behaviours": len(reached),
            "behaviours_missing": sorted(set(contract.behaviours) - set(reached)),
            "mutants": len(mutants_of(name)),
            "mutants_alive": sorted({m.name for m in mutants_of(name)} - killed),
        }
    return result
