"""Sweep every length up to 2^20 on the device: 4 * 10^8 rows of commit.checkpoint_steps.

The worker makes the rows, calls production and counts what differs from a closed form of its own; only the counts come
back (``fuzz/worker/sweep.py``). Such a count is worth what its yardstick is worth, so here it is doubted twice with the
oracle, which shares no code with it: its closed form is compared with the oracle's on edge and random rows, on the same
device, before anything is swept; and rows named here, in every block, among them those next to boundaries, are walked
token by token, production's answer and the worker's opinion of it. A wrong closed form is ORACLE_SUSPECT, whatever
production does, and ends the sweep.

Only targets with a ``sweep`` function can be asked this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.adapter import Adapter
from fuzz.executor import Columns
from fuzz.pieces import LENGTH_DTYPES, Piece, spots
from fuzz.supervisor import Session
from fuzz.sweep import FIELDS, Block, Silent, SweepResult, columns, no_answer
from fuzz.verdict import Kind
from oracle.commit import checkpoint_steps
from oracle.commit.checkpoint_steps import LENGTH_MAX, CheckpointStepsCase, Request, closed_form

FORM_ROWS = 4096  # random rows on which the closed forms are compared, for each grid and type


def sweep(
    session: Session,
    adapter: Adapter,
    asked: list[Piece],
    whole: bool,
    seed: int = 0,
    on_block: Callable[[SweepResult], None] = lambda result: None,
) -> SweepResult:
    """Sweep one target that has a ``sweep`` function; each block is one request with the session's deadline."""
    result = SweepResult(adapter.id, whole=whole, exhaustive=True)
    began = time.monotonic()
    if not (_accepted(adapter, asked, result) and _same_form(session, adapter, asked, result)):
        return result
    if session.launch.device != "cpu" and not _compiled(session, adapter, asked, result):
        return result
    result.compile_s = time.monotonic() - began
    began = time.monotonic()
    for piece, spot in zip(asked, spots(asked, seed)):
        if not _block(session, adapter, piece, spot, result):
            return result
        result.seconds = time.monotonic() - began
        on_block(result)
    return result


def _accepted(adapter: Adapter, asked: list[Piece], result: SweepResult) -> bool:
    for piece in asked:
        ends = np.array([piece.first, piece.last], dtype=np.int64)
        block = Block(piece.grid, piece.length_dtype, ends, np.full(2, piece.commits, dtype=np.int64))
        refusal = adapter.accepts(Columns(columns(block)))
        if refusal:
            return _stop(result, Kind.UNSUPPORTED, f"outside the target's domain: {refusal}")
    return True


