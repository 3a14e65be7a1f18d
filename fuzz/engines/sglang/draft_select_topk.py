"""The k best tokens of a row: torch's own behind a helper, and a tiled kernel."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.sglang.draft_select_buffers import CONTRACT, Scores, allocations, form, refuse_nan_in_interpreter
from fuzz.engines.sglang.launches import counted

OBSERVES = ("values", "any_tokens", "outside_writes")
TILE = 1024


def topk(case: Any) -> str | None:
    return form("topk", case)


def fused(case: Any) -> str | None:
    """The wrapper takes the kernel when the tiles it looks at are a power of two."""
    tiles = min(case.width, -(-case.vocabulary // TILE))
    return topk(case) or (None if tiles & (tiles - 1) == 0 else "the number of tiles is a power of two")


@adapter(contract=CONTRACT, module="common", symbol="fast_topk", observes=OBSERVES, needs=("select.fast_topk",),
         accepts=topk)  # fmt: skip
def fast_topk(engine: Any, case: Any) -> dict[str, Any]:
    scores = Scores(engine, case.scores, case.dtype)
    with engine.production():
        values, ids = engine.symbol("select.fast_topk")(scores.tensor, case.width, dim=-1)
    return {"values": values.float(), "any_tokens": ids, "outside_writes": scores.changed()}


@adapter(contract=CONTRACT, module="lilicorr", symbol="lilicorr_topk_lse.triton", observes=OBSERVES,
         needs=("select.topk_lse", "select.lilicorr_module"), execution="triton", accepts=fused)  # fmt: skip
def topk_lse_triton(engine: Any, case: Any) -> dict[str, Any]:
    """On a CPU the wrapper is told that its tensors are CUDA's."""
    from fuzz.engines.interpreter import cuda_tensors

    refuse_nan_in_interpreter(engine, case)
    scores, module = Scores(engine, case.scores, case.dtype), engine.symbol("select.lilicorr_module")
    with (
        counted(module, "_tiled_select") as launches,
        cuda_tensors(),
        allocations(engine.torch) as made,
        engine.production(),
    ):
        values, ids, _ = engine.symbol("select.topk_lse")(scores.tensor, case.width)
    engine.require_path(launches.count == 1, "tiled kernel")
    return {"values": values, "any_tokens": ids, "outside_writes": made.outside() + scores.changed()}


@adapter(contract=CONTRACT, module="lilicorr", symbol="lilicorr_topk_lse.torch", observes=OBSERVES,
         needs=("select.topk_lse_torch",), accepts=topk)  # fmt: skip
def topk_lse_torch(engine: Any, case: Any) -> dict[str, Any]:
    scores = Scores(engine, case.scores, case.dtype)
    with engine.production():
        values, ids, _ = engine.symbol("select.topk_lse_torch")(scores.tensor, case.width)
    return {"values": values, "any_tokens": ids, "outside_writes": scores.changed()}
