"""What a walk of the delta rule means for the outcome: per request its outputs, its per-step states and its slot."""

from __future__ import annotations

import numpy as np

from oracle.contract import Outcome
from oracle.legal import Within
from oracle.recurrence.approximate import Approximate
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_walk import Walked
from oracle.recurrence.words import UNTOUCHED

OUTPUT_AXES = ("token", "value head", "channel")
STATES_AXES = ("verify step", "value head", "key", "value")
STATE_AXES = ("value head", "key", "value")


def outcome(case: DeltaCase, walked: Walked) -> Outcome:
    """The legal outcome. A null row may compute anything, as long as it changes nothing."""
    legal: Outcome = {"outside": UNTOUCHED, "kept": 0, "output": [], "states": [], "state": []}
    for i, request in enumerate(case.requests):
        free = is_null(request)
        output, states = walked.output[i, : request.length], per_step(case, request, walked.states[i])
        unkept = np.array([s == NONE for s in request.table[: len(states.value)]], bool)
        legal["output"].append(_within(output, free))
        legal["states"].append(_within(states, free or unkept.reshape(-1, 1, 1, 1)))
        legal["state"].append(_within(afterwards(case, request, walked, i), free))
    return legal


def is_null(request: Request) -> bool:
    """Whether the row only fills the batch."""
    return request.slot == NONE and set(request.table) <= {NONE}


def per_step(case: DeltaCase, request: Request, states: Approximate) -> Approximate:
    """The states that a later commit finds, one per token; a prefill or decode leaves none."""
    return states[: request.length if case.operation in ("verify", "accepted") else 0]


def afterwards(case: DeltaCase, request: Request, walked: Walked, i: int) -> Approximate:
    """What the request's slot holds after the call. Verify leaves it alone; ``accepted`` has no slot but those of
    its steps."""
    if case.operation == "accepted":
        return walked.start[i, :0]
    if case.operation == "verify" or not request.length:
        return walked.start[i]
    return walked.states[i, request.length - 1]


def _within(numbers: Approximate, free: bool | np.ndarray) -> Within:
    if free is True:
        return Within(numbers.value, np.full_like(numbers.value, np.inf))
    return Within(numbers.value, np.where(free, np.inf, numbers.error) if np.size(free) else numbers.error)
