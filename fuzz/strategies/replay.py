"""Cases of recurrence.replay.

A request draws its rounds; slots and rows follow from one seed each, because requests that draw them collide. Few
different sizes occur: a kernel is compiled for each of them.
"""

from __future__ import annotations

import random
from math import prod

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.replay_case import INT32_ELEMENTS, NONE, ReplayCase, Request, Round

MOST_REQUESTS, MOST_ROUNDS, MOST_CIRCULAR_ROUNDS = 3, 4, 6  # a circular ring must come around
# Key heads, value heads, K, V. A ring that is read by dot products needs K of 32 or more.
SMALL = ((1, 1, 8, 8), (1, 2, 8, 4), (2, 4, 12, 20))
LARGE = ((1, 1, 32, 16), (1, 2, 32, 16), (2, 4, 32, 24))
Drawn = tuple[int, bool, tuple[Round, ...]]  # seed, idle, rounds
RINGS = {"every": (4, 8), "circular": (16, 8), "decode": (4, 2, 1)}


def structure(source: Source) -> ReplayCase:
    """One case; simplest: one request, one round, folded by its commit."""
    operation = choice(source, ("every", "every", "circular", "circular", "decode"))
    gate = choice(source, ("head", "channel")) if operation != "circular" else "head"
    sizes = choice(source, SMALL if operation == "every" else LARGE)
    layers = 1 + (source.integer(0, 3) == 3)
    ring = choice(source, RINGS[operation])
    most = {"every": ring, "circular": min(ring // 2, 6), "decode": 1}[operation]
    window = source.integer(1, most)
    if operation == "circular" and source.integer(0, 11) == 11:  # what an engine may have to refuse
        ring, window = 16, choice(source, (12, 20))
    most_rounds = MOST_CIRCULAR_ROUNDS if operation == "circular" and window <= 6 else MOST_ROUNDS
    most_rounds = 2 if window > ring else most_rounds
    input_dtype = choice(source, ("float32", "bfloat16"))
    state_dtype = "bfloat16" if source.integer(0, 3) == 3 else "float32"
    # A 16-bit state would be rounded again with each fold; engines then fold it at once.
    fold = "every" if operation == "every" or (operation == "circular" and state_dtype != "float32") else "capacity"
    normalise, wide = source.integer(0, 7) < 7, source.integer(0, 7) == 7
    leftover = choice(source, ("zeros", "zeros", "numbers", "numbers", "nan"))
    tracking, far = flag(source), source.integer(0, 19) == 19

    def request(source: Source) -> Drawn:
        idle = source.integer(0, 7) == 7
        rounds = []
        for _ in range(source.integer(1, most_rounds)):
            length = window - (source.integer(0, window - 1) if window > 1 and source.integer(0, 3) == 3 else 0)
            accepted = source.integer(1, length)
            rounds.append(Round(length, accepted, source.integer(0, accepted) - 1 if tracking else NONE))
        return source.integer(0, 2**16), idle, tuple(rounds)

    drawn: list[Drawn] = source.records(request, 1, MOST_REQUESTS)
    seed, slot_seed, row_seed = (source.integer(0, 2**16) for _ in range(3))
    grain = 0.0 if flag(source) else 0.25
    slots, rows = 2 * MOST_REQUESTS + 2, MOST_REQUESTS + 2 if operation == "circular" else 2 * MOST_REQUESTS + 2
    gap = INT32_ELEMENTS // prod(sizes[1:]) - 1 if far and layers == 1 and prod(sizes[1:]) >= 256 else 0
    return ReplayCase(
        operation, gate, fold, layers, *sizes, ring, window, slots, rows, input_dtype, state_dtype, normalise, wide,
        leftover, seed, gap, grain, _placed(operation, drawn, slots, rows, slot_seed, row_seed),
    )  # fmt: skip


def _placed(
    operation: str, drawn: list[Drawn], slots: int, rows: int, slot_seed: int, row_seed: int
) -> tuple[Request, ...]:
    """Requests with their slots and rows; seed 0 counts upwards. Slot and row 0 are the engine's own and come last."""
    places, rings = [*range(1, slots), 0], [*range(1, rows), 0]
    if slot_seed:
        random.Random(slot_seed).shuffle(places)
    if row_seed:
        random.Random(row_seed).shuffle(rings)
    made = []
    for i, (seed, idle, rounds) in enumerate(drawn):
        slot, track = (NONE, NONE) if idle else (places[2 * i], places[2 * i + 1])
        track = NONE if i and rounds[0].track_step == NONE else track  # some name steps without a slot
        row = slot if operation != "circular" or idle else rings[i]
        made.append(Request(seed, slot, row, track, rounds))
    return tuple(made)
