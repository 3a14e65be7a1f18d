"""Mutants of commit.track_slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.track_slots import NONE, Request, TrackSlotsCase, second

ANOTHER = 977  # the slot of somebody else


def _observed(case: TrackSlotsCase) -> dict[str, Any]:
    return second(case) | {"mask_cleared": True}


def _slots(choose: Callable[[TrackSlotsCase, Request, int], int]) -> Callable[[Any], dict[str, Any]]:
    """A mutant that gets only the slots wrong."""

    def observe(case: TrackSlotsCase) -> dict[str, Any]:
        slots = [choose(case, r, row) for row, r in enumerate(case.requests)]
        return _observed(case) | ({"track_slot": slots} if case.tracking else {})

    return observe


def _used(case: TrackSlotsCase, r: Request) -> int:
    return NONE if r.position == NONE else r.planned if case.lazy else r.position


def _slot_at(r: Request, position: int) -> int:
    return NONE if position == NONE else r.slots[position % len(r.slots)]


def _filed(count: Callable[[TrackSlotsCase, Request], tuple[int, int]]) -> Callable[[Any], dict[str, Any]]:
    """A mutant with another idea of the lengths ``(before, after)`` the round."""

    def observe(case: TrackSlotsCase) -> dict[str, Any]:
        right = _observed(case)
        filed, following = [], []
        for row, r in enumerate(case.requests):
            used = _used(case, r)
            before, after = count(case, r)
            crossed = after // case.grid != before // case.grid and case.tracking and used != NONE
            filed.append(after // case.grid * case.grid if crossed else NONE)
            flip = len(r.slots) == 2 and not case.lazy
            following.append(
                (used ^ flip if flip else used)
                if crossed
                else right["next_position"][row]
                if used == NONE
                else r.position
            )
        return right | {"filed_length": filed, "next_position": following}

    return observe


def _position(change: Callable[[TrackSlotsCase, Request, int, int], int]) -> Callable[[Any], dict[str, Any]]:
    """A mutant that gets only the next position wrong, where one was filed."""

    def observe(case: TrackSlotsCase) -> dict[str, Any]:
        right = _observed(case)
        right["next_position"] = [
            following if filed == NONE else change(case, r, _used(case, r), following)
            for r, filed, following in zip(case.requests, right["filed_length"], right["next_position"], strict=True)
        ]
        return right

    return observe


def _flips_always(case: TrackSlotsCase) -> dict[str, Any]:
    right = _observed(case)
    flippable = [case.tracking and not case.lazy and r.position != NONE and len(r.slots) == 2 for r in case.requests]
    right["next_position"] = [
        1 - r.position if f else n for r, f, n in zip(case.requests, flippable, right["next_position"], strict=True)
    ]
    return right  # fmt: skip


def _first_of_several(case: TrackSlotsCase) -> dict[str, Any]:
    right = _observed(case)
    right["filed_length"] = [
        NONE if filed == NONE else (r.pre // case.grid + 1) * case.grid
        for r, filed in zip(case.requests, right["filed_length"], strict=True)
    ]
    return right


def _unrounded(case: TrackSlotsCase) -> dict[str, Any]:
    right = _observed(case)
    right["filed_length"] = [
        NONE if filed == NONE else r.pre + r.retained
        for r, filed in zip(case.requests, right["filed_length"], strict=True)
    ]
    return right


def _prepares_always(case: TrackSlotsCase) -> dict[str, Any]:
    return _observed(case) | {"prepared": True, "track_slot": second(replace(case, tracking=True))["track_slot"]}


def _never_prepares(case: TrackSlotsCase) -> dict[str, Any]:
    return _observed(case) | {"prepared": False, "track_slot": []}


def _mask_kept(case: TrackSlotsCase) -> dict[str, Any]:
    return second(case) | {"mask_cleared": False}


MUTANTS = (
    Mutant(
        "first_slot_always",
        "wrong_slot",
        "ignores the position",
        _slots(lambda c, r, i: _slot_at(r, min(_used(c, r), 0))),
    ),
    Mutant(
        "other_slot",
        "wrong_slot",
        "takes the slot that keeps the last checkpoint",
        _slots(lambda c, r, i: _slot_at(r, NONE if _used(c, r) == NONE else 1 - _used(c, r))),
    ),
    Mutant(
        "position_for_slot",
        "slot_for_row",
        "hands over the position in the buffer",
        _slots(lambda c, r, i: _used(c, r)),
    ),
    Mutant(
        "row_for_pool_row",
        "slot_for_row",
        "looks the buffer up by place in the batch",
        _slots(lambda c, r, i: _slot_at(r, _used(c, r)) if r.pool_row == i else ANOTHER),
    ),
    Mutant(
        "first_position_for_all",
        "wrong_row",
        "uses the first request's position",
        _slots(lambda c, r, i: NONE if _used(c, r) == NONE else _slot_at(r, _used(c, c.requests[0]))),
    ),
    Mutant(
        "no_position_takes_first",
        "sentinel",
        "takes the first slot for a request without a position",
        _slots(lambda c, r, i: ANOTHER if r.position == NONE else _slot_at(r, _used(c, r))),
    ),
    Mutant(
        "plan_ignored",
        "lazy_plan",
        "uses the kept slot instead of the planned one",
        _slots(lambda c, r, i: _slot_at(r, r.position)),
    ),
    Mutant("prepares_always", "nothing_case", "hands slots over although nothing is tracked", _prepares_always),
    Mutant("never_prepares", "missing_prepare", "hands no slots over", _never_prepares),
    Mutant("mask_kept", "stale_mask", "leaves prefill's mask in place", _mask_kept),
    Mutant(
        "count_without_current",
        "dropped_bonus",
        "reconstructs the old length without the current token",
        _filed(lambda c, r: (r.pre + 1, r.pre + r.retained)),
    ),
    Mutant(
        "cut_counted_whole",
        "cut_run",
        "reconstructs the old length from the uncut run",
        _filed(lambda c, r: (r.pre - (r.committed - r.retained), r.pre + r.retained)),
    ),
    Mutant(
        "files_uncut_run",
        "cut_run",
        "files the boundary that only the uncut run reached",
        _filed(lambda c, r: (r.pre, r.pre + r.committed)),
    ),
    Mutant(
        "length_with_new_bonus",
        "off_by_one",
        "counts the new bonus token as in the state",
        _filed(lambda c, r: (r.pre + 1, r.pre + r.retained + 1)),
    ),
    Mutant(
        "landing_missed",
        "crossing_test",
        "misses a boundary that the length lands on",
        _filed(lambda c, r: (max(r.pre - 1, 0), r.pre + r.retained - 1)),
    ),
    Mutant("stale_lengths", "stale_length", "compares the old length with itself", _filed(lambda c, r: (r.pre, r.pre))),
    Mutant("first_of_several", "which_boundary", "files the first of several boundaries", _first_of_several),
    Mutant("unrounded_length", "grid", "files under the request's length", _unrounded),
    Mutant(
        "no_flip",
        "ping_pong",
        "keeps the position, so the next checkpoint overwrites this one",
        _position(lambda c, r, used, right: used),
    ),
    Mutant("flips_always", "ping_pong", "changes position without a checkpoint", _flips_always),
    Mutant(
        "flips_one_slot",
        "ping_pong",
        "leaves a buffer of one slot",
        _position(lambda c, r, used, right: right if c.lazy else 1 - used),
    ),
    Mutant(
        "plan_not_promoted",
        "lazy_plan",
        "keeps the old slot as the request's after a lazy checkpoint",
        _position(lambda c, r, used, right: r.position if c.lazy else right),
    ),
)
