"""The reference's account of one case: named steps and the behaviours reached.

A trace serves two readers. A report walks it to show where production first
differs, so each decision names the outcome field it decides. A campaign counts
its behaviours to know which semantic events a target was really shown. The
order of steps is the order of decisions, not of code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TraceStep:
    """One step: ``name`` in words, the values it saw, and the outcome field and
    request it decides (``None`` when it only derives something)."""

    name: str
    values: dict[str, Any]
    request: int | None = None
    decides: str | None = None


@dataclass
class Trace:
    """Collects steps and behaviours while a reference runs."""

    steps: list[TraceStep] = field(default_factory=list)
    behaviours: set[str] = field(default_factory=set)

    def step(self, name: str, request: int | None = None, decides: str | None = None, **values: Any) -> None:
        self.steps.append(TraceStep(name, values, request, decides))

    def behaviour(self, name: str) -> None:
        self.behaviours.add(name)
