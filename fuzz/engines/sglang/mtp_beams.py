"""EAGLE's draft loops: what one model that advances is fed, row by row.

``draft_forward`` of each worker runs as shipped over a model that notes its input. Its
first candidates are given to it, as the draft extension before would have left them. The
Frozen-KV worker makes its own, by a run on the bonus token. Positions are a target of their
own: the first releases count them from one too many, which would hide everything else.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

from fuzz.adapter import adapter
from fuzz.engines.sglang.mtp_loop import Loop
from fuzz.engines.sglang.settings import settings
from oracle.commit.token_table import table
from oracle.draft.mtp_chain_case import BEAM, FROZEN, TABLE_WIDTH

CONTRACT, METHOD = "draft.mtp_chain", "draft_forward"
ROWS, POSITIONS = ("locations", "tokens", "hidden", "drafts"), ("positions",)
FROZEN_ROWS = ("positions", "tokens", "hidden", "drafts")


def of_beams(case: Any) -> str | None:
    return None if case.form == BEAM else "one model that advances"


def of_chains(case: Any) -> str | None:
    return of_beams(case) or (None if case.width == 1 else "one row a step")


def of_frozen(case: Any) -> str | None:
    return None if case.form == FROZEN else "a model over the target's KV"


def eagle(engine: Any, case: Any, key: str, names: tuple[str, ...]) -> dict[str, Any]:
    """One draft loop of EAGLE."""
    loop, torch = Loop(engine, case), engine.torch
    places = loop.post[:, None] + torch.arange(case.width * case.steps, device=engine.device)
    rows = engine.tensor(case.pool_row, "int64", contiguous=True)
    spec_info = engine.symbol("mtp.draft_input")(
        topk_p=loop.first_p, topk_index=loop.first_index, hidden_states=loop.hidden
    )
    batch = loop.batch(
        spec_info,
        out_cache_loc=engine.tensor(table(TABLE_WIDTH), "int64", contiguous=True)[rows[:, None], places].flatten(),
        positions=loop.post.repeat_interleave(case.width),
    )
    with settings(engine, interval=256), engine.production():
        _, _, drafts, *_ = loop.worker(key).draft_forward(batch)
    return loop.observed(drafts, names)


@adapter(contract=CONTRACT, module="eagle_v2", symbol=METHOD, observes=ROWS,
         needs=("mtp.eagle_v2", "settings.config"), execution="worker", accepts=of_beams)  # fmt: skip
def eagle_v2(engine: Any, case: Any) -> dict[str, Any]:
    return eagle(engine, case, "mtp.eagle_v2", ROWS)


@adapter(contract=CONTRACT, module="eagle_v2", symbol=f"{METHOD}(positions)", observes=POSITIONS,
         needs=("mtp.eagle_v2", "settings.config"), execution="worker", accepts=of_beams)  # fmt: skip
def eagle_v2_positions(engine: Any, case: Any) -> dict[str, Any]:
    return eagle(engine, case, "mtp.eagle_v2", POSITIONS)


@adapter(contract=CONTRACT, module="eagle_v2", symbol=f"{METHOD}(fused)", observes=(*ROWS, *POSITIONS),
         needs=("mtp.eagle_v2", "mtp.topk1", "settings.config"), execution="triton", accepts=of_chains)  # fmt: skip
def eagle_v2_fused(engine: Any, case: Any) -> dict[str, Any]:
    """With the kernel that picks the draft, writes its column and moves the positions, which
    only a CUDA build takes."""
    module, kernel = engine.symbol("mtp.eagle_v2_module"), engine.symbol("mtp.topk1")
    spy = mock.Mock(side_effect=kernel)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(module, "draft_topk1_postprocess", spy))
        if engine.device == "cpu":
            patches.enter_context(mock.patch.object(module, "_is_cuda", True))
        found = eagle(engine, case, "mtp.eagle_v2", (*ROWS, *POSITIONS))
    columns = [call.args[2] if len(call.args) > 2 else None for call in spy.call_args_list]
    engine.require_path(None not in columns and len(columns) == case.steps - 1, "drafts written by the kernel")
    return found


@adapter(contract=CONTRACT, module="eagle_v1", symbol=METHOD, observes=ROWS,
         needs=("mtp.eagle_v1", "settings.config"), execution="worker", accepts=of_beams)  # fmt: skip
def eagle_v1(engine: Any, case: Any) -> dict[str, Any]:
    return eagle(engine, case, "mtp.eagle_v1", ROWS)


@adapter(contract=CONTRACT, module="eagle_v1", symbol=f"{METHOD}(positions)", observes=POSITIONS,
         needs=("mtp.eagle_v1", "settings.config"), execution="worker", accepts=of_beams)  # fmt: skip
def eagle_v1_positions(engine: Any, case: Any) -> dict[str, Any]:
    return eagle(engine, case, "mtp.eagle_v1", POSITIONS)


@adapter(contract=CONTRACT, module="frozen_kv_mtp", symbol=METHOD, observes=FROZEN_ROWS,
         needs=("mtp.frozen", "mtp.frozen_input", "settings.config"), execution="worker",
         accepts=of_frozen)  # fmt: skip
def frozen(engine: Any, case: Any) -> dict[str, Any]:
    loop = Loop(engine, case)
    spec_info = engine.symbol("mtp.frozen_input")(bonus_tokens=loop.bonus, hidden_states=loop.hidden)
    rows = len(case.pre) * case.width
    batch = loop.batch(
        spec_info,
        out_cache_loc=None,
        positions=engine.torch.zeros(rows, dtype=engine.torch.int64, device=engine.device),
    )
    with settings(engine, interval=256), engine.production():
        _, _, drafts, *_ = loop.worker("mtp.frozen").draft_forward(batch)
    return loop.observed(drafts, FROZEN_ROWS)
