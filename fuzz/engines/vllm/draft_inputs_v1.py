"""The first inputs of a draft model, as runner 1 lays them out.

Every request keeps room for its rejected tokens, so that lengths need not reach the
host; the kernels are launched as their callers launch them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.vllm.buffers import Buffer
from fuzz.engines.vllm.chains import boundaries
from oracle.commit.draft_inputs import ANCHORED, APPENDED, BLOCK, MASK, SHIFTED

CONTRACT = "commit.draft_inputs"
TILE = 256  # tokens of a program, at most
UNMARKED = 77  # in a mask of marks: neither yes nor no


def flat(case: Any, rows: np.ndarray) -> np.ndarray:
    """The rows [B, most] of all requests one behind the other, without what stands behind a request's own."""
    return np.concatenate([row[:n] for row, n in zip(rows, case.rows, strict=True)])


def positions(case: Any) -> np.ndarray:
    """Positions of the verified tokens, one request behind the other."""
    return flat(case, case.pre[:, None] + np.arange(case.block.shape[1]))


def power_of_two(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _expand(engine: Any, case: Any) -> dict[str, Any]:
    count, shifted = len(case.rows), case.form == SHIFTED
    lengths = case.rows + case.drafts - (1 if shifted else 0)
    starts, total = np.concatenate([[0], np.cumsum(lengths)]), int(lengths.sum())
    firsts = np.concatenate([[0], np.cumsum(case.rows)])[:-1]
    token, position = Buffer(engine, total, "int32"), Buffer(engine, total, "int64")
    rejected, masked = (Buffer(engine, total, "uint8", UNMARKED) for _ in range(2))
    sampled, hidden = Buffer(engine, count * case.drafts, "int32"), Buffer(engine, int(case.rows.sum()), "int32")
    tile = min(TILE, power_of_two(int(lengths.max())))
    with engine.production():
        engine.symbol("inputs.expand_kernel")[(count, -(-int(lengths.max()) // tile))](
            engine.tensor(flat(case, case.block), "int32", contiguous=True),
            engine.tensor(positions(case), "int64", contiguous=True),
            engine.tensor(case.bonus, "int32", contiguous=True),
            token.tensor,
            position.tensor,
            rejected.tensor,
            masked.tensor,
            sampled.tensor,
            hidden.tensor,
            boundaries(engine, case.rows),
            engine.tensor(firsts + case.committed - 1, "int32", contiguous=True),
            0,
            MASK,
            int(case.rows.sum()),
            case.drafts,
            int(shifted),  # a bool to its caller, which the interpreter does not take
            BLOCK_SIZE_TOKENS=tile,
        )
    found: dict[str, Any] = {"tokens": [], "positions": [], "sampled_rows": [], "rejected_rows": []}
    for i, (start, length) in enumerate(zip(starts, lengths, strict=False)):
        marks = rejected.tensor[start : start + length].tolist()
        live = [start + j for j, mark in enumerate(marks) if mark == 0]
        found["tokens"].append(token.tensor[live].tolist())
        found["positions"].append(position.tensor[live].tolist())
        named = sampled.tensor[i * case.drafts : (i + 1) * case.drafts]
        found["sampled_rows"].append((named - int(start)).tolist())
        found["rejected_rows"].append(sum(mark == 1 for mark in marks))
    buffers = (token, position, rejected, masked, sampled, hidden)
    return found | {"outside_untouched": all(b.untouched() for b in buffers)}


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="copy_and_expand_eagle_inputs_kernel",
    observes=("tokens", "positions", "sampled_rows", "rejected_rows", "outside_untouched"),
    needs=("inputs.expand_kernel",),
    execution="triton",
    accepts=lambda case: None if case.form in (SHIFTED, APPENDED) else "it feeds the committed tokens",
    engine="vllm",
)
def expand(engine: Any, case: Any) -> dict[str, Any]:
    return _expand(engine, case)


@adapter(
    contract=CONTRACT,
    module="spec_decode",
    symbol="copy_and_expand_dflash_inputs_kernel",
    observes=(
        "tokens", "positions", "sampled_rows", "locations", "context_positions", "context_locations",
        "outside_untouched",
    ),
    needs=("inputs.dflash_kernel",),
    execution="triton",
    accepts=lambda case: None if case.form == BLOCK else "DFlash samples from masks and feeds the bonus token beside",
    engine="vllm",
)  # fmt: skip
def expand_dflash(engine: Any, case: Any) -> dict[str, Any]:
    count, width = len(case.rows), case.drafts + 1
    verified = int(case.rows.sum())
    token, sampled = Buffer(engine, count * width, "int32"), Buffer(engine, count * case.drafts, "int32")
    position, slot = (Buffer(engine, count * width, "int64") for _ in range(2))
    context, context_slot = (Buffer(engine, verified, "int64") for _ in range(2))
    longest = int(case.rows.max()) + width
    tile = min(TILE, power_of_two(longest))
    pages = engine.tensor(case.pages, "int32", contiguous=True)
    with engine.production():
        engine.symbol("inputs.dflash_kernel")[(count, -(-longest // tile))](
            engine.tensor(case.bonus, "int32", contiguous=True),
            engine.tensor(positions(case), "int64", contiguous=True),
            token.tensor,
            context.tensor,
            position.tensor,
            context_slot.tensor,
            slot.tensor,
            sampled.tensor,
            pages,
            pages.stride(0),
            boundaries(engine, case.rows),
            engine.tensor(case.rows - case.committed, "int32", contiguous=True),
            MASK,
            case.page,
            width,
            case.drafts,
            verified,
            BLOCK_SIZE=tile,
            HAS_NUM_REJECTED=True,
        )
    buffers = (token, sampled, position, slot, context, context_slot)
    found = beside_context(case, width, token, position, slot, sampled, context, context_slot)
    return found | {"outside_untouched": all(b.untouched() for b in buffers)}


def beside_context(
    case: Any, width: int, token: Buffer, position: Buffer, slot: Buffer, sampled: Buffer, context: Buffer,
    context_slot: Buffer,
) -> dict[str, Any]:  # fmt: skip
    """Outcome fields of a form with a context, whose requests have ``width`` live rows each."""
    count, starts = len(case.rows), np.concatenate([[0], np.cumsum(case.rows)])

    def rows(buffer: Buffer) -> list[list[int]]:
        return buffer.tensor[: count * width].view(count, width).tolist()

    def kept(buffer: Buffer) -> list[list[int]]:
        return [buffer.tensor[s : s + c].tolist() for s, c in zip(starts, case.committed, strict=False)]

    named = sampled.tensor[: count * case.drafts].view(count, case.drafts).tolist()
    return {
        "tokens": rows(token),
        "positions": rows(position),
        "sampled_rows": [[int(n) - i * width for n in row] for i, row in enumerate(named)],
        "locations": rows(slot),
        "context_positions": kept(context),
        "context_locations": kept(context_slot),
    }


FORMS_WITH_CONTEXT = (BLOCK, ANCHORED)
