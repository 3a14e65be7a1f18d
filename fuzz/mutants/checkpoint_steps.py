"""Mutants of commit.checkpoint_steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.checkpoint_steps import NONE, CheckpointStepsCase, Request


def _observe(
    choose: Callable[[CheckpointStepsCase, Request, int], tuple[int, int | None]],
) -> Callable[[CheckpointStepsCase], dict[str, Any]]:
    """Build an observation from ``choose(case, request, row) -> (current path
    step, checkpoint path step or None)``; everything else stays right."""

    def observe(case: CheckpointStepsCase) -> dict[str, Any]:
        if case.situation != "verify":
            return {"commits": False, "current_step": [], "checkpoint_step": []}
        current, saved = [], []
        for row, request in enumerate(case.requests):
            now, step = choose(case, request, row)
            tracked = case.tracking and request.track_slot != NONE
            current.append(_node(case, request, now))
            saved.append(_node(case, request, step) if step is not None and tracked else NONE)
        return {"commits": True, "current_step": current, "checkpoint_step": saved}

    return observe


def _node(case: CheckpointStepsCase, request: Request, step: int) -> int:
    if case.form == "tree" and 0 <= step < len(request.path):
        return request.path[step]
    return step


def _right(case: CheckpointStepsCase, request: Request) -> int | None:
    post = request.pre + request.committed
    boundary = post // case.grid * case.grid
    return boundary - request.pre - 1 if boundary > request.pre else None


def _with(change: Callable[[CheckpointStepsCase, Request, int], int | None]) -> Callable[[Any], dict[str, Any]]:
    """A mutant that gets only the checkpoint step wrong."""
    return _observe(lambda case, r, row: (r.committed - 1, change(case, r, row)))


def _stale(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return None  # pre // g is compared with itself, because the length was not advanced yet


def _first_boundary(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    boundary = (r.pre // case.grid + 1) * case.grid
    return boundary - r.pre - 1 if boundary <= r.pre + r.committed else None


def _by_remainder(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return r.committed - 1 if (r.pre + r.committed) % case.grid == 0 else None


def _post_must_exceed(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    step = _right(case, r)
    return None if (r.pre + r.committed) % case.grid == 0 else step


def _counts_pre_boundary(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    step = _right(case, r)
    return 0 if step is None and r.pre and r.pre % case.grid == 0 else step


def _without_bonus(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    post = r.pre + r.committed - 1
    boundary = post // case.grid * case.grid
    return boundary - r.pre - 1 if boundary > r.pre else None


def _clamped(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return max((r.pre + r.committed) // case.grid * case.grid - r.pre - 1, 0)


def _narrowed(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    pre = (r.pre + 2**31) % 2**32 - 2**31
    post = (r.pre + r.committed + 2**31) % 2**32 - 2**31
    boundary = post // case.grid * case.grid
    return boundary - pre - 1 if boundary > pre else None


def _fixed_grid(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return _right(replace(case, grid=256), r)


def _plus(amount: int) -> Callable[[CheckpointStepsCase, Request, int], int | None]:
    def change(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
        step = _right(case, r)
        return None if step is None else step + amount

    return change


def _row_of_another(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return _right(case, case.requests[0])


def _position_for_step(case: CheckpointStepsCase, r: Request, row: int) -> int | None:
    return None if _right(case, r) is None else (r.pre + r.committed) // case.grid * case.grid - 1


def _current(change: Callable[[CheckpointStepsCase, Request, int], int]) -> Callable[[Any], dict[str, Any]]:
    """A mutant that gets only the current step wrong."""
    return _observe(lambda case, r, row: (change(case, r, row), _right(case, r)))


def _ignore_slots(case: CheckpointStepsCase) -> dict[str, Any]:
    requests = tuple(replace(r, track_slot=row) for row, r in enumerate(case.requests))
    return _with(lambda c, r, row: _right(c, r))(replace(case, requests=requests, tracking=True))


def _step_for_node(case: CheckpointStepsCase) -> dict[str, Any]:
    requests = tuple(replace(r, path=()) for r in case.requests)
    return _with(lambda c, r, row: _right(c, r))(replace(case, form="chain", requests=requests))


def _row_offset_kept(case: CheckpointStepsCase) -> dict[str, Any]:
    observed = _with(lambda c, r, row: _right(c, r))(case)
    shifted = [s + row * case.draft_tokens for row, s in enumerate(observed["current_step"])]
    return observed | {"current_step": shifted}


def _wrong_stride(case: CheckpointStepsCase) -> dict[str, Any]:
    observed = _with(lambda c, r, row: _right(c, r))(case)
    error = case.draft_tokens - case.path_width
    shifted = [s + row * error for row, s in enumerate(observed["current_step"])]
    return observed | {"current_step": shifted}


def _always_commits(case: CheckpointStepsCase) -> dict[str, Any]:
    return _with(lambda c, r, row: _right(c, r))(replace(case, situation="verify"))


def _never_commits(case: CheckpointStepsCase) -> dict[str, Any]:
    return {"commits": False, "current_step": [], "checkpoint_step": []}


def _first_request_decides(case: CheckpointStepsCase) -> dict[str, Any]:
    if case.requests and _right(case, case.requests[0]) is None:
        return _with(_stale)(case)
    return _with(lambda c, r, row: _right(c, r))(case)


MUTANTS = (
    Mutant("stale_length", "stale_length", "compares the pre-verify length with itself", _with(_stale)),
    Mutant("first_boundary", "which_boundary", "saves the first of several boundaries", _with(_first_boundary)),
    Mutant("by_remainder", "crossing_test", "crosses only when post is on the grid", _with(_by_remainder)),
    Mutant("misses_landing", "crossing_test", "misses a boundary that post lands on", _with(_post_must_exceed)),
    Mutant("saves_again", "crossing_test", "saves the boundary that pre stands on", _with(_counts_pre_boundary)),
    Mutant("bonus_dropped", "dropped_bonus", "counts accepted drafts without the current token", _with(_without_bonus)),
    Mutant("clamped_without_mask", "crossing_test", "clamps the step at 0 and forgets the mask", _with(_clamped)),
    Mutant("narrowed_length", "integer_width", "computes in 32 bits", _with(_narrowed)),
    Mutant("fixed_grid", "grid", "always uses grid 256", _with(_fixed_grid)),
    Mutant("step_plus_one", "off_by_one", "saves the state one step late", _with(_plus(1))),
    Mutant("step_minus_one", "off_by_one", "saves the state one step early", _with(_plus(-1))),
    Mutant("row_of_another", "wrong_row", "uses the first request's step for every row", _with(_row_of_another)),
    Mutant(
        "position_for_step", "step_for_position", "hands over the position, not the step", _with(_position_for_step)
    ),
    Mutant(
        "first_request_decides",
        "wrong_row",
        "skips the batch if its first request does not cross",
        _first_request_decides,
    ),
    Mutant(
        "current_plus_one",
        "off_by_one",
        "takes the state behind the last committed",
        _current(lambda c, r, row: r.committed),
    ),
    Mutant(
        "current_minus_one",
        "off_by_one",
        "takes the state of the last accepted draft minus one",
        _current(lambda c, r, row: r.committed - 2),
    ),
    Mutant(
        "current_full_block",
        "dropped_length",
        "takes the last state of the block",
        _current(lambda c, r, row: c.draft_tokens - 1),
    ),
    Mutant(
        "current_is_checkpoint",
        "step_for_step",
        "the checkpoint replaces the current state",
        _current(lambda c, r, row: r.committed - 1 if _right(c, r) is None else _right(c, r)),
    ),
    Mutant("slot_ignored", "sentinel", "saves for requests without a track slot", _ignore_slots),
    Mutant("step_for_node", "node_for_step", "takes the path step for the tree node", _step_for_node),
    Mutant("row_offset_kept", "wrong_stride", "leaves row * N in the step", _row_offset_kept),
    Mutant("wrong_stride", "wrong_stride", "offsets rows by the path width, not by N", _wrong_stride),
    Mutant("always_commits", "nothing_case", "commits where nothing may happen", _always_commits),
    Mutant("never_commits", "missing_commit", "never commits", _never_commits),
)
