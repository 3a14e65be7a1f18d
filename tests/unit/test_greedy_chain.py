"""verify.greedy_chain: two definitions over every small block, and the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oracle.contract import InvalidCase
from oracle.verify.greedy_chain import CONTRACT, GreedyChainCase, Request


def test_every_block_of_three_over_three_tokens():
    for block in product(range(3), repeat=3):
        for predicted in product(range(3), repeat=3):
            case = GreedyChainCase(3, (Request(7, block, predicted),))
            assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def test_by_hand():
    case = GreedyChainCase(50, (Request(10, (5, 1, 2, 3), (1, 2, 3, 40)), Request(20, (6, 1, 9, 3), (1, 2, 3, 4))))
    outcome, _ = CONTRACT.run(case)
    assert outcome == {
        "accepted": [3, 1],
        "committed": [4, 2],
        "post": [14, 22],
        "bonus_token": [40, 2],
        "emitted": [[1, 2, 3, 40], [1, 2]],
    }


@pytest.mark.parametrize("width", [1, 2, 63, 64])
def test_all_none_and_one_less(width):
    predicted = tuple(range(1, width + 1))
    for accepted in {0, max(width - 2, 0), width - 1}:
        block = [0, *predicted[:accepted], *[99] * (width - 1 - accepted)]
        case = GreedyChainCase(100, (Request(0, tuple(block), predicted),))
        outcome = CONTRACT.run(case)[0]
        assert outcome["accepted"] == [accepted]
        assert outcome["bonus_token"] == [accepted + 1]
        assert outcome == CONTRACT.second(case)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"vocabulary": 1}, "vocabulary"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(0, (), ()),)}, "block"),
        ({"requests": (Request(0, (0,) * 65, (0,) * 65),)}, "block"),
        ({"requests": (Request(0, (0, 1), (0,)),)}, "predicted"),
        ({"requests": (Request(0, (0,), (16,)),)}, "vocabulary"),
        ({"requests": (Request(-1, (0,), (0,)),)}, "pre"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(CONTRACT.example, **changes))
