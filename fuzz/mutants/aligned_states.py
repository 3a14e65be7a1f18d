"""Mutants of commit.aligned_states.

Each changes one thing of the rule (what goes where, and the count) or of one copy, and is then read
through table and count as the next readers would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fuzz.mutants.mutant import Mutant
from oracle.commit import aligned_numbers as numbers
from oracle.commit.aligned_case import NONE, AlignedStatesCase, Request, block_count, held_columns
from oracle.commit.aligned_states import INT32_ELEMENTS, UNTOUCHED, Move, entry, looked_up, move

Rule = Callable[[AlignedStatesCase, Request], Move]
# (move, layer, "state" or "window") -> whether this tensor is copied at all
Copies = Callable[[Move, int, str], bool]
Steps = Callable[[Move, str], int]


def _mutant(
    name: str,
    fault: str,
    meaning: str,
    *,
    rule: Rule = move,
    copies: Copies = lambda m, layer, what: True,
    step: Steps = lambda m, what: m.step,
    width: Callable[[AlignedStatesCase], int] = lambda case: case.window,
    also: Callable[[AlignedStatesCase], dict[str, Any]] = lambda case: {},
) -> Mutant:
    """``step`` is the verify step that a tensor is taken from, ``width`` how many inputs of a window."""

    def observe(case: AlignedStatesCase) -> dict[str, Any]:
        rows = [_one(case, r, rule(case, r), copies, step, width(case)) for r in case.requests]
        fields = ("column", "written", "accepted", "changed", "checkpoint", "continuing")
        columns = {f: list(v) for f, v in zip(fields, zip(*rows, strict=True), strict=True)}
        return {"outside": UNTOUCHED} | columns | also(case)

    return Mutant(name, fault, meaning, observe)


def _one(case: AlignedStatesCase, r: Request, m: Move, copies: Copies, step: Steps, width: int) -> tuple[Any, ...]:
    held = held_columns(case, r)
    at = {column: place for place, column in enumerate(held)}
    state, window = numbers.own_numbers(case, len(held))
    new_state, new_window = state.copy(), window.copy()
    if m.target in at:
        for layer in range(case.layers):
            source = at.get(m.source + step(m, "state"))
            if copies(m, layer, "state") and source is not None:
                new_state[layer, at[m.target]] = state[layer, source]
            inputs = window[layer, at[m.source], step(m, "window") :][:width]
            if copies(m, layer, "window"):
                new_window[layer, at[m.target], : len(inputs)] = inputs
    differs = (new_state != state).any(axis=(0, 2)) | (new_window != window).any(axis=(0, 2, 3))
    seen = looked_up(case, r)
    checkpoint = [] if seen == NONE else entry(new_state[:, at[seen]], new_window[:, at[seen], : case.window])
    continuing = []
    if case.operation == "after_verify" or r.column != NONE:
        inputs = new_window[:, at[m.column], m.count - 1 : m.count - 1 + case.window]
        continuing = entry(new_state[:, at[m.column + m.count - 1]], inputs)
    written = list(range(m.column, m.column + case.drafts + 1))
    return m.column, written, m.count, [held[i] for i in np.flatnonzero(differs)], checkpoint, continuing


def _after(change: Callable[[AlignedStatesCase, Request, Move], Move]) -> Rule:
    """The rule with the move after a verify changed."""
    return lambda case, r: change(case, r, move(case, r)) if case.operation == "after_verify" else move(case, r)


def _saving(change: Callable[[AlignedStatesCase, Request, Move], Move]) -> Rule:
    return _after(lambda case, r, m: m if m.target == NONE else change(case, r, m))


def _moving(change: Callable[[AlignedStatesCase, Request, Move], Move]) -> Rule:
    def rule(case: AlignedStatesCase, r: Request) -> Move:
        m = move(case, r)
        return change(case, r, m) if case.operation == "before_step" and m.target != NONE else m

    return rule


def _boundary(case: AlignedStatesCase, r: Request, boundary: int) -> Move:
    """The save of another boundary than the rule's, at the step before the first as well."""
    m, step = move(case, r), boundary - r.computed - r.fed
    return replace(m, step=max(step, 0), target=boundary // case.block - 1)


def _first_boundary(case: AlignedStatesCase, r: Request, m: Move) -> Move:
    return _boundary(case, r, -(-(r.computed + r.fed) // case.block) * case.block)


def _all_accepted(case: AlignedStatesCase, r: Request, m: Move) -> Move:
    boundary = (r.computed + r.fed + r.drafts) // case.block * case.block
    return m if boundary < r.computed + r.fed else _boundary(case, r, boundary)


def _prompt_boundary(case: AlignedStatesCase, r: Request, m: Move) -> Move:
    boundary = (r.computed + r.fed + r.committed - 1) // case.block * case.block
    inside = m.target == NONE and boundary > r.computed and boundary // case.block - 1 in held_columns(case, r)
    return _boundary(case, r, boundary) if inside else m


def _stays_moves(case: AlignedStatesCase, r: Request) -> Move:
    m = move(case, r)
    if case.operation == "before_step" and r.column == m.column:
        return Move(r.column, r.committed - 1, m.column, m.column, 1)
    return m


def _fresh_moves(case: AlignedStatesCase, r: Request) -> Move:
    m = move(case, r)
    if case.operation == "before_step" and r.column == NONE:
        return replace(m, source=m.column, step=min(case.drafts, 1), target=m.column)
    return m


def _in_place(m: Move) -> bool:
    return m.target == m.column and m.source == m.column


def _behind(case: AlignedStatesCase, r: Request) -> list[int]:
    column = (r.computed + r.fed + r.drafts) // case.block
    return list(range(column, column + case.drafts + 1))


def _one_table(case: AlignedStatesCase) -> dict[str, Any]:
    """The second layer's own blocks stay what they were."""
    if not case.grouped or all(move(case, r).target == NONE for r in case.requests):
        return {}
    unmoved = _mutant("", "", "", copies=lambda m, layer, what: layer == 0).observe(case)
    return {field: unmoved[field] for field in ("checkpoint", "continuing")}


def _wrapped(case: AlignedStatesCase) -> dict[str, Any]:
    cells = max(case.state_cells, case.inputs * case.channels)
    far = case.gap and (block_count(case) // 2 + case.gap) * cells >= INT32_ELEMENTS
    touched = any(move(case, r).target != NONE for r in case.requests)
    return {"outside": "written before the buffer"} if far and touched else {}


MUTANTS = (
    _mutant("never_saves", "missing_check", "no boundary is ever saved",
            rule=_after(lambda case, r, m: Move(m.source, 0, NONE, m.column, r.committed))),
    _mutant("count_not_reset", "state_not_advanced", "the count stays although the running column was rewritten",
            rule=_saving(lambda case, r, m: replace(m, count=r.committed))),
    _mutant("count_overwritten_early", "race", "the tensors behind the first one read the count that was just reset",
            copies=lambda m, layer, what: not (_in_place(m) and m.step) or (layer, what) == (0, "window")),
    _mutant("always_resets", "missing_check", "every save resets the count",
            rule=_saving(lambda case, r, m: replace(m, count=1))),
    _mutant("saves_last_state", "wrong_step", "the state after all committed tokens is saved for the boundary",
            rule=_saving(lambda case, r, m: replace(m, step=r.committed - 1))),
    _mutant("saves_first_boundary", "wrong_order", "the first boundary crossed counts",
            rule=_saving(_first_boundary)),
    _mutant("saves_one_column_on", "off_by_one", "the boundary's number of blocks is taken for its column",
            rule=_saving(lambda case, r, m: replace(m, target=m.target + 1))),
    _mutant("misses_first_step", "off_by_one", "a boundary under the certain token is not seen",
            rule=_saving(lambda case, r, m: m if m.step else Move(m.source, 0, NONE, m.column, r.committed))),
    _mutant("counts_rejected_drafts", "wrong_length", "rejected drafts count as committed for the boundary",
            rule=_after(_all_accepted)),
    _mutant("saves_boundary_in_prompt", "missing_check", "a boundary inside the fed tokens is saved with a later state",
            rule=_after(_prompt_boundary)),
    _mutant("window_not_shifted", "wrong_offset", "the window is copied from its first input",
            step=lambda m, what: 0 if what == "window" else m.step),
    _mutant("window_one_short", "off_by_one", "the last input of a window is not copied",
            width=lambda case: case.window - 1),
    _mutant("state_of_first_step", "wrong_source", "the recurrent state is taken from the running column itself",
            step=lambda m, what: 0 if what == "state" else m.step),
    _mutant("skips_later_layers", "missing_copy", "only the first layer is copied",
            copies=lambda m, layer, what: layer == 0),
    _mutant("skips_windows", "missing_copy", "only recurrent states are copied",
            copies=lambda m, layer, what: what == "state"),
    _mutant("moves_first_state", "wrong_step", "what moves is the first state of the last pass",
            rule=_moving(lambda case, r, m: replace(m, step=0))),
    _mutant("move_keeps_count", "state_not_advanced", "the count stays after a move",
            rule=_moving(lambda case, r, m: replace(m, count=r.committed))),
    _mutant("moves_forward_only", "missing_check", "a running column before the old one is not moved to",
            rule=_moving(lambda case, r, m: m if m.target > m.source else
                         Move(m.source, 0, NONE, m.column, r.committed))),
    _mutant("moves_when_staying", "missing_check", "state and window are moved within the same column, too",
            rule=_stays_moves),
    _mutant("moves_without_state", "missing_sentinel", "a request without a state gets one moved in",
            rule=_fresh_moves),
    _mutant("writes_behind_a_full_block", "off_by_one", "a pass that ends its block is sent to the next one",
            also=lambda case: {"written": [_behind(case, r) for r in case.requests]}),
    _mutant("first_groups_table", "wrong_source", "all layers use the first one's block table", also=_one_table),
    _mutant("offset_wraps", "overflow", "block offsets are 32 bits wide", also=_wrapped),
)  # fmt: skip
