"""``assert_conforms``: a function that is not an engine yet, held against a contract."""

import numpy as np
import pytest

from fuzz.testing import NotConforming, assert_conforms


def accept(case):
    """A right implementation of verify.greedy_chain."""
    matches = case.block[:, 1:] == case.predicted[:, :-1]
    accepted = np.cumprod(matches, axis=1).sum(axis=1)
    return {"accepted": accepted, "bonus_token": case.predicted[np.arange(len(case.block)), accepted]}


def test_a_right_function_conforms_on_frozen_and_fresh_cases():
    ran = assert_conforms(accept, contract="verify.greedy_chain", max_examples=50)
    assert ran >= 50 + 10


def test_a_wrong_function_is_explained_at_the_smallest_case():
    def last_never(case):
        if case.block.shape[1] > 9:  # no frozen case shows this one
            return {"accepted": [min(a, 8) for a in accept(case)["accepted"].tolist()]}
        return {"accepted": accept(case)["accepted"]}

    def only_fresh(case):
        return None if case.vocabulary == 8 else "another vocabulary"

    with pytest.raises(NotConforming) as found:
        assert_conforms(last_never, contract="verify.greedy_chain", accepts=only_fresh, max_examples=500)
    text = str(found.value)
    assert "accepted (matched draft tokens) must be 9, production has 8" in text
    assert "accepted draft tokens" in text and "✗" in text and text.count("pre:") == 1
    assert "Falsifying" not in text and not getattr(found.value, "__notes__", [])


def test_a_wrong_answer_to_a_frozen_case_needs_no_fresh_one():
    with pytest.raises(NotConforming, match="bonus_token"):
        assert_conforms(lambda case: {"bonus_token": case.block[:, 0]}, contract="verify.greedy_chain", max_examples=1)


def test_promised_and_unknown_fields_are_checked():
    with pytest.raises(NotConforming, match="returned no emitted"):
        assert_conforms(accept, contract="verify.greedy_chain", observes=("emitted",))
    with pytest.raises(NotConforming, match="acepted: no field of verify.greedy_chain"):
        assert_conforms(lambda case: {"acepted": []}, contract="verify.greedy_chain")


def test_a_function_that_raises_says_so_itself():
    def broken(case):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        assert_conforms(broken, contract="verify.greedy_chain")


def test_nothing_tested_is_an_error():
    with pytest.raises(ValueError, match="nothing was tested"):
        assert_conforms(accept, contract="verify.greedy_chain", accepts=lambda case: "never", max_examples=5)
    with pytest.raises(KeyError, match="no contract"):
        assert_conforms(accept, contract="verify.nothing")


@pytest.mark.parametrize(
    "returned",
    [None, {}, [], "accepted", {"accepted": None}, {"accepted": 3}, {"accepted": {1, 2}}, {"accepted": [object()]},
     {"accepted": [1j]}, {1: 2}, {"accepted": (i for i in range(3))}, {"accepted": [None]}],
)  # fmt: skip
def test_what_is_no_outcome_is_named(returned):
    with pytest.raises(NotConforming):
        assert_conforms(lambda case: returned, contract="verify.greedy_chain", max_examples=1)


def test_an_array_field_must_hold_numbers():
    with pytest.raises(NotConforming, match="state: must be an array of numbers"):
        assert_conforms(lambda case: {"state": object()}, contract="commit.state_scatter", max_examples=1)
