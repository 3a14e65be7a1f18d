"""Long stories from a seed: many lives around boundaries, most of which share a prefix."""

from __future__ import annotations

import random

from oracle.lifecycle import story
from oracle.lifecycle.story import LifecycleCase, Step
from oracle.lifecycle.walk import walk


def long_story(seed: str, requests: int, at_a_time: int, grid: int, overlap: bool, lazy: bool = False) -> LifecycleCase:
    """A story of ``requests`` lives, at most ``at_a_time`` of them at once. Most prompts
    begin like one of the last sixteen; the lengths lie around boundaries."""
    rng = random.Random(seed)
    steps: list[Step] = []
    entered, running, waiting = 0, [], []

    def near(most: int) -> int:
        return max(1, grid * rng.randint(1, most) + rng.choice((-9, -3, -2, -1, 0, 0, 1, 2, 5, 40)))

    while entered < requests or running or waiting:
        if waiting and (rng.random() < 0.5 or (entered == requests and not running)):
            steps.append(Step(story.RESTORE, waiting.pop(0)))
            running.append(steps[-1].request)
        elif entered < requests and len(running) + len(waiting) < at_a_time:
            source = rng.randrange(max(0, entered - 16), entered) if entered and rng.random() < 0.85 else story.NOBODY
            shared = near(2) if source != story.NOBODY else 0
            steps.append(Step(story.ENTER, entered, near(3), source, shared))
            running.append(entered)
            entered += 1
        for _ in range(rng.randint(1, 3)):
            committed = tuple(rng.randint(1, 4) for _ in range(rng.randint(0, at_a_time)))
            steps.append(Step(story.VERIFY, committed=committed))
        draw = rng.random()
        if running and draw < 0.6:
            steps.append(Step(story.FINISH, running.pop(rng.randrange(len(running)))))
        elif running and draw < 0.66:
            waiting.append(running.pop(rng.randrange(len(running))))
            steps.append(Step(story.RETRACT, waiting[-1]))
        elif draw > 0.985:
            steps.append(Step(story.EVICT))
    return LifecycleCase(grid, 4, 0, 0, lazy, overlap, tuple(steps))


def hits(case: LifecycleCase) -> tuple[int, int]:
    """How many requests resumed from a filed state, and how many states were filed."""
    outcome = walk(case)
    return sum(1 for r in outcome["resumed"] if r and r[0]), sum(map(len, outcome["filed"]))
