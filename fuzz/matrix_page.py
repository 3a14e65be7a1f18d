"""The matrix as CSV and as a page: one mark a cell, and one line a fault.

The CSV has everything; the page has what a person compares: releases side by side, and
for each divergence where it begins and where it ends.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from fuzz.matrix import FAULT, KNOWN, NEW, Cell, History, Release, order
from fuzz.verdict import RED, Kind

CELLS = "engine", "version", "contract", "target", "verdict", "note", "agree", "red", "unsupported", "red_as", "reason"
FAULTS = (
    "engine", "target", "field", "kind", "issue", "last_good_before", "first_bad", "last_bad", "first_good",
    "says_nothing", "monotone",
)  # fmt: skip
MARKS = {Kind.AGREE: "·", Kind.UNSUPPORTED: "–", FAULT: "✗", KNOWN: "(✗)", NEW: "**✗**"}
OTHER = "?"  # of a verdict that says nothing about the engine
ABSENT = ""  # the target met no case, or the release did not run
LEGEND = (
    "`·` every executed case agrees · `✗` a fault that `fixtures/faults.toml` records · `(✗)` a divergence listed in "
    "`fixtures/known` · **✗** a divergence that is neither · `–` UNSUPPORTED: the target is not in that release or was "
    "not reached there · `?` no verdict: the harness has no data for that release, or doubts itself"
)


def cells_csv(releases: Iterable[Release]) -> str:
    """One line a version, contract and target."""
    rows = []
    for release in sorted(releases, key=lambda r: (r.engine, order(r.version))):
        for c in release.cells:
            red_as = "; ".join(f"{field} {kind} ({note})" for (_, field, kind), note in sorted(c.red.items()))
            red = sum(n for kind, n in c.counts.items() if kind in RED)
            agree, unsupported = c.counts.get(Kind.AGREE, 0), c.counts.get(Kind.UNSUPPORTED, 0)
            rows.append(
                [
                    c.engine,
                    c.version,
                    c.contract,
                    c.target,
                    c.verdict,
                    c.note,
                    agree,
                    red,
                    unsupported,
                    red_as,
                    c.reason,
                ]
            )
    return _csv(CELLS, rows)


def faults_csv(histories: Iterable[History]) -> str:
    """One line a divergence: where it begins and where it ends."""
    return _csv(
        FAULTS,
        (
            [
                h.identity[0].partition("/")[0], *h.identity, h.issue, h.last_good_before or "", h.first_bad,
                h.last_bad, h.first_good or "", " ".join(h.gaps), "yes" if h.monotone else "no",
            ]
            for h in histories
        ),
    )  # fmt: skip


def _csv(head: tuple[str, ...], rows: Iterable[list]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def page(
    command: str, releases: list[Release], histories: list[History], not_run: dict[str, str], facts: list[str]
) -> str:
    """The matrix as Markdown. ``command`` writes it again, ``not_run`` names releases
    without a result and why, ``facts`` say what it was made with."""
    lines = ["# Version matrix", "", "Which release does what on the frozen cases. This page is written by:", ""]
    lines += ["```console", f"$ {command}", "```", "", *facts, "", LEGEND, ""]
    for label, reason in not_run.items():
        lines.append(f"- {label} has no result: {_cell(reason)}")
    engines = list(dict.fromkeys(r.engine for r in releases))
    for engine in sorted(engines):
        of_engine = sorted((r for r in releases if r.engine == engine), key=lambda r: order(r.version))
        lines += ["", f"## {engine}", ""]
        lines += _faults([h for h in histories if h.identity[0].startswith(f"{engine}/")])
        for contract in sorted({c.contract for r in of_engine for c in r.cells}):
            lines += ["", f"### {contract}", "", *_table(contract, of_engine)]
    return "\n".join(lines).rstrip() + "\n"


def _faults(histories: list[History]) -> list[str]:
    if not histories:
        return ["No divergence."]
    lines = ["| target | divergence | first bad | fixed in | issue |", "|---|---|---|---|---|"]
    for h in histories:
        target, field, kind = h.identity
        oldest = "oldest here" if h.first_bad == h.states[0][0] else "no earlier release answers"
        begins = f"{h.first_bad} ({f'good in {h.last_good_before}' if h.last_good_before else oldest})"
        ends = _ends(h)
        notes = "" if h.monotone else "; not monotone: " + ", ".join(f"{v} {s}" for v, s in h.states)
        notes += f"; nothing said by {', '.join(h.gaps)}" if h.gaps and h.last_good_before else ""
        lines.append(f"| {_short(target)} | {field} {_cell(kind)} | {begins} | {ends}{notes} | {_cell(h.issue)} |")
    return lines


def _ends(h: History) -> str:
    if h.first_good is not None:
        return h.first_good
    newest = h.states[-1][0]
    return f"still in {newest}" if h.last_bad == newest else f"last seen in {h.last_bad}; no later release answers"


def _table(contract: str, releases: list[Release]) -> list[str]:
    marks: dict[str, dict[str, str]] = {}
    for release in releases:
        for c in release.cells:
            if c.contract == contract:
                marks.setdefault(c.target, {})[release.version] = mark(c)
    versions = [r.version for r in releases]
    lines = ["| target | " + " | ".join(versions) + " |", "|---" * (len(versions) + 1) + "|"]
    for target in sorted(marks):
        lines.append(f"| {_short(target)} | " + " | ".join(marks[target].get(v, ABSENT) for v in versions) + " |")
    return lines


def mark(c: Cell) -> str:
    """One cell of the page."""
    return MARKS[c.note] if c.note else MARKS.get(c.verdict, OTHER)


def _short(target: str) -> str:
    """Module and symbol: engine and contract stand in the headings."""
    parts = target.split("/")
    return _cell(f"{parts[1]} {parts[-1]}") if len(parts) == 4 else _cell(target)


def _cell(text: str) -> str:
    """Text that cannot leave its cell."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
