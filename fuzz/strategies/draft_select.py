"""Cases of verify.draft_select: the form first, then rows of scores by kind and seed.

Scores are eighths below 16, which every dtype holds exactly and which tie often.
Vocabularies are small, or lie around the tiles of kernels. Walks and trees have
modules of their own.
"""

from __future__ import annotations

import math
import random

import numpy as np

from fuzz.strategies.draft_select_kinds import kind_of
from fuzz.strategies.draft_select_tree import tree
from fuzz.strategies.draft_select_walk import walk
from fuzz.strategies.source import Source, choice
from oracle.verify.rows import Mass, Row
from oracle.verify.select_case import DTYPES, DraftSelectCase, Request, Slot

AROUND_TILES = (1023, 1025, 2047, 2049, 4095, 4096, 4097, 8191, 8193, 12289)
LARGE = (151936, 131072)  # of production models; the second is 64 parts of 2048 exactly
KINDS = ("peak", "tie", "tail", "ends", "masked", "close", "random", "infinite")
HOSTILE = ("nan", "all_nan", "nothing", "few")
WAYS = ("plain", "plain", "divided", "raced")  # raced: masses over exponential noise
DIVISORS = ("random", "doubled", "close", "zero")
LOW = -15.0  # below every score that is drawn


def structure(source: Source) -> DraftSelectCase:
    """One case; the whole row of a single token is the simplest."""
    form = source.integer(0, 5)
    if form < 2:
        return _top1(source)
    if form == 2:
        return _topk(source)
    return walk(source) if form < 5 else tree(source)


def _vocabulary(source: Source, large: bool) -> int:
    if source.integer(0, 3) < 3:
        return source.integer(2, 64)
    return choice(source, AROUND_TILES) if not large or source.integer(0, 7) < 7 else choice(source, LARGE)


def _top1(source: Source) -> DraftSelectCase:
    dtype = choice(source, ("float32", *DTYPES))
    vocabulary = _vocabulary(source, True)
    way = choice(source, WAYS) if dtype == "float32" else WAYS[0]

    def request(source: Source) -> Request:
        kind, seed = kind_of(source, KINDS, HOSTILE), source.integer(0, 2**16)
        position = source.integer(0, 4096)
        row = expand("masses" if way == "raced" else kind, vocabulary, dtype, seed)
        if way == "plain":
            return Request((Slot((), (row,)),), position)
        noise = divisor(choice(source, DIVISORS), row, vocabulary, source.integer(0, 2**16))
        return Request((Slot((), (row,)),), position, noise)

    most = 4 if vocabulary <= 64 else 2
    return DraftSelectCase("top1", dtype, vocabulary, 1, 0, tuple(source.records(request, 1, most)))


def _topk(source: Source) -> DraftSelectCase:
    dtype = choice(source, DTYPES)
    vocabulary = _vocabulary(source, False)
    width = min(choice(source, (2, 1, 4, 8, 3, 16, vocabulary)), vocabulary, 16)

    def request(source: Source) -> Request:
        row = expand(kind_of(source, KINDS, HOSTILE), vocabulary, dtype, source.integer(0, 2**16))
        return Request((Slot((), (row,)),))

    return DraftSelectCase(
        "topk", dtype, vocabulary, width, 0, tuple(source.records(request, 1, 4 if vocabulary <= 64 else 2))
    )


def expand(kind: str, vocabulary: int, dtype: str, seed: int) -> Row:
    """The row of a kind; the same for the same arguments."""
    rng = random.Random(f"{kind}:{vocabulary}:{seed}")

    def score() -> float:
        return rng.randint(-100, 120) / 8

    if kind == "nothing":
        return Row((), -math.inf)
    if kind == "all_nan":
        return Row((), math.nan)
    if kind == "few":  # too few numbers for most top-k
        return Row((Mass(rng.randrange(vocabulary), score()),), -math.inf)
    tokens = sorted(rng.sample(range(vocabulary), rng.randint(1, min(vocabulary, 8))))
    if kind == "masses":  # of a distribution; all but a few tokens have none
        masses = {t: rng.randint(1, 64) / 64 for t in tokens}
        if rng.random() < 0.15:  # a softmax spreads one NaN over the row
            return Row((), math.nan)
        return Row(tuple(Mass(t, v) for t, v in masses.items()))
    named = {t: score() for t in tokens}
    best = max(named.values())
    if kind == "tie":
        for t in rng.sample(range(vocabulary), min(vocabulary, rng.randint(2, 4))):
            named[t] = best
    elif kind == "tail":  # the best in the last, usually partial, tile
        named[vocabulary - 1 - rng.randrange(min(vocabulary, 64))] = best + 0.125
    elif kind == "ends":
        named[rng.choice((0, vocabulary - 1))] = best + 0.125
    elif kind == "close":  # neighbours of the dtype
        named[rng.randrange(vocabulary)] = above(best, dtype)
    elif kind == "infinite":
        for t in rng.sample(range(vocabulary), rng.randint(1, min(vocabulary, 2))):
            named[t] = math.inf
    elif kind == "nan":
        named[rng.randrange(vocabulary)] = math.nan
    elif kind == "random" and vocabulary <= 64:
        named = {t: score() for t in range(vocabulary)}
    rest = -math.inf if kind == "masked" else LOW
    return Row(tuple(Mass(t, v) for t, v in sorted(named.items())), rest)


def above(value: float, dtype: str) -> float:
    """The next number of the dtype."""
    step = {"float32": 24, "bfloat16": 8, "float16": 11}[dtype]
    return value + math.ldexp(1.0, math.frexp(value)[1] - step) if value else 0.125


def divisor(kind: str, row: Row, vocabulary: int, seed: int) -> Row:
    """Positive noise, or a divisor that is none; ``close`` and ``doubled`` make quotients tie."""
    rng = random.Random(f"{kind}:{vocabulary}:{seed}")
    tokens = sorted({m.token for m in row.masses} | {rng.randrange(vocabulary)})
    if kind == "zero":
        return Row((Mass(rng.choice(tokens), rng.choice((0.0, -1.0, math.inf))),), 1.0)
    if kind == "close":  # each score over itself, or over its neighbour: 1 up to rounding
        held = {m.token: m.value for m in row.masses if 0.0 < m.value < math.inf}
        return Row(
            tuple(Mass(t, v if rng.random() < 0.5 else above(v, "float32")) for t, v in sorted(held.items())), 1.0
        )
    noise = {t: float(np.float32(rng.expovariate(1.0) + 2.0**-20)) for t in tokens}
    if kind == "doubled":
        noise = {t: rng.choice((0.5, 1.0, 2.0, 4.0)) for t in tokens}
    return Row(tuple(Mass(t, v) for t, v in sorted(noise.items())), 1.0)
