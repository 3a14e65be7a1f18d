"""What DFlash hands to its following round."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.lengths_inputs import CONTRACT, Result, bonus_tokens, located, token_table

MASK_TOKEN = 151_935  # stands in the block for tokens that are still to be drafted


@adapter(contract=CONTRACT, module="dflash", symbol="_prepare_dflash_draft_block_unchecked",
         observes=("bonus_token", "next_positions", "next_locations", "outside_untouched"),
         needs=("lengths.dflash_block",), execution="triton", accepts=located)  # fmt: skip
def dflash_block(engine: Any, case: Any) -> dict[str, Any]:
    rows, width = len(case.pre), case.draft_tokens
    tokens, positions, locations = (Result(engine, rows * width, "int64") for _ in range(3))
    with engine.production():
        engine.symbol("lengths.dflash_block")(
            engine.tensor(bonus_tokens(case), "int64"),
            engine.tensor(case.pre + case.committed, case.length_dtype),
            engine.tensor(case.pool_row, "int64"),
            token_table(engine, case),
            tokens.tensor.view(rows, width),
            positions.tensor.view(rows, width),
            locations.tensor.view(rows, width),
            MASK_TOKEN,
        )
    masks = bool((tokens.tensor.view(rows, width)[:, 1:] == MASK_TOKEN).all())
    return {
        "bonus_token": tokens.tensor.view(rows, width)[:, 0],
        "next_positions": positions.tensor.view(rows, width),
        "next_locations": locations.tensor.view(rows, width),
        "outside_untouched": masks and all(r.untouched_behind(rows * width) for r in (tokens, positions, locations)),
    }


def _dflash_accepts(case: Any) -> str | None:
    return "a real verify, not simulated acceptance" if case.simulated else None


@adapter(contract=CONTRACT, module="dflash", symbol="_make_next_draft_input_decode",
         observes=("post", "bonus_token"), needs=("lengths.dflash_next_input",),
         execution="torch", accepts=_dflash_accepts)  # fmt: skip
def dflash_next_input(engine: Any, case: Any) -> dict[str, Any]:
    name = engine.fact("lengths.dflash_bonus_name")
    bonus = engine.tensor(bonus_tokens(case), "int64")
    post = engine.tensor(case.pre + case.committed, case.length_dtype)
    with engine.production():
        handed = engine.symbol("lengths.dflash_next_input")(ClosedStub("worker"), **{name: bonus}, new_seq_lens=post)
    return {"post": handed.new_seq_lens, "bonus_token": getattr(handed, name)}
