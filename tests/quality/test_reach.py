"""What a target's domain lets it be shown, the frozen cases show it.

The gate runs in seconds; a behaviour that only a long fuzz run reaches would be a gap
that every change falls through. What no draw that a target accepts ever shows is out
of its reach: its adapter says why, case by case.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from fuzz import adapter, corpus
from fuzz.executor import Columns
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from oracle import contracts

DRAWS = 1000


@cache
def targets(contract):
    return [a for engine in adapter.BUILT_IN for a in adapter.load(engine).values() if a.contract == contract]


@cache
def frozen():
    found = defaultdict(list)
    for _, each in corpus.load():
        found[each.contract].append(each.case)
    return found


def shown(contract, cases):
    """Target id -> the behaviours of those cases that the target accepts."""
    found = {a.id: set() for a in targets(contract.name)}
    for case in cases:
        behaviours, columns = contract.run(case)[1].behaviours, Columns(contract.columns(case))
        for each in targets(contract.name):
            if each.accepts(columns) is None:
                found[each.id] |= set(behaviours)
    return found


@pytest.mark.parametrize("name", list(contracts.all_contracts()))
def test_the_frozen_cases_show_a_target_every_behaviour_that_draws_show_it(name):
    contract, structure = contracts.get(name), structure_of(name)
    drawn = shown(contract, [structure(RandomSource(i)) for i in range(DRAWS)])
    have = shown(contract, frozen()[name])
    gaps = {target: sorted(drawn[target] - have[target]) for target in drawn if drawn[target] - have[target]}
    assert not gaps
