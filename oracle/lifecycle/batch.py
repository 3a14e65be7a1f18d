"""A batch: one row a request, in columns that go together through filter and merge.

``lengths`` are what the rounds launched so far have reached, ``boundaries`` the length
at which each row's next checkpoint is due, ``positions`` where it is written.
"""

from __future__ import annotations

from collections.abc import Callable


class Batch:
    def __init__(self) -> None:
        self.requests: list[int] = []
        self.lengths: list[int] = []
        self.boundaries: list[int] = []
        self.positions: list[int] = []

    def append(self, request: int, length: int, boundary: int, position: int) -> None:
        self.requests.append(request)
        self.lengths.append(length)
        self.boundaries.append(boundary)
        self.positions.append(position)

    def merge(self, other: Batch) -> None:
        """The rows of ``other`` behind the own ones; ``other`` is empty afterwards."""
        self.requests += other.requests
        self.lengths += other.lengths
        self.boundaries += other.boundaries
        self.positions += other.positions
        other.filter(lambda request: False)

    def filter(self, keeps: Callable[[int], bool]) -> None:
        """Only the rows whose request ``keeps`` admits."""
        self.keep([i for i, r in enumerate(self.requests) if keeps(r)])

    def keep(self, rows: list[int]) -> None:
        self.requests = [self.requests[i] for i in rows]
        self.lengths = [self.lengths[i] for i in rows]
        self.boundaries = [self.boundaries[i] for i in rows]
        self.positions = [self.positions[i] for i in rows]

    def row(self, request: int) -> int | None:
        return self.requests.index(request) if request in self.requests else None
