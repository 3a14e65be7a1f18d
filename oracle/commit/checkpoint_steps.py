"""commit.checkpoint_steps: which verify step's state is kept, and as what.

Definition. A verify pass leaves one recurrent state per draft token. Request r
had ``pre`` tokens in its state and commits ``c`` of the block: path step j
consumes the token at position ``pre + j``, so its state is the state after
``pre + j + 1`` tokens, and ``post = pre + c``. Two states are kept:

* the *current* state is that of path step ``c - 1``;
* with checkpoint grid g, let ``b = floor(post / g) * g``. If ``b > pre`` the
  state of path step ``b - pre - 1`` is saved in the request's track slot as the
  checkpoint of length b; otherwise nothing is saved. When the block crosses
  several boundaries the last one counts.

In a chain the path step is the index of the state; in a tree it is the node on
the accepted path at that step (``accept_index[r, j] - r * N``).

Nothing at all happens for an idle batch, an empty ``accept_index``, a model
without recurrent state, or a backend without the commit hook. Nothing is saved
for a request without a track slot (slot -1), nor when the batch tracks nothing.

Lengths are int32 or int64; a case keeps ``post`` inside its integer type.
Committed 0 is defensive: only an index inside the block, or a negative one (the
sentinel that copies nothing), is asked for.

Source: the semantics stated above are this project's own; the faults that made
them worth writing down are SGLang pull requests 37817 and 37818.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import (
    DEFENSIVE,
    FUNCTIONAL,
    INT32_MAX,
    MAX_LENGTH,
    Contract,
    Field,
    Outcome,
    require,
    require_size,
)
from oracle.legal import Between
from oracle.trace import Trace

NONE = -1
LENGTH_MAX = {"int32": INT32_MAX, "int64": 2**63 - 1}
SITUATIONS = ("verify", "idle", "empty_accept_index", "no_recurrent_state", "no_commit_hook")


@dataclass(frozen=True)
class Request:
    """One request of the batch.

    pre         tokens in the recurrent state before verify (>= 0)
    committed   tokens this verify commits: accepted drafts + 1
    track_slot  pool slot for its next checkpoint, -1 when it has none
    path        tree form: the node of each committed path step; () for a chain
    """

    pre: int
    committed: int
    track_slot: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class CheckpointStepsCase:
    """One verify-and-commit of a batch. ``draft_tokens`` is N, tokens a row of
    the verify block with the current token; ``path_width`` the columns of
    ``accept_index``; ``tracking`` false means the batch has no track slots."""

    grid: int
    draft_tokens: int
    path_width: int
    form: str
    length_dtype: str
    committed_dtype: str
    situation: str
    tracking: bool
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "no_boundary": "no boundary inside the committed span: nothing is saved",
    "crossed_on_first_step": "the boundary is reached by the first verify step",
    "crossed_on_last_step": "the boundary is reached by the last committed step (post is on the grid)",
    "crossed_in_the_middle": "the boundary lies strictly inside the committed span",
    "crossed_several": "more than one boundary inside the span; the last one counts",
    "starts_on_boundary": "pre is on the grid: that boundary was saved before",
    "boundary_just_ahead": "the boundary is the token after the last committed one",
    "all_committed": "every draft token was accepted",
    "only_current_token": "no draft token was accepted",
    "no_track_slot": "a request without track slot crosses a boundary",
    "tracking_off": "a boundary is crossed while the batch tracks nothing",
    "tree_node_differs_from_step": "the saved node is not the path step's number",
    "narrow_accept_index": "accept_index has fewer columns than draft tokens",
    "mixed_crossing": "in one batch some requests cross and some do not",
    "length_beyond_int32": "post does not fit 32 bits",
    "length_near_int32_max": "post is within one block of 2^31 - 1, in int32",
    "mixed_integer_types": "lengths and committed counts have different integer types",
    "nothing_idle": "idle batch",
    "nothing_empty": "empty accept_index",
    "nothing_without_state": "model without recurrent state",
    "nothing_without_hook": "backend without the commit hook",
    "committed_zero": "defensive: nothing was committed",
}

_NOTHING = {
    "idle": "nothing_idle",
    "empty_accept_index": "nothing_empty",
    "no_recurrent_state": "nothing_without_state",
    "no_commit_hook": "nothing_without_hook",
}


def domain(case: CheckpointStepsCase) -> str:
    """``functional`` or ``defensive``; raises InvalidCase outside both."""
    require(1 <= case.grid <= INT32_MAX, "grid: must be 1 to 2^31 - 1")
    require(1 <= case.draft_tokens <= 4096, "draft_tokens: must be 1 to 4096")
    require(case.form in ("chain", "tree"), "form: must be chain or tree")
    require(case.situation in SITUATIONS, f"situation: must be one of {', '.join(SITUATIONS)}")
    for name in ("length_dtype", "committed_dtype"):
        require(getattr(case, name) in LENGTH_MAX, f"{name}: must be int32 or int64")
    require(1 <= case.path_width <= case.draft_tokens, "path_width: must be 1 to draft_tokens")
    require_size(case.requests, "requests", case.draft_tokens)
    empty = case.situation in ("idle", "empty_accept_index")
    require(empty == (not case.requests), "requests: empty exactly for an idle batch or an empty accept_index")
    slots = [r.track_slot for r in case.requests if r.track_slot != NONE]
    require(
        all(0 <= s <= INT32_MAX for s in slots), "requests.track_slot: must be -1 or a slot number, at most 2^31 - 1"
    )
    require(len(set(slots)) == len(slots), "requests.track_slot: two requests share a slot")
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        require(r.pre >= 0, f"{where}.pre: must not be negative")
        require(0 <= r.committed <= case.path_width, f"{where}.committed: must be 0 to path_width")
        require(
            r.pre + r.committed <= min(LENGTH_MAX[case.length_dtype], MAX_LENGTH),
            f"{where}: pre + committed does not fit {case.length_dtype}",
        )
        if case.form == "chain":
            require(r.path == (), f"{where}.path: a chain has none")
        else:
            require(len(r.path) == r.committed, f"{where}.path: one node per committed token")
            require(r.path[:1] in ((), (0,)), f"{where}.path: starts at the root, node 0")
            rising = all(a < b for a, b in zip(r.path, r.path[1:]))
            require(rising and max(r.path, default=0) < case.draft_tokens, f"{where}.path: rising nodes below N")
    return DEFENSIVE if any(r.committed == 0 for r in case.requests) else FUNCTIONAL


def reference(case: CheckpointStepsCase, trace: Trace) -> Outcome:
    """Walk every committed token and remember the last boundary met."""
    if case.situation != "verify":
        trace.behaviour(_NOTHING[case.situation])
        trace.step("nothing to commit", decides="commits", situation=case.situation)
        return {"commits": False, "current_step": [], "checkpoint_step": [], "checkpoint_length": []}
    trace.step("commit of a verified batch", decides="commits", requests=len(case.requests))
    current, checkpoint, checkpoint_length = [], [], []
    crossing = []
    for i, request in enumerate(case.requests):
        node, saved, saved_length, met = NONE, NONE, NONE, 0
        length = request.pre
        for j in range(request.committed):
            length += 1
            node = request.path[j] if case.form == "tree" else j
            if length % case.grid == 0:
                met += 1
                saved, saved_length = node, length
        crossing.append(met > 0)
        _behaviours(case, request, met, saved, saved_length, length, trace)
        if not case.tracking or request.track_slot == NONE:
            saved, saved_length = NONE, NONE
        trace.step("walk the committed tokens", i, pre=request.pre, post=length, grid=case.grid, boundaries_met=met)
        if request.committed == 0:
            anywhere = Between(-LENGTH_MAX["int64"], case.draft_tokens - 1)
            node, saved, saved_length = anywhere, anywhere, Between(NONE, LENGTH_MAX["int64"])
        trace.step("state of the last committed step", i, "current_step", value=node)
        trace.step("state at the last boundary crossed", i, "checkpoint_step", value=saved)
        trace.step("length the checkpoint is filed under", i, "checkpoint_length", value=saved_length)
        current.append(node)
        checkpoint.append(saved)
        checkpoint_length.append(saved_length)
    if any(crossing) and not all(crossing):
        trace.behaviour("mixed_crossing")
    if case.length_dtype != case.committed_dtype:
        trace.behaviour("mixed_integer_types")
    return {
        "commits": True,
        "current_step": current,
        "checkpoint_step": checkpoint,
        "checkpoint_length": checkpoint_length,
    }


def _behaviours(case, request, met, saved, saved_length, post, trace) -> None:
    if request.committed == 0:
        trace.behaviour("committed_zero")
        return
    if request.pre > 0 and request.pre % case.grid == 0:
        trace.behaviour("starts_on_boundary")
    if request.committed == case.draft_tokens:
        trace.behaviour("all_committed")
    if request.committed == 1 and case.draft_tokens > 1:
        trace.behaviour("only_current_token")
    if case.path_width < case.draft_tokens:
        trace.behaviour("narrow_accept_index")
    if post > LENGTH_MAX["int32"]:
        trace.behaviour("length_beyond_int32")
    elif case.length_dtype == "int32" and post > LENGTH_MAX["int32"] - case.draft_tokens:
        trace.behaviour("length_near_int32_max")
    if not met:
        trace.behaviour("boundary_just_ahead" if (post + 1) % case.grid == 0 else "no_boundary")
        return
    if not case.tracking:
        trace.behaviour("tracking_off")
    elif request.track_slot == NONE:
        trace.behaviour("no_track_slot")
    step = saved_length - request.pre - 1
    if met > 1:
        trace.behaviour("crossed_several")
    if step == 0:
        trace.behaviour("crossed_on_first_step")
    if step == request.committed - 1:
        trace.behaviour("crossed_on_last_step")
    if 0 < step < request.committed - 1:
        trace.behaviour("crossed_in_the_middle")
    if saved != step:
        trace.behaviour("tree_node_differs_from_step")


def closed_form(pre: np.ndarray, committed: np.ndarray, grid: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Path steps by formula, for whole arrays: current, checkpoint, length.

    ``pre`` and ``committed`` are int64 arrays of one shape, committed >= 1, and
    the sums must fit int64. -1 where nothing is saved.
    """
    post = pre + committed
    boundary = post // grid * grid
    crossed = boundary > pre
    return committed - 1, np.where(crossed, boundary - pre - 1, NONE), np.where(crossed, boundary, NONE)


