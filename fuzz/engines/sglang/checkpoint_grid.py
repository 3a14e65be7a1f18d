"""The rule by which a release combines interval, page and chunk to one grid."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.sglang.settings import settings

CONTRACT = "commit.checkpoint_grid"


def _grids(engine: Any, case: Any, key: str) -> list[int]:
    """The page that counts is the tree's, an argument; the configured page is
    kept at 1 so that mistaking one for the other shows."""
    found = []
    for interval, page, chunk in zip(case.interval.tolist(), case.page.tolist(), case.chunk.tolist(), strict=True):
        with settings(engine, interval=interval, chunk=chunk, extra_buffer=True), engine.production():
            found.append(engine.symbol(key)(page))
    return found


@adapter(contract=CONTRACT, module="runtime_context", symbol="mamba_track_grid", observes=("track_grid",),
         needs=("settings.config", "grid.track"), execution="python")  # fmt: skip
def track_grid(engine: Any, case: Any) -> dict[str, Any]:
    return {"track_grid": _grids(engine, case, "grid.track")}


@adapter(contract=CONTRACT, module="runtime_context", symbol="mamba_checkpoint_grid", observes=("prefill_grid",),
         needs=("settings.config", "grid.prefill"), execution="python")  # fmt: skip
def prefill_grid(engine: Any, case: Any) -> dict[str, Any]:
    return {"prefill_grid": _grids(engine, case, "grid.prefill")}
