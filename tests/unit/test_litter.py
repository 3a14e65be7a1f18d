"""Cycles of a run are collected, and what stays is not looked through again and again."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from fuzz.worker import litter

ROOT = Path(__file__).parents[2]


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture
def thawed():
    gc.collect()
    gc.freeze()  # pytest's own objects
    yield
    gc.unfreeze()


def test_a_cycle_of_a_run_is_collected(thawed):
    left = weakref.ref(Cycle())
    assert left() is not None
    litter.collect()
    assert left() is None


def test_a_few_objects_that_stay_may_become_litter_later(thawed):
    kept, before = [Cycle() for _ in range(10)], gc.get_freeze_count()
    litter.collect()
    assert gc.get_freeze_count() == before
    left = weakref.ref(kept.pop())
    litter.collect()
    assert left() is None


def test_many_objects_that_stay_are_set_aside(thawed):
    kept, before = [Cycle() for _ in range(litter.MANY + 1)], gc.get_freeze_count()
    litter.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert len(gc.get_objects(generation=2)) < litter.MANY


NEW_OBJECTS = """
import gc
import subprocess
import sys
from fuzz.worker import litter
imported, new, full = [[] for _ in range(1_600_000)], [], []
litter.set_aside()
gc.callbacks.append(lambda phase, info: full.append(1) if info["generation"] == 2 else None)
while not full and len(new) < 1_000_000:
    new.append([])
print(len(new))
"""


def test_python_looks_for_cycles_as_if_nothing_had_been_imported():
    """A quarter of what the last search left must be new before the next full one: here 400,000 objects."""
    ran = subprocess.run([sys.executable, "-c", NEW_OBJECTS], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert int(ran.stdout) < 300_000, ran
