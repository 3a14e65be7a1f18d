"""The model as a Hypothesis state machine: rules are the steps of a story.

The strategy draws whole stories; the machine draws what to do next while it looks at
who runs and who waits, so it goes deeper. Both speak of the same steps: a machine that
fails prints a story that freezes like any other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fuzz.mutants.lifecycle_rows import filter_cuts_lengths_at_the_end, merge_drops_track_data
from fuzz.mutants.lifecycle_scheduler import copies_out_what_is_ahead
from fuzz.mutants.lifecycle_slots import ping_pong_not_flipped
from oracle.lifecycle.recount import recount
from oracle.lifecycle.scheduler import PREFILLING, RUNNING, WAITING, Parts, Scheduler
from oracle.lifecycle.story import LifecycleCase, Step
from oracle.lifecycle.walk import FIELDS, walk

DRAFT_TOKENS = 4
NEAR = st.builds(lambda grids, off: max(1, 8 * grids + off), st.integers(1, 3), st.integers(-3, 3))


def machine_of(make: Callable[[LifecycleCase], Scheduler], walked: Callable[[LifecycleCase], dict]) -> type:
    """A machine over a model; ``walked`` gives the outcome of the story it told."""

    class Lifecycle(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.steps: list[Step] = []

        @initialize(overlap=st.booleans(), lazy=st.booleans(), chunk=st.integers(0, 2), ring=st.sampled_from((0, 8)))
        def begin(self, overlap: bool, lazy: bool, chunk: int, ring: int) -> None:
            self.case = LifecycleCase(8, DRAFT_TOKENS, chunk, ring, lazy, overlap, (Step("evict"),))
            self.model = make(self.case)

        def do(self, step: Step) -> None:
            self.steps.append(step)
            self.model.step(step)

        def named(self, status: str) -> list[int]:
            return [r.name for r in self.model.requests.values() if r.status == status]

        @rule(tokens=NEAR, shared=NEAR, source=st.integers(-1, 5))
        def enter(self, tokens: int, shared: int, source: int) -> None:
            self.do(Step("enter", len(self.model.requests), tokens, source, shared))

        @rule(committed=st.lists(st.integers(1, DRAFT_TOKENS), max_size=4))
        def verify(self, committed: list[int]) -> None:
            self.do(Step("verify", committed=tuple(committed)))

        @rule()
        def evict(self) -> None:
            self.do(Step("evict"))

        @precondition(lambda self: self.model.flight)
        @rule()
        def publish(self) -> None:
            self.do(Step("publish"))

        @precondition(lambda self: self.named(RUNNING))
        @rule(action=st.sampled_from(("finish", "retract", "offload")), which=st.integers(0, 3))
        def leave(self, action: str, which: int) -> None:
            running = self.named(RUNNING)
            self.do(Step(action, running[which % len(running)]))

        @precondition(lambda self: self.named(WAITING))
        @rule(which=st.integers(0, 3))
        def restore(self, which: int) -> None:
            waiting = self.named(WAITING)
            self.do(Step("restore", waiting[which % len(waiting)]))

        @precondition(lambda self: self.named(PREFILLING))
        @rule(which=st.integers(0, 3))
        def prefill(self, which: int) -> None:
            prefilling = self.named(PREFILLING)
            self.do(Step("prefill", prefilling[which % len(prefilling)]))

        def teardown(self) -> None:
            """Once a story is told: what was seen after each of its steps."""
            if not self.steps:
                return
            told = LifecycleCase(**{**vars(self.case), "steps": tuple(self.steps)})
            seen, must = walked(told), recount(told)
            for field in FIELDS:
                assert seen[field] == must[field], (field, told)

    return Lifecycle


def run(
    make: Callable[[LifecycleCase], Scheduler],
    walked: Callable[[LifecycleCase], dict],
    examples: int,
    phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink),
) -> None:
    run_state_machine_as_test(
        machine_of(make, walked),
        settings=settings(
            max_examples=examples, stateful_step_count=20, database=None, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck), print_blob=False, phases=phases,
        ),
    )  # fmt: skip


def test_the_model_is_true_whatever_happens():
    run(Scheduler, walk, 100)


@pytest.mark.parametrize(
    ("parts", "scheduler"),
    [
        ({"tracks": ping_pong_not_flipped}, Scheduler),
        ({"batch": merge_drops_track_data}, Scheduler),
        ({"batch": filter_cuts_lengths_at_the_end}, Scheduler),
        ({}, copies_out_what_is_ahead),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "-".join(p.__name__ for p in value.values()),
)
def test_the_machine_finds_what_needs_a_story(parts, scheduler):
    """Faults that no single step shows."""
    wrong = Parts(**parts)
    with pytest.raises(AssertionError, match="LifecycleCase"):
        run(lambda case: scheduler(case, wrong), lambda case: walk(case, wrong, scheduler), 400, (Phase.generate,))
