"""recurrence.replay: inputs kept in a ring and folded into the state later give the state advanced step by step.

Definition. Each layer and head of a request has a state S [K, V]. A token with key k, value v, log gate g and beta
advances it by the gated delta rule

    S <- e^g S;   S <- S + k (beta (v - S^T k))^T;   output S^T q

where g = -e^A_log softplus(a + dt_bias), per head (``gate`` "head") or per channel of K ("channel"), beta =
sigmoid(b), q carries the scale K^-1/2, and with ``normalise`` k and q are divided by sqrt(|.|^2 + 1e-6).

A request goes through rounds. A round verifies a window of tokens from the committed state and gives an ``output`` for
each; the first ``accepted`` tokens are then committed, the rest was never said. The state after ``track_step`` of the
window is saved to the request's track slot. Engines do not write states while they verify: they keep each token's
record in a ring, and fold the committed ones into the stored state when it suits them (``operation``):

* ``every``: with each commit; the ring holds one window and starts anew;
* ``circular``: when a further window might not fit behind the history and the next one (history + 2 windows > ring),
  or with each commit if ``fold`` says "every"; the next records follow around the end of the ring. An engine may
  refuse a window that the ring cannot hold, but not lose a part of it;
* ``decode``: one token a round; the token that would fill the ring, or whose state is saved, is folded.

Nothing of this may show: outputs, saved states and the last ``state`` are those of the rule, each token once, in
order, rejected tokens never. ``history`` is the number of committed tokens not yet folded after each round. Idle rows
of the batch (slot -1) change nothing and their output means nothing; what earlier requests left in the ring
(``leftover``: zeros, numbers or NaN) means nothing either. Before ``state`` is read, the history that is left is
folded once more, as for a state that is handed on.

``output`` is [layers, tokens of all rounds, heads, V] per request, ``tracks`` [saved states, layers, heads, K, V],
``state`` [layers, heads, K, V], whatever the layout of an engine. Bounds: ``replay_bound``. Source: this project's own
statement of what a replayed state is for; the gated delta rule is Yang, Kautz and Hatamizadeh, 2024.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Within
from oracle.recurrence import replay_bound, replay_walk, words
from oracle.recurrence.replay_behaviours import BEHAVIOURS, behaviours
from oracle.recurrence.replay_case import (
    KERNELS_DIFFER,
    NONE,
    ReplayCase,
    Request,
    Round,
    columns,
    domain,
    tracked,
    weights,
)
from oracle.recurrence.words import UNTOUCHED
from oracle.trace import Trace

NUMBERS = {
    "output": ("layer", "token", "head", "V"),
    "tracks": ("saved state", "layer", "head", "K", "V"),
    "state": ("layer", "head", "K", "V"),
}


def histories(case: ReplayCase, request: Request) -> list[int]:
    """Committed tokens that are not folded yet, after each round."""
    history, after = 0, []
    for j, r in enumerate(request.rounds):
        history += r.accepted
        if case.operation == "every" or replay_bound.folds(case, history, j in tracked(request)):
            history = 0
        after.append(history)
    return after


def reference(case: ReplayCase, trace: Trace) -> Outcome:
    """Advance every request token by token; the bound is that of an evaluation by records."""
    trace.step("nothing beside the slots and rows of the batch may change", decides="outside")
    trace.step("idle slots and rows stay, and so does a stored state while it is only verified", decides="kept")
    shared = weights(case)
    outcome: Outcome = {"outside": UNTOUCHED, "kept": 0} | {n: [] for n in ("history", *NUMBERS)}
    for i, request in enumerate(case.requests):
        left = [0] * len(request.rounds) if request.slot == NONE else histories(case, request)
        exact, bounds = replay_walk.walk(case, request, shared), bounded(case)[i]
        trace.step("committed tokens left to fold after each round", i, "history", value=left)
        outcome["history"].append(left)
        for name in NUMBERS:
            legal = _legal(request, getattr(exact, name), getattr(bounds, name).error)
            trace.step(SAID[name], i, name, value=legal)
            outcome[name].append(legal)
    for name in behaviours(case):
        trace.behaviour(name)
    return outcome


SAID = {
    "output": "each token of each window seen by its query",
    "tracks": "the states saved on the way",
    "state": "the state after all committed tokens",
}


@lru_cache(maxsize=32)  # both definitions, the mutants and the words ask for the same case
def bounded(case: ReplayCase) -> tuple[replay_bound.Outcome, ...]:
    """The evaluation by records of every request."""
    shared = weights(case)
    return tuple(replay_bound.bounded(case, request, shared) for request in case.requests)


def _legal(request: Request, value: np.ndarray, error: np.ndarray) -> Within:
    """Of an idle row nothing is asked."""
    return Within(value, np.full_like(error, np.inf) if request.slot == NONE else error)


def second(case: ReplayCase) -> Outcome:
    """The values of the records' closed form."""
    outcome: Outcome = {"outside": UNTOUCHED, "kept": 0, "history": []} | {n: [] for n in NUMBERS}
    for request, bounds in zip(case.requests, bounded(case), strict=True):
        folded_at = 0
        left = []
        for j in range(len(request.rounds)):  # recounted from the last fold each time
            history = sum(r.accepted for r in request.rounds[folded_at : j + 1])
            full = {
                "every": True,
                "decode": history >= case.ring or (request.rounds[j].track_step >= 0 <= request.track_slot),
                "circular": case.fold == "every" or case.ring - history < 2 * case.window,
            }[case.operation]
            folded_at = j + 1 if full else folded_at
            left.append(0 if full or request.slot == NONE else history)
        outcome["history"].append(left)
        for name in NUMBERS:
            numbers = getattr(bounds, name)
            outcome[name].append(_legal(request, numbers.value, numbers.error))
    return outcome


