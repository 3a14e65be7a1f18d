"""The exhaustive sweep with a real torch: blocks of the worker against brute force, and SGLang's own targets."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fuzz import adapter as adapters
from fuzz import exhaustive, pieces
from fuzz.engines.spec import parse
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT, Session
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import closed_form
from reports import tables
from tests import sweep_doubles
from tests.unit.test_exhaustive import rows_of

pytestmark = pytest.mark.engine

DFLASH = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"
FUSED = "sglang/mamba_kernels/commit.checkpoint_steps/fused_commit_track_indices"
OUTPUTS = "sglang/eagle_kernels/commit.checkpoint_steps/prepare_verify_commit_outputs"
SMALL = pieces.pieces(300, 8, 512)
BEYOND_16_BITS = pieces.pieces(33_000, 3, 2**14)


@pytest.fixture(scope="module")
def session():
    with Session(sweep_doubles.launch(launch_for(parse("sglang==0.5.23")))) as made:
        yield made


def sweep(session, symbol, asked=SMALL):
    return exhaustive.sweep(session, sweep_doubles.target(symbol), asked, True)


@pytest.mark.parametrize("asked", [SMALL, BEYOND_16_BITS, pieces.pieces(70, 1, 1)], ids=["small", "16 bits", "one row"])
@pytest.mark.parametrize("name", sweep_doubles.ANSWERS)
def test_every_wrong_answer_is_counted_as_by_brute_force(session, name, asked):
    result = sweep(session, name, asked)
    expected = dict.fromkeys(("rows", "crossing", "diverging", "wrong_not_crossing"), 0)
    first = None
    for piece in asked:
        pre, committed = rows_of(piece).T
        seen = sweep_doubles.ANSWERS[name](np, pre, committed, piece.grid)
        right = closed_form(pre, committed, piece.grid)
        wrong, crossing = (seen[0] != right[0]) | (seen[1] != right[1]), right[1] != -1
        expected["rows"] += len(pre)
        expected["crossing"] += int(crossing.sum())
        expected["diverging"] += int(wrong.sum())
        expected["wrong_not_crossing"] += int((wrong & ~crossing).sum())
        if wrong.any() and first is None:
            first = (piece.grid, piece.length_dtype, *(int(v[np.argmax(wrong)]) for v in (pre, committed)))
    assert result.failure is None
    assert {n: getattr(result, n) for n in expected} == expected
    found = result.first and tuple(result.first[n] for n in ("grid", "length_dtype", "pre", "committed"))
    assert found == first


def test_only_rows_beyond_16_bits_show_a_narrow_computation(session):
    assert sweep(session, "narrow", SMALL).diverging == 0
    assert sweep(session, "narrow", BEYOND_16_BITS).diverging > 0


def test_the_rows_handed_over_are_whole_tensors_of_their_own(session):
    for asked in (SMALL, pieces.pieces(5, 4, 1), pieces.pieces(5, 1, 100), pieces.pieces(5, 1, 1)):
        result = sweep(session, "looks_at_the_rows", asked)
        assert result.failure is None and not result.diverging


def test_production_that_writes_into_its_arguments_does_not_move_the_yardstick(session):
    result = sweep(session, "writes_into_arguments")
    assert result.diverging > 0 and result.failure is None


def test_rows_that_production_leaves_out_hold_no_right_answer(session):
    assert not sweep(session, "right").diverging
    result = sweep(session, "leaves_rows_out")
    assert result.failure is None and result.diverging == result.rows


def test_a_yardstick_that_is_wrong_like_production_is_not_believed_then_or_later(session):
    result = sweep(session, "agrees_with_a_wrong_yardstick")
    assert result.verdict is Kind.ORACLE_SUSPECT and "walked token by token it is" in result.failure
    result = sweep(session, "right")
    assert result.verdict is Kind.ORACLE_SUSPECT and "not the oracle's" in result.failure and not result.rows
    session.fresh()
    assert sweep(session, "right").verdict is Kind.AGREE


def test_a_yardstick_that_blames_right_answers_is_not_believed(session):
    result = sweep(session, "blamed_by_a_wrong_yardstick")
    assert result.verdict is Kind.ORACLE_SUSPECT
    session.fresh()


def test_an_answer_of_another_shape_is_a_divergence(session):
    result = sweep(session, "one_value")
    assert result.verdict is Kind.DIVERGE and "checkpoint_step: (1,) values" in result.failure


@pytest.mark.parametrize("name", [DFLASH, FUSED, OUTPUTS])
def test_the_newest_release_agrees(engine_session, name):
    session, target = engine_session("0.5.23"), adapters.load("sglang")[name]
    asked, whole = pieces.domain(target, "cpu", 600, 24, seed=0)
    result = exhaustive.sweep(session, target, asked, whole)
    assert result.failure is None and not result.diverging and result.crossing > 100
    assert whole == (name == DFLASH)


def test_exactly_the_crossing_rows_diverge_on_0_5_18(engine_session):
    target = adapters.load("sglang")[DFLASH]
    asked, whole = pieces.domain(target, "cpu", 20_000, 64, seed=0)
    result = exhaustive.sweep(engine_session("0.5.18"), target, asked, whole)
    assert whole and result.rows == 20_001 * 64 * 6
    assert result.diverging == result.crossing > 2_000_000 and not result.wrong_not_crossing


def test_the_command_sweeps_the_kernel_and_reports_read_what_it_wrote(tmp_path):
    command = [sys.executable, "-c", "from fuzz.cli import main; main()", "sweep", "--engine", "sglang==0.5.23"]
    command += ["--target", "*fused_commit_track_indices", "--exhaustive", "--max-length", "300", "--max-commit", "8"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "14448 rows on the device, for targets that can be swept there"
    assert "(seeded sample)" in lines[1] and "rows walked token by token" in lines[3]
    assert lines[-1].startswith("exhaustive: ") and "0 diverging" in lines[-1]
    assert lines[-1].endswith("not every row was asked")
    (row,) = tables.frames([tmp_path / "run"])["verdicts"].to_dict("records")
    assert row["verdict"] == "AGREE" and row["rows"] > 3000 and row["target"] == FUSED
