"""What a divergence's page shows of the case: picture, story, both traces, the values.

The reference runs on the case to say what must happen; production's side is what the
events recorded. Nothing is shown of a side that was not recorded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oracle import explain
from oracle.contract import InvalidCase
from oracle.trace import Trace
from reports.html.cases import Case
from reports.html.pictures import Picture, draw
from reports.html.pictures.scene import Scene, fitting
from reports.html.text import short
from reports.model import Divergence

MAX_ROWS = 60  # of a trace; of a longer one the end, where the first divergent step is
MAX_VALUE = 240
MAX_CASE_BYTES = 1 << 18  # of the JSON of a case for which the reference still runs
MAX_RECORDS = 24
MAX_CELL = 60
MAX_ULP = 1e18  # of a margin; more is none
ANSWERED = ("DIVERGE", "ORACLE_SUSPECT", "FLAKY")  # verdicts in which production returned values
TOLD = ("expected", "observed")  # what the story of a picture says better
LONG = (("traceback", "Traceback"), ("stack", "Stack of the worker"), ("output", "Output of the worker"))


@dataclass(frozen=True)
class Shown:
    """Parts of the page; what could not be made is empty. ``settings`` and ``records``
    are the case as tables; ``margin`` how far the decision was from an edge."""

    picture: Picture | None
    trace: list[dict[str, Any]]
    cut: int
    settings: list[tuple[str, str]]
    columns: list[str]
    records: list[list[str]]
    more_records: int
    long: list[tuple[str, str]]
    facts: list[tuple[str, str]]


def show(divergence: Divergence, case: Case | None) -> Shown:
    """The parts of the page of ``divergence``."""
    evidence, event = divergence.shown.evidence, divergence.shown.event
    picture, rows = None, []
    if case is not None and len(case.raw) <= MAX_CASE_BYTES:
        picture, rows = _sides(divergence, case, evidence)
    settings, columns, records, more = _tables(case)
    facts = [
        (word, short(legal_words(evidence.get(name, event.get(name))), MAX_VALUE))
        for name, word in (
            ("expected", "expected"), ("observed", "observed"), ("sides", "compared"), ("left", "first"),
            ("right", "second"), ("takes", "the reference takes"), ("illegal", "illegal values in the field"),
            ("margin_ulp", "margin in ULP"), ("rate", "repeats in"), ("sibling", "a case that agrees differs in"),
            ("shrink_calls", "calls spent on shrinking"), ("shrink_processes", "fresh processes spent on shrinking"),
            ("deadline_s", "deadline in s"), ("message", "message"), ("how", "ended by"), ("reason", "reason"),
        )
        if evidence.get(name, event.get(name)) is not None and not (picture and name in TOLD)
    ]  # fmt: skip
    long = [(title, _end(str(evidence[name]))) for name, title in LONG if evidence.get(name)]
    return Shown(picture, rows[-MAX_ROWS:], max(len(rows) - MAX_ROWS, 0), settings, columns, records, more, long, facts)


def legal_words(value: Any) -> str:
    """A legal outcome as the events hold it, in words; anything else as it is."""
    match value:
        case {"one_of": [only]}:
            return legal_words(only)
        case {"one_of": [_, *_] as values}:
            return "one of " + ", ".join(map(legal_words, values)) + _margin(value.get("margin_ulp"))
        case {"between": [low, high]}:
            return f"any from {low} to {high}"
        case {"real": [low, high]}:
            words = f"{low}" if low == high else f"{low} to {high}"
            return words + (" or NaN" if value.get("nan") is True else "")
        case {"each": list(values)}:
            return _listed(values) + (", all different" if value.get("distinct") is True else "")
        case {"branches": [first, *others], "margins_ulp": [_, *margins]}:
            more = [f"{legal_words(v)}{_margin(m)}" for v, m in zip(others, margins) if v != first]
            return " or ".join([legal_words(first), *dict.fromkeys(more)])
        case [*values] if any(isinstance(v, dict) for v in values):
            return _listed(values)
        case dict():
            return ", ".join(f"{name}: {legal_words(v)}" for name, v in value.items())
    return str(value)


def _listed(values: list[Any]) -> str:
    return f"[{'; '.join(map(legal_words, values))}]"


def _margin(ulp: Any) -> str:
    return f" ({ulp:.3g} ULP from an edge)" if type(ulp) in (int, float) and abs(ulp) < MAX_ULP else ""


def _sides(divergence: Divergence, case: Case, evidence: dict[str, Any]) -> tuple[Picture | None, list[dict[str, Any]]]:
    """The picture, and the rows of both traces."""
    contract = case.contract
    try:
        outcome, trace = contract.run(case.value)
    except InvalidCase:  # a case too close to too many edges has no outcome to be shown
        return None, []
    side = "right" if evidence.get("takes") == "left" else "left"  # of two compared targets, one that is wrong
    observed = fitting(contract, outcome, evidence.get("all_observed", evidence.get(f"all_{side}")))
    where = evidence.get("where")
    place = tuple(where) if isinstance(where, list) and all(type(w) is int and w >= 0 for w in where) else ()
    field, kind = divergence.identity[2:]
    scene = Scene(
        contract, case.value, outcome, observed, field, kind, place, evidence.get("observed", evidence.get(side))
    )
    answered = divergence.shown.verdict in ANSWERED and any(f.name == field for f in contract.fields)
    picture = draw(scene) if answered else None
    return picture, _trace(scene, trace, divergence.claim)


def _trace(scene: Scene, trace: Trace, claim: str) -> list[dict[str, Any]]:
    """Rows up to the first divergent step."""
    rows = []
    for step, row in zip(trace.steps, explain.side_by_side(scene.contract, scene.case, scene.observed), strict=False):
        name = row.step if row.request is None else f"request {row.request}: {row.step}"
        observed, legal = short(row.observed, MAX_VALUE), row.legal
        if step.decides == scene.field and scene.field not in scene.observed:
            observed, legal = claim, False  # too large for an event, but its first illegal cell was said
        rows.append({"step": name, "expected": short(row.expected, MAX_VALUE), "observed": observed, "legal": legal})
        if legal is False:
            break
    return rows


def _tables(case: Case | None) -> tuple[list[tuple[str, str]], list[str], list[list[str]], int]:
    """The case's settings, and its records as a table."""
    if case is None:
        return [], [], [], 0
    name = case.contract.records
    settings = [(k, short(_plain(v), MAX_VALUE)) for k, v in case.plain.items() if k != name]
    records = case.plain.get(name) or []
    inner = next((k for k, v in records[0].items() if _is_records(v)), None) if records else None
    rows = []
    for i, record in enumerate(records):
        outer = [str(i), *(short(_plain(v), MAX_CELL) for k, v in record.items() if k != inner)]
        for j, part in enumerate(record[inner]) if inner is not None else ():
            rows.append([*outer, str(j), *(short(_plain(v), MAX_CELL) for v in part.values())])
        if inner is None or not record[inner]:
            rows.append(outer)
        if len(rows) > MAX_RECORDS:
            break
    columns = [name, *(k for k in records[0] if k != inner)] if records else []
    columns += [inner, *records[0][inner][0]] if inner is not None else []
    more = max(len(rows) - MAX_RECORDS, len(records) - i - 1) if records else 0
    return settings, columns, rows[:MAX_RECORDS], max(more, 0)


def _is_records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _end(text: str, most: int = 6000) -> str:
    """The last part of a long text: where a traceback says what happened."""
    return text if len(text) <= most else "…" + text[-most:]
