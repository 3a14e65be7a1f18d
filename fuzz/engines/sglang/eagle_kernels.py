"""The kernels that compute which step's state is kept, without a caller.

Both take the committed counts, the accepted nodes and the lengths before verify.
For a committed count of 0, which no caller hands over, they read the element in
front of the row: the guard zone shows that for the first row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.eagle_commit import CONTRACT, STEPS, node_numbers
from fuzz.engines.sglang.eagle_stubs import guarded


def _steps_only(case: Any) -> str | None:
    return None if case.situation == "verify" else "the kernel computes steps; its caller decides whether to"


def effective(engine: Any, case: Any, steps: Any) -> Any:
    """Checkpoint steps as the hook takes them: none without tracking or slot."""
    if steps is None:
        return [-1] * len(case.pre)
    return engine.torch.where(engine.tensor(case.track_slot, "int64", contiguous=True) < 0, -1, steps)


def sweep_indices(engine: Any, rows: Any) -> dict[str, Any]:
    nodes, committed, pre = rows.nodes(), rows.committed(), rows.lengths()
    with engine.production():
        current, saved = engine.symbol("eagle.fused_indices")(nodes, committed, pre, rows.draft_tokens, rows.grid)
    return {"current_step": current, "checkpoint_step": saved}


@adapter(contract=CONTRACT, module="mamba_kernels", symbol="fused_commit_track_indices", observes=STEPS,
         needs=("eagle.fused_indices",), execution="triton", accepts=_steps_only, sweep=sweep_indices)  # fmt: skip
def fused_indices(engine: Any, case: Any) -> dict[str, Any]:
    nodes = guarded(engine, node_numbers(case), "int32", case, contiguous=True)
    committed = engine.tensor(case.committed, case.committed_dtype, contiguous=True)
    pre = engine.tensor(case.pre, case.length_dtype, contiguous=True) if case.tracking else None
    with engine.production():
        current, saved = engine.symbol("eagle.fused_indices")(nodes, committed, pre, case.draft_tokens, case.grid)
    return {"current_step": current, "checkpoint_step": effective(engine, case, saved)}


def sweep_outputs(engine: Any, rows: Any) -> dict[str, Any]:
    """A predicted token a node, as the verify hands them over: the kernel copies all of them."""
    nodes, committed, pre = rows.nodes(), rows.committed(), rows.lengths()
    predicted = engine.torch.arange(nodes.numel(), dtype=engine.torch.int32, device=engine.device)
    with engine.production():
        _, _, (current, saved), _ = engine.symbol("eagle.fused_outputs")(
            predicted, nodes, committed, pre, num_draft_tokens=rows.draft_tokens, mamba_track_interval=rows.grid
        )
    return {"current_step": current, "checkpoint_step": saved}


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="prepare_verify_commit_outputs", observes=STEPS,
         needs=("eagle.fused_outputs",), execution="triton", accepts=_steps_only, sweep=sweep_outputs)  # fmt: skip
def fused_outputs(engine: Any, case: Any) -> dict[str, Any]:
    predicted = guarded(engine, np.arange(len(case.pre) * case.draft_tokens), "int32", case, contiguous=True)
    nodes = guarded(engine, node_numbers(case), "int32", case)
    committed = engine.tensor(case.committed, case.committed_dtype)
    pre = engine.tensor(case.pre, case.length_dtype)
    with engine.production():
        _, _, (current, saved), _ = engine.symbol("eagle.fused_outputs")(
            predicted,
            nodes,
            committed,
            pre,
            num_draft_tokens=case.draft_tokens,
            mamba_track_interval=case.grid if case.tracking else 0,
        )
    return {"current_step": current, "checkpoint_step": effective(engine, case, saved)}
