"""commit.call_order: what a worker's round does, and in which order.

Definition. In one round over a batch that is not idle, a worker for a model
with recurrent state and a backend with the commit hook

1. prepares the track slots (when checkpoints are tracked) before verify,
2. runs the verify forward,
3. commits the states: for a request with ``pre`` tokens that commits ``c``, the
   hook receives the step of the last committed token and, when a checkpoint
   boundary b = floor(post / g) * g > pre was crossed and the request has a
   track slot, the step b - pre - 1 (see commit.checkpoint_steps),
4. publishes the lengths ``post = pre + c`` to whoever plans the next round,
   after the commit.

The events are recorded from the worker's real caller, so that what the caller
decides (are the lengths it hands over pre or post verify?) is tested with it.
Without recurrent state, or without the hook, nothing is committed; preparing
tracks is then harmless. An idle batch commits nothing and publishes no length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, INT32_MAX, Contract, Field, Outcome, require, require_size
from oracle.legal import OneOf
from oracle.trace import Trace

NONE = -1
PREPARE, VERIFY, COMMIT, PUBLISH = "prepare_tracks", "verify", "commit_states", "publish_lengths"


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before the round, ``committed`` tokens committed by it
    (the target's predictions are laid out so that exactly these drafts match),
    ``track_slot`` for its next checkpoint or -1."""

    pre: int
    committed: int
    track_slot: int


@dataclass(frozen=True)
class CallOrderCase:
    """One round. ``draft_tokens`` is N; ``recurrent``: the model has recurrent
    state; ``hook``: the backend has the commit hook; ``tracking``: checkpoints
    are tracked. No requests means an idle batch."""

    grid: int
    draft_tokens: int
    recurrent: bool
    hook: bool
    tracking: bool
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "round_commits": "a round that must commit state",
    "round_commits_checkpoint": "a round whose commit must save a checkpoint",
    "round_without_checkpoint": "a tracked round that crosses no boundary",
    "round_untracked": "a round that commits state and tracks nothing",
    "request_without_slot": "a request without track slot in a tracked round",
    "no_recurrent_state": "a model without recurrent state",
    "no_commit_hook": "a backend without the commit hook",
    "idle_batch": "an idle batch",
    "all_committed": "every draft token was accepted",
    "only_current_token": "no draft token was accepted",
    "several_requests": "more than one request in the round",
}


