"""The closed set of verdicts and what they mean for the exit code.

"No verdict" is never "pass": a run in which nothing was executed, or in which a
target that is known to run did not, is inconclusive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EXIT_AGREED = 0
EXIT_DIVERGED = 1
EXIT_USAGE = 2
EXIT_INCONCLUSIVE = 3
EXIT_HARNESS = 4
EXIT_INTERRUPTED = 130


class Kind(StrEnum):
    """Every verdict there is."""

    AGREE = "AGREE"
    DIVERGE = "DIVERGE"
    CRASH = "CRASH"
    HANG = "HANG"
    FLAKY = "FLAKY"
    UNSUPPORTED = "UNSUPPORTED"
    ORACLE_SUSPECT = "ORACLE_SUSPECT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    INVALID_CASE = "INVALID_CASE"
    HARNESS_ERROR = "HARNESS_ERROR"


RED = frozenset({Kind.DIVERGE, Kind.CRASH, Kind.HANG, Kind.FLAKY})


@dataclass(frozen=True)
class Identity:
    """What makes two divergences the same bug. Code, not a message."""

    contract: str
    target: str
    field: str
    kind: str

    def __str__(self) -> str:
        return f"{self.contract} | {self.target} | {self.field} | {self.kind}"


@dataclass(frozen=True)
class Verdict:
    """The answer for one case on one target, with its evidence.

    ``evidence`` holds plain JSON values: expected and observed for DIVERGE, the
    exception or signal and the worker's output for CRASH, the stack for HANG,
    the rate for FLAKY, the reason for UNSUPPORTED.
    """

    kind: Kind
    target: str
    contract: str
    identity: Identity | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    behaviours: frozenset[str] = frozenset()
    flags: tuple[str, ...] = ()
    production_s: float = 0.0
    compile_s: float = 0.0  # of its kernels; no part of ``production_s``

    @property
    def red(self) -> bool:
        return self.kind in RED


def exit_code(verdicts: Counter[Kind], unknown_red: int, missing_support: Iterable[str] = ()) -> int:
    """Exit code of a run.

    ``unknown_red`` counts red verdicts that are not listed as known;
    ``missing_support`` names supported targets that did not run.
    """
    if verdicts[Kind.HARNESS_ERROR]:
        return EXIT_HARNESS
    if unknown_red:
        return EXIT_DIVERGED
    if verdicts[Kind.INVALID_CASE]:
        return EXIT_USAGE
    executed = sum(n for k, n in verdicts.items() if k not in (Kind.UNSUPPORTED, Kind.INVALID_CASE))
    if not executed or verdicts[Kind.ORACLE_SUSPECT] or verdicts[Kind.OUT_OF_MEMORY] or list(missing_support):
        return EXIT_INCONCLUSIVE
    return EXIT_AGREED


WORST_FIRST = (EXIT_INTERRUPTED, EXIT_HARNESS, EXIT_DIVERGED, EXIT_USAGE, EXIT_INCONCLUSIVE, EXIT_AGREED)


def worst_exit(codes: Iterable[int]) -> int:
    """Exit code over several parts of a run; of no part it is inconclusive."""
    return min(codes, key=WORST_FIRST.index, default=EXIT_INCONCLUSIVE)
