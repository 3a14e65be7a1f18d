"""Cases of recurrence.short_convolution.

Sizes come from a small palette, because a GPU compiles the kernels anew for each. Slots follow from one seed, because
rows that draw slots collide.
"""

from __future__ import annotations

import dataclasses
import random

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.short_convolution_behaviours import INT32_ELEMENTS
from oracle.recurrence.short_convolution_case import NONE, OPERATIONS, Request, ShortConvolutionCase

CHANNELS = (4, 4, 6, 6, 4, 130)
LENGTHS = (1, 2, 3, 5, 9, 33)
MOST_REQUESTS = 4


def structure(source: Source) -> ShortConvolutionCase:
    """One case; simplest: one request that decodes."""
    form = choice(
        source, ("plain", "gated", "own_residual", "other_residual", "gated", "own_residual", "other_residual")
    )
    operation = choice(source, OPERATIONS[form])
    channels = choice(source, CHANNELS)
    width, dilation, activation, dtype = (
        source.integer(2, 4),
        1,
        "none",
        choice(source, ("bfloat16", "float32", "float16")),
    )
    if form == "gated":
        width = 3 if source.integer(0, 7) < 7 else width
    else:
        activation = choice(source, ("none", "silu"))
    if form == "other_residual":
        dilation = source.integer(1, 3)
    if form in ("gated", "other_residual") and dtype != "bfloat16" and source.integer(0, 3) < 3:
        dtype = "bfloat16"  # the fused layers of these forms exist for it only
    exact = not flag(source)
    steps = source.integer(1, 4) if operation == "verify" else 1
    far = source.integer(0, 9) if source.integer(0, 7) == 7 else 0
    stale = operation == "prefill" and source.integer(0, 7) == 7

    def request(source: Source) -> Request:
        null = source.integer(0, 6) == 6
        seed = source.integer(0, 2**16)
        length, initial, valid, old = steps, True, 1, False
        if operation == "prefill":
            length, initial = choice(source, LENGTHS), not flag(source)
        if operation == "verify":
            valid = steps - (source.integer(0, steps) if flag(source) else 0)
        if stale:
            old = not initial and not null and flag(source)
        return Request(NONE if null else 0, length, seed, initial, valid, old)

    drawn = source.records(request, 1, MOST_REQUESTS)
    slot_seed, slots = source.integer(0, 2**16), [*range(1, 2 * len(drawn) + 1), 0]
    if slot_seed:
        random.Random(slot_seed).shuffle(slots)
    requests = tuple(
        r if r.slot == NONE else dataclasses.replace(r, slot=slot) for slot, r in zip(slots, drawn, strict=False)
    )
    case = ShortConvolutionCase(
        form, operation, channels, width, dilation, activation, dtype, steps, 2 * len(drawn) + 1, 0, exact,
        source.integer(0, 255), requests,
    )  # fmt: skip
    if not far:
        return case
    gap = INT32_ELEMENTS // (channels * case.reach) - case.slots + far * case.slots // 4
    return dataclasses.replace(case, gap=gap)
