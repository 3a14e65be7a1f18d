"""draft.graph_rows: what padding may keep, and both definitions over sizes and batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from fuzz.frozen import plain_outcome
from fuzz.mutants.graph_rows import MUTANTS
from oracle.contract import InvalidCase
from oracle.draft.graph_rows import CONTRACT
from oracle.draft.graph_rows_case import Row, hidden_of, location

EXAMPLE = CONTRACT.example
ROWS = tuple(Row(10 + i, 1 + i % 3, 5 + 2 * i, 9 - i, i) for i in range(4))


def small_cases():
    for size, pads, before, width, front in product(range(1, 4), range(3), range(5), (1, 2, 4), (0, 1)):
        if front >= width or any(r.committed > width - front for r in (*ROWS[:size], *ROWS[:before])):
            continue
        bucket = size + pads
        yield replace(
            EXAMPLE, capacity=max(bucket, before), bucket=bucket, width=width, front=front, rows=ROWS[:size],
            before=ROWS[::-1][4 - before :],
        )  # fmt: skip


def test_both_definitions_agree_on_every_small_batch():
    tried = 0
    for case in small_cases():
        try:
            CONTRACT.domain(case)
        except InvalidCase:
            continue
        tried += 1
        assert plain_outcome(CONTRACT.run(case)[0]) == plain_outcome(CONTRACT.second(case)), case
    assert tried > 100


def test_the_batch_before_never_changes_what_is_right():
    for case in small_cases():
        alone = replace(case, before=())
        assert plain_outcome(CONTRACT.run(case)[0]) == plain_outcome(CONTRACT.run(alone)[0])


def test_a_stale_buffer_is_red_only_after_a_batch_that_was_larger():
    stale = [m for m in MUTANTS if m.name.startswith("stale_padding_")]
    case = replace(EXAMPLE, capacity=4, bucket=4, before=ROWS, rows=ROWS[:3])
    assert len(stale) == 4
    for mutant in stale:
        assert mutant.killed_by(CONTRACT, case)
        assert not mutant.killed_by(CONTRACT, replace(case, before=ROWS[:3]))


def test_locations_and_hidden_states_of_rows_are_told_apart():
    spots = [location(r, p) for r in ROWS for p in range(8)]
    states = [n for r in ROWS for n in hidden_of(r, 8)]
    assert len(set(spots)) == len(spots) and len(set(states)) == len(states) and min(spots) > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bucket": 5}, "bucket: must be 1 to capacity"),
        ({"front": 4}, "front: must be 0 to width - 1"),
        ({"rows": ()}, "rows: must be 1 to bucket"),
        ({"before": ROWS + tuple(replace(r, pool_row=40 + i) for i, r in enumerate(ROWS))}, "before: must be at most"),
        ({"rows": (Row(10, 5, 1, 3, 1),)}, r"rows\[0\].committed: must be 1 to 4"),
        ({"rows": (Row(0, 1, 1, 3, 1),)}, r"rows\[0\].length: must be above front"),
        ({"rows": (Row(9, 1, 0, 3, 1),)}, r"rows\[0\].pool_row"),
        ({"rows": (Row(9, 1, 1, 3, 1), Row(9, 1, 1, 4, 1))}, "rows.pool_row: two requests share one"),
        ({"fill": 0}, "fill: must be 1 to 16"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(change, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(replace(EXAMPLE, **change))


@pytest.mark.parametrize(
    ("field", "expected", "observed", "kind"),
    [
        ("rows_handed_out", 2, 8, "stale_tail"),
        ("rows_handed_out", 2, 1, "rows_missing"),
        ("padding_rows", [0], [7], "stale_padding"),
        ("padding_rows", [0], [], "wrong_count"),
        ("padding_selected", 0, 1, "foreign_row_sampled"),
        ("state_slots", 107, -1, "request_taken_for_padding"),
        ("state_slots", 107, 106, "wrong_slot"),
        ("lengths", 3, 4, "wrong_value"),
    ],
)
def test_what_is_wrong_in_a_word(field, expected, observed, kind):
    assert CONTRACT.kind(field, expected, observed) == kind
