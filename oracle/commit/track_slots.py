"""commit.track_slots: where a checkpoint goes, and what the scheduler notes of it.

Definition. Every request has a ping-pong buffer of one or two pool slots and a
position in it. When checkpoints are tracked, the scheduler hands verify one track
slot a request, the buffer's slot at that position, so that a crossed boundary has
somewhere to go; a mask left over from prefill is cleared, since a verify saves its
checkpoint at the commit. A request without a position (its buffer was not handed
out yet, or was freed while the round was in flight) has slot -1: any real slot
may belong to somebody else. When nothing is tracked, nothing is handed over.

In the lazy form a request keeps one slot and gets the second only near a
boundary; the position of the round was planned when it was prepared.

After the round the request keeps the first ``retained`` of its committed tokens
(fewer than it committed only where a grammar ended it), so its length is ``pre +
retained``. Let b be the last grid boundary at or below that length. If b > pre,
the slot used by this round is kept as the checkpoint of length b, and the next
round uses the other position: ping-pong, so that a kept checkpoint is not
overwritten; with one slot, or in the lazy form, the position used stays the
request's. Otherwise nothing is filed and the position stays what it was.

Source: this project's own words. The faults behind it: SGLang issue 27325 and
pull requests 27998 and 29449 (no position), 22239 (crossing test).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, INT32_MAX, Contract, Field, Outcome, require, require_size
from oracle.legal import OneOf
from oracle.trace import Trace

NONE = -1
MAX_LENGTH = 2**40
POOL_ROWS = 32


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before the round, ``committed`` by it, ``retained`` of them
    kept. ``slots`` of its ping-pong buffer (-1: not handed out, lazy form only),
    ``position`` in it or -1, ``planned`` the lazy plan's position, ``pool_row``
    the request's row in the pool's table of buffers."""

    pre: int
    committed: int
    retained: int
    position: int
    planned: int
    slots: tuple[int, ...]
    pool_row: int


@dataclass(frozen=True)
class TrackSlotsCase:
    """One round. ``tracking``: checkpoints are tracked; ``lazy``: the lazy form;
    ``draft_tokens``: tokens of a verify block."""

    grid: int
    draft_tokens: int
    tracking: bool
    lazy: bool
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "first_position": "a request that uses the first slot of its buffer",
    "second_position": "a request that uses the second slot of its buffer",
    "no_position": "a request without a position",
    "mixed_positions": "one batch with both positions",
    "one_slot_buffer": "a buffer of one slot",
    "rows_out_of_order": "pool rows are not in the order of the batch",
    "tracking_off": "a round in which nothing is tracked",
    "planned_other": "the lazy plan names the slot that is not kept",
    "planned_kept": "the lazy plan names the kept slot",
    "second_slot_not_handed_out": "lazy: the second slot does not exist",
    "filed_on_first_step": "the boundary is reached by the first verify step",
    "filed_on_last_step": "the kept length is on the grid",
    "filed_several": "more than one boundary was crossed; the last is filed",
    "not_filed": "no boundary was crossed",
    "starts_on_boundary": "pre is on the grid: that boundary was filed before",
    "cut_before_boundary": "the grammar ended the request before the boundary that verify crossed",
    "cut_after_boundary": "the grammar ended the request behind the boundary",
    "cut_behind_old_boundary": "a cut run after a boundary that an earlier round filed",
}


