"""The best token of a row: kernels that replace torch's argmax, and their callers."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.bound import forwarded
from fuzz.engines.sglang.draft_select_buffers import (
    CONTRACT,
    Guarded,
    Scores,
    allocations,
    form,
    refuse_nan_in_interpreter,
    rows_of_one,
)
from fuzz.engines.sglang.launches import counted
from fuzz.worker.layout import FILLER

DRAFT_COLUMNS, COLUMN = 3, 1  # of the draft buffer; the middle one is the request's
MEDIUM_ROWS = 64  # more rows take another kernel
INTERPRETED_CELLS = 2 * 4096  # the interpreter walks that kernel's reduction cell by cell


def top1(case: Any) -> str | None:
    return form("top1", case) or ("scores are not divided" if case.divided.any() else None)


def float32_top1(case: Any) -> str | None:
    return top1(case) or (None if case.dtype == "float32" else "scores are float32")


def divided(case: Any) -> str | None:
    return form("top1", case) or (None if case.divided.any() else "scores are divided")


def raced(case: Any) -> str | None:
    """Masses that race against exponential noise."""
    if divided(case):
        return divided(case)
    scores, noise = case.scores, case.divisor
    if (scores < 0).any() or np.isinf(scores).any():
        return "scores are masses"
    return None if (noise >= np.finfo(np.float32).tiny).all() and np.isfinite(noise).all() else "noise is positive"


@adapter(contract=CONTRACT, module="topk1", symbol="draft_topk1_postprocess",
         observes=("values", "tokens", "stored", "next_position", "outside_writes"),
         needs=("select.topk1",), execution="triton", accepts=top1)  # fmt: skip
def topk1_postprocess(engine: Any, case: Any) -> dict[str, Any]:
    if engine.fact("select.topk1_nan_reaches_argmax"):
        refuse_nan_in_interpreter(engine, case)
    scores, rows = Scores(engine, case.scores, case.dtype), len(case.position)
    positions = Guarded(engine, case.position, "int64")
    buffer = Guarded(engine, np.full((rows, DRAFT_COLUMNS), FILLER), "int64")
    with allocations(engine.torch) as made, engine.production():
        mass, index = engine.symbol("select.topk1")(scores.tensor, positions.tensor, buffer.tensor, COLUMN)
    others = buffer.tensor[:, [c for c in range(DRAFT_COLUMNS) if c != COLUMN]]
    beside = int((others != FILLER).sum())
    return {
        "values": rows_of_one(mass),
        "tokens": rows_of_one(index),
        "stored": rows_of_one(buffer.tensor[:, COLUMN]),
        "next_position": positions.tensor,
        "outside_writes": beside + buffer.outside() + positions.outside() + made.outside() + scores.changed(),
    }


@adapter(contract=CONTRACT, module="topk1", symbol="draft_topk1_argmax_only",
         observes=("values", "tokens", "outside_writes"),
         needs=("select.topk1_only",), execution="triton", accepts=top1)  # fmt: skip
def topk1_argmax_only(engine: Any, case: Any) -> dict[str, Any]:
    scores = Scores(engine, case.scores, case.dtype)
    with allocations(engine.torch) as made, engine.production():
        mass, index = engine.symbol("select.topk1_only")(scores.tensor)
    outside = made.outside() + scores.changed()
    return {"values": rows_of_one(mass), "tokens": rows_of_one(index), "outside_writes": outside}


def _interpretable(engine: Any, case: Any) -> None:
    """The kernel for many rows reduces cell by cell in the interpreter."""
    rows, columns = case.scores.shape
    padded = -(-columns // 4096) * 4096
    engine.require_path(
        engine.device != "cpu" or rows * padded <= INTERPRETED_CELLS, "small enough for the interpreter"
    )


@adapter(contract=CONTRACT, module="row_argmax", symbol="row_argmax", observes=("tokens", "outside_writes"),
         needs=("select.row_argmax", "select.row_argmax_module"), execution="triton",
         accepts=float32_top1)  # fmt: skip
def row_argmax(engine: Any, case: Any) -> dict[str, Any]:
    scores = Scores(engine, case.scores, "float32")
    if len(case.scores) > MEDIUM_ROWS:
        _interpretable(engine, case)
    kernel = "_medium_argmax_partial_kernel" if len(case.scores) > MEDIUM_ROWS else "_argmax_partial_kernel"
    module = engine.symbol("select.row_argmax_module")
    with counted(module, kernel) as launches, allocations(engine.torch) as made, engine.production():
        index = engine.symbol("select.row_argmax")(scores.tensor)
    engine.require_path(launches.count == 1, kernel)
    return {"tokens": rows_of_one(index), "outside_writes": made.outside() + scores.changed()}


@adapter(contract=CONTRACT, module="row_argmax", symbol="div_argmax", observes=("tokens", "outside_writes"),
         needs=("select.div_argmax",), execution="triton", accepts=divided)  # fmt: skip
def div_argmax(engine: Any, case: Any) -> dict[str, Any]:
    _interpretable(engine, case)
    scores, divisor = Scores(engine, case.scores, "float32"), Scores(engine, case.divisor, "float32", winner=2.0**-20)
    with allocations(engine.torch) as made, engine.production():
        index = engine.symbol("select.div_argmax")(scores.tensor, divisor.tensor)
    outside = made.outside() + scores.changed() + divisor.changed()
    return {"tokens": rows_of_one(index), "outside_writes": outside}


@adapter(contract=CONTRACT, module="spec_utils", symbol="fast_sample", observes=("tokens",),
         needs=("select.fast_sample",), accepts=raced)  # fmt: skip
def fast_sample(engine: Any, case: Any) -> dict[str, Any]:
    """The noise that production draws is replaced by the case's, and counted."""
    torch = engine.torch
    noise, drawn = engine.tensor(case.divisor, "float32", contiguous=True), []

    @forwarded
    def exponential(tensor: Any, rate: float = 1.0, *, generator: Any = None) -> Any:
        drawn.append(rate)
        return tensor.copy_(noise)

    probabilities = engine.tensor(case.scores, "float32", contiguous=True)
    with mock.patch.object(torch.Tensor, "exponential_", exponential), engine.production():
        mass, index = engine.symbol("select.fast_sample")(probabilities, 1)
    engine.require_path(drawn == [1.0], "exponential race")
    return {"tokens": rows_of_one(index)}


