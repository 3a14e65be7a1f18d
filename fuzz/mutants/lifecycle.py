"""Mutants of commit.lifecycle: the model with one operation of its own bookkeeping wrong.

Each is a subclass of one part with one method replaced; the walk and what is observed
stay the model's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.lifecycle_rows import ROWS
from fuzz.mutants.lifecycle_scheduler import SCHEDULERS
from fuzz.mutants.lifecycle_slots import SLOTS
from fuzz.mutants.lifecycle_tree import TREES
from fuzz.mutants.mutant import Mutant
from oracle.lifecycle.scheduler import Parts, Scheduler
from oracle.lifecycle.story import LifecycleCase
from oracle.lifecycle.walk import walk


def _observing(part: str, wrong: type) -> Callable[[LifecycleCase], dict[str, Any]]:
    def observe(case: LifecycleCase) -> dict[str, Any]:
        if part == "scheduler":
            return walk(case, make=wrong)
        return walk(case, Parts(**{part: wrong}), Scheduler)

    return observe


MUTANTS = tuple(
    Mutant(wrong.__name__, fault, wrong.__doc__, _observing(part, wrong))
    for part, fault, wrong in (*SLOTS, *TREES, *ROWS, *SCHEDULERS)
)
