"""Words for a divergence: one sentence, and both sides step by step.

Text is made here and nowhere else, so that the terminal, a JUnit file and a page
say the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle import legal
from oracle.contract import Contract


@dataclass(frozen=True)
class Row:
    """One trace step beside what production was observed to do. ``legal`` is
    ``None`` for a step that decides nothing observable."""

    step: str
    request: int | None
    expected: str
    observed: str
    legal: bool | None


def sentence(contract: Contract, field: str, where: list[int], expected: Any, observed: Any) -> str:
    """The claim of a divergence in one sentence."""
    meaning = next((f.meaning for f in contract.fields if f.name == field), field)
    axis = next((f.axis for f in contract.fields if f.name == field), "case")
    place = ""
    if where:
        place = f"request {where[0]}: " if axis == "request" else f"at {tuple(where)}: "
    return f"{place}{field} ({meaning}) must be {legal.describe(expected)}, production has {observed}"


def side_by_side(contract: Contract, case: Any, observed: dict[str, Any]) -> list[Row]:
    """Trace steps with the observed values, up to the first divergent step.

    ``observed`` maps outcome fields to what production returned; fields it lacks
    are shown as not observed.
    """
    _, trace = contract.run(case)
    rows = []
    for step in trace.steps:
        if step.decides is None:
            values = ", ".join(f"{k}={v}" for k, v in step.values.items())
            rows.append(Row(step.name, step.request, values, "", None))
            continue
        expected = step.values.get("value", _whole(contract, case, step.decides, step.request))
        if step.decides not in observed:
            rows.append(Row(step.name, step.request, legal.describe(expected), "not observed", None))
            continue
        seen = observed[step.decides]
        if step.request is not None:
            seen = seen[step.request] if step.request < len(seen) else "nothing"
        agrees = legal.admits(expected, seen)
        rows.append(Row(step.name, step.request, legal.describe(expected), str(seen), agrees))
        if not agrees:
            break
    return rows


def _whole(contract: Contract, case: Any, field: str, request: int | None) -> Any:
    outcome = contract.run(case)[0][field]
    return outcome if request is None else outcome[request]


def text(rows: list[Row], width: int = 44) -> list[str]:
    """Rows as lines of plain text, the divergent one marked."""
    lines = [f"  {'step':<{width}} {'expected':<28} observed"]
    for row in rows:
        name = row.step if row.request is None else f"request {row.request}: {row.step}"
        mark = "✗" if row.legal is False else " "
        lines.append(f"{mark} {name:<{width}} {row.expected:<28} {row.observed}".rstrip())
    return lines
