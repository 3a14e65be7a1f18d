"""A case of recurrence.replay: requests that go through rounds of verify and commit over a ring of inputs.

Everything large comes from seeds. A request's tensors depend on its own seed only, the weights of the layers on the
case's, so that leaving a request out changes nothing for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, require, require_size
from oracle.recurrence.values import MAX_SEED, draw

KERNELS_DIFFER = "two kernels that are said to give the same bits differ in"  # how `outside` tells it
NONE = -1  # no slot, no row, no step
OPERATIONS = ("every", "circular", "decode")
GATES = ("head", "channel")
DTYPES = ("float32", "bfloat16")
LEFTOVERS = ("zeros", "numbers", "nan")
MAX_RING, MAX_WINDOW, MAX_ROUNDS, MAX_REQUESTS, MAX_LAYERS, MAX_SIZE, MAX_GAP = 64, 32, 16, 16, 4, 128, 2**26
MAX_WORK = 2**21  # cells of the states that all tokens pass through
INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits


@dataclass(frozen=True)
class Round:
    """One verify pass of a request over ``length`` tokens, the first of them the current token; ``accepted`` of them
    (at least one) are committed. The state after step ``track_step`` is saved; -1 saves nothing."""

    length: int
    accepted: int
    track_step: int = NONE


@dataclass(frozen=True)
class Request:
    """``slot`` of the state pool (-1: an idle row of the batch), ``row`` of the rings, ``track_slot`` of the pool for
    saved states (-1: none). A request leaves the batch after its last round."""

    seed: int
    slot: int
    row: int
    track_slot: int
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class ReplayCase:
    """``operation``, ``fold`` and ``leftover`` are told in ``oracle.recurrence.replay``.

    ring         tokens that a row of the rings holds
    window       tokens that a verify pass takes at most
    slots        entries of the state pool, of which ``gap`` unused ones more lie below the upper half
    rows         rows of the rings
    wide_gates   gate inputs reach beyond the threshold of softplus
    grain        numbers are multiples of it; 0.0 for any
    """

    operation: str
    gate: str
    fold: str
    layers: int
    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    ring: int
    window: int
    slots: int
    rows: int
    input_dtype: str
    state_dtype: str
    normalise: bool
    wide_gates: bool
    leftover: str
    seed: int
    gap: int
    grain: float
    requests: tuple[Request, ...] = field(default=())


def domain(case: ReplayCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    for name, options in (
        ("operation", OPERATIONS), ("gate", GATES), ("fold", ("capacity", "every")), ("input_dtype", DTYPES),
        ("state_dtype", DTYPES), ("leftover", LEFTOVERS),
    ):  # fmt: skip
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(options)}")
    for name, most in (
        ("layers", MAX_LAYERS), ("key_heads", MAX_SIZE), ("value_heads", MAX_SIZE), ("key_size", MAX_SIZE),
        ("value_size", MAX_SIZE), ("ring", MAX_RING), ("window", MAX_WINDOW),
    ):  # fmt: skip
        require(1 <= getattr(case, name) <= most, f"{name}: must be 1 to {most}")
    require(case.value_heads % case.key_heads == 0, "value_heads: must be a multiple of key_heads")
    require(prod(entry_shape(case)) * case.layers <= 2**16, "layers: heads and sizes are too large together")
    require(0 <= case.seed <= MAX_SEED, f"seed: must be 0 to {MAX_SEED}")
    require(0 <= case.gap <= MAX_GAP, f"gap: must be 0 to {MAX_GAP}")
    require(case.grain in (0.0, 0.25), "grain: must be 0.0 or 0.25")
    require(1 <= case.slots <= 64 and 1 <= case.rows <= 64, "slots, rows: must be 1 to 64")
    _operation(case)
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_WINDOW * MAX_ROUNDS)
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    for i, request in enumerate(case.requests):
        _request(case, request, f"requests[{i}]")
    work = sum(r.length for request in case.requests for r in request.rounds) * case.layers * prod(entry_shape(case))
    require(work <= MAX_WORK, f"requests: {work} cells of states are computed, at most {MAX_WORK}")
    slots = [s for r in case.requests for s in (r.slot, r.track_slot) if s != NONE]
    require(len(set(slots)) == len(slots), "requests: slots and track slots must be distinct")
    rows = [r.row for r in case.requests if r.row != NONE]
    require(len(set(rows)) == len(rows), "requests: rows must be distinct")
    return FUNCTIONAL


def _operation(case: ReplayCase) -> None:
    if case.operation == "every":
        require(case.window <= case.ring, "window: must fit the ring")
    elif case.operation == "decode":
        require(case.window == 1, "window: decoding takes one token at a time")
    else:
        require(case.gate == "head", "gate: only a gate per head is folded from a circular ring")
        require(case.ring & (case.ring - 1) == 0, "ring: a circular one must be a power of two")
    require(case.operation == "circular" or case.fold == ("every" if case.operation == "every" else "capacity"),
            "fold: is a choice for a circular ring only")  # fmt: skip
    require(case.operation == "circular" or case.rows == case.slots, "rows: the rings have a row for each slot")


def _request(case: ReplayCase, request: Request, where: str) -> None:
    require(0 <= request.seed <= MAX_SEED, f"{where}.seed: must be 0 to {MAX_SEED}")
    for name, most in (("slot", case.slots), ("track_slot", case.slots), ("row", case.rows)):
        require(NONE <= getattr(request, name) < most, f"{where}.{name}: must be -1 to {most - 1}")
    require((request.slot == NONE) == (request.row == NONE), f"{where}.row: an idle row of the batch has neither")
    require(case.operation == "circular" or request.row == request.slot, f"{where}.row: must be the slot")
    require(1 <= len(request.rounds) <= MAX_ROUNDS, f"{where}.rounds: must be 1 to {MAX_ROUNDS}")
    for j, r in enumerate(request.rounds):
        there = f"{where}.rounds[{j}]"
        require(1 <= r.length <= case.window, f"{there}.length: must be 1 to {case.window}")
        require(1 <= r.accepted <= r.length, f"{there}.accepted: must be 1 to {r.length}")
        require(NONE <= r.track_step < r.accepted, f"{there}.track_step: must be -1 to {r.accepted - 1}")


def entry_shape(case: ReplayCase) -> tuple[int, int, int]:
    """Heads, K and V of one state."""
    return case.value_heads, case.key_size, case.value_size


def tracked(request: Request) -> list[int]:
    """The rounds in which a state of ``request`` is saved."""
    if NONE in (request.slot, request.track_slot):
        return []
    return [j for j, r in enumerate(request.rounds) if r.track_step != NONE]


def weights(case: ReplayCase) -> dict[str, np.ndarray]:
    """``A_log`` [layers, heads] and ``dt_bias`` [layers, heads] or [layers, heads, K], float32 numbers."""
    per_head = (case.layers, case.value_heads)
    bias = per_head if case.gate == "head" else (*per_head, case.key_size)
    return {
        "A_log": draw(case.seed, "A_log", per_head, "float32", -2.0, 0.5, case.grain),
        "dt_bias": draw(case.seed, "dt_bias", bias, "float32", -1.0, 1.0, case.grain),
    }


def inputs(case: ReplayCase, request: Request) -> dict[str, np.ndarray]:
    """Tensors of all rounds of a request, [layers, tokens, ...]: ``q``, ``k`` (key heads, K), ``v`` (heads, V), gate
    input ``a`` (heads, or heads and K), ``b`` (heads) of the input type, and ``state`` [layers, heads, K, V]."""
    layers, tokens, heads = case.layers, sum(r.length for r in request.rounds), case.value_heads
    keys, values = (layers, tokens, case.key_heads, case.key_size), (layers, tokens, heads, case.value_size)
    gates = (layers, tokens, heads) if case.gate == "head" else (layers, tokens, heads, case.key_size)
    wide, grain, dtype = 30.0 if case.wide_gates else 2.0, case.grain, case.input_dtype
    # Keys of length about one: without it the rule would amplify what it should forget.
    reach = 1.0 if case.normalise else 0.5 if case.key_size < 16 else 0.25
    return {
        "q": draw(request.seed, "q", keys, dtype, -reach, reach, grain),
        "k": draw(request.seed, "k", keys, dtype, -reach, reach, grain),
        "v": draw(request.seed, "v", values, dtype, -1.0, 1.0, grain),
        "a": draw(request.seed, "a", gates, dtype, -wide, wide, grain),
        "b": draw(request.seed, "b", (layers, tokens, heads), dtype, -2.0, 2.0, grain),
        "state": draw(request.seed, "state", (layers, *entry_shape(case)), case.state_dtype, -1.0, 1.0, grain),
    }


def spans(request: Request) -> list[tuple[int, int]]:
    """First token of each round and the one behind its last, among all tokens of the request."""
    ends = np.cumsum([r.length for r in request.rounds]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def columns(case: ReplayCase) -> dict[str, Any]:
    """Scalars of the case, weights, and per request a dictionary of its tensors with ``slot``, ``row``,
    ``track_slot`` and int64 columns ``length``, ``accepted``, ``track_step`` (one entry a round)."""
    names = [n for n in case.__dataclass_fields__ if n != "requests"]
    batch = []
    for r in case.requests:
        steps = {n: np.array([getattr(x, n) for x in r.rounds], np.int64) for n in ("length", "accepted", "track_step")}
        batch.append(inputs(case, r) | steps | {"slot": r.slot, "row": r.row, "track_slot": r.track_slot})
    return {n: getattr(case, n) for n in names} | weights(case) | {"requests": batch}
