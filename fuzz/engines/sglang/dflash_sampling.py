"""DFlash's acceptance by sampling: a chain, verified with the tree kernel.

The function keeps its output buffers between calls, one set a block size; they are
dropped before each call, so that a result cannot be the previous one's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang import sampling_inputs as inputs
from fuzz.engines.sglang.outputs import needs_cuda
from fuzz.engines.sglang.tree_sampling import CONTRACT


def chain(case: Any) -> str | None:
    """Node n + 1 follows node n, and the path may hold them all."""
    nodes = case.token.shape[1]
    following = np.append(np.arange(1, nodes), -1)
    if (case.next_child != following).any() or (case.next_sibling != -1).any():
        return "DFlash verifies chains"
    return None if case.width == nodes else "the block is the width"


def _accepts(case: Any) -> str | None:
    return chain(case) or inputs.recovered(case)


@adapter(contract=CONTRACT, module="dflash", symbol="compute_dflash_sampling_correct_drafts_and_bonus",
         observes=("accepted", "bonus_token"), needs=("sampling.dflash", "sampling.dflash_module"),
         accepts=_accepts, rounding_ulp=inputs.ROUNDING_ULP)  # fmt: skip
def correct_drafts(engine: Any, case: Any) -> dict[str, Any]:
    needs_cuda(engine, "sampling verification")
    return call(engine, case)


def call(engine: Any, case: Any) -> dict[str, Any]:
    module = engine.symbol("sampling.dflash_module")
    module._DFLASH_CHAIN_VERIFY_BUFFERS.clear()
    with engine.production():
        accepted, bonus = engine.symbol("sampling.dflash")(
            candidates=engine.tensor(case.token, "int64", contiguous=True),
            next_token_logits=inputs.logits(engine, case),
            sampling_info=inputs.parameters(engine, len(case.token)),
            threshold_single=case.threshold_single,
            threshold_acc=case.threshold_acc,
            uniform_samples=engine.tensor(case.coin, "float32", contiguous=True),
            uniform_samples_for_final_sampling=engine.tensor(case.final_coin, "float32", contiguous=True),
        )
    return {"accepted": accepted, "bonus_token": bonus}
