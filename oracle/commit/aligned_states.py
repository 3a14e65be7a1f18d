"""commit.aligned_states: which block of a request's table holds which state, when the prefix cache
keeps recurrent state on block boundaries.

Definition. A table gives a request one block for each ``block`` tokens, and ``drafts`` more behind the
last. Layers may have tables of their own; then a column means another block in each. A pass over ``fed``
certain tokens and ``drafts`` draft tokens writes to the *running column* c, the one of its last token, and to
the ``drafts`` columns behind it:

* verify step j leaves the recurrent state after ``computed + fed + j`` tokens in the block of column
  c + j;
* the convolution entry in the block of column c holds the inputs of all steps; the ``window`` inputs
  that step j needs next start at its input j.

An accepted count n says where the state continues: recurrent state in column c + n - 1, window at input
n - 1 of column c.

``after_verify``: ``committed`` tokens stay, so the state stands after post = computed + fed + committed
- 1 tokens. Let b be the last multiple of ``block`` up to post. If b >= computed + fed, verify step
s = b - computed - fed left the state of exactly b tokens: it and its window (as the first ``window``
inputs) are copied into the block of column b / block - 1, where the prefix cache looks b tokens up. If
that is the running column itself, the state now stands there with its window first, and the accepted
count becomes 1; otherwise it stays ``committed``. If b < computed + fed nothing happens: no verify step
stands on the boundary.

``before_step``: the next pass writes to another column than ``column``, where the count of the last
pass applies. State and window that ``committed`` points at are copied into the new running column, and
the count becomes 1. In the same column, or without a state (column -1), nothing is copied and the count
stays.

Either way the continuing state, read through table and count, is the one after post tokens. No other
block changes, nor does the null block, and nothing outside. What stands behind the first ``window``
inputs of a written entry is free: the next pass overwrites it before it reads it.

Source: this project's statement of what a prefix cache with one state per block needs; vLLM's aligned
mode is the arrangement, its issue 50432 is why the count and every state are judged together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.commit import aligned_numbers as numbers
from oracle.commit.aligned_case import (
    NONE,
    AlignedStatesCase,
    Request,
    block_count,
    columns,
    domain,
    held_columns,
    running_column,
)
from oracle.contract import Contract, Field, Outcome
from oracle.trace import Trace

UNTOUCHED = "untouched"
PER_REQUEST = ("column", "written", "accepted", "changed", "checkpoint", "continuing")
READ = ("checkpoint", "continuing")
INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
LAUNCH_BLOCK_BYTES = 8192  # bytes that one program of the kernels seen copies at a time

BEHAVIOURS = {
    "saved": "a verify ends on or beyond a block boundary, whose state is saved",
    "saved_inside": "the boundary lies before the last committed token",
    "saved_first_step": "the state after the certain token is the one on the boundary",
    "saved_in_running_column": "the boundary ends the running column, so the count becomes 1",
    "saved_in_place_after_drafts": "so it is with drafts accepted: state and window move within the request",
    "several_boundaries": "a verify crosses two boundaries; the last one counts",
    "not_saved": "no block boundary is reached",
    "boundary_in_prompt": "the last boundary lies inside a chunk of the prompt, where no step stands",
    "prompt_chunk": "a pass feeds more than the current token",
    "drafts_rejected": "drafts were checked and none stays",
    "moved": "the next pass writes to another column",
    "moved_with_drafts": "the state that moves is not the first one of its pass",
    "moved_back": "the new running column lies before the old one",
    "moved_onto_itself": "the state already lies in the block of the new running column",
    "stays": "the next pass writes to the same column",
    "fresh": "a request without a state takes its first step",
    "several_requests": "more than one request",
    "several_layers": "more than one layer",
    "several_groups": "layers have block tables of their own",
    "no_recurrent_state": "only convolution windows are kept",
    "no_windows": "only recurrent states are kept",
    "window_axis_first": "entries lie as (inputs, channels)",
    "entry_of_several_blocks": "a state is longer than one program copies at a time",
    "sixteen_bit_state": "the recurrent state has a 16-bit type",
    "slot_offset_beyond_int32": "a block used lies 2^31 elements or more into its tensor",
}  # fmt: skip


@dataclass(frozen=True)
class Move:
    """What happens to one request: the state that step ``step`` of a pass left at ``source`` goes to
    ``target`` (``NONE``: nothing is copied), and the count to follow is ``count`` at ``column``."""

    source: int
    step: int
    target: int
    column: int
    count: int


def move(case: AlignedStatesCase, r: Request) -> Move:
    """The rule of the definition, from token numbers alone."""
    running = running_column(case, r)
    if case.operation == "after_verify":
        first = r.computed + r.fed
        boundary = (first + r.committed - 1) // case.block * case.block
        if boundary < first:
            return Move(running, 0, NONE, running, r.committed)
        target = boundary // case.block - 1
        return Move(running, boundary - first, target, running, 1 if target == running else r.committed)
    if r.column in (NONE, running):
        return Move(running, 0, NONE, running, r.committed)
    return Move(r.column, r.committed - 1, running, running, 1)


def looked_up(case: AlignedStatesCase, r: Request) -> int:
    """The column in which the prefix cache looks for the longest whole number of blocks; ``NONE`` when
    there is none or its block was given back."""
    if case.operation != "after_verify":
        return NONE
    column = (r.computed + r.fed + r.committed - 1) // case.block - 1
    return column if column in held_columns(case, r) else NONE


def reference(case: AlignedStatesCase, trace: Trace) -> Outcome:
    """Request by request: copy into blocks that remember what they held, then read as the next readers do."""
    trace.step("nothing outside the requests' blocks may change", decides="outside")
    outcome: Outcome = {"outside": UNTOUCHED, **{name: [] for name in PER_REQUEST}}
    for i, r in enumerate(case.requests):
        m, held = move(case, r), held_columns(case, r)
        at = {column: place for place, column in enumerate(held)}
        state, window = numbers.own_numbers(case, len(held))
        changed = []
        if m.target == NONE:
            trace.step("nothing to copy", i)
        else:
            trace.step("state of a verify step to its column", i, source=m.source, verify_step=m.step, target=m.target)
            moved, inputs = state.copy(), window.copy()
            moved[:, at[m.target]] = state[:, at[m.source + m.step]]
            inputs[:, at[m.target], : case.window] = window[:, at[m.source], m.step : m.step + case.window]
            changed = [] if (moved == state).all() and (inputs == window).all() else [m.target]
            state, window = moved, inputs
        written = list(range(m.column, m.column + case.drafts + 1))
        trace.step("running column", i, "column", value=m.column)
        trace.step("columns that the pass writes to", i, "written", value=written)
        trace.step("accepted count", i, "accepted", value=m.count)
        trace.step("columns whose block changed", i, "changed", value=changed)
        column = looked_up(case, r)
        checkpoint = [] if column == NONE else entry(state[:, at[column]], window[:, at[column], : case.window])
        trace.step("what the prefix cache finds on the last boundary", i, "checkpoint", column=column)
        continuing = []
        if case.operation == "after_verify" or r.column != NONE:
            inputs = window[:, at[m.column], m.count - 1 : m.count - 1 + case.window]
            continuing = entry(state[:, at[m.column + m.count - 1]], inputs)
        trace.step("what the next pass continues from", i, "continuing", column=m.column, count=m.count)
        for name, value in zip(PER_REQUEST, (m.column, written, m.count, changed, checkpoint, continuing), strict=True):
            outcome[name].append(value)
    _behaviours(case, trace, [move(case, r) for r in case.requests])
    return outcome


def entry(state: np.ndarray, window: np.ndarray) -> list[int]:
    """State cells of all layers, then window cells of all layers."""
    return [*map(int, state.ravel()), *map(int, window.ravel())]


def _behaviours(case: AlignedStatesCase, trace: Trace, moves: list[Move]) -> None:
    verify, pairs = case.operation == "after_verify", list(zip(case.requests, moves, strict=True))
    saved = [(r, m) for r, m in pairs if verify and m.target != NONE]
    kept = [(r, m) for r, m in pairs if verify and m.target == NONE]
    moved = [(r, m) for r, m in pairs if not verify and m.target != NONE]
    cells = max(case.state_cells, case.inputs * case.channels)
    size = 4 if case.state_dtype == "float32" else 2
    far = case.gap and (block_count(case) // 2 + case.gap) * cells >= INT32_ELEMENTS
    facts = {
        "saved": bool(saved),
        "saved_inside": any(m.step < r.committed - 1 for r, m in saved),
        "saved_first_step": any(m.step == 0 for _, m in saved),
        "saved_in_running_column": any(m.target == m.column for _, m in saved),
        "saved_in_place_after_drafts": any(m.target == m.column and m.step > 0 for _, m in saved),
        "several_boundaries": any(m.step >= case.block for _, m in saved),
        "not_saved": bool(kept),
        "boundary_in_prompt": any(
            (r.computed + r.fed + r.committed - 1) // case.block * case.block > r.computed for r, _ in kept
        ),
        "prompt_chunk": any(r.fed > 1 for r in case.requests),
        "drafts_rejected": verify and any(r.drafts and r.committed == 1 for r in case.requests),
        "moved": bool(moved),
        "moved_with_drafts": any(m.step > 0 for _, m in moved),
        "moved_back": any(m.target < m.source for _, m in moved),
        "moved_onto_itself": any(m.source + m.step == m.target for _, m in moved),
        "stays": not verify and any(r.column == m.column for r, m in pairs),
        "fresh": not verify and any(r.column == NONE for r in case.requests),
        "several_requests": len(case.requests) > 1,
        "several_layers": case.layers > 1,
        "several_groups": case.grouped,
        "no_recurrent_state": not case.state_cells,
        "no_windows": not case.channels,
        "window_axis_first": case.window_first and case.channels > 0,
        "entry_of_several_blocks": bool(saved or moved) and case.state_cells * size > LAUNCH_BLOCK_BYTES,
        "sixteen_bit_state": case.state_cells > 0 and case.state_dtype != "float32",
        "slot_offset_beyond_int32": bool(far and (saved or moved)),
    }
    for name, shown in facts.items():
        if shown:
            trace.behaviour(name)


def second(case: AlignedStatesCase) -> Outcome:
    """By the number of tokens a state stands for: every state that the pass left is filed under its
    length; boundaries and continuation look their lengths up."""
    found: Outcome = {name: [] for name in PER_REQUEST}
    verify = case.operation == "after_verify"
    for r in case.requests:
        held, running = held_columns(case, r), (r.computed + r.fed + r.drafts - 1) // case.block
        state, window = numbers.own_numbers(case, len(held))
        left_in = running if verify else r.column
        first = r.computed + (r.fed if verify else 1 - r.committed)
        post = first + r.committed - 1
        filed = {}
        for j in range(case.drafts + 1) if left_in >= 0 else ():
            inputs = window[:, held.index(left_in), j : j + case.window]
            filed[first + j] = entry(state[:, held.index(left_in + j)], inputs)
        here = {c: entry(state[:, k], window[:, k, : case.window]) for k, c in enumerate(held)}
        if verify:
            due = {n // case.block - 1: filed[n] for n in range(first, post + 1) if n % case.block == 0}
            written = dict([max(due.items())]) if due else {}
        else:
            written = {running: filed[post]} if left_in not in (NONE, running) else {}
        after = here | written
        found["column"].append(running)
        found["written"].append([running + j for j in range(case.drafts + 1)])
        found["accepted"].append(1 if running in written else r.committed)
        found["changed"].append([c for c in written if written[c] != here[c]])
        found["checkpoint"].append(after.get(post // case.block - 1, []) if verify else [])
        found["continuing"].append(filed.get(post, []))
    return {"outside": UNTOUCHED, **found}


def kind(field: str, expected: Any, observed: Any) -> str:
    if field == "outside":
        return "written_outside"
    if field == "changed":
        return "not_copied" if not observed else "neighbour_overwritten" if not expected else "wrong_column"
    if field in READ:
        return "wrong_state"
    if field == "accepted":
        return "not_reset" if expected == 1 else "reset" if observed == 1 else "wrong_count"
    return "wrong_column"


def explain(case: AlignedStatesCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field == "outside":
        return f"outside the requests' blocks: {observed}"
    must, who = reference(case, Trace())[field][where[0]], f"request {where[0]}"
    if field not in READ:
        meant = {
            "written": "the columns that a pass writes to",
            "accepted": "the accepted count",
            "column": "the running column",
            "changed": "what changed, by column,",
        }
        return f"{who}: {meant[field]}: {observed}; must be {must}"
    reader = "the prefix cache" if field == "checkpoint" else "the next pass"
    if not isinstance(observed, list) or len(observed) != len(must):
        return f"{who}: {reader} finds {len(observed)} cells; it must find {len(must)}"
    held = held_columns(case, case.requests[where[0]])
    cell = next(i for i, (a, b) in enumerate(zip(must, observed, strict=True)) if a != b)
    holds, should = (numbers.describe(case, held, row[cell]) for row in (observed, must))
    return f"{who}: {reader} finds {holds} in cell {cell}; it must find {should}"


CONTRACT = Contract(
    name="commit.aligned_states",
    version=1,
    case_type=AlignedStatesCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=explain,
    padding=lambda case: Request(0, 1, 0, 1, NONE),
    fields=(
        Field("outside", "case", "what was written outside the requests' blocks, in words"),
        Field("column", "request", "the running column"),
        Field("written", "request", "the columns that the steps of a pass write to"),
        Field("accepted", "request", "the accepted count that the next pass reads"),
        Field("changed", "request", "columns whose block holds something else now"),
        Field("checkpoint", "request", "what the prefix cache finds in the last whole block's column"),
        Field("continuing", "request", "what the next pass finds through column and count"),
    ),
    behaviours=BEHAVIOURS,
    example=AlignedStatesCase(
        operation="after_verify", block=8, drafts=2, layers=1, grouped=False, state_entry=(1, 1, 2), channels=2,
        window=3, window_first=True, state_dtype="float32", window_dtype="bfloat16", gap=0, seed=0,
        requests=(Request(computed=6, fed=1, drafts=2, committed=2, column=NONE),),
    ),
)  # fmt: skip
