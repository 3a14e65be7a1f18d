"""Cases of recurrence.causal_convolution.

Sizes come from a small palette, because a GPU compiles the kernel anew for each. A request draws its length, its tree
and what is odd about it; slots and scratch rows follow from one seed each, because rows that draw slots collide.
Offsets beyond 2^31 elements come from unused slots below the used ones, or from idle tokens in front.
"""

from __future__ import annotations

import dataclasses
import random

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.causal_convolution_behaviours import INT32_ELEMENTS
from oracle.recurrence.causal_convolution_case import NONE, CausalConvolutionCase, Request

CHANNELS = (4, 4, 6, 6, 4, 260)
LENGTHS = (1, 2, 3, 5, 9, 17, 0)
DTYPES = (
    ("float32", "float32"), ("bfloat16", "bfloat16"), ("float16", "float16"), ("float32", "float32"),
    ("bfloat16", "bfloat16"), ("float16", "bfloat16"), ("bfloat16", "float32"), ("float32", "bfloat16"),
)  # fmt: skip
MOST_REQUESTS = 4
FINE, ACCEPTED_ZERO, ACCEPTED_BEYOND, BAD_TOKEN = range(4)  # what is odd about a request


def structure(source: Source) -> CausalConvolutionCase:
    """One case; simplest: one request that decodes with two weights."""
    operation = choice(source, ("decode", "verify", "accepted", "prefill", "verify", "accepted", "prefill"))
    channels, width = choice(source, CHANNELS), source.integer(2, 4)
    bias, activation = flag(source), choice(source, ("none", "silu"))
    input_dtype, state_dtype = choice(source, DTYPES)
    exact = not flag(source)
    steps = source.integer(1, 4) if operation in ("verify", "accepted") else 1
    spare = source.integer(0, 2) if source.integer(0, 3) == 3 else 0
    window_first = flag(source)
    tree = operation == "verify" and flag(source)
    overlapping = operation == "verify" and not tree and flag(source)
    ragged = operation == "accepted" and source.integer(0, 2) == 2
    split = source.integer(0, 9) if operation == "prefill" and source.integer(0, 3) == 3 else 0
    far = source.integer(0, 9) if source.integer(0, 7) == 7 else 0
    late = operation == "prefill" and source.integer(0, 9) == 9
    hostile = source.integer(0, 7) == 7

    def request(source: Source) -> Request:
        null = source.integer(0, 6) == 6
        seed = source.integer(0, 2**16)
        length, initial, accepted, parents, odd = steps, True, 1, (), FINE
        if operation == "prefill":
            length, initial = choice(source, LENGTHS), not flag(source)
        if ragged:
            length -= source.integer(0, steps)
        if operation == "accepted":
            accepted = source.integer(1, steps)
        if tree:
            parents = tuple([NONE, *(t - 1 - source.integer(0, t - 1) for t in range(1, steps))])
        if hostile:
            odd = source.integer(0, 3)
        if null:
            return Request(NONE, length, seed, initial)
        if operation == "accepted" and odd in (ACCEPTED_ZERO, ACCEPTED_BEYOND):
            accepted = 0 if odd == ACCEPTED_ZERO else steps + spare + 1
        bad = length - 1 if odd == BAD_TOKEN and length else NONE
        return Request(0, length, seed, initial, accepted, NONE, parents, bad)

    drawn = source.records(request, 1, MOST_REQUESTS)
    slot_seed, row_seed = source.integer(0, 2**16), source.integer(0, 2**16)
    case = CausalConvolutionCase(
        operation, channels, width, bias, activation, input_dtype, state_dtype, steps, spare, 2 * len(drawn) + 1, 0,
        len(drawn) if operation == "verify" else 0, 0, window_first, overlapping, split, exact, source.integer(0, 255),
        with_places(drawn, operation == "verify", slot_seed, row_seed),
    )  # fmt: skip
    return _beyond(case, far, late)


def with_places(drawn: list[Request], scratch: bool, slot_seed: int, row_seed: int) -> tuple[Request, ...]:
    """Give live requests a slot and, for a verify, a scratch row; seed 0 counts upwards. Slot 0 comes last, because
    engines keep it for themselves. A batch without any token gets one."""
    slots, rows = [*range(1, 2 * len(drawn) + 1), 0], list(range(len(drawn)))
    if slot_seed:
        random.Random(slot_seed).shuffle(slots)
    if row_seed:
        random.Random(row_seed).shuffle(rows)
    if not any(r.length for r in drawn):
        drawn = [dataclasses.replace(drawn[0], length=1), *drawn[1:]]
    return tuple(
        r if r.slot == NONE else dataclasses.replace(r, slot=slots[i], row=rows[i] if scratch else NONE)
        for i, r in enumerate(drawn)
    )


def _beyond(case: CausalConvolutionCase, far: int, late: bool) -> CausalConvolutionCase:
    """``far`` 1 to 9: a gap that carries the upper half of the slots across, or up to, the 2^31st element. ``late``:
    idle tokens that do it for the inputs."""
    if late:
        return dataclasses.replace(case, tokens_before=INT32_ELEMENTS // case.channels - 2)
    if far and case.columns:
        gap = INT32_ELEMENTS // (case.channels * case.columns) - case.slots + far * case.slots // 4
        return dataclasses.replace(case, gap=gap)
    return case