def domain(case: CallOrderCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require_size(case.requests, "requests")
    require(1 <= case.grid <= INT32_MAX, "grid: must be 1 to 2^31 - 1")
    require(2 <= case.draft_tokens <= 64, "draft_tokens: must be 2 to 64")
    slots = [r.track_slot for r in case.requests if r.track_slot != NONE]
    require(
        all(0 <= s <= INT32_MAX for s in slots), "requests.track_slot: must be -1 or a slot number, at most 2^31 - 1"
    )
    require(len(set(slots)) == len(slots), "requests.track_slot: two requests share a slot")
    for i, r in enumerate(case.requests):
        require(1 <= r.pre <= INT32_MAX, f"requests[{i}].pre: must be 1 to 2^31 - 1")
        require(1 <= r.committed <= case.draft_tokens, f"requests[{i}].committed: must be 1 to draft_tokens")
    return FUNCTIONAL


def reference(case: CallOrderCase, trace: Trace) -> Outcome:
    """List the events of the round; find checkpoints token by token."""
    commits = bool(case.requests) and case.recurrent and case.hook
    for name, reached in (
        ("idle_batch", not case.requests),
        ("no_recurrent_state", bool(case.requests) and not case.recurrent),
        ("no_commit_hook", bool(case.requests) and case.recurrent and not case.hook),
        ("round_commits", commits),
        ("round_untracked", commits and not case.tracking),
        ("several_requests", len(case.requests) > 1),
    ):
        if reached:
            trace.behaviour(name)
    order = _order(case, commits)
    trace.step("events of the round", decides="order", value=order)
    current, checkpoint, published = [], [], []
    for i, r in enumerate(case.requests):
        length, saved = r.pre, NONE
        for step in range(r.committed):
            length += 1
            if length % case.grid == 0 and case.tracking and r.track_slot != NONE:
                saved = step
        if commits:
            current.append(r.committed - 1)
            checkpoint.append(saved)
            trace.step("state handed to the hook", i, "current_step", value=r.committed - 1)
            trace.step("checkpoint handed to the hook", i, "checkpoint_step", value=saved)
            if case.tracking:
                trace.behaviour("round_without_checkpoint" if saved == NONE else "round_commits_checkpoint")
                if r.track_slot == NONE:
                    trace.behaviour("request_without_slot")
        if r.committed == case.draft_tokens:
            trace.behaviour("all_committed")
        if r.committed == 1:
            trace.behaviour("only_current_token")
        published.append(length)
        trace.step("length published", i, "published", value=length)
    return {"order": order, "current_step": current, "checkpoint_step": checkpoint, "published": published}


def _order(case: CallOrderCase, commits: bool) -> Any:
    if not case.requests:
        return OneOf(([], [VERIFY], [PREPARE, VERIFY]))
    if not commits:
        return OneOf(([VERIFY, PUBLISH], [PREPARE, VERIFY, PUBLISH]))
    if not case.tracking:
        return OneOf(([VERIFY, COMMIT, PUBLISH], [PREPARE, VERIFY, COMMIT, PUBLISH]))
    return [PREPARE, VERIFY, COMMIT, PUBLISH]


def second(case: CallOrderCase) -> Outcome:
    """The same outcome from the floor formula."""
    commits = bool(case.requests) and case.recurrent and case.hook
    post = [r.pre + r.committed for r in case.requests]
    boundary = [p // case.grid * case.grid for p in post]
    saved = [
        b - r.pre - 1 if b > r.pre and case.tracking and r.track_slot != NONE else NONE
        for r, b in zip(case.requests, boundary, strict=True)
    ]
    return {
        "order": _order(case, commits),
        "current_step": [r.committed - 1 for r in case.requests] if commits else [],
        "checkpoint_step": saved if commits else [],
        "published": post,
    }


def columns(case: CallOrderCase) -> dict[str, Any]:
    """Scalars and ``pre``, ``committed``, ``track_slot`` int64 [B]."""
    return {
        "grid": case.grid,
        "draft_tokens": case.draft_tokens,
        "recurrent": case.recurrent,
        "hook": case.hook,
        "tracking": case.tracking,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "committed": np.array([r.committed for r in case.requests], dtype=np.int64),
        "track_slot": np.array([r.track_slot for r in case.requests], dtype=np.int64),
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """Names the first thing that is missing or out of order."""
    if field == "order":
        must = expected.values[0] if isinstance(expected, OneOf) else expected
        if COMMIT in must and COMMIT not in observed:
            return "commit_missing"
        if COMMIT in observed and COMMIT not in must:
            return "commit_spurious"
        if PREPARE in must and PREPARE not in observed:
            return "tracks_not_prepared"
        return "wrong_order"
    if field == "published":
        return "wrong_length"
    if observed == NONE:
        return "missing"
    return "spurious" if expected == NONE else "wrong_step"


CONTRACT = Contract(
    name="commit.call_order",
    version=1,
    case_type=CallOrderCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("order", "case", "the events of the round, in the order seen"),
        Field("current_step", "request", "step handed to the hook as current state"),
        Field("checkpoint_step", "request", "step handed to the hook as checkpoint, -1 for none"),
        Field("published", "request", "length published for the next round"),
    ),
    behaviours=BEHAVIOURS,
    example=CallOrderCase(
        grid=256, draft_tokens=4, recurrent=True, hook=True, tracking=True,
        requests=(Request(pre=10, committed=2, track_slot=1),),
    ),
)  # fmt: skip
