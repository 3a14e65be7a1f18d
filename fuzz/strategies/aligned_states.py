"""Cases of commit.aligned_states.

A request draws how many tokens its first verify step stands before a block boundary, because that, the
drafts and the committed count decide everything. The pass before a ``before_step`` is drawn the same way
and put through the rule of a verify, so that column and count are ones that a pass leaves behind. Offsets
beyond 2^31 elements come from idle blocks, just enough for the longer entry.
"""

from __future__ import annotations

import dataclasses

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.aligned_case import NONE, AlignedStatesCase, Request, block_count, running_column
from oracle.commit.aligned_states import INT32_ELEMENTS, move

BLOCKS = (8, 4, 2, 3, 16)
STATES = ((1, 1, 2), (2, 3, 5), (0, 0, 0))
LONG_STATE = (1, 33, 64)  # more than one program copies at a time; slow, so rare


def structure(source: Source) -> AlignedStatesCase:
    """One case; simplest: one request whose certain token fills a block."""
    operation = choice(source, ("after_verify", "before_step"))
    block, drafts = choice(source, BLOCKS), source.integer(0, 4)
    state_entry = LONG_STATE if source.integer(0, 9) == 9 else choice(source, STATES)
    channels = choice(source, (2, 3, 0))
    channels = channels if any(state_entry) else channels or 2
    state_dtype, window_dtype = (choice(source, ("float32", "bfloat16", "float16")) for _ in range(2))
    if state_entry == LONG_STATE:
        state_dtype = "float32"  # in 16 bits its cells could not be told apart
    far = source.integer(0, 7) == 7
    layers = 1 if far else source.integer(1, 2)
    grouped = layers > 1 and flag(source)
    case = AlignedStatesCase(
        operation, block, drafts, layers, grouped, state_entry, channels, source.integer(1, 3), not flag(source),
        state_dtype, window_dtype, 0, 0, (),
    )  # fmt: skip
    drawn = source.records(lambda s: _request(s, case), 1, 4)
    case = dataclasses.replace(case, requests=tuple(drawn), seed=source.integer(0, 2**16))
    return _far(case) if far else case


def _request(source: Source, case: AlignedStatesCase) -> Request:
    """A pass whose first step stands ``ahead`` tokens before a boundary; before a step, the pass after it."""
    ahead = source.integer(0, min(case.block - 1, case.drafts + 1))
    first = case.block * source.integer(1, 3) - ahead
    fed = min(source.integer(1, 2 * case.block), first) if source.integer(0, 3) == 3 else 1
    drafts = case.drafts - source.integer(0, case.drafts)
    committed = drafts + 1 - source.integer(0, drafts)
    verified = Request(first - fed, fed, drafts, committed, NONE)
    if case.operation == "after_verify":
        return verified
    next_fed = source.integer(1, 2 * case.block) if source.integer(0, 3) == 3 else 1
    next_drafts = source.integer(0, case.drafts)
    if source.integer(0, 7) == 7:
        return Request(0, next_fed, next_drafts, 1, NONE)
    before = dataclasses.replace(case, operation="after_verify")
    left = move(before, verified)
    return Request(first + committed - 1, next_fed, next_drafts, left.count, running_column(before, verified))


def _far(case: AlignedStatesCase) -> AlignedStatesCase:
    cells = max(case.state_cells, case.inputs * case.channels)
    return dataclasses.replace(case, gap=-(-INT32_ELEMENTS // cells) - block_count(case) // 2)
