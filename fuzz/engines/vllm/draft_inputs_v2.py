"""The first inputs of a draft model, as runner 2 lays them out in its own buffers.

Requests are found by their state, which is not their row; buffers are larger than the
batch and padded for captured graphs, so that what stands behind is overwritten too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.vllm.buffers import Buffer
from fuzz.engines.vllm.chains import boundaries
from fuzz.engines.vllm.draft_inputs_v1 import (
    CONTRACT,
    FORMS_WITH_CONTEXT,
    beside_context,
    flat,
    positions,
)
from fuzz.engines.vllm.launches import counted
from fuzz.worker.layout import FILLER
from oracle.commit.draft_inputs import ANCHORED, MASK, PAGES, SHIFTED

MORE_REQUESTS = 2  # that a captured graph has room for


class _Round:
    """One round of a batch: what the runner hands its drafters."""

    def __init__(self, engine: Any, case: Any):
        def made(values: Any, dtype: str) -> Any:
            return engine.tensor(values, dtype, contiguous=True)

        self.count = len(case.rows)
        self.states = np.arange(self.count, 0, -1)
        self.most = self.count + MORE_REQUESTS
        self.batch = ClosedStub(
            "input batch",
            num_reqs=self.count,
            input_ids=made(flat(case, case.block), "int32"),
            positions=made(positions(case), "int64"),
            idx_mapping=made(self.states, "int32"),
            query_start_loc=boundaries(engine, case.rows),
            seq_lens=made(case.pre + case.rows, "int32"),
            num_scheduled_tokens=case.rows,
        )
        bonus = np.full(self.most + 1, FILLER, dtype=np.int64)
        bonus[self.states] = case.bonus
        self.last_sampled = made(bonus, "int64")
        self.next_prefill = made(np.full(self.most + 1, FILLER), "int32")
        self.sampled = made(case.committed, "int32")
        self.rejected = made(case.rows - case.committed, "int32")


@adapter(
    contract=CONTRACT,
    module="gpu_eagle",
    symbol="prepare_prefill_inputs",
    observes=("tokens", "positions", "sampled_rows", "outside_untouched"),
    needs=("inputs.prefill", "inputs.prefill_kernel"),
    execution="triton",
    accepts=lambda case: None if case.form == SHIFTED and case.drafts == 1 else "one draft at a time, shifted",
    engine="vllm",
)
def prefill(engine: Any, case: Any) -> dict[str, Any]:
    given, total = _Round(engine, case), int(case.rows.sum())
    token, position = Buffer(engine, total, "int32"), Buffer(engine, total, "int64")
    starts, lengths = Buffer(engine, given.most + 1, "int32"), Buffer(engine, given.most, "int32")
    last, step = Buffer(engine, given.most, "int64"), Buffer(engine, 1, "int64")
    buffers = ClosedStub(
        "input buffers",
        input_ids=token.tensor,
        positions=position.tensor,
        query_start_loc=starts.tensor,
        seq_lens=lengths.tensor,
    )
    beside = {"last_token_indices": last.tensor, "current_draft_step": step.tensor, "max_num_reqs": given.most}
    with counted(engine.symbol("inputs.prefill_kernel")) as runs, engine.production():
        named = engine.symbol("inputs.prefill")(
            input_buffers=buffers,
            input_batch=given.batch,
            num_sampled=given.sampled,
            num_rejected=given.rejected,
            last_sampled=given.last_sampled,
            next_prefill_tokens=given.next_prefill,
            **{name: beside[name] for name in engine.fact("inputs.prefill_buffers")},
        )
    engine.require_path(runs.count == 1, "kernel of the first draft inputs")
    firsts = np.concatenate([[0], np.cumsum(case.rows)])[:-1]
    ends = [int(n) + 1 for n in named[: given.count].tolist()]
    return {
        "tokens": [token.tensor[s:e].tolist() for s, e in zip(firsts, ends, strict=True)],
        "positions": [position.tensor[s:e].tolist() for s, e in zip(firsts, ends, strict=True)],
        "sampled_rows": [[e - 1 - int(s)] for s, e in zip(firsts, ends, strict=True)],
        "outside_untouched": all(b.untouched() for b in (token, position, starts, lengths, last, step)),
    }


@adapter(
    contract=CONTRACT,
    module="gpu_dflash",
    symbol="prepare_dflash_inputs",
    observes=(
        "tokens", "positions", "sampled_rows", "locations", "context_positions", "context_locations",
        "outside_untouched",
    ),
    needs=("inputs.prepare_dflash", "inputs.prepare_dflash_kernel"),
    execution="triton",
    accepts=lambda case: None if case.form in FORMS_WITH_CONTEXT else "its committed tokens are a context",
    engine="vllm",
)  # fmt: skip
def dflash(engine: Any, case: Any) -> dict[str, Any]:
    given, anchored = _Round(engine, case), case.form == ANCHORED
    width = case.drafts + (0 if anchored else 1)
    most_rows, verified = given.most * width, int(case.rows.sum())
    token, starts = Buffer(engine, most_rows, "int32"), Buffer(engine, given.most + 1, "int32")
    position, slot = (Buffer(engine, most_rows, "int64") for _ in range(2))
    padding, lengths = Buffer(engine, most_rows, "uint8", 77), Buffer(engine, given.most, "int32")
    context, context_slot = (Buffer(engine, verified, "int64") for _ in range(2))
    sampled, sampled_position = (Buffer(engine, given.most * case.drafts, "int64") for _ in range(2))
    sampled_state = Buffer(engine, given.most * case.drafts, "int32")
    temperature, seeds = Buffer(engine, given.most + 1, "float32"), Buffer(engine, given.most + 1, "int64")
    buffers = ClosedStub(
        "input buffers",
        input_ids=token.tensor,
        positions=position.tensor,
        is_padding=padding.tensor,
        query_start_loc=starts.tensor,
        seq_lens=lengths.tensor,
    )
    with counted(engine.symbol("inputs.prepare_dflash_kernel")) as runs, engine.production():
        engine.symbol("inputs.prepare_dflash")(
            input_buffers=buffers,
            query_slot_mapping=slot.tensor,
            context_positions=context.tensor,
            context_slot_mapping=context_slot.tensor,
            sample_indices=sampled.tensor,
            sample_pos=sampled_position.tensor,
            sample_idx_mapping=sampled_state.tensor,
            temperature=temperature.tensor,
            seeds=seeds.tensor,
            input_batch=given.batch,
            num_sampled=given.sampled,
            num_rejected=given.rejected,
            last_sampled=given.last_sampled,
            next_prefill_tokens=given.next_prefill,
            input_temperature=engine.tensor(np.zeros(given.most + 1), "float32", contiguous=True),
            input_seeds=engine.tensor(np.zeros(given.most + 1), "int64", contiguous=True),
            block_table=engine.tensor(case.pages, "int32", contiguous=True),
            block_size=case.page,
            parallel_drafting_token_id=MASK,
            num_query_per_req=width,
            num_speculative_steps=case.drafts,
            max_num_reqs=given.most,
            max_num_tokens=most_rows,
            max_model_len=PAGES * case.page,
            sample_from_anchor=anchored,
            **engine.fact("inputs.prepare_dflash_extra"),
        )
    engine.require_path(runs.count == 1, "DFlash input kernel")
    written = (
        token, starts, position, slot, padding, lengths, context, context_slot, sampled, sampled_position,
        sampled_state, temperature, seeds,
    )  # fmt: skip
    found = beside_context(case, width, token, position, slot, sampled, context, context_slot)
    return found | {"outside_untouched": all(b.untouched() for b in written)}
