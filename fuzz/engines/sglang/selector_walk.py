"""Walks over a candidate lattice: DFlash's kernel, its eager twin, and LiLiCorr's.

The walk's callers hand over what their own kernels made, but each way here makes
its arguments contiguous itself or takes any stride, so strides are shown.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.draft_select_buffers import CONTRACT, allocations, form

OBSERVES = ("massless", "tokens", "rows")


def walk(case: Any) -> str | None:
    return form("walk", case)


def power_of_two(case: Any) -> str | None:
    fits = case.width & (case.width - 1) == 0
    return walk(case) or (None if fits else "the configuration asks for a power of two of candidates")


def _arguments(engine: Any, case: Any) -> dict[str, Any]:
    return {
        "candidate_ids": engine.tensor(case.candidates, "int64"),
        "scores": engine.tensor(case.scores, case.dtype),
        "uniforms": engine.tensor(case.coins, "float32"),
        "temperatures": engine.tensor(case.temperature, "float32"),
        "greedy_mask": engine.tensor(case.greedy, "bool"),
    }


def _mass(token: int, candidates: list[int], masses: list[float]) -> float | None:
    """The greatest mass that stands beside the token; none for a token that is no candidate."""
    return max((m for c, m in zip(candidates, masses, strict=True) if c == token), default=None)


def _observed(case: Any, tokens: Any, rows: Any) -> dict[str, Any]:
    """With the mass that each drawn token has in the distribution handed on."""
    drawn, q = tokens.tolist(), rows.tolist()
    massless = [
        sum(_mass(token, slot, row) == 0.0 for token, slot, row in zip(path, candidates, masses, strict=True))
        for path, candidates, masses in zip(drawn, case.candidates.tolist(), q, strict=True)
    ]
    return {"massless": massless, "tokens": drawn, "rows": q}


@adapter(contract=CONTRACT, module="dflash", symbol="selector_walk_triton", observes=(*OBSERVES, "outside_writes"),
         needs=("select.walk_kernel",), execution="triton", accepts=power_of_two)  # fmt: skip
def kernel(engine: Any, case: Any) -> dict[str, Any]:
    arguments = _arguments(engine, case)
    with allocations(engine.torch) as made, engine.production():
        tokens, rows = engine.symbol("select.walk_kernel")(**arguments)
    return _observed(case, tokens, rows) | {"outside_writes": made.outside()}


@adapter(contract=CONTRACT, module="dflash", symbol="CandidateSelector.sample_path", observes=OBSERVES,
         needs=("select.walk_eager",), accepts=walk)  # fmt: skip
def eager(engine: Any, case: Any) -> dict[str, Any]:
    arguments = _arguments(engine, case)
    engine.require_path(not arguments["scores"].is_cuda, "plain tensors")
    selector = ClosedStub("selector", top_k=case.width)
    with engine.production():
        tokens, rows = engine.symbol("select.walk_eager")(selector, **arguments)
    return _observed(case, tokens, rows)


@adapter(contract=CONTRACT, module="lilicorr", symbol="_selector_walk_torch", observes=OBSERVES,
         needs=("select.walk_torch",), accepts=walk)  # fmt: skip
def plain(engine: Any, case: Any) -> dict[str, Any]:
    with engine.production():
        tokens, rows = engine.symbol("select.walk_torch")(**_arguments(engine, case))
    return _observed(case, tokens, rows)


@adapter(contract=CONTRACT, module="lilicorr", symbol="lilicorr_sample_path", observes=OBSERVES,
         needs=("select.walk_lilicorr",), accepts=power_of_two)  # fmt: skip
def lilicorr(engine: Any, case: Any) -> dict[str, Any]:
    """The first slot's row and the other slots' lattice come apart here."""
    arguments = _arguments(engine, case)
    start = engine.tensor(case.scores[:, 0, 0], case.dtype)
    pairs = engine.tensor(case.scores[:, 1:], case.dtype)
    with engine.production():
        tokens, rows = engine.symbol("select.walk_lilicorr")(
            log_start=start,
            log_pair=pairs,
            candidate_tokens=arguments["candidate_ids"],
            uniforms=arguments["uniforms"],
            temperatures=arguments["temperatures"],
            greedy_mask=arguments["greedy_mask"],
        )
    return _observed(case, tokens, rows)
