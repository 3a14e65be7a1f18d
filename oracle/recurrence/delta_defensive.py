"""What is harmless when a request says that it has accepted nothing.

Even the current token counts, so an accepted count below 1 is hostile input and no
state is the right one to start from. Safety is asked: the request may start from any
slot of its own, or from 0, or be left out. Starting from a slot of another request
leaks that request's context into this one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.contract import Outcome
from oracle.legal import Within
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_outcome import is_null, outcome
from oracle.recurrence.delta_values import slot_state
from oracle.recurrence.delta_walk import Rules, walk
from oracle.recurrence.words import POISON


@dataclass(frozen=True, eq=False)
class AnyOf(Within):
    """Arrays of numbers, any of which is fine. ``value`` and ``error`` are the first one's."""

    others: tuple[Within, ...] = ()

    def excess(self, observed: Any) -> np.ndarray | None:
        """That of the choice which fits best."""
        found = [Within(self.value, self.error).excess(observed), *(other.excess(observed) for other in self.others)]
        return min((e for e in found if e is not None), key=lambda e: e.max(initial=0.0), default=None)

    def describe(self) -> str:
        return f"{super().describe()}, or one of {len(self.others)} other outcomes"

    def digest(self) -> dict[str, Any]:
        return super().digest() | {"or": [other.digest() for other in self.others]}


class _FromZero(Rules):
    def start_slot(self, case: DeltaCase, request: Request) -> int:
        return NONE


def harmless(case: DeltaCase, legal: Outcome) -> Outcome:
    """``legal`` with the choices of every request that has accepted nothing."""
    legal = legal | {"output": list(legal["output"]), "states": list(legal["states"])}
    for i, request in enumerate(case.requests):
        if case.operation != "accepted" or request.accepted or is_null(request):
            continue
        starts = [j + 1 for j, slot in enumerate(request.table) if slot != NONE]
        alone = [replace(case, requests=(replace(request, accepted=j),)) for j in starts]
        runs = [outcome(a, walk(a)) for a in alone]
        runs.append(outcome(alone[0], walk(alone[0], _FromZero())))
        output, states = ([run[field][0] for run in runs] for field in ("output", "states"))
        shape = output[0].value.shape
        output += [Within(np.full(shape, v), np.zeros(shape)) for v in (0.0, POISON)]
        states.append(_untouched(case, request))
        legal["output"][i] = AnyOf(output[0].value, output[0].error, tuple(output[1:]))
        legal["states"][i] = AnyOf(states[0].value, states[0].error, tuple(states[1:]))
    return legal


def _untouched(case: DeltaCase, request: Request) -> Within:
    """The request's slots as they were."""
    table = request.table[: request.length]
    held = [np.zeros(case.entry) if slot == NONE else slot_state(case, slot) for slot in table]
    free = np.array([np.full(case.entry, np.inf if slot == NONE else 0.0) for slot in table])
    return Within(np.array(held).reshape(-1, *case.entry), free.reshape(-1, *case.entry))
