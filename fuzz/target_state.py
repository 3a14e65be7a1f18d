"""What a campaign knows about one target: what it was shown, how it did, what was found.

Counts only, no decisions: what follows from them is the campaign's. States of several
parts of a campaign add up.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.adapter import Adapter
from fuzz.believe import Belief
from fuzz.events import Events, EventsError
from fuzz.known import Known
from fuzz.presentation import Presentation
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts

RAW_PER_HYPOTHESIS = 60  # raw cases between two runs in which Hypothesis looks for structure
STOP_AFTER_UNCAPTURED = 3  # times that a target was not taken through a graph: then it is not tried again


@dataclass
class Drawn:
    """A case that can be sent: how it is shown, the choices that lead to it, its request. ``number`` is its number
    in the journal; ``past``, of a red one, what its worker was sent before."""

    case: Any
    how: Presentation
    choices: list[int]
    request: dict[str, Any]
    number: int = 0
    past: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Found:
    """A believed divergence, shrunk and frozen."""

    identity: Identity
    verdict: Verdict
    belief: Belief
    frozen: Path | None
    known: Known | None


@dataclass
class TargetState:
    """What a target was shown and how it did."""

    adapter: Adapter
    verdicts: Counter[Kind] = field(default_factory=Counter)
    behaviours: Counter[str] = field(default_factory=Counter)
    found: dict[Identity, Found] = field(default_factory=dict)
    seen: dict[Identity, Verdict] = field(default_factory=dict)
    raw: int = 0
    sought: int = 0  # of the raw cases, those that lay outside the domain before the first that did not
    fits: bool = False
    hypothesis_runs: int = 0
    hypothesis_cases: int = 0
    stored: int | None = None  # cases of the database that it was shown, None before its turn
    refused_in_a_row: int = 0
    batch: int = 1
    captured: int = 0  # cases that were shown through a graph
    uncaptured: Counter[str] = field(default_factory=Counter)  # why the worker had no graph of others
    flags: Counter[str] = field(default_factory=Counter)
    first_claim: dict[str, str] = field(default_factory=dict)  # by flag
    production_s: float = 0.0
    worker_s: float = 0.0
    compile_s: float = 0.0
    done: bool = False
    reason: str | None = None

    @property
    def drawn(self) -> int:
        """Cases drawn, without those that shrinking tried."""
        return self.raw + self.hypothesis_cases + (self.stored or 0)

    @property
    def has_no_graph(self) -> bool:
        return not self.captured and self.uncaptured.total() >= STOP_AFTER_UNCAPTURED

    @property
    def hypothesis_is_due(self) -> bool:
        return self.raw - self.sought >= (self.hypothesis_runs + 1) * RAW_PER_HYPOTHESIS

    @property
    def executed(self) -> int:
        return sum(n for k, n in self.verdicts.items() if k not in (Kind.UNSUPPORTED, Kind.INVALID_CASE))

    def add(self, other: TargetState) -> None:
        """Count in what another part of the campaign showed the same target."""
        for name in ("verdicts", "behaviours", "flags", "uncaptured"):
            getattr(self, name).update(getattr(other, name))
        counts = ("raw", "sought", "hypothesis_runs", "hypothesis_cases", "captured")
        for name in (*counts, "production_s", "worker_s", "compile_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.stored is not None:
            self.stored = (self.stored or 0) + other.stored
        for name in ("found", "seen", "first_claim"):
            setattr(self, name, getattr(other, name) | getattr(self, name))
        self.done, self.reason = self.done or other.done, self.reason or other.reason


def emit_target(events: Events, state: TargetState) -> None:
    """Write down what a target was shown."""
    contract = contracts.get(state.adapter.contract)
    with contextlib.suppress(EventsError):  # a full disk was reported already
        events.emit(
            "target",
            target=state.adapter.id,
            contract=contract.name,
            executed=state.executed,
            verdicts={str(k): n for k, n in state.verdicts.items()},
            behaviours=dict(state.behaviours),
            not_reached=sorted(set(contract.behaviours) - set(state.behaviours)),
            production_s=round(state.production_s, 3),
            compile_s=round(state.compile_s, 3),
            reason=state.reason,
            **({"no_graph": dict(state.uncaptured)} if state.uncaptured else {}),
        )
