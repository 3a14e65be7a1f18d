"""commit.aligned_states: the rule by hand, both definitions on every small case, and the words."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from fuzz.presentation import Presentation, present, undo
from oracle.commit import aligned_numbers as numbers
from oracle.commit.aligned_case import NONE, Request, block_count, held_columns, tables
from oracle.commit.aligned_states import CONTRACT, domain, explain, kind, move, reference, second
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.trace import Trace

EXAMPLE = CONTRACT.example


def case(*requests: Request, **changes):
    return replace(EXAMPLE, requests=requests, **changes)


def verified(computed: int, drafts: int, committed: int, fed: int = 1) -> Request:
    return Request(computed, fed, drafts, committed, NONE)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # (step, target, count) with blocks of 8 tokens; the running column is that of the last token
        (verified(6, 2, 3), (1, 0, 3)),  # 7, 8, 9 tokens: step 1 left the state of 8
        (verified(5, 2, 3), (2, 0, 1)),  # 6, 7, 8: the last step, in the running column itself
        (verified(7, 2, 1), (0, 0, 1)),  # 8: the certain token is on the boundary
        (verified(6, 2, 1), (0, NONE, 1)),  # 7: the drafts that would have crossed were rejected
        (verified(8, 2, 3), (0, NONE, 3)),  # 9, 10, 11: nobody stands on 8 or 16
        (verified(0, 0, 1, fed=12), (0, NONE, 1)),  # a chunk steps over 8
        (verified(9, 0, 1, fed=7), (0, 1, 1)),  # a chunk ends on 16
    ],
)
def test_the_state_of_the_last_boundary_is_saved_where_a_step_stands_on_it(request_, expected):
    m = move(case(request_), request_)
    assert (m.step, m.target, m.count) == expected


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # (source column + step, target, count)
        (Request(8, 1, 2, 3, 0), (2, 1, 1)),
        (Request(8, 1, 2, 2, 0), (1, 1, 1)),  # the state lies there already, its window does not
        (Request(7, 1, 0, 1, 1), (1, 0, 1)),  # back to the column before
        (Request(10, 1, 1, 2, 1), (1, NONE, 2)),
        (Request(0, 5, 0, 1, NONE), (0, NONE, 1)),
    ],
)
def test_a_state_moves_when_the_next_pass_writes_elsewhere(request_, expected):
    m = move(case(request_, operation="before_step"), request_)
    assert (m.source + m.step, m.target, m.count) == expected


def test_both_definitions_agree_on_every_small_case():
    """Every position, draft count and committed count with blocks of 2 and 3, alone in a batch."""
    seen = 0
    for block, computed, fed, drafts in itertools.product((2, 3), range(6), (1, 2, 4), range(4)):
        for committed in range(1, drafts + 2):
            small = case(verified(computed, drafts, committed, fed), block=block, drafts=3)
            columns = range(-(-computed // block) + 3) if computed else ()
            moved = [Request(computed, fed, drafts, committed, column) for column in columns]
            for each in [small, *(case(r, operation="before_step", block=block, drafts=3) for r in moved)]:
                domain(each)
                assert reference(each, Trace()) == second(each), each
                seen += 1
    assert seen > 1500


def test_what_continues_is_the_state_after_the_committed_tokens():
    """Wherever it lies: the count and column of the outcome lead to the step of the last committed token."""
    for committed in (1, 2, 3):
        for computed in range(16):
            one = case(verified(computed, 2, committed))
            state, window = numbers.own_numbers(one, len(held_columns(one, one.requests[0])))
            at = held_columns(one, one.requests[0]).index(-(-(computed + 3) // 8) - 1)
            last = committed - 1
            expected = [*state[0, at + last], *window[0, at, last : last + 3].ravel()]
            assert reference(one, Trace())["continuing"] == [[int(n) for n in expected]]


def test_blocks_are_distinct_and_the_null_block_is_nobodys():
    many = case(verified(5, 2, 3), verified(100, 1, 1), verified(17, 0, 1), seed=7)
    table = tables(many)
    used = table[table > 0]
    assert len(set(used.tolist())) == len(used) == block_count(many) - 1
    assert (table[1] > 0).sum() == len(held_columns(many, many.requests[1])) < table.shape[1]


def test_the_outcome_does_not_depend_on_order_or_padding():
    many = case(verified(5, 2, 3), verified(6, 2, 2), verified(7, 0, 1), seed=7)
    how = Presentation(order=3, padding=2)
    shown = present(CONTRACT, many, how)
    assert len(shown.requests) == 5
    assert undo(CONTRACT, many, how, reference(shown, Trace())) == reference(many, Trace())


def test_cells_are_read_back_as_the_numbers_of_their_request():
    many = case(verified(5, 2, 3), verified(6, 2, 2), seed=7)
    blocks, table = block_count(many), tables(many)
    state, window = numbers.pattern(many, blocks)
    for i, r in enumerate(many.requests):
        held = table[i, held_columns(many, r)].tolist()
        own_state, own_window = numbers.own_numbers(many, len(held))
        assert numbers.read(many, blocks, held, state[:, held], window=False) == own_state.ravel().tolist()
        assert numbers.read(many, blocks, held, window[:, held], window=True) == own_window.ravel().tolist()
        other = table[1 - i, held_columns(many, many.requests[1 - i])[0]]
        assert set(numbers.read(many, blocks, held, state[:, other], window=False)) == {numbers.OTHERS}
        assert numbers.read(many, blocks, held, state[:, :1] * 0, window=False) == [numbers.FOREIGN] * 2


def test_a_wrong_state_is_named_by_its_column():
    one = case(verified(22, 2, 3))  # steps 23, 24, 25 in columns 3, 4, 5
    outcome = reference(one, Trace())
    observed = outcome | {"checkpoint": [outcome["continuing"][0]]}
    found = judge(CONTRACT, outcome, observed)
    assert (found.field, found.kind, found.where) == ("checkpoint", "wrong_state", (0,))
    words = explain(one, "checkpoint", (0,), observed["checkpoint"][0])
    assert "finds the state of layer 0 in column 5" in words and "must find the state of layer 0 in column 4" in words
    foreign = [numbers.FOREIGN, *outcome["checkpoint"][0][1:]]
    assert "something that no block ever held" in explain(one, "checkpoint", (0,), foreign)
    assert "what another block held" in explain(one, "checkpoint", (0,), [numbers.OTHERS, *foreign[1:]])
    assert "accepted count: 3; must be 1" in explain(case(verified(5, 2, 3)), "accepted", (0,), 3)


@pytest.mark.parametrize(
    ("field", "expected", "observed", "word"),
    [
        ("accepted", 1, 3, "not_reset"),
        ("accepted", 3, 1, "reset"),
        ("accepted", 3, 2, "wrong_count"),
        ("changed", [0], [], "not_copied"),
        ("changed", [], [0], "neighbour_overwritten"),
        ("changed", [0], [1], "wrong_column"),
        ("continuing", [1], [2], "wrong_state"),
        ("outside", "untouched", "x", "written_outside"),
        ("column", 1, 0, "wrong_column"),
    ],
)
def test_a_difference_has_a_word(field, expected, observed, word):
    assert kind(field, expected, observed) == word


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"operation": "after"}, "operation: must be"),
        ({"block": 1}, "block: must be 2"),
        ({"state_entry": (0, 0, 0), "channels": 0}, "nothing to keep"),
        ({"state_entry": (4096, 4096, 1)}, "can be told apart"),
        ({"gap": 2**31 - 2**20 - 1, "state_entry": (1, 8, 16)}, "are laid out"),
        ({"requests": ()}, "requests: must not be empty"),
        ({"requests": (verified(2**30, 0, 1),)}, "block table of more than"),
        ({"requests": (verified(0, 2, 4),)}, "committed: must be 1 to 3"),
        ({"requests": (verified(0, 3, 1),)}, "drafts: must be 0 to 2"),
        ({"requests": (Request(5, 1, 0, 1, 0),)}, "column: follows from the tokens"),
        ({"operation": "before_step", "requests": (Request(5, 1, 0, 1, NONE),)}, "has computed nothing"),
        ({"operation": "before_step", "requests": (Request(0, 1, 0, 1, 0),)}, "has computed something"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(changes, words):
    with pytest.raises(InvalidCase, match=words):
        domain(replace(EXAMPLE, **changes))
