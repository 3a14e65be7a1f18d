"""Cases of commit.mixed_batch. Simplest first: one fresh prompt and one running request."""

from __future__ import annotations

from dataclasses import replace

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.mixed_batch import MAX_IN_FLIGHT, WIDTH, MixedBatchCase, Request


def structure(source: Source) -> MixedBatchCase:
    """One case; lengths come from a few sizes or freely."""
    speculative, overlap = flag(source), flag(source)
    host_lengths = not (speculative and flag(source))

    def prompt(source: Source) -> Request:
        chunk = choice(source, (4, 1, 16)) if source.integer(0, 1) == 0 else source.integer(1, WIDTH)
        prefix = choice(source, (0, 1, 16)) if source.integer(0, 1) == 0 else source.integer(0, WIDTH)
        return Request(min(chunk + prefix, WIDTH), chunk, 0, 1)

    def running(source: Source) -> Request:
        known = choice(source, (6, 2, WIDTH)) if source.integer(0, 1) == 0 else source.integer(1, WIDTH)
        in_flight = source.integer(0, MAX_IN_FLIGHT if speculative else 1) if overlap else 0
        length = max(2, min(known + in_flight, WIDTH))
        return Request(length, 0, min(in_flight, length - 1), 1)

    backwards = flag(source)
    requests = [*source.records(prompt, 1, 3), *source.records(running, 1, 4)]
    rows = [1 + 2 * i for i in range(len(requests))]
    if backwards:
        rows.reverse()
    placed = [replace(r, pool_row=row) for r, row in zip(requests, rows, strict=True)]
    return MixedBatchCase(speculative, overlap, host_lengths, tuple(placed))
