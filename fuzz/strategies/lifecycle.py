"""Stories of commit.lifecycle: few requests, prompts around boundaries, short.

Steps are drawn one by one and independently, so that a story without one of them is
still the story of the others; what does not apply is skipped by the model.
"""

from __future__ import annotations

from fuzz.strategies.source import Source, choice, flag
from oracle.lifecycle import story
from oracle.lifecycle.story import LifecycleCase, Step

REQUESTS = 3
MAX_STEPS = 18
# Verification is what most steps of a life are; the others once each.
KINDS = (
    story.ENTER, story.VERIFY, story.FINISH, story.ENTER, story.VERIFY, story.RETRACT, story.VERIFY, story.RESTORE,
    story.ENTER, story.EVICT, story.VERIFY, story.OFFLOAD, story.ENTER, story.VERIFY, story.FINISH, story.VERIFY,
    story.PREFILL, story.VERIFY, story.PUBLISH, story.ENTER,
)  # fmt: skip


def structure(source: Source) -> LifecycleCase:
    """A story. Simplest: request 0 enters with a prompt of one grid."""
    grid = choice(source, (64, 8, 128, 8, 256))
    draft_tokens = choice(source, (4, 2, 3))
    chunk = (0, 0, 0, 1, 2)[source.integer(0, 4)]
    ring = (0, 0, 8, 12)[source.integer(0, 3)]
    lazy, overlap = flag(source), flag(source)
    steps = source.records(lambda each: _step(each, grid, draft_tokens), 1, MAX_STEPS)
    return LifecycleCase(grid, draft_tokens, chunk, ring, lazy, overlap, tuple(steps))


def _step(source: Source, grid: int, draft_tokens: int) -> Step:
    action = choice(source, KINDS)
    if action == story.VERIFY:
        return Step(action, committed=tuple(source.records(lambda row: row.integer(1, draft_tokens), 0, 4)))
    if action in (story.PUBLISH, story.EVICT):
        return Step(action)
    request = source.integer(0, REQUESTS - 1)
    if action != story.ENTER:
        return Step(action, request)
    tokens = near(source, grid)
    other = source.integer(0, REQUESTS - 1)  # itself: nobody
    shared = near(source, grid) if other != request else 0
    return Step(action, request, max(tokens, 1), other if other != request else story.NOBODY, max(shared, 0))


def near(source: Source, grid: int) -> int:
    """A length near a multiple of the grid, where states are filed and lost."""
    return grid * source.integer(1, 3) + (0, -1, 1, -2, 2, -3, 3, -5)[source.integer(0, 7)]
