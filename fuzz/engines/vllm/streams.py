"""Runner 2's random streams, replaced by the coins of a case. Import this in a worker only.

Its kernels grow every number from a request's seed and a position, so there is no
tensor to replace; the functions that grow them are replaced instead, and seed and
position carry what they shall return: a position is the bit pattern of its coin, a
seed the address of the request's exponentials. A kernel that takes the seed or the
position of another row therefore takes its coins too.

The replacements are kernels themselves, so that they also hold when compiled. One
thing is left to the interpreter: releases that hash the seed before they use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

import triton
import triton.language as tl

SMALLEST = tl.constexpr(2.0**-31)  # the smallest number that the engine's uniform stream returns


@triton.jit
def coin32(seed, offset, includes_zero: tl.constexpr):
    """The coin that ``offset`` is the bit pattern of."""
    return tl.maximum(offset.to(tl.int32).to(tl.float32, bitcast=True), SMALLEST)


@triton.jit
def coin64(seed, offset, includes_zero: tl.constexpr):
    return tl.maximum(offset.to(tl.int32).to(tl.float32, bitcast=True), SMALLEST).to(tl.float64)


@triton.jit
def uniform_of_key(seed, key, includes_zero: tl.constexpr):
    """The uniform whose -log is the exponential of token ``key`` in the row at ``seed``."""
    speeds = seed.to(tl.pointer_type(tl.float32), bitcast=True)
    return tl.exp(-tl.load(speeds + key).to(tl.float64))


@triton.jit
def uniform_at_position(seed, position, key):
    speeds = seed.to(tl.pointer_type(tl.float32), bitcast=True)
    return tl.exp(-tl.load(speeds + key).to(tl.float64))


COINS = {"tl_rand32": coin32, "tl_rand64": coin64}
NOISE = {"tl_rand64": uniform_of_key, "murmur3_uniform64": uniform_at_position}


@contextmanager
def replaced(coins: tuple[ModuleType, str], noise: tuple[ModuleType, str]) -> Iterator[None]:
    """The streams of a rejection module and of the Gumbel module, replaced inside."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(*coins, COINS[coins[1]]))
        stack.enter_context(mock.patch.object(*noise, NOISE[noise[1]]))
        stack.enter_context(mock.patch.object(tl, "randint", _the_seed))
        yield


def of_engine(engine: Any) -> Any:
    """The streams of the engine's version, replaced inside a ``with``. Every call of a kernel
    that grows coins is made inside one, also where it uses none: compiled, a kernel keeps
    the functions that it was first compiled with."""
    coins, noise = ((engine.symbol(name), engine.fact(name)) for name in ("v2.coin_module", "v2.noise_module"))
    return replaced(coins, noise)


def _the_seed(seed: Any, position: Any, *_: Any) -> Any:
    """In place of hashing seed and position into another seed."""
    return seed
