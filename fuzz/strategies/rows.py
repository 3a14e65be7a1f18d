"""Distributions and coins for the sampling contracts.

A distribution is drawn as a kind and a seed. The kinds are the shapes at which
samplers go wrong: one token with everything, dyadic masses whose sums are exact,
a few tokens in a large vocabulary, mass on the last token, masses that do not sum
to 1 exactly. Coins lie on the grid of a generator (multiples of 2^-24), with its
ends drawn often; coins on the edges of a case are planted by each strategy.
"""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np

from fuzz.strategies.source import Source, choice
from oracle.verify.rows import Mass, Row, sparse

COIN_STEPS = 2**24  # float32 in [0, 1) as generators make them
LAST_COIN = 1.0 - 2.0**-24
KINDS = ("dyadic", "one_token", "uniform", "random", "peaked", "few", "tail")


def distribution(source: Source, vocabulary: int) -> Row:
    """A row of float32 masses that sum to 1 up to rounding."""
    return expand(choice(source, KINDS), vocabulary, source.integer(0, 2**16))


@lru_cache(maxsize=1024)  # shrinking draws most rows of a case again and again
def expand(kind: str, vocabulary: int, seed: int) -> Row:
    """The distribution of a kind; the same for the same arguments."""
    rng = random.Random(f"{kind}:{vocabulary}:{seed}")
    if kind == "one_token":
        return Row((Mass(rng.randrange(vocabulary), 1.0),))
    if kind == "uniform":
        return Row((), float(np.float32(1.0) / np.float32(vocabulary)))
    if kind == "dyadic":
        return _dyadic(rng, vocabulary)
    if kind == "few" or vocabulary > 4096:
        tokens = sorted(rng.sample(range(vocabulary), min(vocabulary, rng.randint(1, 6))))
        return _normalised(tokens, [rng.random() for _ in tokens])
    if kind == "tail":
        tokens = sorted({vocabulary - 1, rng.randrange(vocabulary)})
        return _normalised(tokens, [0.05 + rng.random() for _ in tokens])
    power = 8.0 if kind == "peaked" else 1.0
    values = np.array([rng.random() ** power for _ in range(vocabulary)], dtype=np.float32)
    return sparse(values / values.sum(dtype=np.float32))


def _dyadic(rng: random.Random, vocabulary: int) -> Row:
    """Masses 1/2, 1/4, ... and the last one twice, on random tokens: every partial sum is exact."""
    count = min(vocabulary, rng.randint(1, 5))
    tokens = rng.sample(range(vocabulary), count)
    values = [2.0 ** -(i + 1) for i in range(count)]
    values[-1] *= 2
    return Row(tuple(Mass(t, v) for t, v in sorted(zip(tokens, values, strict=True))))


def _normalised(tokens: list[int], weights: list[float]) -> Row:
    values = np.array(weights, dtype=np.float32)
    values /= values.sum(dtype=np.float32)
    return Row(tuple(Mass(t, float(v)) for t, v in zip(tokens, values, strict=True)))


def coin(source: Source) -> float:
    """A coin in [0, 1): 1/2 is the simplest, the ends are drawn often."""
    where = source.integer(0, 5)
    if where == 1:
        return 0.0
    if where == 2:
        return LAST_COIN
    return source.integer(0, COIN_STEPS - 1) / COIN_STEPS if where > 2 else 0.5


def beside(edge: float, steps: int) -> float:
    """The float32 ``steps`` places above (or below) ``edge``, kept inside [0, 1)."""
    value = np.float32(edge)
    for _ in range(abs(steps)):
        value = np.nextafter(value, np.float32(2.0 if steps > 0 else -1.0))
    return float(min(max(value, np.float32(0.0)), np.float32(LAST_COIN)))
