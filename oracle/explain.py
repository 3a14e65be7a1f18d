"""Words for a divergence: one sentence, and both sides step by step.

Text is made here and nowhere else, so that the terminal, a JUnit file and a page
say the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle import legal
from oracle.case import to_plain
from oracle.contract import Contract, Outcome
from oracle.judgement import Judgement, judge
from oracle.trace import TraceStep

MAX_SHOWN = 160  # characters of one value in a line of text
MAX_CASE = 400  # characters of a case in a line of text


@dataclass(frozen=True)
class Row:
    """One trace step beside what production was observed to do. ``legal`` is
    ``None`` for a step that decides nothing observable."""

    step: str
    request: int | None
    expected: str
    observed: str
    legal: bool | None


def sentence(contract: Contract, case: Any, judgement: Judgement) -> str:
    """The claim of a divergence in one sentence."""
    field = next(f for f in contract.fields if f.name == judgement.field)
    if contract.say is not None and judgement.kind != "wrong_shape":
        return contract.say(case, field.name, judgement.where, judgement.observed)
    place = ""
    if judgement.where:
        at = judgement.where
        place = f"request {at[0]}: " if field.axis == "request" else f"at {at}: "
    must = legal.describe(judgement.expected)
    return f"{place}{field.name} ({field.meaning}) must be {must}, production has {judgement.observed}"


def side_by_side(contract: Contract, case: Any, observed: dict[str, Any], slack_ulp: float = 0.0) -> list[Row]:
    """Trace steps with the observed values, up to the first divergent step.

    ``observed`` maps outcome fields to what production returned; fields it lacks
    are shown as not observed.
    """
    outcome, trace = contract.run(case)
    first = judge(contract, outcome, observed, slack_ulp)
    rows = []
    for step in trace.steps:
        if step.decides is None:
            values = ", ".join(f"{k}={v}" for k, v in step.values.items())
            rows.append(Row(step.name, step.request, values, "", None))
            continue
        expected = step.values["value"] if "value" in step.values else _whole(outcome, step)
        if step.decides not in observed:
            words = f"shape {expected.shape}" if isinstance(expected, np.ndarray) else legal.describe(expected)
            rows.append(Row(step.name, step.request, words, "not observed", None))
            continue
        seen = observed[step.decides]
        if isinstance(expected, np.ndarray):
            rows.append(_array_row(step, expected, np.asarray(seen)))
            if not rows[-1].legal:
                break
            continue
        if step.request is not None:
            seen = seen[step.request] if step.request < len(seen) else "nothing"
        agrees = legal.admits(expected, seen) and not _is_at(first, step)
        shown = _numbers(expected, seen) if isinstance(expected, legal.Within) else str(seen)
        rows.append(Row(step.name, step.request, legal.describe(expected), shown, agrees))
        if not agrees:
            break
    return rows


def _is_at(first: Judgement, step: TraceStep) -> bool:
    """True when the first illegal value is what ``step`` decides: a value may be
    legal by itself and not beside the fields before it."""
    return first.field == step.decides and step.request is not None and first.where[:1] == (step.request,)


def _array_row(step: TraceStep, expected: np.ndarray, seen: np.ndarray) -> Row:
    """An array in words: how many cells differ, and the first of them."""
    if seen.shape != expected.shape:
        return Row(step.name, step.request, f"shape {expected.shape}", f"shape {seen.shape}", False)
    wrong = np.argwhere(seen != expected)
    if not len(wrong):
        return Row(step.name, step.request, f"shape {expected.shape}", "all cells as expected", True)
    at = tuple(int(i) for i in wrong[0])
    observed = f"{len(wrong)} of {seen.size} cells differ; at {at} stands {seen[at]}"
    return Row(step.name, step.request, f"at {at}: {expected[at]}", observed, False)


def _numbers(expected: legal.Within, seen: Any) -> str:
    """An array of numbers in words: how far the worst of them is off."""
    excess = expected.excess(seen)
    if excess is None:
        return f"shape {np.shape(seen)}"
    wrong = np.argwhere(excess > 1)
    if not len(wrong):
        share = expected.error_of_bound(seen)
        return "all as expected" if share is None else f"all within; the worst at {share:.2g} of its bound"
    at = tuple(int(i) for i in wrong[0])
    must = expected.cell(at).describe()
    return f"{len(wrong)} of {excess.size} outside; at {at} stands {float(np.asarray(seen)[at]):.9g}, must be {must}"


def _whole(outcome: Outcome, step: TraceStep) -> Any:
    """What a step without a value of its own decides."""
    value = outcome[step.decides]
    return value if step.request is None else value[step.request]


def text(rows: list[Row], story: bool = False) -> list[str]:
    """Rows as lines of plain text in three columns, the divergent one marked. Of a story
    (``Contract.ordered``) what agrees is left out: its steps say it in words."""
    unit = "step" if story else "request"
    rows = [r for r in rows if r.legal is False or not r.observed] if story else rows
    names = [r.step if r.request is None else f"{unit} {r.request}: {r.step}" for r in rows]
    expected = [_short(r.expected) for r in rows]
    name_width = max(map(len, ["step", *names]))
    width = max(map(len, ["expected", *(e for e, r in zip(expected, rows, strict=True) if r.observed)]))
    lines = [f"  {'step':<{name_width}}  {'expected':<{width}}  observed"]
    for name, value, row in zip(names, expected, rows, strict=True):
        mark = "✗" if row.legal is False else " "
        lines.append(f"{mark} {name:<{name_width}}  {value:<{width}}  {_short(row.observed)}".rstrip())
    return lines


def _short(value: str) -> str:
    """A value that fits a line; the whole of it stands in the case file."""
    return value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…"


def compact(case: Any) -> str:
    """A case in one line; the whole of a long one stands in its file."""
    text = json.dumps(to_plain(case), separators=(", ", ": ")).replace('"', "")
    return text if len(text) <= MAX_CASE else text[: MAX_CASE - 1] + "…"


def told(contract: Contract, case: Any) -> list[str]:
    """What the reference says of a case, one line a step that decides nothing by itself."""
    return [step.name for step in contract.run(case)[1].steps if step.decides is None]


def changes(case: Any, other: Any) -> str:
    """In which leaves ``other`` differs from ``case``, as ``path=value``."""
    return ", ".join(_changes(to_plain(case), to_plain(other), "")) or "nothing"


def _changes(a: Any, b: Any, path: str) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        return [c for k in b for c in _changes(a.get(k), b[k], f"{path}.{k}" if path else k)]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [c for i, (x, y) in enumerate(zip(a, b, strict=True)) for c in _changes(x, y, f"{path}[{i}]")]
    return [] if a == b else [f"{path}={_short(str(b))}"]
