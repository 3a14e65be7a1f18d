"""A presentation changes how a case is shown and nothing about its answer."""

from __future__ import annotations

from dataclasses import replace

from fuzz.presentation import Presentation, permutation, present, undo
from oracle.commit.checkpoint_steps import CONTRACT, Request

CASE = replace(CONTRACT.example, requests=tuple(Request(250 + i, 1 + i % 4, i) for i in range(7)))


def test_permuted_answers_come_back_in_order():
    for seed in range(5):
        how = Presentation(order=seed)
        shown = present(CONTRACT, CASE, how)
        observed = {k: v for k, v in CONTRACT.run(shown)[0].items()}
        assert undo(CONTRACT, CASE, how, observed) == CONTRACT.run(CASE)[0]


def test_a_permutation_moves_something():
    assert any(permutation(7, s) != list(range(7)) for s in (1, 2, 3))
    assert permutation(7, 0) == list(range(7))


def test_padding_is_dropped_again():
    contract = replace(CONTRACT, padding=lambda case: Request(0, 1, -1))
    how = Presentation(order=2, padding=3)
    shown = present(contract, CASE, how)
    assert len(shown.requests) == 10
    assert undo(contract, CASE, how, contract.run(shown)[0]) == contract.run(CASE)[0]


def test_a_wrong_number_of_answers_is_left_for_the_judgement():
    how = Presentation(order=2)
    assert undo(CONTRACT, CASE, how, {"current_step": [1]}) == {"current_step": [1]}
