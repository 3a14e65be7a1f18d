"""Frozen case x engine: who agrees with the reference, and when it stands alone.

The table is what several engines say to the same question. When every engine that
could have confirmed the reference contradicts it in the same words, the reference is
the one to doubt. The rule is strict on purpose: releases of one engine share their
faults and count as one voice, a target that does not observe the disputed field has
none, and a divergence that a person has listed was decided in the reference's favour.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fuzz.verdict import Kind, Verdict

KNOWN = "known"
NOT_RUN = "UNSUPPORTED"
NO_TARGET = "no target"
NOT_REACHED = "not run"  # the engine could not be started, or the run was stopped before
NO_WORD = frozenset({NOT_RUN, NO_TARGET, NOT_REACHED})
# What a cell of several targets is called: the first of these that one of them has.
WORST_FIRST = (
    Kind.HARNESS_ERROR, Kind.CRASH, Kind.HANG, Kind.DIVERGE, Kind.FLAKY, Kind.ORACLE_SUSPECT,
    Kind.OUT_OF_MEMORY, Kind.INVALID_CASE, KNOWN, Kind.AGREE,
)  # fmt: skip
NO_ANSWER = frozenset({Kind.UNSUPPORTED, Kind.INVALID_CASE, Kind.HARNESS_ERROR, Kind.OUT_OF_MEMORY})


@dataclass(frozen=True)
class Answer:
    """What one target of one engine's release said to one frozen case.

    ``observes`` are the outcome fields it returns; ``listed`` marks a divergence of
    the known list; ``number`` is the case's number in the event stream.
    """

    engine: str
    version: str
    case: str
    verdict: Verdict
    observes: tuple[str, ...]
    listed: bool
    number: int

    @property
    def label(self) -> str:
        return f"{self.engine}=={self.version}"

    @property
    def executed(self) -> bool:
        return self.verdict.kind not in NO_ANSWER

    @property
    def word(self) -> str:
        """The verdict, or that it is a listed one."""
        return KNOWN if self.listed else str(self.verdict.kind)


def alone(answers: Iterable[Answer]) -> list[Answer]:
    """The divergences of one case in which the reference stands alone.

    Per outcome field: at least two different engines executed the case on targets that
    observe the field, none of them agrees, none is listed, and all differ from the
    reference first in this field and by the same value at the same place.
    """
    executed = [a for a in answers if a.executed]
    suspects: list[Answer] = []
    for field in sorted({a.verdict.identity.field for a in executed if a.verdict.kind is Kind.DIVERGE}):
        voters = [a for a in executed if field in a.observes]
        if len({a.engine for a in voters}) < 2 or any(a.listed for a in voters):
            continue
        claims = {_claim(a.verdict, field) for a in voters}
        if len(claims) == 1 and None not in claims:
            suspects += voters
    return suspects


def _claim(verdict: Verdict, field: str) -> str | None:
    """What a verdict says instead of the reference; ``None`` unless it differs first
    in ``field``."""
    if verdict.kind is not Kind.DIVERGE or verdict.identity.field != field:
        return None
    evidence = verdict.evidence
    seen: Any = evidence.get("observed")
    if isinstance(seen, float):  # each engine rounds for itself
        seen = f"{seen:.3g}"
    else:
        seen = evidence.get("all_observed", {}).get(field, seen)
    return json.dumps([list(evidence.get("where", [])), seen], default=str)


def table(
    answers: Iterable[Answer], cases: Iterable[str], labels: Iterable[str], stopped: Iterable[str] = ()
) -> dict[str, dict[str, str]]:
    """Cell text by frozen case and ``engine==version``. ``cases`` and ``labels`` say
    what the rows and columns are, also those without an answer; ``stopped`` are labels
    whose missing answers are due to a run that did not reach its end."""
    met: dict[tuple[str, str], list[Answer]] = {}
    for answer in answers:
        met.setdefault((answer.case, answer.label), []).append(answer)
    columns, cut = list(labels), set(stopped)
    return {
        case: {
            label: cell(found) if (found := met.get((case, label))) else NOT_REACHED if label in cut else NO_TARGET
            for label in columns
        }
        for case in cases
    }


def cell(answers: list[Answer]) -> str:
    """``AGREE``, or the worst verdict with how many of the executed targets have it."""
    words = Counter(a.word for a in answers if a.verdict.kind is not Kind.UNSUPPORTED)
    if not words:
        return NOT_RUN
    worst = next(str(w) for w in WORST_FIRST if words[str(w)])
    return worst if words[worst] == words.total() else f"{worst} {words[worst]} of {words.total()}"


def csv_text(rows: dict[str, dict[str, str]]) -> str:
    """The table as CSV: contract, case, one column an engine."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    labels = list(next(iter(rows.values()), {}))
    writer.writerow(["contract", "case", *labels])
    for case, cells in rows.items():
        contract, _, name = case.partition("/")
        writer.writerow([contract, name, *(cells[label] for label in labels)])
    return out.getvalue()


def short(rows: dict[str, dict[str, str]], most: int = 12) -> list[str]:
    """A few lines for the terminal: per contract how many cases of each word, then
    the cases on which engines that ran differ."""
    labels = list(next(iter(rows.values()), {}))
    contracts = sorted({case.partition("/")[0] for case in rows})
    head = ["contract", *labels]
    body = [[c, *(_counts(rows, c, label) for label in labels)] for c in contracts]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ["  ".join(f"{t:<{w}}" for t, w in zip(row, widths, strict=True)).rstrip() for row in [head, *body]]
    split = [case for case, cells in rows.items() if len(set(cells.values()) - NO_WORD) > 1]
    for case in split[:most]:
        lines.append(f"engines differ on {case}: " + ", ".join(f"{k} {v}" for k, v in rows[case].items()))
    if len(split) > most:
        lines.append(f"engines differ on {len(split) - most} more; see agreement.csv")
    return lines


def _counts(rows: dict[str, dict[str, str]], contract: str, label: str) -> str:
    shown = [cells[label] for case, cells in rows.items() if case.startswith(f"{contract}/")]
    words = Counter(text if text in NO_WORD else text.partition(" ")[0] for text in shown)
    order = [*map(str, WORST_FIRST[::-1]), NOT_RUN, NO_TARGET, NOT_REACHED]
    return ", ".join(f"{words[w]} {w}" for w in order if words[w])
