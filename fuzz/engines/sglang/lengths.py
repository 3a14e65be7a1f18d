"""What EAGLE publishes after verify, kernel by kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.lengths_inputs import (
    CONTRACT,
    Result,
    accept_index,
    block_locations,
    bonus_tokens,
    located,
    next_power_of_2,
    on_chain,
    split,
    token_table,
    verified,
)
from fuzz.worker.layout import FILLER


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="fill_bonus_tokens",
         observes=("bonus_token", "outside_untouched"), needs=("lengths.bonus_kernel",),
         execution="triton", accepts=verified)  # fmt: skip
def fill_bonus_tokens(engine: Any, case: Any) -> dict[str, Any]:
    rows = len(case.pre)
    emitted = np.take_along_axis(case.predicted, np.maximum(case.path, 0), axis=1)
    tokens = engine.tensor(np.where(case.path < 0, FILLER, emitted).reshape(-1), "int32", contiguous=True)
    committed = engine.tensor(case.committed, case.committed_dtype, contiguous=True)
    result = Result(engine, rows, "int32")
    kernel = engine.symbol("lengths.bonus_kernel")
    with engine.production():
        if engine.fact("lengths.eagle_kernels") == "kernel":
            kernel[(rows,)](tokens, committed, result.tensor, case.path_width)
        else:
            kernel(tokens, committed, result.tensor, case.path_width, rows)
    return {"bonus_token": result.tensor, "outside_untouched": result.untouched_behind(rows)}


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="fill_accept_out_cache_loc",
         observes=("accepted_locations", "outside_untouched"), needs=("lengths.accepted_kernel",),
         execution="triton", accepts=located)  # fmt: skip
def fill_accept_out_cache_loc(engine: Any, case: Any) -> dict[str, Any]:
    nodes = engine.tensor(accept_index(case), "int32", contiguous=True)
    locations = engine.tensor(block_locations(case), "int64", contiguous=True)
    size = nodes.numel()
    result = Result(engine, size, "int64")
    kernel = engine.symbol("lengths.accepted_kernel")
    with engine.production():
        if engine.fact("lengths.eagle_kernels") == "kernel":
            kernel[(size,)](nodes, locations, result.tensor, next_power_of_2(size))
        else:
            kernel(nodes, locations, result.tensor, size)
    return {
        "accepted_locations": split(result.tensor, case.committed),
        "outside_untouched": result.untouched_behind(int(case.committed.sum())),
    }


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="prepare_verify_commit_outputs",
         observes=("post", "bonus_token"), needs=("lengths.commit_outputs",),
         execution="triton", accepts=verified)  # fmt: skip
def commit_outputs(engine: Any, case: Any) -> dict[str, Any]:
    with engine.production():
        post, bonus = engine.symbol("lengths.commit_outputs")(
            engine.tensor(case.predicted.reshape(-1), "int32"),
            engine.tensor(accept_index(case), "int32"),
            engine.tensor(case.committed, case.committed_dtype),
            engine.tensor(case.pre, case.length_dtype),
        )
    return {"post": post, "bonus_token": bonus}


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="prepare_verify_commit_outputs(num_draft_tokens)",
         observes=("committed", "post", "emitted_tokens", "bonus_token"), needs=("lengths.commit_outputs",),
         execution="triton", accepts=on_chain)  # fmt: skip
def commit_outputs_of_chain(engine: Any, case: Any) -> dict[str, Any]:
    """The form for chains, which also prepares the draft's extend: the accepted
    drafts, the row of the last committed token, and the tokens."""
    with engine.production():
        post, bonus, _, (drafts, last, tokens) = engine.symbol("lengths.commit_outputs")(
            engine.tensor(case.predicted.reshape(-1), "int32"),
            engine.tensor(accept_index(case), "int32"),
            engine.tensor(case.committed, case.committed_dtype),
            engine.tensor(case.pre, case.length_dtype),
            num_draft_tokens=case.draft_tokens,
        )
    first = np.arange(len(case.pre)) * case.draft_tokens
    ends = last.tolist()
    return {
        "committed": drafts + 1,
        "post": post,
        "emitted_tokens": [tokens[a : b + 1] for a, b in zip(first, ends, strict=True)],
        "bonus_token": bonus,
    }


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="prepare_draft_extend_inputs",
         observes=("committed", "emitted_tokens", "bonus_token"), needs=("lengths.draft_extend_inputs",),
         execution="triton", accepts=on_chain)  # fmt: skip
def draft_extend_inputs(engine: Any, case: Any) -> dict[str, Any]:
    with engine.production():
        drafts, last, tokens = engine.symbol("lengths.draft_extend_inputs")(
            engine.tensor(case.committed, case.committed_dtype),
            engine.tensor(case.predicted.reshape(-1), "int32"),
            case.draft_tokens,
        )
    first = np.arange(len(case.pre)) * case.draft_tokens
    return {
        "committed": drafts + 1,
        "emitted_tokens": [tokens[a : b + 1] for a, b in zip(first, last.tolist(), strict=True)],
        "bonus_token": tokens[last],
    }


def _chain_of_two(case: Any) -> str | None:
    return located(case) or (None if case.draft_tokens > 1 else "a tree has at least one draft token")


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="build_chain_tree",
         observes=("bonus_token", "next_positions", "next_locations"), needs=("lengths.chain_tree",),
         execution="triton", accepts=_chain_of_two)  # fmt: skip
def chain_tree(engine: Any, case: Any) -> dict[str, Any]:
    rows, width = len(case.pre), case.draft_tokens
    with engine.production():
        _, positions, _, _, _, tokens, locations, _ = engine.symbol("lengths.chain_tree")(
            engine.tensor(bonus_tokens(case), "int64"),
            engine.tensor(case.block[:, 1:], "int64"),
            engine.tensor(case.pre + case.committed, case.length_dtype),
            None,
            engine.tensor(case.pool_row, "int64"),
            token_table(engine, case),
        )
    return {
        "bonus_token": tokens.view(rows, width)[:, 0],
        "next_positions": positions.view(rows, width),
        "next_locations": locations.view(rows, width),
    }
