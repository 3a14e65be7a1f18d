"""The exhaustive sweep's blocks on a real GPU: what is counted there is what NumPy counts, and a row that production
leaves out is seen. The sweep of SGLang itself is a command: see docs/ci.md."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fuzz import exhaustive, pieces
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import closed_form
from tests import sweep_doubles
from tests.unit.test_exhaustive import rows_of

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="UNSUPPORTED: no GPU here")

ASKED = pieces.pieces(33_000, 64, pieces.DEVICE_ROWS)  # beyond 16 bits; 13 million rows


@pytest.fixture(scope="module")
def session():
    with Session(sweep_doubles.launch(device="cuda:0")) as made:
        yield made


@pytest.mark.parametrize("name", sweep_doubles.ANSWERS)
def test_every_wrong_answer_is_counted_as_by_brute_force(session, name):
    result = exhaustive.sweep(session, sweep_doubles.target(name), ASKED, True)
    diverging = 0
    for piece in ASKED:
        pre, committed = rows_of(piece).T
        seen, right = (
            sweep_doubles.ANSWERS[name](np, pre, committed, piece.grid),
            closed_form(*rows_of(piece).T, piece.grid),
        )
        diverging += int(((seen[0] != right[0]) | (seen[1] != right[1])).sum())
    assert result.failure is None and result.rows == sum(p.rows for p in ASKED)
    assert result.diverging == diverging
    print(f"{name}: {result.rows} rows in {result.seconds:.2f} s, {result.diverging} diverging")


def test_what_production_is_given_and_leaves_behind(session):
    few = pieces.pieces(300, 64, 2**14)
    assert not exhaustive.sweep(session, sweep_doubles.target("looks_at_the_rows"), few, True).failure
    assert exhaustive.sweep(session, sweep_doubles.target("writes_into_arguments"), few, True).diverging
    left = exhaustive.sweep(session, sweep_doubles.target("leaves_rows_out"), few, True)
    assert left.failure is None and left.diverging == left.rows


def test_a_yardstick_that_is_wrong_like_production_is_not_believed(session):
    result = exhaustive.sweep(session, sweep_doubles.target("agrees_with_a_wrong_yardstick"), ASKED, True)
    assert result.verdict is Kind.ORACLE_SUSPECT
    session.fresh()
