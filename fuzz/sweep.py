"""Enumerate a bounded domain of commit.checkpoint_steps, every row of it.

Rows go to a target in large batches, and the answers are compared with the
closed form, array by array; the closed form itself is first compared with the
token-by-token reference over the same rows. Targets whose kernel runs in
Triton's interpreter cost about a millisecond a row, so they get a seeded sample.
The larger domain that is swept on the device is in ``exhaustive.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.adapter import Adapter
from fuzz.executor import Columns
from fuzz.supervisor import Died, Hung, Session
from fuzz.verdict import Kind
from oracle.commit import checkpoint_steps
from oracle.commit.checkpoint_steps import LENGTH_MAX, NONE, CheckpointStepsCase, Request, closed_form
from oracle.trace import Trace

CONTRACT = "commit.checkpoint_steps"
FIELDS = ("current_step", "checkpoint_step", "checkpoint_length")  # in the closed form's order
PRODUCTION_GRIDS = (64, 128, 256)
SMALL_GRIDS = (8, 16, 32)  # several boundaries in one block; no engine allows them
MAX_COMMIT = 64
GRIDS_OF_LENGTH = 4  # lengths from 0 to this many grids
AROUND_INT32 = 2  # and this many grids on both sides of 2^31
BATCH_ROWS = 4096
SAMPLE_BATCH_ROWS = 512
SAMPLE_ROWS = 4096


@dataclass(frozen=True)
class Block:
    """Rows that share everything but lengths. int64 arrays of one length."""

    grid: int
    length_dtype: str
    pre: np.ndarray
    committed: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.pre)

    @property
    def reachable(self) -> bool:
        """Engines refuse a grid below the number of draft tokens."""
        return self.grid in PRODUCTION_GRIDS


def blocks(max_commit: int = MAX_COMMIT) -> list[Block]:
    """The whole domain: one block per grid and integer type."""
    made = []
    for grid in (*PRODUCTION_GRIDS, *SMALL_GRIDS):
        commits = np.arange(1, (max_commit if grid in PRODUCTION_GRIDS else 3 * grid) + 1, dtype=np.int64)
        low = np.arange(0, GRIDS_OF_LENGTH * grid + 1, dtype=np.int64)
        high = np.arange(2**31 - AROUND_INT32 * grid, 2**31 + AROUND_INT32 * grid, dtype=np.int64)
        pre, committed = (a.ravel() for a in np.meshgrid(np.concatenate([low, high]), commits, indexing="ij"))
        for dtype in ("int64", "int32"):
            fits = pre + committed <= LENGTH_MAX[dtype]
            made.append(Block(grid, dtype, pre[fits], committed[fits]))
    return made


def sample(domain: list[Block], rows: int, seed: int) -> list[Block]:
    """A seeded sample that takes from each block by its share of all rows."""
    rng = np.random.default_rng(seed)
    total = sum(b.rows for b in domain)
    picked = []
    for block in domain:
        count = max(1, -(-rows * block.rows // total))
        take = rng.choice(block.rows, size=min(count, block.rows), replace=False)
        picked.append(Block(block.grid, block.length_dtype, block.pre[take], block.committed[take]))
    return picked


def batches(block: Block, rows: int) -> Iterator[Block]:
    """The block in pieces of at most ``rows`` rows."""
    for at in range(0, block.rows, rows):
        part = slice(at, at + rows)
        yield Block(block.grid, block.length_dtype, block.pre[part], block.committed[part])


def columns(block: Block) -> dict[str, Any]:
    """A batch as the columns of one case: a chain with every row tracked."""
    width = int(block.committed.max())
    step = np.arange(width, dtype=np.int64)
    return {
        "grid": block.grid,
        "draft_tokens": width,
        "path_width": width,
        "form": "chain",
        "length_dtype": block.length_dtype,
        "committed_dtype": "int32",
        "situation": "verify",
        "tracking": True,
        "pre": block.pre,
        "committed": block.committed,
        "track_slot": np.arange(block.rows, dtype=np.int64),
        "path": np.where(step < block.committed[:, None], step, NONE),
    }


@dataclass
class SweepResult:
    """What a sweep of one target saw. ``crossing`` is the number of rows in
    which the closed form saves a checkpoint; ``wrong_not_crossing`` counts
    diverging rows among the others. A call without an answer stops the sweep:
    ``verdict`` and ``failure`` say how. Of a sweep on the device: ``walked`` rows
    were also judged by the reference, and ``compile_s`` went before ``seconds``."""

    target: str
    rows: int = 0
    crossing: int = 0
    diverging: int = 0
    wrong_not_crossing: int = 0
    seconds: float = 0.0
    production_s: float = 0.0
    first: dict[str, Any] | None = None
    failure: str | None = None
    verdict: Kind = Kind.AGREE
    whole: bool = True
    exhaustive: bool = False
    walked: int = 0
    compile_s: float = 0.0


def sweep(
    session: Session,
    adapter: Adapter,
    domain: list[Block],
    seed: int = 0,
    on_batch: Callable[[SweepResult], None] = lambda result: None,
) -> SweepResult:
    """Sweep one target of commit.checkpoint_steps. A failure of the call stops
    it and stands in ``failure``."""
    result = SweepResult(adapter.id)
    if adapter.execution == "triton":
        domain, result.whole = sample(domain, SAMPLE_ROWS, seed), False
    size = BATCH_ROWS if result.whole else SAMPLE_BATCH_ROWS
    began = time.monotonic()
    for block in domain:
        for batch in batches(block, size):
            if not _batch(session, adapter, batch, result):
                return result
            result.seconds = time.monotonic() - began
            on_batch(result)
    return result


def _batch(session: Session, adapter: Adapter, batch: Block, result: SweepResult) -> bool:
    case = columns(batch)
    refusal = adapter.accepts(Columns(case))
    if refusal:
        result.verdict, result.failure = Kind.UNSUPPORTED, f"outside the target's domain: {refusal}"
        return False
    answer = session.call({"target": adapter.id, "case": case})
    if problem := no_answer(answer):
        result.verdict, result.failure = problem
        return False
    if answer.get("outside"):
        result.verdict, result.failure = Kind.DIVERGE, f"the call wrote outside its buffers: {answer['outside']}"
        return False
    expected = dict(
        zip(
            FIELDS,
            closed_form(batch.pre, batch.committed, batch.grid),
        )
    )
    wrong = np.zeros(batch.rows, dtype=bool)
    for name, right in expected.items():
        if name not in answer["observed"]:
            continue
        seen = np.asarray(answer["observed"][name], dtype=np.int64)
        if seen.shape != right.shape:
            result.verdict, result.failure = Kind.DIVERGE, f"{name}: {seen.shape} values for {right.shape} rows"
            return False
        bad = seen != right
        if bad.any() and result.first is None:
            i = int(np.argmax(bad))
            result.first = {
                "grid": batch.grid,
                "length_dtype": batch.length_dtype,
                "pre": int(batch.pre[i]),
                "committed": int(batch.committed[i]),
                "field": name,
                "expected": int(right[i]),
                "observed": int(seen[i]),
            }
        wrong |= bad
    crossing = expected["checkpoint_step"] != NONE
    if wrong.any():
        result.verdict = Kind.DIVERGE
    result.rows += batch.rows
    result.crossing += int(crossing.sum())
    result.diverging += int(wrong.sum())
    result.wrong_not_crossing += int((wrong & ~crossing).sum())
    result.production_s += answer.get("production_s", 0.0)
    result.compile_s += answer.get("compile_s", 0.0)
    return True


def no_answer(answer: Any) -> tuple[Kind, str] | None:
    """Verdict and words for a batch that was not answered; ``None`` for one that was."""
    if isinstance(answer, Died):
        return Kind.CRASH, f"the worker died: {answer.signal_name}"
    if isinstance(answer, Hung):
        return Kind.HANG, f"no answer within {answer.deadline_s:.0f} s"
    if answer["status"] == "ok":
        return None
    kinds = {
        "unsupported": Kind.UNSUPPORTED, "raised": Kind.CRASH, "device_fault": Kind.CRASH,
        "out_of_memory": Kind.OUT_OF_MEMORY,
    }  # fmt: skip
    words = answer.get("fault") or answer.get("reason") or answer.get("message") or "no reason given"
    return kinds.get(answer["status"], Kind.HARNESS_ERROR), words


class Silent(Trace):
    """A trace that records nothing: a sweep walks millions of tokens."""

    def step(self, *_: Any, **__: Any) -> None:
        pass

    def behaviour(self, name: str) -> None:
        pass


def check_closed_form(domain: list[Block]) -> int:
    """Compare the closed form with the token-by-token reference over the domain
    and return the number of rows. The integer type does not enter, so rows that
    both types share are walked once. Raises AssertionError at a difference."""
    checked = 0
    for block in domain:
        if block.length_dtype != "int64":
            continue
        for batch in batches(block, BATCH_ROWS):
            width = int(batch.committed.max())
            requests = tuple(
                Request(p, c, i) for i, (p, c) in enumerate(zip(batch.pre.tolist(), batch.committed.tolist()))
            )
            case = CheckpointStepsCase(batch.grid, width, width, "chain", "int64", "int32", "verify", True, requests)
            walked = checkpoint_steps.reference(case, Silent())
            formula = closed_form(batch.pre, batch.committed, batch.grid)
            for name, values in zip(FIELDS, formula):
                if walked[name] != values.tolist():
                    raise AssertionError(f"closed form and reference differ: grid {batch.grid}, {name}")
            checked += batch.rows
    return checked