def kind(field: str, expected: Any, observed: Any) -> str:
    """The kind of difference."""
    if field == "outside" and str(observed).startswith(KERNELS_DIFFER):
        return "other_bits"
    return "wrong_count" if field == "history" else words.kind(field, expected, observed)


def explain(case: ReplayCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words."""
    if field == "outside" and observed.startswith(KERNELS_DIFFER):
        return observed
    if field == "outside":
        return f"nothing beside the slots and rows of the batch may change, but: {observed}"
    if field == "kept":
        return f"{observed} cells changed of what had to stay: idle slots and rows, or states while they were verified"
    outcome = reference(case, Trace())
    if field == "history":
        return f"request {where[0]}: tokens left to fold are {observed}, must be {outcome[field][where[0]]}"
    return f"{field} of {words.cell(outcome[field][where[0]], where, observed, NUMBERS[field])}"


def padding(case: ReplayCase) -> Request:
    """An idle row of the batch."""
    return Request(0, NONE, NONE, NONE, (Round(1, 1),))


CONTRACT = Contract(
    name="recurrence.replay",
    version=1,
    case_type=ReplayCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("outside", "case", "what changed beside the slots and rows of the batch"),
        Field("kept", "case", "cells changed that had to stay"),
        Field("history", "request", "committed tokens not yet folded, after each round"),
        Field("output", "request", "output of every verified token"),
        Field("tracks", "request", "states saved to the track slot"),
        Field("state", "request", "state after all committed tokens"),
    ),
    behaviours=BEHAVIOURS,
    padding=padding,
    say=explain,
    example=ReplayCase(
        "every",
        "head",
        "every",
        1,
        1,
        1,
        8,
        8,
        4,
        2,
        4,
        4,
        "float32",
        "float32",
        True,
        False,
        "zeros",
        0,
        0,
        0.25,
        (Request(1, 1, 1, NONE, (Round(2, 2),)),),
    ),  # fmt: skip
)
