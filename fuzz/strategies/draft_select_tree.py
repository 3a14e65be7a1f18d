"""Trees of verify.draft_select: masses by kind and seed, a step a slot."""

from __future__ import annotations

import math
import random

import numpy as np

from fuzz.strategies.draft_select_kinds import kind_of
from fuzz.strategies.source import Source, choice
from oracle.verify.rows import Mass, Row
from oracle.verify.select_case import DraftSelectCase, Request, Slot, candidates_of_tree

KINDS = ("falling", "sixteenths", "certain", "random")
HOSTILE = ("nan", "negative")
MOST_KEPT = 16


def tree(source: Source) -> DraftSelectCase:
    width = choice(source, (2, 1, 3, 4, 8))
    steps = source.integer(1, 4)
    candidates = candidates_of_tree(width, steps)
    kept = (
        candidates
        if source.integer(0, 3) == 3 and candidates <= MOST_KEPT
        else source.integer(1, min(candidates, MOST_KEPT))
    )
    vocabulary = choice(source, (1000, 16, 151936))

    def request(source: Source) -> Request:
        return expand(width, steps, vocabulary, kind_of(source, KINDS, HOSTILE), source.integer(0, 2**16))

    return DraftSelectCase("tree", "float32", vocabulary, width, kept + 1, tuple(source.records(request, 1, 3)))


def expand(width: int, steps: int, vocabulary: int, kind: str, seed: int) -> Request:
    rng = random.Random(f"{kind}:{width}:{steps}:{seed}")
    slots = []
    for step in range(steps):
        rows = 1 if step == 0 else width
        tokens = tuple(rng.randrange(vocabulary) for _ in range(rows * width))
        slots.append(Slot(tokens, tuple(_row(kind, width, rng) for _ in range(rows))))
    return Request(tuple(slots))


def _row(kind: str, width: int, rng: random.Random) -> Row:
    """Masses of a node's k best children, falling as a softmax's top-k gives them."""
    if kind == "certain" and rng.random() < 0.6:
        masses = [1.0] + [0.0] * (width - 1)
    elif kind == "sixteenths":
        masses = sorted((rng.randint(1, 8) / 16 for _ in range(width)), reverse=True)
    else:
        weights = sorted((rng.random() ** 2 + 2.0**-10 for _ in range(width)), reverse=True)
        masses = [float(np.float32(w / (sum(weights) * 1.1))) for w in weights]
    if kind == "nan":
        masses[rng.randrange(width)] = math.nan
    elif kind == "negative":
        masses[rng.randrange(width)] = -0.25
    return Row(tuple(Mass(c, m) for c, m in enumerate(masses)))