def _markov(engine: Any, case: Any, way: str) -> dict[str, Any]:
    """Temperature 0 and no bias; columns behind the vocabulary hold a winner."""
    torch, (rows, width) = engine.torch, case.scores.shape
    scores = Scores(engine, case.scores, case.dtype)
    dtype, device = getattr(torch, case.dtype), engine.device
    with allocations(torch) as made, engine.production():
        index = getattr(engine.symbol("select.markov"), way)(
            base_logits=scores.whole_rows(),
            bias=torch.zeros((rows, width), dtype=dtype, device=device),
            temperatures=torch.zeros(rows, dtype=torch.float32, device=device),
            key=0,
            offset=torch.zeros(1, dtype=torch.int64, device=device),
            step=0,
            step_dtype=dtype,
            has_sampled_rows=False,
        )
    return {"tokens": rows_of_one(index), "outside_writes": made.outside() + scores.changed()}


@adapter(contract=CONTRACT, module="dspark", symbol="MarkovSampleStep.triton", observes=("tokens", "outside_writes"),
         needs=("select.markov",), execution="triton", accepts=top1)  # fmt: skip
def markov_triton(engine: Any, case: Any) -> dict[str, Any]:
    return _markov(engine, case, "triton")


@adapter(contract=CONTRACT, module="dspark", symbol="MarkovSampleStep.torch", observes=("tokens", "outside_writes"),
         needs=("select.markov",), accepts=top1)  # fmt: skip
def markov_torch(engine: Any, case: Any) -> dict[str, Any]:
    return _markov(engine, case, "torch")
