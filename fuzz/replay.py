"""Replay one case file on one engine: FIXED, FAILED or ERROR.

Without ``--target`` the target that the file's provenance names is used, and
every target of the contract when it names none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from fuzz.adapter import Adapter
from fuzz.executor import execute
from fuzz.frozen import FrozenCase
from fuzz.supervisor import Session
from fuzz.verdict import EXIT_AGREED, EXIT_DIVERGED, EXIT_HARNESS, Kind, Verdict
from oracle import contracts, explain


class Result(StrEnum):
    """What a replay says."""

    FIXED = "FIXED"
    FAILED = "FAILED"
    ERROR = "ERROR"


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
    wanted = glob or frozen.provenance.get("target") or "*"
    return [a for a in fitting if fnmatchcase(a.id, wanted)]


def replay(session: Session, adapter: Adapter, frozen: FrozenCase) -> Replayed:
    """Run the case once and explain the answer."""
    verdict = execute(session, adapter, frozen.case, frozen.presentation)
    contract = contracts.get(frozen.contract)
    if verdict.kind is Kind.AGREE:
        return Replayed(adapter.id, Result.FIXED, verdict, ("production agrees with the reference",))
    if verdict.kind is Kind.DIVERGE and "all_observed" in verdict.evidence:
        rows = explain.side_by_side(contract, frozen.case, verdict.evidence["all_observed"])
        return Replayed(adapter.id, Result.FAILED, verdict, (verdict.evidence["claim"], "", *explain.text(rows)))
    if verdict.red:
        detail = verdict.evidence.get("traceback") or verdict.evidence.get("stack") or verdict.evidence.get("output")
        head = f"{verdict.kind}: {verdict.identity.kind}"
        return Replayed(adapter.id, Result.FAILED, verdict, (head, *str(detail or verdict.evidence).splitlines()))
    reason = verdict.evidence.get("reason") or verdict.evidence.get("message") or str(verdict.evidence)
    return Replayed(adapter.id, Result.ERROR, verdict, (f"{verdict.kind}: {reason}",))
