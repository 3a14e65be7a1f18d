"""The multi-layer EAGLE worker's draft extension over prompts of any lengths.

``_draft_extend_for_prefill`` runs as shipped, always eagerly. Its models propose from the
last token of each request alone, as an extension's logits are those of the last tokens.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.mtp_model import states
from fuzz.engines.sglang.multi_layer_parts import Machine
from fuzz.engines.sglang.settings import settings
from oracle.draft.mtp_chain_case import PER_ROW, ROUND, WINDOW
from oracle.draft.proposer import stamp

FIRST_TOKEN = 0  # of a prompt: moved out before the first step


def of_prompts(case: Any) -> str | None:
    if case.form != WINDOW:
        return "a model for every step"
    return "prompts, before anything was captured" if len(case.captured) or len(case.earlier_pre) else None


class Prompts:
    """The tokens of a batch of prompts, one behind the other."""

    def __init__(self, case: Any):
        self.lengths = case.committed
        self.starts = np.cumsum(case.committed) - case.committed
        each = list(
            zip(case.pre.tolist(), case.committed.tolist(), case.pool_row.tolist(), case.predicted, strict=True)
        )
        self.tokens = np.concatenate([[FIRST_TOKEN, *behind[: count - 1]] for _, count, _, behind in each])
        self.positions = np.concatenate([np.arange(pre, pre + count) for pre, count, _, _ in each])
        self.pool_rows = np.repeat(case.pool_row, case.committed)
        self.stamps = [stamp(ROUND, row, 0, pre + j) for pre, count, row, _ in each for j in range(count)]


def forward_batch(engine: Any, machine: Machine, prompts: Prompts, spec_info: Any) -> ClosedStub:
    """The extension's batch, as the engine would make it of the scheduler's."""

    def tensor(values: Any, dtype: str = "int64") -> Any:
        return engine.tensor(values, dtype, contiguous=True)

    positions, rows = tensor(prompts.positions), tensor(prompts.pool_rows)
    spec_info.select_index = tensor(prompts.starts + prompts.lengths - 1)
    return ClosedStub(
        "forward batch",
        spec_info=spec_info,
        batch_size=len(prompts.lengths),
        forward_mode=engine.symbol("mtp.forward_mode").EXTEND,
        input_ids=tensor(prompts.tokens),
        positions=positions,
        out_cache_loc=machine.tokens[rows, positions].long(),
        extend_seq_lens=tensor(prompts.lengths, "int32"),
        extend_start_loc=tensor(prompts.starts, "int32"),
        req_pool_indices=tensor(machine.case.pool_row),
        sampling_info=None,
    )


@adapter(contract="draft.mtp_chain", module="multi_layer_eagle_v2", symbol="_draft_extend_for_prefill",
         observes=(*PER_ROW, "drafts"), needs=("mtp.worker", "mtp.forward_batch", "settings.config"),
         execution="worker", accepts=of_prompts)  # fmt: skip
def draft_extend_prompts(engine: Any, case: Any) -> dict[str, Any]:
    with settings(engine, interval=256):
        machine, prompts = Machine(engine, case), Prompts(case)

        def made(batch: Any, *_: Any, **__: Any) -> ClosedStub:
            return forward_batch(engine, machine, prompts, batch.spec_info)

        batch = ClosedStub(
            "batch",
            forward_mode=engine.symbol("mtp.forward_mode").EXTEND,
            seq_lens=engine.tensor(case.pre + case.committed, "int64", contiguous=True),
        )
        hidden, bonus = states(engine, prompts.stamps), engine.tensor(case.bonus, "int64", contiguous=True)
        preparation = mock.patch.object(engine.symbol("mtp.forward_batch"), "init_new", made)
        with machine.surroundings(), preparation, engine.production():
            result = machine.worker._draft_extend_for_prefill(batch, hidden, bonus)
    ends = np.cumsum(case.committed).tolist()
    live = [slice(start, end) for start, end in zip(prompts.starts.tolist(), ends, strict=True)]
    fed = [model.fed() for model in machine.models]
    rows = {name: [[getattr(run, name)[part] for run in fed] for part in live] for name in PER_ROW}
    return rows | {"drafts": result.topk_index.tolist()}
