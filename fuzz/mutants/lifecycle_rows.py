"""Wrong batches: columns that do not go together any more."""

from __future__ import annotations

from oracle.lifecycle.batch import Batch

NEVER = 1 << 40  # a boundary that no request reaches


class merge_drops_track_data(Batch):
    """forgets when the merged rows have to save a checkpoint"""

    def merge(self, other: Batch) -> None:
        other.boundaries = [NEVER] * len(other.boundaries)
        super().merge(other)


class merge_drops_own_track_data(Batch):
    """forgets when the rows that were there have to save a checkpoint, once others join"""

    def merge(self, other: Batch) -> None:
        if other.requests:
            self.boundaries = [NEVER] * len(self.boundaries)
        super().merge(other)


class merge_mixes_columns(Batch):
    """puts the lengths of the merged rows first and their requests last"""

    def merge(self, other: Batch) -> None:
        self.lengths, other.lengths = other.lengths, self.lengths
        super().merge(other)


class filter_drops_track_data(Batch):
    """forgets when the rows that stay have to save a checkpoint"""

    def keep(self, rows: list[int]) -> None:
        less = len(rows) < len(self.requests)
        super().keep(rows)
        if less:
            self.boundaries = [NEVER] * len(rows)


class filter_cuts_lengths_at_the_end(Batch):
    """keeps the first lengths whichever rows stay"""

    def keep(self, rows: list[int]) -> None:
        lengths = self.lengths
        super().keep(rows)
        self.lengths = lengths[: len(rows)]


class filter_cuts_track_data_at_the_end(Batch):
    """keeps the first boundaries and positions whichever rows stay"""

    def keep(self, rows: list[int]) -> None:
        boundaries, positions = self.boundaries, self.positions
        super().keep(rows)
        self.boundaries, self.positions = boundaries[: len(rows)], positions[: len(rows)]


ROWS = (
    ("batch", "merge", merge_drops_track_data),
    ("batch", "merge", merge_drops_own_track_data),
    ("batch", "merge", merge_mixes_columns),
    ("batch", "filter", filter_drops_track_data),
    ("batch", "filter", filter_cuts_lengths_at_the_end),
    ("batch", "filter", filter_cuts_track_data_at_the_end),
)
