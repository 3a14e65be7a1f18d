"""Cases of draft.graph_rows. Simplest first: one request in a graph for one, used never before."""

from __future__ import annotations

from dataclasses import replace

from fuzz.strategies.source import Source, choice, flag
from oracle.draft.graph_rows_case import GraphRowsCase, Row

MOST_ROWS = 6
LENGTHS = (10, 1, 255, 4096, 2**31 - 64)  # tokens; one is the usual fill


def structure(source: Source) -> GraphRowsCase:
    width = choice(source, (4, 1, 2, 7, 16)) if source.integer(0, 3) else source.integer(1, 16)
    front = source.integer(1, width - 1) if width > 1 and source.integer(0, 2) == 2 else 0
    fill = choice(source, (1, 1, 2, 5))

    def row(source: Source) -> Row:
        length = choice(source, LENGTHS) if flag(source) else source.integer(1, 300)
        length = fill if source.integer(0, 7) == 7 else length
        return Row(max(length, front + 1), source.integer(1, width - front), 0, 0, source.integer(0, 2**16))

    rows = _placed(source.records(row, 1, MOST_ROWS), 0)
    before = _placed(source.records(row, 0, MOST_ROWS), source.integer(0, 7))
    pads = choice(source, (0, 1, 2, 5))
    bucket = len(rows) + pads
    capacity = max(bucket, len(before)) + choice(source, (0, 1, 6))
    return GraphRowsCase(capacity, bucket, width, front, fill, before, rows)


def _placed(rows: list[Row], shift: int) -> tuple[Row, ...]:
    """Pool rows and track slots, not in the order of the batch; ``shift`` says how far the
    batch before had others."""
    return tuple(replace(r, pool_row=30 - 3 * i + shift, track_slot=5 * i + 2 * shift) for i, r in enumerate(rows))