def domain(case: TrackSlotsCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(1 <= case.grid <= 2**20, "grid: must be 1 to 2^20")
    require(1 <= case.draft_tokens <= 128, "draft_tokens: must be 1 to 128")
    require(len(case.requests) >= 1, "requests: must not be empty")
    require_size(case.requests, "requests")
    rows = [r.pool_row for r in case.requests]
    require(len(set(rows)) == len(rows), "requests.pool_row: two requests share a row")
    slots = [s for r in case.requests for s in r.slots if s != NONE]
    require(all(0 <= s <= INT32_MAX for s in slots), "requests.slots: must be -1 or slot numbers, at most 2^31 - 1")
    require(len(set(slots)) == len(slots), "requests.slots: two requests share a slot")
    sizes = {len(r.slots) for r in case.requests}
    require(sizes <= ({2} if case.lazy else {1, 2}), "requests.slots: one or two (lazy: two) slots a buffer")
    require(len(sizes) == 1, "requests.slots: all buffers of a pool have one size")
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        size = len(r.slots)
        require(0 <= r.pre <= MAX_LENGTH, f"{where}.pre: must be 0 to {MAX_LENGTH}")
        require(1 <= r.committed <= case.draft_tokens, f"{where}.committed: must be 1 to draft_tokens")
        require(1 <= r.retained <= r.committed, f"{where}.retained: must be 1 to committed")
        require(NONE <= r.position < size, f"{where}.position: must be -1 or a position of the buffer")
        require(0 <= r.planned < size, f"{where}.planned: must be a position of the buffer")
        require(0 <= r.pool_row < POOL_ROWS, f"{where}.pool_row: must be 0 to {POOL_ROWS - 1}")
        used = r.planned if case.lazy else r.position
        require(r.position == NONE or r.slots[r.position] != NONE, f"{where}.position: names a slot not handed out")
        require(used == NONE or r.slots[used] != NONE, f"{where}.planned: names a slot not handed out")
        require(case.lazy or NONE not in r.slots, f"{where}.slots: -1 only in the lazy form")
        require(case.lazy or r.planned == 0, f"{where}.planned: 0 unless lazy")
        require(not case.lazy or r.retained == r.committed, f"{where}.retained: lazy rounds are not cut here")
    return FUNCTIONAL


def reference(case: TrackSlotsCase, trace: Trace) -> Outcome:
    """Choose each slot, then walk the kept tokens over the boundaries."""
    trace.step("hand track slots to verify", decides="prepared", value=case.tracking)
    track_slot, filed_length, next_position = [], [], []
    for i, r in enumerate(case.requests):
        used = NONE if r.position == NONE else r.planned if case.lazy else r.position
        slot = NONE if used == NONE else r.slots[used]
        length, filed, met = r.pre, NONE, 0
        for _ in range(r.retained):
            length += 1
            if length % case.grid == 0:
                filed, met = length, met + 1
        if not case.tracking or used == NONE:
            filed = NONE
        following = r.position
        if filed != NONE:
            following = used if case.lazy or len(r.slots) == 1 else 1 - used
        if case.tracking:
            track_slot.append(slot)
            trace.step("slot for a checkpoint of this round", i, "track_slot", position=used, value=slot)
        trace.step("length the checkpoint is filed under", i, "filed_length", kept=length, value=filed)
        trace.step("position for the next round", i, "next_position", value=following)
        filed_length.append(filed)
        next_position.append(following)
        _behaviours(case, r, used, met, filed, trace)
    if not case.tracking:
        trace.behaviour("tracking_off")
    if {r.position for r in case.requests} >= {0, 1}:
        trace.behaviour("mixed_positions")
    rows = [r.pool_row for r in case.requests]
    if rows != sorted(rows):
        trace.behaviour("rows_out_of_order")
    return {
        "prepared": case.tracking,
        "mask_cleared": True if case.tracking else OneOf((True, False)),
        "track_slot": track_slot,
        "filed_length": filed_length,
        "next_position": next_position,
    }


def _behaviours(case: TrackSlotsCase, r: Request, used: int, met: int, filed: int, trace: Trace) -> None:
    if not case.tracking:
        return
    if used == NONE:
        trace.behaviour("no_position")
        return
    trace.behaviour("second_position" if used else "first_position")
    if len(r.slots) == 1:
        trace.behaviour("one_slot_buffer")
    if case.lazy:
        trace.behaviour("planned_kept" if r.planned == r.position else "planned_other")
        if NONE in r.slots:
            trace.behaviour("second_slot_not_handed_out")
    if not met:
        trace.behaviour("not_filed")
    elif met > 1:
        trace.behaviour("filed_several")
    if filed == r.pre + 1:
        trace.behaviour("filed_on_first_step")
    if filed == r.pre + r.retained:
        trace.behaviour("filed_on_last_step")
    if r.pre and r.pre % case.grid == 0:
        trace.behaviour("starts_on_boundary")
    cut = r.committed - r.retained
    if cut and met:
        trace.behaviour("cut_after_boundary")
    if cut and not met:
        if (r.pre + r.committed) // case.grid > r.pre // case.grid:
            trace.behaviour("cut_before_boundary")
        if (r.pre + r.retained) // case.grid > (r.pre - cut) // case.grid:
            trace.behaviour("cut_behind_old_boundary")


def second(case: TrackSlotsCase) -> Outcome:
    """The same outcome by formula."""
    positions = [r.planned if case.lazy and r.position != NONE else r.position for r in case.requests]
    boundary = [(r.pre + r.retained) // case.grid * case.grid for r in case.requests]
    filed = [
        b if case.tracking and p != NONE and b > r.pre else NONE
        for r, b, p in zip(case.requests, boundary, positions, strict=True)
    ]
    flips = [len(r.slots) == 2 and not case.lazy for r in case.requests]
    return {
        "prepared": case.tracking,
        "mask_cleared": True if case.tracking else OneOf((True, False)),
        "track_slot": [
            (*r.slots, NONE)[p] for r, p in zip(case.requests, positions, strict=True) if case.tracking
        ],
        "filed_length": filed,
        "next_position": [
            r.position if f == NONE else p ^ flip
            for r, f, p, flip in zip(case.requests, filed, positions, flips, strict=True)
        ],
    }  # fmt: skip


def columns(case: TrackSlotsCase) -> dict[str, Any]:
    """Scalars, int64 [B] arrays named like the request's fields, and ``slots``
    int64 [B, buffer size]."""
    names = ("pre", "committed", "retained", "position", "planned", "pool_row")
    return {
        "grid": case.grid,
        "draft_tokens": case.draft_tokens,
        "tracking": case.tracking,
        "lazy": case.lazy,
        "slots": np.array([r.slots for r in case.requests], dtype=np.int64),
    } | {n: np.array([getattr(r, n) for r in case.requests], dtype=np.int64) for n in names}


def kind(field: str, expected: Any, observed: Any) -> str:
    """A real slot where there must be none may belong to somebody else."""
    if field == "prepared":
        return "not_prepared" if expected else "prepared_for_nothing"
    if field == "mask_cleared":
        return "stale_mask"
    if field == "track_slot":
        return "slot_of_another" if expected == NONE else "no_slot" if observed == NONE else "wrong_slot"
    if field == "filed_length":
        return "filed_again" if expected == NONE else "not_filed" if observed == NONE else "wrong_length"
    return "wrong_position"


CONTRACT = Contract(
    name="commit.track_slots",
    version=1,
    case_type=TrackSlotsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("prepared", "case", "whether track slots are handed to verify"),
        Field("mask_cleared", "case", "whether a mask left over from prefill is gone"),
        Field("track_slot", "request", "slot for a checkpoint of this round, -1 for none"),
        Field("filed_length", "request", "length the checkpoint is filed under, -1 for none"),
        Field("next_position", "request", "position of the next round in the ping-pong buffer"),
    ),
    behaviours=BEHAVIOURS,
    example=TrackSlotsCase(
        grid=256, draft_tokens=4, tracking=True, lazy=False,
        requests=(Request(pre=10, committed=2, retained=2, position=0, planned=0, slots=(3, 4), pool_row=1),),
    ),
)  # fmt: skip
