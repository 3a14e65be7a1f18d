"""Faults right behind a production kernel of SGLang, in its process: ``pre`` of the first request selects one. The
buffer that is left has no guard of its own: what is written beside it only the allocator's zones show."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter, registered
from tests.gpu.fault_engine import FAULTS, commit

REAL = "sglang/mamba_kernels/commit.checkpoint_steps/fused_commit_track_indices"


@adapter(
    contract="commit.checkpoint_steps", module="faults", symbol="fused_commit_track_indices", engine="sglang",
    observes=registered("sglang")[REAL].observes, needs=registered("sglang")[REAL].needs, execution="triton",
    accepts=registered("sglang")[REAL].accepts,
)  # fmt: skip
def faulty(engine: Any, case: Any) -> dict[str, Any]:
    answer = registered("sglang")[REAL].run(engine, case)
    buffer = engine.torch.zeros(64, dtype=engine.torch.int32, device=engine.device)
    with engine.production():
        found = commit(engine, buffer, FAULTS.get(int(case.pre[0])))
    if found:  # of memory that nobody gave it
        answer["current_step"] = [step + 1 for step in answer["current_step"]]
    return answer
