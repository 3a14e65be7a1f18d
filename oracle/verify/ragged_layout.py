"""verify.ragged_layout: how verify blocks of different length are laid out for a captured graph.

Definition. A batch verifies ``lengths`` tokens, at least one a request. The graph that
replays it was captured for ``slots`` rows and ``tokens`` tokens, so rows are padded:

* requests keep their lengths. The tokens that are left go to the padding rows, as evenly
  as possible, the first rows taking one more where it does not come out even; without a
  padding row the last request takes them all. So all rows together have ``tokens``,
* with a ``cap`` (0: none) every row is then cut to ``cap`` tokens,
* row k starts where the rows before it end; the offsets name all starts and the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

MAX_BLOCK = 64
MAX_SLOTS = 512
MAX_TOKENS = 2**20


@dataclass(frozen=True)
class Batch:
    """One batch and the graph that is to hold it."""

    lengths: tuple[int, ...]
    slots: int
    tokens: int
    cap: int


@dataclass(frozen=True)
class RaggedLayoutCase:
    """Batches, each laid out by itself."""

    batches: tuple[Batch, ...]


BEHAVIOURS = {
    "exact_fit": "no row and no token to spare",
    "last_request_takes_the_rest": "tokens to spare and no padding row",
    "one_padding_row": "one padding row takes what is left",
    "even_padding": "two padding rows or more, all of one length",
    "uneven_padding": "padding rows of two lengths",
    "empty_padding_rows": "padding rows without tokens",
    "capped_padding": "a padding row is cut",
    "capped_request": "the last request, grown by what was left, is cut",
    "cap_without_effect": "no row reaches the cap",
    "one_request": "a batch of one",
    "one_token_each": "every request verifies one token",
    "ragged": "requests of different length",
    "slots_no_power_of_two": "the graph's rows do not fill a tile",
    "many_slots": "more than 128 rows",
}


def domain(case: RaggedLayoutCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(bool(case.batches), "batches: must not be empty")
    require_size(case.batches, "batches", MAX_SLOTS)
    for i, b in enumerate(case.batches):
        where = f"batches[{i}]"
        require(1 <= b.slots <= MAX_SLOTS, f"{where}.slots: must be 1 to {MAX_SLOTS}")
        require(1 <= len(b.lengths) <= b.slots, f"{where}.lengths: must be 1 to slots")
        require(all(1 <= n <= MAX_BLOCK for n in b.lengths), f"{where}.lengths: must each be 1 to {MAX_BLOCK}")
        require(sum(b.lengths) <= b.tokens <= MAX_TOKENS, f"{where}.tokens: must be the sum of lengths to 2^20")
        require(b.cap == 0 or max(b.lengths) <= b.cap <= MAX_TOKENS, f"{where}.cap: must be 0, or no request longer")
    return FUNCTIONAL


def reference(case: RaggedLayoutCase, trace: Trace) -> Outcome:
    """Share out the tokens that are left, then cut."""
    padded_all = []
    for i, b in enumerate(case.batches):
        left, spare = b.tokens - sum(b.lengths), b.slots - len(b.lengths)
        whole = list(b.lengths) + [0] * spare
        if spare:
            base, extra = divmod(left, spare)
            for k in range(spare):
                whole[len(b.lengths) + k] = base + (k < extra)
        else:
            whole[-1] += left
        padded = [min(n, b.cap) if b.cap else n for n in whole]
        trace.step("tokens left over", i, left=left, padding_rows=spare)
        _behaviours(b, whole, left, spare, trace)
        padded_all.append(padded)
    outcome = _outcome(padded_all)
    for i in range(len(padded_all)):
        for field in FIELDS:
            trace.step(field.meaning, i, field.name, value=outcome[field.name][i])
    return outcome


def _outcome(padded: list[list[int]]) -> Outcome:
    offsets = [[sum(rows[:k]) for k in range(len(rows) + 1)] for rows in padded]
    return {"lengths": padded, "offsets": offsets, "starts": [o[:-1] for o in offsets]}


def _behaviours(b: Batch, whole: list[int], left: int, spare: int, trace: Trace) -> None:
    padding = whole[len(b.lengths) :]
    holds = {
        "exact_fit": left == 0 and spare == 0,
        "last_request_takes_the_rest": left > 0 and spare == 0,
        "one_padding_row": spare == 1,
        "even_padding": spare > 1 and len(set(padding)) == 1 and padding[0] > 0,
        "uneven_padding": len(set(padding)) > 1,
        "empty_padding_rows": 0 in padding,
        "capped_padding": bool(b.cap) and max(padding, default=0) > b.cap,
        "capped_request": bool(b.cap) and whole[len(b.lengths) - 1] > b.cap,
        "cap_without_effect": bool(b.cap) and max(whole) <= b.cap,
        "one_request": len(b.lengths) == 1,
        "one_token_each": max(b.lengths) == 1,
        "ragged": len(set(b.lengths)) > 1,
        "slots_no_power_of_two": b.slots & (b.slots - 1) != 0,
        "many_slots": b.slots > 128,
    }
    for name, so in holds.items():
        if so:
            trace.behaviour(name)


def second(case: RaggedLayoutCase) -> Outcome:
    """By the ends of the rows, and differences of them."""
    padded = []
    for b in case.batches:
        used = np.cumsum(b.lengths)
        left, spare = b.tokens - int(used[-1]), b.slots - len(b.lengths)
        ends = [int(e) for e in used]
        if spare:
            # k rows hold k * floor(left / s) tokens and one more for each of the first left mod s rows.
            ends += [int(used[-1]) + k * (left // spare) + min(k, left % spare) for k in range(1, spare + 1)]
        else:
            ends[-1] = b.tokens
        rows = np.diff([0, *ends])
        padded.append([int(n) for n in (np.minimum(rows, b.cap) if b.cap else rows)])
    return _outcome(padded)


def columns(case: RaggedLayoutCase) -> dict[str, Any]:
    """``lengths`` a list of lists, the other fields int64 [batches]."""
    numbers = {n: np.array([getattr(b, n) for b in case.batches], dtype=np.int64) for n in ("slots", "tokens", "cap")}
    return {"lengths": [list(b.lengths) for b in case.batches], **numbers}


def kind(field: str, expected: Any, observed: Any) -> str:
    """Words for a wrong row."""
    if len(expected) != len(observed):
        return "wrong_shape"
    must, seen = next((e, o) for e, o in zip(expected, observed, strict=True) if e != o)
    return ("too_long" if seen > must else "too_short") if field == "lengths" else "wrong_offset"


FIELDS = (
    Field("lengths", "request", "tokens of each row"),
    Field("offsets", "request", "where rows start, and the end"),
    Field("starts", "request", "where rows start"),
)

CONTRACT = Contract(
    name="verify.ragged_layout",
    version=1,
    case_type=RaggedLayoutCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    records="batches",
    example=RaggedLayoutCase((Batch((3, 1, 4), 5, 16, 0),)),
)
