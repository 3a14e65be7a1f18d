"""The exhaustive sweep as the supervisor sees it: its pieces hold every row once, the rows that are walked are the ones
that matter, and a worker whose opinion is wrong is not believed. The worker is a stand-in that computes with NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fuzz import exhaustive, pieces
from fuzz.adapter import Adapter
from fuzz.pieces import Piece
from fuzz.supervisor import Hung
from fuzz.sweep import FIELDS
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import closed_form
from tests.sweep_doubles import ANSWERS

STEPS = FIELDS[:2]
SMALL = pieces.pieces(300, 8, 512)


def target(execution: str = "torch", accepts=lambda case: None) -> Adapter:
    return Adapter(
        "e", "commit.checkpoint_steps", "m", "s", lambda *_: {}, STEPS, (), execution, accepts, sweep=lambda *_: {}
    )


def rows_of(piece: Piece) -> np.ndarray:
    length, committed = np.meshgrid(
        np.arange(piece.first, piece.last + 1), np.arange(1, piece.commits + 1), indexing="ij"
    )
    return np.stack([length.ravel(), committed.ravel()], axis=1)


class Worker:
    """Answers like ``fuzz.worker.sweep``, with ``production`` and ``yardstick`` given."""

    def __init__(self, production=ANSWERS["right"], yardstick=closed_form, form=closed_form):
        self.launch = SimpleNamespace(device="cpu")
        self.production, self.yardstick, self.form = production, yardstick, form
        self.asked: list[dict] = []

    def call(self, request: dict, deadline_s: float | None = None) -> object:
        self.asked.append(request)
        if request["op"] == "closed_form":
            values = self.form(request["pre"], request["committed"], request["grid"])
            return {"status": "ok", "values": dict(zip(FIELDS, values))}
        piece = Piece(*(request[n] for n in ("grid", "length_dtype", "first", "last", "commits")))
        rows = rows_of(piece)
        pre, committed = rows.T
        expected = dict(zip(FIELDS, self.yardstick(pre, committed, piece.grid)))
        seen = dict(zip(STEPS, self.production(np, pre, committed, piece.grid)))
        bad = {name: seen[name] != expected[name] for name in STEPS}
        wrong, crossing = bad[STEPS[0]] | bad[STEPS[1]], expected["checkpoint_step"] != -1
        at = (request["spot"][:, 0] - piece.first) * piece.commits + request["spot"][:, 1] - 1
        first = None
        if wrong.any():
            i = int(np.argmax(wrong))
            name = next(n for n in STEPS if bad[n][i])
            where = {"grid": piece.grid, "pre": int(pre[i]), "committed": int(committed[i]), "field": name}
            first = where | {"expected": int(expected[name][i]), "observed": int(seen[name][i])}
        return {
            "status": "ok", "rows": len(rows), "crossing": int(crossing.sum()), "diverging": int(wrong.sum()),
            "wrong_not_crossing": int((wrong & ~crossing).sum()), "first": first, "production_s": 0.5,
            "spot": {n: seen[n][at] for n in STEPS}, "spot_wrong": {n: bad[n][at] for n in STEPS},
        }  # fmt: skip


def stale_form(pre, committed, grid):
    current, _, length = closed_form(pre, committed, grid)
    return current, np.full_like(pre, -1), length


def test_the_whole_domain_is_four_hundred_million_rows_in_pieces_that_fit():
    whole = pieces.pieces(pieces.MAX_LENGTH, 64, pieces.DEVICE_ROWS)
    assert sum(p.rows for p in whole) == (2**20 + 1) * 64 * 3 * 2
    assert max(p.rows for p in whole) == pieces.DEVICE_ROWS
    assert pieces.DEVICE_ROWS * 64 < 2**31  # accepted nodes are int32


@pytest.mark.parametrize(("max_length", "commits", "rows"), [(300, 8, 512), (5, 3, 1), (64, 64, 10**6), (1, 1, 1)])
def test_pieces_hold_every_row_once(max_length, commits, rows):
    for grid, dtype in {(p.grid, p.length_dtype) for p in pieces.pieces(max_length, commits, rows)}:
        mine = [p for p in pieces.pieces(max_length, commits, rows) if (p.grid, p.length_dtype) == (grid, dtype)]
        assert np.array_equal(
            np.concatenate([rows_of(p) for p in mine]), rows_of(Piece(grid, dtype, 0, max_length, commits))
        )
        assert all(p.rows <= max(rows, commits) for p in mine)


def test_the_sample_is_small_inside_the_domain_and_has_crossings_for_each_grid_and_type():
    asked, whole = pieces.domain(target("triton"), "cpu", pieces.MAX_LENGTH, 64, seed=3)
    assert not whole and 0.8 * pieces.SAMPLE_ROWS < sum(p.rows for p in asked) < 2 * pieces.SAMPLE_ROWS
    assert {(p.grid, p.length_dtype) for p in asked} == {(p.grid, p.length_dtype) for p in SMALL}
    assert all(0 <= p.first <= p.last <= pieces.MAX_LENGTH for p in asked)
    for grid in (64, 128, 256):
        few = pieces.sampled(pieces.MAX_LENGTH, 8, pieces.SAMPLE_ROWS, seed=3)  # by chance 1 in 25 would cross
        crossed = [(closed_form(*rows_of(p).T, grid)[1] != -1).any() for p in few if p.grid == grid]
        assert np.mean(crossed) >= 0.5
    assert asked == pieces.domain(target("triton"), "cpu", pieces.MAX_LENGTH, 64, seed=3)[0]


def test_a_gpu_and_a_domain_as_small_as_the_sample_are_swept_whole():
    assert pieces.domain(target("triton"), "cuda:0", pieces.MAX_LENGTH, 64, seed=0)[1]
    assert pieces.domain(target("torch"), "cpu", pieces.MAX_LENGTH, 64, seed=0)[1]
    assert pieces.domain(target("triton"), "cpu", 20, 8, seed=0)[1]


def test_rows_next_to_boundaries_and_at_both_ends_are_always_walked():
    whole = pieces.pieces(pieces.MAX_LENGTH, 64, pieces.DEVICE_ROWS)
    walked = list(zip(whole, pieces.spots(whole, seed=1)))
    assert all(piece.holds(spot).all() for piece, spot in walked)
    of = {(p.grid, p.length_dtype): set() for p in whole}
    for piece, spot in walked:
        of[piece.grid, piece.length_dtype] |= set(map(tuple, spot.tolist()))
    top = pieces.MAX_LENGTH
    for (grid, _), rows in of.items():
        assert {(grid - 1, 1), (grid - 2, 2), (grid - 6, 3), (0, 1), (0, 64)} <= rows
        assert {(top, 1), (top, 64), (top - 1, 1), (top - 1, 2), (top - 64, 64), (top - 63, 64)} <= rows
    assert {(255, 1), (254, 2), (250, 3)} <= of[256, "int32"]
    total = sum(len(spot) for _, spot in walked)
    assert pieces.SPOT_ROWS * 0.9 < total < pieces.SPOT_ROWS * 1.5
    close = sum(int((abs((s.sum(axis=1) + p.grid // 2) % p.grid - p.grid // 2) <= 1).sum()) for p, s in walked)
    assert close > total // 3


@pytest.mark.parametrize("name", ANSWERS)
def test_every_wrong_answer_is_counted_as_by_brute_force(name):
    result = exhaustive.sweep(Worker(ANSWERS[name]), target(), SMALL, True)
    assert result.failure is None and result.rows == 301 * 8 * 6
    diverging = 0
    for piece in SMALL:
        pre, committed = rows_of(piece).T
        seen, truth = ANSWERS[name](np, pre, committed, piece.grid), closed_form(pre, committed, piece.grid)
        diverging += int(((seen[0] != truth[0]) | (seen[1] != truth[1])).sum())
    assert result.diverging == diverging
    assert result.verdict is (Kind.DIVERGE if diverging else Kind.AGREE)
    assert result.walked > 1000 and result.production_s == 0.5 * len(SMALL)


def test_a_yardstick_that_is_wrong_like_production_is_not_believed():
    result = exhaustive.sweep(Worker(ANSWERS["stale"], yardstick=stale_form), target(), SMALL, True)
    assert result.verdict is Kind.ORACLE_SUSPECT and "the comparison on the device calls" in result.failure


def test_a_yardstick_that_blames_right_answers_is_not_believed():
    result = exhaustive.sweep(Worker(yardstick=stale_form), target(), SMALL, True)
    assert result.verdict is Kind.ORACLE_SUSPECT and not result.diverging


def test_the_first_diverging_row_is_walked_even_where_no_spot_is(monkeypatch):
    """One row of the yardstick is wrong, and no spot row is near it."""

    def wrong_in_one_row(pre, committed, grid):
        current, saved, length = closed_form(pre, committed, grid)
        return current, np.where((pre == 77) & (committed == 5), 3, saved), length

    monkeypatch.setattr(exhaustive, "spots", lambda asked, seed: [np.zeros((0, 2), dtype=np.int64)] * len(asked))
    result = exhaustive.sweep(Worker(yardstick=wrong_in_one_row), target(), SMALL, True)
    assert result.verdict is Kind.ORACLE_SUSPECT and "'pre': 77" in result.failure


@pytest.mark.parametrize("at", ["first", "random", "largest"])
def test_nothing_is_swept_when_the_closed_forms_differ_in_a_single_row(at):
    def wrong_in_one_row(pre, committed, grid):
        row = {"first": 0, "random": -2, "largest": int(np.argmax(pre))}[at]
        current, saved, length = closed_form(pre, committed, grid)
        saved[row] += 1
        return current, saved, length

    worker = Worker(form=wrong_in_one_row)
    result = exhaustive.sweep(worker, target(), SMALL, True)
    assert result.verdict is Kind.ORACLE_SUSPECT and "the closed form on the device" in result.failure
    assert not result.rows and {r["op"] for r in worker.asked} == {"closed_form"}


def test_the_closed_forms_are_compared_at_both_types_ends():
    worker = Worker()
    exhaustive.sweep(worker, target(), SMALL, True)
    forms = [r for r in worker.asked if r["op"] == "closed_form"]
    assert {r["grid"] for r in forms} == {64, 128, 256}
    for request in forms:
        post = request["pre"] + request["committed"]
        assert 2**31 - 1 in post and int(post.max()) == 2**63 - 1 and len(post) > 10_000


def test_what_a_target_does_not_take_is_not_sent():
    worker = Worker()
    result = exhaustive.sweep(worker, target(accepts=lambda c: "too long" if c.pre.max() > 299 else None), SMALL, True)
    assert result.verdict is Kind.UNSUPPORTED and "too long" in result.failure and not worker.asked


def test_a_silent_worker_stops_the_sweep_and_keeps_what_was_counted():
    worker = Worker()
    answer = worker.call
    worker.call = lambda request, deadline_s=None: (
        Hung(30.0, "") if request.get("first", 0) > 100 else answer(request, deadline_s)
    )
    result = exhaustive.sweep(worker, target(), SMALL, True)
    assert result.verdict is Kind.HANG and 0 < result.rows < 301 * 8 * 6


def test_on_a_gpu_each_grid_and_type_is_compiled_before_the_clock_runs():
    worker = Worker()
    worker.launch.device = "cuda:0"
    result = exhaustive.sweep(worker, target(), SMALL, True)
    sent = [r for r in worker.asked if r["op"] == "sweep"]
    assert all(len(r["spot"]) == 0 and r["last"] - r["first"] <= 1 for r in sent[:6])
    assert {(r["grid"], r["length_dtype"]) for r in sent[:6]} == {(p.grid, p.length_dtype) for p in SMALL}
    assert result.rows == 301 * 8 * 6
