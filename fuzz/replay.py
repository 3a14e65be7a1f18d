"""Replay one case file on one engine: FIXED, FAILED or ERROR.

Without ``--target`` the target that the file's provenance names is used, and
every target of the contract when it names none. A file whose frozen outcome is not
what the reference says today is an ERROR: whatever production does, it would be
held against another outcome than the file shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from fuzz.adapter import Adapter
from fuzz.executor import execute
from fuzz.frozen import FrozenCase, drifted, printable
from fuzz.sanitize import FIELD
from fuzz.sanitize import lines as sanitizer_lines
from fuzz.supervisor import Session
from fuzz.verdict import EXIT_AGREED, EXIT_DIVERGED, EXIT_HARNESS, Kind, Verdict
from oracle import contracts, explain


class Result(StrEnum):
    """What a replay says."""

    FIXED = "FIXED"
    FAILED = "FAILED"
    ERROR = "ERROR"


DRIFTED = "the reference no longer gives the frozen outcome"
EXIT = {Result.FIXED: EXIT_AGREED, Result.FAILED: EXIT_DIVERGED, Result.ERROR: EXIT_HARNESS}


@dataclass(frozen=True)
class Replayed:
    """One target's answer, and both sides in words."""

    target: str
    result: Result
    verdict: Verdict
    lines: tuple[str, ...]


def choose(adapters: list[Adapter], frozen: FrozenCase, glob: str | None) -> list[Adapter]:
    """The targets to replay on."""
    fitting = [a for a in adapters if a.contract == frozen.contract]
    named = frozen.provenance.get("target")
    if glob is None and named:  # one id, never a pattern: a file does not choose what runs
        return [a for a in fitting if a.id == named]
    return [a for a in fitting if fnmatchcase(a.id, glob or "*")]


def replay(session: Session, adapter: Adapter, frozen: FrozenCase) -> Replayed:
    """Run the case once and explain the answer, in lines that can be printed."""
    answer = _replay(session, adapter, frozen)
    answer = replace(answer, lines=(*answer.lines, *sanitizer_lines(answer.verdict)))
    # A worker's message may hold anything, lone surrogates included.
    return replace(answer, lines=tuple(map(printable, answer.lines)))


def _replay(session: Session, adapter: Adapter, frozen: FrozenCase) -> Replayed:
    verdict = execute(session, adapter, frozen.case, frozen.presentation)
    if drifted(frozen) and verdict.kind is not Kind.UNSUPPORTED:
        suspect = Verdict(Kind.ORACLE_SUSPECT, adapter.id, frozen.contract, evidence={"reason": DRIFTED})
        return Replayed(adapter.id, Result.ERROR, suspect, (f"{suspect.kind}: {DRIFTED}",))
    contract = contracts.get(frozen.contract)
    if verdict.kind is Kind.AGREE:
        story = explain.told(contract, frozen.case) if contract.ordered else []
        return Replayed(adapter.id, Result.FIXED, verdict, ("production agrees with the reference", *story))
    if verdict.identity is not None and verdict.identity.field == FIELD:
        block = verdict.evidence[FIELD]["text"].splitlines()
        return Replayed(adapter.id, Result.FAILED, verdict, (verdict.evidence["claim"], "", *block))
    if verdict.kind is Kind.DIVERGE and "all_observed" in verdict.evidence:
        rows = explain.side_by_side(contract, frozen.case, verdict.evidence["all_observed"])
        return Replayed(
            adapter.id, Result.FAILED, verdict, (verdict.evidence["claim"], "", *explain.text(rows, contract.ordered))
        )
    if verdict.red:
        detail = verdict.evidence.get("traceback") or verdict.evidence.get("stack") or verdict.evidence.get("output")
        head = f"{verdict.kind}: {verdict.identity.kind}"
        return Replayed(adapter.id, Result.FAILED, verdict, (head, *str(detail or verdict.evidence).splitlines()))
    reason = verdict.evidence.get("reason") or verdict.evidence.get("message") or str(verdict.evidence)
    return Replayed(adapter.id, Result.ERROR, verdict, (f"{verdict.kind}: {reason}",))