def second(case: CheckpointStepsCase) -> Outcome:
    """The outcome from the formula instead of the walk (functional domain)."""
    if case.situation != "verify":
        return {"commits": False, "current_step": [], "checkpoint_step": [], "checkpoint_length": []}
    pre = np.array([r.pre for r in case.requests], dtype=np.int64)
    committed = np.array([r.committed for r in case.requests], dtype=np.int64)
    current, saved, length = closed_form(pre, committed, case.grid)
    no_slot = np.array([not case.tracking or r.track_slot == NONE for r in case.requests])
    saved[no_slot], length[no_slot] = NONE, NONE

    def node(request: Request, step: int) -> int:
        return request.path[step] if case.form == "tree" and step != NONE else step

    return {
        "commits": True,
        "current_step": [node(r, int(s)) for r, s in zip(case.requests, current, strict=True)],
        "checkpoint_step": [node(r, int(s)) for r, s in zip(case.requests, saved, strict=True)],
        "checkpoint_length": [int(b) for b in length],
    }


def columns(case: CheckpointStepsCase) -> dict[str, Any]:
    """Scalars and arrays for an adapter: ``pre``, ``committed``, ``track_slot``
    int64 [B] and ``path`` int64 [B, path_width] padded with -1."""
    path = np.full((len(case.requests), case.path_width), NONE, dtype=np.int64)
    for i, r in enumerate(case.requests):
        path[i, : r.committed] = r.path if case.form == "tree" else range(r.committed)
    return {
        "grid": case.grid,
        "draft_tokens": case.draft_tokens,
        "path_width": case.path_width,
        "form": case.form,
        "length_dtype": case.length_dtype,
        "committed_dtype": case.committed_dtype,
        "situation": case.situation,
        "tracking": case.tracking,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "committed": np.array([r.committed for r in case.requests], dtype=np.int64),
        "track_slot": np.array([r.track_slot for r in case.requests], dtype=np.int64),
        "path": path,
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """missing: nothing saved where something must be; spurious: the reverse."""
    if field == "commits":
        return "commit_missing" if expected else "commit_spurious"
    if isinstance(expected, Between):
        return "outside_block"
    if observed == NONE:
        return "missing"
    return "spurious" if expected == NONE else "wrong_step"


CONTRACT = Contract(
    name="commit.checkpoint_steps",
    version=1,
    case_type=CheckpointStepsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("commits", "case", "whether a commit reaches the backend at all"),
        Field("current_step", "request", "state index that becomes the current state"),
        Field("checkpoint_step", "request", "state index saved as checkpoint, -1 for none"),
        Field("checkpoint_length", "request", "length the checkpoint is filed under, -1 for none"),
    ),
    behaviours=BEHAVIOURS,
    example=CheckpointStepsCase(
        grid=256, draft_tokens=4, path_width=4, form="chain", length_dtype="int64", committed_dtype="int32",
        situation="verify", tracking=True, requests=(Request(pre=10, committed=2, track_slot=1),),
    ),
)  # fmt: skip
