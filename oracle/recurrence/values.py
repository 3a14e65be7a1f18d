"""Numbers for the tensors of a case, from seeds.

A recurrence needs hundreds of numbers; drawing each one would leave a shrinker
nothing to hold on to, and NumPy may change its generators. So a number is a
formula of (seed, name, position): SplitMix64, which is public domain and fits in
five lines. A frozen case holds the seeds and stays small and readable, and its
numbers will be the same for ever.
"""

from __future__ import annotations

import zlib
from math import prod

import numpy as np

from oracle.recurrence.formats import rounded

MAX_SEED = 2**31 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw(
    seed: int, name: str, shape: tuple[int, ...], dtype: str, low: float = -1.0, high: float = 1.0, grain: float = 0.0
) -> np.ndarray:
    """Numbers from ``low`` to ``high``, evenly spread, each representable in ``dtype``.

    ``name`` tells the tensors of one seed apart. With ``grain`` they are multiples
    of it: with a quarter, say, short sums of products are exact in float32, and the
    order of summation cannot matter. Seed 0 with a grain gives the simplest mixture
    there is; it is nothing special otherwise.
    """
    unit = _unit(seed, name, prod(shape))
    if grain:
        steps = int((high - low) / grain)
        values = low + grain * np.floor(unit * (steps + 1))
    else:
        values = low + (high - low) * unit
    return rounded(values, dtype).reshape(shape)


def _unit(seed: int, name: str, count: int) -> np.ndarray:
    """``count`` numbers in [0, 1), multiples of 2^-24."""
    start = np.uint64((seed << 32 | zlib.crc32(name.encode())) & (2**64 - 1))
    with np.errstate(over="ignore"):
        z = _mixed(start) + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
        return (_mixed(z) >> np.uint64(40)).astype(np.float64) * 2.0**-24


def _mixed(z: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
