"""What runner 1 publishes after a verify, and hands to the next draft.

It reads its counts from the sampler's output, in which -1 stands behind the emitted
tokens; lengths on the device are 32 bits wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.vllm.buffers import Buffer, verified_chain
from fuzz.engines.vllm.chains import PLACEHOLDER, boundaries
from fuzz.engines.vllm.launches import counted
from fuzz.worker.layout import FILLER
from oracle.commit.token_table import VOCABULARY, table

CONTRACT = "commit.lengths"
MAX_TOKENS = 8192  # of a request
MAX_STEPS = 16  # each is a launch of its own
PADDED_ROWS = 2  # of a captured graph, behind the batch


def emitted(case: Any, behind: int) -> np.ndarray:
    """Emitted tokens [B, N]; ``behind`` stands after the committed ones."""
    kept = np.arange(case.draft_tokens) < case.committed[:, None]
    return np.where(kept, case.predicted, behind)


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="eagle_prepare_next_token_padded_kernel",
    observes=("committed", "bonus_token", "outside_untouched"),
    needs=("inputs.next_token_kernel",),
    execution="triton",
    accepts=verified_chain,
    engine="vllm",
)
def next_token(engine: Any, case: Any) -> dict[str, Any]:
    """No request is discarded, so that the backup tokens must not be taken."""
    rows, width = len(case.pre), case.draft_tokens
    sampled = engine.tensor(emitted(case, PLACEHOLDER), "int32", contiguous=True)
    token, count = Buffer(engine, rows, "int32"), Buffer(engine, rows, "int32")
    with engine.production():
        engine.symbol("inputs.next_token_kernel")[(rows,)](
            sampled,
            engine.tensor(np.zeros(rows, dtype=bool), "bool", contiguous=True),
            engine.tensor(np.full(rows, FILLER), "int32", contiguous=True),
            token.tensor,
            count.tensor,
            VOCABULARY,
            width,
            rows,
            sampled.stride(0),
            BLOCK_SIZE_TOKENS=1 << (width - 1).bit_length(),
        )
    return {
        "committed": count.tensor,
        "bonus_token": token.tensor,
        "outside_untouched": token.untouched() and count.untouched(),
    }


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="eagle_prepare_inputs_padded_kernel",
    observes=("committed", "bonus_token", "outside_untouched"),
    needs=("inputs.padded_kernel",),
    execution="triton",
    accepts=verified_chain,
    engine="vllm",
)
def prepare_padded(engine: Any, case: Any) -> dict[str, Any]:
    """It names the row of the last committed token, whose prediction is the bonus
    token, and counts the rejected drafts."""
    rows, width = len(case.pre), case.draft_tokens
    index, rejected = Buffer(engine, rows, "int32"), Buffer(engine, rows, "int32")
    with engine.production():
        engine.symbol("inputs.padded_kernel")[(rows,)](
            engine.tensor((width - 1) * np.arange(1, rows + 1), "int32", contiguous=True),
            engine.tensor(case.committed, "int32", contiguous=True),
            boundaries(engine, np.full(rows, width)),
            index.tensor,
            rejected.tensor,
            rows,
        )
    flat = case.predicted.reshape(-1)
    named = [int(flat[i]) if 0 <= i < flat.size else FILLER for i in index.tensor.tolist()]
    return {
        "committed": width - rejected.tensor,
        "bonus_token": named,
        "outside_untouched": index.untouched() and rejected.untouched(),
    }


def _stepwise(case: Any) -> str | None:
    if case.draft_tokens > MAX_STEPS:
        return f"more than {MAX_STEPS} launches"
    return verified_chain(case) or (None if case.table_width else "needs a token table")


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="eagle_step_update_slot_mapping_and_metadata",
    observes=("post", "next_positions", "next_locations", "outside_untouched"),
    needs=("inputs.step", "inputs.step_kernel"),
    execution="triton",
    accepts=_stepwise,
    engine="vllm",
)
def draft_steps(engine: Any, case: Any) -> dict[str, Any]:
    """One draft step after another, from the last committed position on. A page holds
    one token here, so that every location is looked up."""
    rows, post = len(case.pre), case.pre + case.committed
    pages = engine.tensor(table(case.table_width)[case.pool_row], "int32", contiguous=True)
    lengths = engine.tensor(post, "int32", contiguous=True)
    position = engine.tensor(post - 1, "int64", contiguous=True)
    positions, locations, untouched = [], [], True
    with counted(engine.symbol("inputs.step_kernel")) as runs:
        for _ in range(case.draft_tokens):
            at, slot = Buffer(engine, rows, "int64"), Buffer(engine, rows + PADDED_ROWS, "int64")
            with engine.production():
                engine.symbol("inputs.step")(
                    position, pages, lengths, 1, case.table_width, at.tensor, slot.tensor, rows + PADDED_ROWS
                )
            position = at.tensor
            positions.append(at.tensor.tolist())
            locations.append(slot.tensor[:rows].tolist())
            padded = slot.tensor[rows:].tolist()
            untouched = untouched and at.untouched() and slot.untouched() and padded == [PLACEHOLDER] * PADDED_ROWS
    engine.require_path(runs.count == case.draft_tokens, "slot mapping kernel")
    return {
        "post": lengths - case.draft_tokens,
        "next_positions": [list(row) for row in zip(*positions, strict=True)],
        "next_locations": [list(row) for row in zip(*locations, strict=True)],
        "outside_untouched": untouched,
    }


def _drafted(case: Any) -> str | None:
    return in_tables(case) or (None if case.draft_tokens > 1 else "a request without drafts is not its business")


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="update_num_computed_tokens_for_batch_change",
    observes=("committed", "post"),
    needs=("inputs.batch_change",),
    accepts=_drafted,
    engine="vllm",
)
def batch_change(engine: Any, case: Any) -> dict[str, Any]:
    """The batch was turned round since the verify, and the host's lengths are stale."""
    rows, before = len(case.pre), np.arange(len(case.pre))[::-1].copy()

    def int32(values: Any) -> Any:
        return engine.tensor(values, "int32", contiguous=True)

    computed, accepted = int32(case.pre[before]), int32(np.full(rows, FILLER))
    with engine.production():
        engine.symbol("inputs.batch_change")(
            computed,
            accepted,
            engine.tensor(before, "int64", contiguous=True),
            int32(case.committed[before]),
            int32(np.full(rows, case.draft_tokens - 1)),
            int32(np.full(rows, FILLER)),
        )
    return {"committed": accepted, "post": computed}


def in_tables(case: Any) -> str | None:
    if len(case.pre) and (case.pre + case.draft_tokens).max() >= MAX_TOKENS:
        return f"its table of tokens holds {MAX_TOKENS} a request"
    return verified_chain(case)
