"""Cases of recurrence.kda_convolution_verify in few sizes: a kernel is compiled for each."""

from __future__ import annotations

import random

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.kda_convolution_case import NONE, KdaConvolutionCase, Request

MOST_REQUESTS = 3
SIZES = ((1, 1, 8, 4), (1, 1, 8, 8), (1, 2, 16, 6))  # key heads, value heads, K, V


def structure(source: Source) -> KdaConvolutionCase:
    """One case; simplest: one request, three steps, states written."""
    sizes, steps = choice(source, SIZES), choice(source, (3, 4, 5))
    ring = choice(source, (0, 0, 4, 8))
    gate = choice(source, ("softplus", "bounded"))
    bias, normalise = flag(source), source.integer(0, 7) < 7
    input_dtype = choice(source, ("float32", "bfloat16"))
    weight_dtype = input_dtype if source.integer(0, 3) < 3 else "float32"
    grain = 0.0 if flag(source) else 0.25

    def request(source: Source) -> tuple[int, bool]:
        return source.integer(0, 2**16), source.integer(0, 7) == 7

    drawn = source.records(request, 1, MOST_REQUESTS)
    seed, slot_seed, row_seed = (source.integer(0, 2**16) for _ in range(3))
    slots, rows = [*range(1, MOST_REQUESTS + 2), 0], list(range(MOST_REQUESTS + 1))
    if slot_seed:
        random.Random(slot_seed).shuffle(slots)
    if row_seed:
        random.Random(row_seed).shuffle(rows)
    requests = tuple(
        Request(seed, NONE, NONE) if idle else Request(seed, slots[i], rows[i]) for i, (seed, idle) in enumerate(drawn)
    )
    return KdaConvolutionCase(
        *sizes, steps, ring, gate, bias, normalise, input_dtype, weight_dtype, len(slots), len(rows), seed, grain,
        requests,
    )  # fmt: skip
