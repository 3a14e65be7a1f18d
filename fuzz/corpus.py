"""The corpus: find, check, format and add frozen cases.

A corpus is a folder with one folder per contract. A case that was never seen red
asserts nothing, so each names the mutants it kills, and ``lint`` recomputes that
together with the legal outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzz.frozen import CorpusError, FrozenCase, content_hash, plain_outcome, read, to_text
from fuzz.mutants.mutant import mutants_of
from fuzz.presentation import PLAIN, Presentation
from oracle import contracts

DEFAULT_CORPUS = Path(__file__).parents[1] / "fixtures"
NOT_CASES = frozenset({"schema", "known"})


def files(corpus: Path = DEFAULT_CORPUS) -> list[Path]:
    """Every case file of a corpus, in a stable order. A corpus may also be one
    file. Raises CorpusError when there is nothing."""
    if corpus.is_file():
        return [corpus]
    if not corpus.is_dir():
        raise CorpusError(f"{corpus}: no such folder; --corpus names a folder with one folder per contract")
    found = [p for p in sorted(corpus.rglob("*.json")) if not NOT_CASES & set(p.relative_to(corpus).parts[:-1])]
    if not found:
        raise CorpusError(f"{corpus}: no case files in it")
    return found


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
    kills = tuple(sorted(m.name for m in mutants_of(contract_name) if m.killed_by(contract, case)))
    legal = plain_outcome(contract.run(case)[0])
    return FrozenCase(
        contract_name, contract.version, slug, case, legal, reason, flags, links, provenance or {}, kills, presentation
    )


def write(frozen: FrozenCase, corpus: Path) -> Path:
    """Write a case under its canonical name and return the path."""
    path = corpus / f"{frozen.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_text(frozen), encoding="utf-8")
    return path


def freeze(contract_name: str, case: Any, *, corpus: Path = DEFAULT_CORPUS, **words: Any) -> Path:
    """``make`` and ``write`` in one."""
    return write(make(contract_name, case, **words), corpus)


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
            frozen = read(path)
        except CorpusError as error:
            problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
            continue
        fresh = refresh(frozen)
        if fresh.legal != frozen.legal:
            problems.append(Problem(path, "legal: is not what the reference says today"))
        if fresh.kills != frozen.kills:
            problems.append(Problem(path, f"kills: recomputed as {', '.join(fresh.kills) or 'none'}"))
        if not fresh.kills:
            problems.append(Problem(path, "kills: no mutant; a case that was never seen red asserts nothing"))
        if f"{path.parent.name}/{path.stem}" != frozen.name:
            problems.append(Problem(path, f"name: must be {frozen.name}.json"))
        if path.read_text(encoding="utf-8") != to_text(frozen):
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
    legal outcome changed is left alone, because that needs a person."""
    changed = []
    for path in files(corpus):
        frozen = read(path)
        fresh = refresh(frozen)
        text = to_text(replace(frozen, kills=fresh.kills))
        target = path.parent / f"{frozen.name.rpartition('/')[2]}.json"
        if path.read_text(encoding="utf-8") != text or target != path:
            path.unlink()
            target.write_text(text, encoding="utf-8")
            changed.append(target)
    return changed


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
