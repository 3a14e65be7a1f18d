"""Strategies are judged by what they reach, kill and shrink to."""

from __future__ import annotations

from functools import lru_cache

import pytest

from fuzz.mutants.mutant import mutants_of
from fuzz.shrink import _without_records, shrink
from fuzz.strategies.case import shown_case
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource, ReplaySource, SpanSource, drawn_by_hypothesis
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts
from oracle.contract import FUNCTIONAL
from oracle.judgement import judge
from oracle.legal import alike

DRAWS = 3000
MOST_STEPS = 7  # of a shrunk story
PATIENCE_S = 600.0  # its calls are counted; a busy machine must not cut a shrink short
NAMES = list(contracts.all_contracts())
ALL_MUTANTS = [(name, mutant) for name in NAMES for mutant in mutants_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_valid_reach_every_behaviour_and_both_definitions_agree(name):
    contract, structure = contracts.get(name), structure_of(name)
    reached: set[str] = set()
    for i in range(DRAWS):
        case = structure(RandomSource(i))
        functional = contract.domain(case) == FUNCTIONAL
        outcome, trace = contract.run(case)
        reached |= trace.behaviours
        if functional:
            again = contract.second(case)
            assert outcome.keys() == again.keys() and all(alike(outcome[f], again[f]) for f in outcome), case
    assert reached == set(contract.behaviours)


@pytest.mark.parametrize("name", NAMES)
def test_a_random_draw_replays_from_its_choices(name):
    build = shown_case(name)
    for i in range(200):
        source = RandomSource(f"replay:{i}")
        assert build(ReplaySource(_after(build, source))) == build(RandomSource(f"replay:{i}"))


def _after(build, source):
    build(source)
    return source.choices


@pytest.mark.parametrize("name", NAMES)
def test_choices_without_one_record_make_a_valid_case(name):
    contract, build = contracts.get(name), shown_case(name)
    for i in range(20):
        raw = RandomSource(f"replay:{i}")
        drawn_case, _ = build(raw)
        source = SpanSource(raw.choices)
        assert build(source)[0] == drawn_case and source.choices == raw.choices
        for count, start, end in source.spans:
            fewer = [*raw.choices[:start], *raw.choices[end:]]
            fewer[count] -= 1
            again = SpanSource(fewer)
            case, how = build(again)
            contract.domain(case)
            assert build(ReplaySource(again.choices)) == (case, how)
            assert again.choices[:start] == fewer[:start]


@pytest.mark.parametrize("name", NAMES)
def test_records_that_do_not_matter_are_dropped_and_those_that_do_stay(name):
    build = shown_case(name)

    def count(case):
        return len(getattr(case, contracts.get(name).records))

    for i in range(20):
        raw = RandomSource(f"replay:{i}")
        needed = min(count(build(raw)[0]), 2)
        left = _without_records(build, raw.choices, lambda case, *_, needed=needed: count(case) >= needed)
        assert count(build(ReplaySource(left))[0]) == needed
        assert _without_records(build, raw.choices, lambda *_: False) == raw.choices


@pytest.mark.parametrize("name", NAMES)
def test_hypothesis_makes_the_same_case_of_the_same_choices(name):
    """Two speeds, one expansion: what Hypothesis drew replays from the list."""
    from hypothesis import HealthCheck, given, settings

    build = shown_case(name)

    @settings(max_examples=60, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(drawn_by_hypothesis(build))
    def same(drawn):
        made, choices = drawn
        assert build(ReplaySource(choices)) == made

    same()


@lru_cache(maxsize=1024)  # the mutants of a contract see the same draws
def drawn(name, number):
    source = RandomSource(f"kill:{number}")
    case, _ = shown_case(name)(source)
    return source.choices, case, contracts.get(name).run(case)[0]


def runner(name, mutant):
    contract = contracts.get(name)

    def run(case, how, legal=None):
        observed = mutant.observe(case)
        judgement = judge(contract, legal or contract.run(case)[0], observed) if observed is not None else None
        if judgement is None or judgement.agrees:
            return Verdict(Kind.AGREE, mutant.name, name)
        identity = Identity(name, mutant.name, judgement.field, judgement.kind)
        return Verdict(Kind.DIVERGE, mutant.name, name, identity)

    return run


@pytest.mark.parametrize(("name", "mutant"), ALL_MUTANTS, ids=[f"{n}-{m.name}" for n, m in ALL_MUTANTS])
def test_every_mutant_is_killed_and_shrinks_to_few_records(name, mutant):
    """Three raw finds of one mutant need no more than two records when they are shrunk; of
    a mutant that wants two rows in each other's place one may keep a third. A story needs
    more, and may have several that none of its steps can be taken from; one find of each
    is shrunk."""
    run, story = runner(name, mutant), contracts.get(name).ordered
    sizes = set()
    finds = 0
    for i in range(20000):
        choices, case, legal = drawn(name, i)
        verdict = run(case, None, legal)
        if not verdict.red:
            continue
        if finds == 0:
            wanted = verdict.identity
        if verdict.identity != wanted:
            continue
        small = shrink(name, choices, wanted, run, PATIENCE_S)
        assert small is not None and small.verdict.identity == wanted
        sizes.add(len(getattr(small.case, contracts.get(name).records)))
        finds += 1
        if finds == (1 if story else 3):
            break
    assert finds, f"{mutant.name} survives 20,000 draws"
    assert max(sizes) <= (MOST_STEPS if story else 3) and min(sizes) <= (MOST_STEPS if story else 2), sizes
