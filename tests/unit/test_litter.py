"""Cycles of a run are collected, and what stays is not looked through again and again."""

from __future__ import annotations

import gc
import weakref

import pytest

from fuzz.worker import litter


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
