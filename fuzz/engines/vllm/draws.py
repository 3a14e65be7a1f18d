"""The random numbers of runner 1, replaced for a call by the coins of a case.

Runner 1 draws a uniform a draft and an exponential a token for the whole batch,
then draws again for requests that bring a generator of their own. Both are played:
either the batch-wide draws hold the coins, or they hold numbers that would decide
otherwise and the generators hold the coins.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from fuzz.engines.closed import touch

REJECTS = 2.0  # no coin is that large: a draft decided by it is rejected
EVEN = 1.0  # an exponential that every token has: the largest mass wins


@dataclass(frozen=True)
class OwnGenerator:
    """Stands for the generator of the request in row ``row``."""

    row: int


@contextmanager
def drawing(engine: Any, case: Any, *, seeded: bool) -> Iterator[dict[int, OwnGenerator]]:
    """Coins of ``case`` inside; yields the generators to hand over."""
    torch = engine.torch
    flat = [c for row, n in zip(case.coins, case.counts, strict=True) for c in row[:n]]
    coins = engine.tensor(flat, "float64", contiguous=True)
    speeds = engine.tensor(case.exponentials, "float32", contiguous=True)

    def rand(shape: Any, *, dtype: Any, device: Any) -> Any:
        if tuple(shape) != tuple(coins.shape):
            raise touch(f"{shape} uniform numbers were drawn for {len(coins)} drafts")
        return torch.full_like(coins, REJECTS) if seeded else coins.clone()

    def uniform_(tensor: Any, *, generator: OwnGenerator) -> Any:
        own = case.coins[generator.row][: case.counts[generator.row]]
        return tensor.copy_(engine.tensor(own, "float64", contiguous=True))

    def exponential_(tensor: Any, *, generator: OwnGenerator | None = None) -> Any:
        if generator is not None:
            return tensor.copy_(speeds[generator.row])
        return tensor.fill_(EVEN) if seeded else tensor.copy_(speeds)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "rand", rand))
        stack.enter_context(mock.patch.object(torch.Tensor, "uniform_", uniform_))
        stack.enter_context(mock.patch.object(torch.Tensor, "exponential_", exponential_))
        yield {i: OwnGenerator(i) for i in range(len(case.counts))} if seeded else {}
