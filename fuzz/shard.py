"""A campaign in parts, for several machines or GPUs.

A part is a pure function of (targets, seed, which part of how many), so whoever
runs them needs no contact: targets are dealt in turn, and where there are more parts
than targets, several have the same target and count on from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """The ``number``-th of ``count`` parts, from 1."""

    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def examples(self, targets: int, most: int | None) -> int | None:
        """How many of the ``most`` cases that a target may be shown fall to this part, where several
        parts have the same target."""
        if most is None or self.count <= targets:
            return most
        first = self.number - 1
        same = len(range(first % targets, self.count, targets))
        share, rest = divmod(most, same)
        return share + (first // targets < rest)

    def share(self, targets: Sequence[T], seed: int) -> tuple[list[T], int]:
        """The targets of this part, and its seed."""
        first = self.number - 1
        if self.count <= len(targets):
            return list(targets[first :: self.count]), seed
        return [targets[first % len(targets)]], seed + first // len(targets)
