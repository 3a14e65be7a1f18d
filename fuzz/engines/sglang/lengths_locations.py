"""KV locations of committed tokens and of the following block."""

from __future__ import annotations

from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.sglang.lengths_inputs import (
    CONTRACT,
    Result,
    block_locations,
    bonus_tokens,
    located,
    next_power_of_2,
    split,
    token_table,
)
from fuzz.worker.layout import FILLER


@adapter(contract=CONTRACT, module="cache_locs", symbol="assign_extend_cache_locs",
         observes=("committed_locations", "outside_untouched"), needs=("lengths.extend_kernel",),
         execution="triton", accepts=located)  # fmt: skip
def assign_extend_kernel(engine: Any, case: Any) -> dict[str, Any]:
    """As the move of accepted tokens launches it: from pre to post."""
    rows, total = len(case.pre), int(case.committed.sum())
    result = Result(engine, rows * case.path_width, "int64")
    tokens = token_table(engine, case)
    start = engine.tensor(case.pre, case.length_dtype, contiguous=True)
    end = engine.tensor(case.pre + case.committed, case.length_dtype, contiguous=True)
    pool_rows = engine.tensor(case.pool_row, "int64", contiguous=True)
    with engine.production():
        engine.symbol("lengths.extend_kernel")[(rows,)](
            pool_rows, tokens, start, end, result.tensor, tokens.shape[1], next_power_of_2(rows)
        )
    return {
        "committed_locations": split(result.tensor, case.committed),
        "outside_untouched": result.untouched_behind(total),
    }


@adapter(contract=CONTRACT, module="cache_locs", symbol="assign_extend_cache_locs_func",
         observes=("next_locations",), needs=("lengths.extend_function", "lengths.extend_module"),
         execution="triton", accepts=located)  # fmt: skip
def assign_extend_function(engine: Any, case: Any) -> dict[str, Any]:
    """As verify of the following round calls it: a block from post on."""
    start = engine.tensor(case.pre + case.committed, case.length_dtype, contiguous=True)
    with mock.patch.object(engine.symbol("lengths.extend_module"), "_is_cuda", True), engine.production():
        locations = engine.symbol("lengths.extend_function")(
            req_pool_indices=engine.tensor(case.pool_row, "int64", contiguous=True),
            req_to_token=token_table(engine, case),
            start_offset=start,
            end_offset=start + case.draft_tokens,
            batch_size=len(case.pre),
            draft_token_num=case.draft_tokens,
            device=engine.device,
        )
    engine.require_path(locations is not None, "the platform's kernel")
    return {"next_locations": locations.view(len(case.pre), case.draft_tokens)}


def _uniform(engine: Any, case: Any, **optional: Any) -> Any:
    with mock.patch.object(engine.symbol("lengths.extend_module"), "_is_cuda", True), engine.production():
        locations = engine.symbol("lengths.extend_uniform")(
            engine.tensor(case.pool_row, "int64", contiguous=True),
            token_table(engine, case),
            engine.tensor(case.pre + case.committed, case.length_dtype, contiguous=True),
            len(case.pre),
            case.draft_tokens,
            engine.device,
            **optional,
        )
    return locations.view(len(case.pre), case.draft_tokens)


@adapter(contract=CONTRACT, module="cache_locs", symbol="assign_extend_cache_locs_uniform_func",
         observes=("next_locations",), needs=("lengths.extend_uniform", "lengths.extend_module"),
         execution="triton", accepts=located)  # fmt: skip
def assign_extend_uniform(engine: Any, case: Any) -> dict[str, Any]:
    return {"next_locations": _uniform(engine, case)}


@adapter(contract=CONTRACT, module="cache_locs", symbol="assign_extend_cache_locs_uniform_func(positions_out)",
         observes=("bonus_token", "next_positions", "next_locations", "outside_untouched"),
         needs=("lengths.extend_uniform_positions", "lengths.extend_uniform", "lengths.extend_module"),
         execution="triton", accepts=located)  # fmt: skip
def assign_extend_uniform_positions(engine: Any, case: Any) -> dict[str, Any]:
    """With everything that the following round asks of the same launch."""
    rows, width = len(case.pre), case.draft_tokens
    positions, anchors = Result(engine, rows * width, "int64"), Result(engine, rows * width, "int64")
    anchor_rows = anchors.tensor.view(rows, width)
    locations = _uniform(
        engine, case,
        positions_out=positions.tensor.view(rows, width),
        anchor_src=engine.tensor(bonus_tokens(case), "int64", contiguous=True),
        anchor_out=anchor_rows,
    )  # fmt: skip
    untouched = bool((anchor_rows[:, 1:] == FILLER).all()) and positions.untouched_behind(rows * width)
    return {
        "bonus_token": anchor_rows[:, 0],
        "next_positions": positions.tensor.view(rows, width),
        "next_locations": locations,
        "outside_untouched": untouched and anchors.untouched_behind(rows * width),
    }


@adapter(contract=CONTRACT, module="cache_locs", symbol="fill_front_out_cache_loc_func",
         observes=("committed_locations", "outside_untouched"), needs=("lengths.front_locations",),
         execution="triton", accepts=located)  # fmt: skip
def fill_front(engine: Any, case: Any) -> dict[str, Any]:
    result = Result(engine, len(case.pre) * case.path_width, "int64")
    with engine.production():
        engine.symbol("lengths.front_locations")(
            engine.tensor(case.committed, case.committed_dtype, contiguous=True),
            engine.tensor(block_locations(case), "int64", contiguous=True),
            result.tensor,
        )
    return {
        "committed_locations": split(result.tensor, case.committed),
        "outside_untouched": result.untouched_behind(int(case.committed.sum())),
    }
