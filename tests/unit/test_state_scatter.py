"""commit.state_scatter: two definitions, the domain, the numbers, the mutants."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from fuzz.mutants.mutant import mutants_of
from fuzz.mutants.state_scatter import _mutant
from fuzz.strategies.source import RandomSource
from fuzz.strategies.state_scatter import structure
from oracle.commit import stamps
from oracle.commit.stamps import FOREIGN, OWN
from oracle.commit.state_case import Row, StateScatterCase, domain
from oracle.commit.state_scatter import BEHAVIOURS, CONTRACT, explain, kind, reference, second
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.trace import Trace

EXAMPLE: StateScatterCase = CONTRACT.example
POOL = dataclasses.replace(EXAMPLE, operation="pool", scratch_rows=0, steps=1, rows=(Row(1, -1, 2, 0, -1),))
DRAWS = 600


def changed(case: StateScatterCase, **fields: object) -> StateScatterCase:
    return dataclasses.replace(case, **fields)


def outcome(case: StateScatterCase) -> dict:
    domain(case)
    return reference(case, Trace())


def same(first: dict, other: dict) -> bool:
    return first.keys() == other.keys() and all(np.array_equal(first[k], other[k]) for k in first)


def small_scope() -> Iterator[StateScatterCase]:
    """Every batch of one and of two rows over three steps, in every layout."""
    layouts = list(product((1, 2), (False, True), (False, True), ((), (2,), (2, 3))))
    ends = [
        (slot, step, track, track_step)
        for slot in (-1, 1)
        for step in (-1, 0, 2)
        for track in (-1, 3)
        for track_step in (-1, 1)
    ]
    for layers, first, overlapping, channels in layouts:
        base = changed(
            EXAMPLE,
            layers=layers,
            window_first=first,
            overlapping=overlapping,
            window_channels=channels,
            steps=3,
            slots=6,
            scratch_rows=2,
        )
        for slot, step, track, track_step in ends:
            row = Row(slot, step, track, track_step, 1)
            yield changed(base, rows=(row,))
            yield changed(base, rows=(row, Row(2, 1, 4, 0, 0)))
            yield changed(base, tracking=False, rows=(changed(row, track_slot=-1, track_step=-1),))
    for slot, track, asked, second_asked in product((-1, 1), (-1, 3), (-1, 0), (-1, 0)):
        yield changed(POOL, slots=6, rows=(Row(slot, -1, track, asked, -1), Row(2, -1, 4, second_asked, -1)))


def test_the_two_definitions_agree_over_a_small_scope() -> None:
    cases = list(small_scope())
    for case in cases:
        assert same(outcome(case), second(case)), case
    assert len(cases) > 1000


def test_the_two_definitions_agree_on_the_strategys_cases_and_every_behaviour_is_reached() -> None:
    reached: set[str] = set()
    for i in range(DRAWS):
        case = structure(RandomSource(f"agree-{i}"))
        assert domain(case) == "functional"
        legal, trace = CONTRACT.run(case)
        assert same(legal, second(case)), case
        reached |= trace.behaviours
    assert reached == set(BEHAVIOURS)


def test_commit_and_track_copy_their_own_steps() -> None:
    state = outcome(EXAMPLE)["state"][0]
    assert state.tolist() == [[OWN, OWN], [3, 4], [1, 2], [OWN, OWN]]


def test_overlapping_windows_share_cells_between_steps() -> None:
    case = changed(EXAMPLE, overlapping=True, window_channels=(1,))
    windows = outcome(case)["windows"][0]
    assert windows[2].tolist() == [1, 2, 3]  # step 0
    assert windows[1].tolist() == [2, 3, 4]  # step 1: one input further


def test_width_first_windows_slide_along_their_first_axis() -> None:
    case = changed(EXAMPLE, overlapping=True, window_first=True)
    assert outcome(case)["windows"][0, 1].tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    "row",
    [Row(1, -1, 2, -1, 0), Row(-1, 1, -1, 0, 0), Row(-1, -1, -1, -1, 0), Row(1, -1, -1, 1, 0)],
    ids=["no steps", "no slots", "neither", "slot without step, step without slot"],
)
def test_minus_one_means_not_this_row(row: Row) -> None:
    legal = outcome(changed(EXAMPLE, rows=(row,)))
    assert not legal["state"].any() and not legal["windows"].any()


def test_pool_copy_brings_the_slots_own_contents() -> None:
    state = outcome(POOL)["state"][0]
    assert state[2].tolist() == [-3, -4]
    assert not state[[0, 1, 3]].any()


def test_row_order_and_padding_do_not_change_the_outcome() -> None:
    rows = (Row(1, 1, 2, 0, 1), Row(3, 0, -1, -1, 0))
    case = changed(EXAMPLE, scratch_rows=2, rows=rows)
    padded = changed(case, rows=(rows[1], rows[0], CONTRACT.padding(case)))
    assert same(outcome(case), reference(padded, Trace()))


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"operation": "move"}, "operation"),
        ({"layers": 0}, "layers"),
        ({"state_entry": (1, 2)}, "state_entry"),
        ({"state_entry": (0, 0, 0), "window_channels": ()}, "nothing to keep"),
        ({"state_dtype": "int8"}, "state_dtype"),
        ({"slot_dtype": "int16"}, "slot_dtype"),
        ({"window_channels": (400,), "steps": 64}, "can be told apart"),
        ({"rows": (Row(4, 0, -1, -1, 0),)}, r"rows\[0\].slot"),
        ({"rows": (Row(1, 2, -1, -1, 0),)}, r"rows\[0\].step"),
        ({"rows": (Row(1, 0, -1, -1, -1),)}, "source_row"),
        ({"rows": (Row(1, 0, 1, 1, 0),)}, "write one slot"),
        ({"scratch_rows": 2, "rows": (Row(1, 0, -1, -1, 1), Row(2, 0, -1, -1, 1))}, "one scratch row"),
        ({"tracking": False}, "tracking is off"),
        ({"operation": "pool"}, "pool"),
        ({"slots": 1, "gap": 8, "rows": ()}, "gap"),
    ],
)  # fmt: skip
def test_a_case_outside_the_domain_names_the_field(fields: dict, named: str) -> None:
    with pytest.raises(InvalidCase, match=named):
        domain(changed(EXAMPLE, **fields))


def test_a_pool_copy_may_not_read_what_it_writes() -> None:
    with pytest.raises(InvalidCase, match="source slot is written"):
        domain(changed(POOL, rows=(Row(1, -1, 2, 0, -1), Row(2, -1, 3, 0, -1))))


@pytest.mark.parametrize("dtype", sorted(stamps.RAW_DTYPE))
def test_numbers_survive_their_bit_patterns(dtype: str) -> None:
    scratch, pool = np.arange(1, 11), -np.arange(1, 6)
    numbers = np.concatenate([scratch, pool])
    raw = stamps.to_raw(numbers, 10, dtype)
    assert len(set(raw.tolist())) == 15 and 0 not in raw
    assert stamps.from_raw(raw, 10, 5).tolist() == numbers.tolist()
    assert stamps.from_raw(np.array([0, 16]), 10, 5).tolist() == [FOREIGN, FOREIGN]


def test_numbers_of_one_field_are_distinct_across_its_tensors() -> None:
    case = changed(EXAMPLE, window_channels=(2, 3), layers=2)
    tensors = stamps.tensors_of(case)["windows"]
    for numbers in ("scratch_numbers", "pool_numbers"):
        every = np.concatenate([getattr(t, numbers)().ravel() for t in tensors])
        assert len(np.unique(every)) == len(every)


@pytest.mark.parametrize(
    "field, expected, observed, word",
    [
        ("outside", "untouched", "pool: 4 bytes", "written_outside"),
        ("source_changed", 0, 3, "source_written"),
        ("state", 5, OWN, "not_copied"),
        ("state", 5, 6, "wrong_source"),
        ("state", OWN, 6, "neighbour_overwritten"),
        ("windows", 5, FOREIGN, "foreign_contents"),
    ],
)  # fmt: skip
def test_kinds(field: str, expected: object, observed: object, word: str) -> None:
    assert kind(field, expected, observed) == word


def test_an_explanation_reads_the_numbers() -> None:
    words = explain(EXAMPLE, "state", (0, 1, 0), 1)
    assert words == (
        "layer 0, slot 1, cell 0 of state holds the state of row 0 after step 0 in layer 0; "
        "it must hold the state of row 0 after step 1 in layer 0"
    )
    assert "its old contents" in explain(EXAMPLE, "windows", (0, 1, 0), OWN)
    assert "no state ever held" in explain(EXAMPLE, "state", (0, 1, 0), FOREIGN)


def test_a_mutant_that_changes_nothing_is_never_killed() -> None:
    nothing = _mutant("nothing", "none", "is right")
    for i in range(DRAWS // 4):
        case = structure(RandomSource(f"null-{i}"))
        assert judge(CONTRACT, CONTRACT.run(case)[0], nothing.observe(case)).agrees


def test_every_mutant_is_killed_by_the_strategy() -> None:
    alive = {m.name: m for m in mutants_of(CONTRACT.name)}
    for i in range(DRAWS):
        case = structure(RandomSource(f"kill-{i}"))
        alive = {name: m for name, m in alive.items() if not m.killed_by(CONTRACT, case)}
        if not alive:
            return
    assert not alive, f"{sorted(alive)} survive {DRAWS} draws"