def _same_form(session: Session, adapter: Adapter, asked: list[Piece], result: SweepResult) -> bool:
    """Compare the worker's closed form with the oracle's on edge rows, also at both types' ends, and on random ones."""
    rng = np.random.default_rng(0)
    longest, most = max(p.last for p in asked), max(p.commits for p in asked)
    for grid in sorted({p.grid for p in asked}):
        near = np.arange(-most - 1, most + 2)
        edges = [grid, longest // grid * grid, longest, *(LENGTH_MAX[d] - 2 * most - 1 for d in LENGTH_DTYPES)]
        pre = np.concatenate(
            [np.arange(0, 3 * grid), *(e + near for e in edges), rng.integers(0, longest + 1, FORM_ROWS)]
        )
        pre = np.repeat(pre[pre >= 0], 3)
        committed = rng.integers(1, most + 1, len(pre))
        committed[0::3], committed[1::3] = 1, most
        answer = session.call(
            {"op": "closed_form", "target": adapter.id, "grid": grid, "pre": pre, "committed": committed}
        )
        if problem := no_answer(answer):
            return _stop(result, *problem)
        for name, right in zip(FIELDS, closed_form(pre, committed, grid)):
            seen = np.asarray(answer["values"][name])
            if not np.array_equal(seen, right):
                i = int(np.argmax(seen != right)) if seen.shape == right.shape else 0
                row = f"grid {grid}, length {pre[i]}, committed {committed[i]}"
                return _stop(
                    result, Kind.ORACLE_SUSPECT, f"the closed form on the device is not the oracle's: {row}, {name}"
                )
    return True


def _compiled(session: Session, adapter: Adapter, asked: list[Piece], result: SweepResult) -> bool:
    """Ask for a few rows of each grid and type, so that no clock of the sweep holds a compilation."""
    seen = {}
    for piece in asked:
        seen.setdefault((piece.grid, piece.length_dtype), piece)
    for piece in seen.values():
        few = Piece(piece.grid, piece.length_dtype, piece.first, min(piece.first + 1, piece.last), piece.commits)
        answer = session.call(_request(adapter, few, np.zeros((0, 2), dtype=np.int64)))
        if problem := no_answer(answer):
            return _stop(result, *problem)
    return True


def _request(adapter: Adapter, piece: Piece, spot: np.ndarray) -> dict[str, Any]:
    return {"op": "sweep", "target": adapter.id, "spot": spot, **vars(piece)}


def _block(session: Session, adapter: Adapter, piece: Piece, spot: np.ndarray, result: SweepResult) -> bool:
    answer = session.call(_request(adapter, piece, spot))
    if problem := no_answer(answer):
        return _stop(result, *problem)
    if "misshapen" in answer:
        return _stop(result, Kind.DIVERGE, answer["misshapen"])
    if answer["rows"] != piece.rows:
        return _stop(result, Kind.HARNESS_ERROR, f"{answer['rows']} rows were swept of {piece}, not {piece.rows}")
    if answer.get("outside"):
        return _stop(result, Kind.DIVERGE, f"production wrote outside its buffers: {answer['outside']}")
    suspect = _walked(piece, spot, answer)
    if suspect:
        return _stop(result, Kind.ORACLE_SUSPECT, suspect)
    result.rows += answer["rows"]
    result.crossing += answer["crossing"]
    result.diverging += answer["diverging"]
    result.wrong_not_crossing += answer["wrong_not_crossing"]
    result.production_s += answer["production_s"]
    result.walked += len(spot)
    result.first = result.first or answer["first"]
    if answer["diverging"]:
        result.verdict = Kind.DIVERGE
    return True


def _walked(piece: Piece, spot: np.ndarray, answer: dict[str, Any]) -> str | None:
    """Walk the spot rows and the first diverging one; says where the worker's opinion is not the reference's."""
    truth = _reference(piece, spot)
    for name, seen in answer["spot"].items():
        opinion, wrong = np.asarray(answer["spot_wrong"][name]), np.asarray(seen) != truth[name]
        if not np.array_equal(opinion, wrong):
            i = int(np.argmax(opinion != wrong)) if opinion.shape == wrong.shape else 0
            called = "right" if wrong[i] else "wrong"
            return (
                f"the comparison on the device calls {name} {seen[i]} {called} for {piece.length_dtype}, "
                f"grid {piece.grid}, length {spot[i][0]}, committed {spot[i][1]}; "
                f"walked token by token it is {truth[name][i]}"
            )
    first = answer["first"]
    if first is not None:
        right = _reference(piece, np.array([[first["pre"], first["committed"]]]))[first["field"]][0]
        if right != first["expected"] or right == first["observed"]:
            return f"walked token by token the first diverging row has {right}: {first}"
    return None


def _reference(piece: Piece, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Production's fields for the rows [k, 2], token by token."""
    most = piece.commits
    requests = tuple(Request(pre, committed, i) for i, (pre, committed) in enumerate(rows.tolist()))
    case = CheckpointStepsCase(
        piece.grid, most, most, "chain", piece.length_dtype, "int32", "verify", True, requests
    )  # fmt: skip
    walked = checkpoint_steps.reference(case, Silent())
    return {name: np.array(walked[name], dtype=np.int64) for name in FIELDS}


def _stop(result: SweepResult, verdict: Kind, failure: str) -> bool:
    result.verdict, result.failure = verdict, failure
    return False
