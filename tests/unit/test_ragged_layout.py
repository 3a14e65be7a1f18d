"""verify.ragged_layout: two definitions over every small batch, and what must add up."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.verify.ragged_layout import CONTRACT, Batch, RaggedLayoutCase

SMALL = [
    Batch(lengths, len(lengths) + spare, sum(lengths) + left, cap)
    for size in (1, 2, 3)
    for lengths in product((1, 2, 3), repeat=size)
    for spare, left, cap in product(range(4), range(8), (0, 3, 5))
]


def test_every_small_batch():
    for batch in SMALL:
        case = RaggedLayoutCase((batch,))
        CONTRACT.domain(case)
        assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def test_rows_add_up_and_padding_is_even():
    for batch in SMALL:
        outcome = CONTRACT.run(RaggedLayoutCase((batch,)))[0]
        (rows,), (offsets,) = outcome["lengths"], outcome["offsets"]
        assert len(rows) == batch.slots and offsets[0] == 0 and offsets[-1] == sum(rows)
        assert [b - a for a, b in zip(offsets, offsets[1:], strict=False)] == rows
        assert tuple(rows[: len(batch.lengths) - 1]) == batch.lengths[:-1]
        padding = rows[len(batch.lengths) :]
        if padding:
            assert rows[len(batch.lengths) - 1] == batch.lengths[-1]
            assert max(padding) - min(padding) <= 1 and padding == sorted(padding, reverse=True)
        if not batch.cap:
            assert sum(rows) == batch.tokens
        else:
            assert max(rows) <= batch.cap


def test_by_hand():
    outcome = CONTRACT.run(RaggedLayoutCase((Batch((3, 1, 4), 5, 15, 0),)))[0]
    assert outcome == {
        "lengths": [[3, 1, 4, 4, 3]],
        "offsets": [[0, 3, 4, 8, 12, 15]],
        "starts": [[0, 3, 4, 8, 12]],
    }
    wrong = judge(CONTRACT, outcome, outcome | {"lengths": [[3, 1, 4, 3, 4]]})
    assert (wrong.field, wrong.kind) == ("lengths", "too_short")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"lengths": ()}, "lengths"),
        ({"lengths": (0,)}, "lengths"),
        ({"lengths": (65,)}, "lengths"),
        ({"slots": 2}, "lengths"),
        ({"slots": 513}, "slots"),
        ({"tokens": 7}, "tokens"),
        ({"cap": 3}, "cap"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(RaggedLayoutCase((replace(CONTRACT.example.batches[0], **changes),)))
