"""Simulated acceptance: what it commits and emits in place of a real verify."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.bound import cuda_becomes_cpu
from fuzz.engines.sglang.lengths_inputs import CONTRACT, Result, accept_index
from fuzz.worker.layout import FILLER

OBSERVES = ("committed", "emitted_tokens", "bonus_token", "outside_untouched")
METHOD = "match-expected"  # exact for whole numbers; the other method draws
TOKEN_MODE = {"real": "real-draft-token", "fixed": "fixed"}


def simulated(case: Any) -> str | None:
    if not case.simulated:
        return "simulated acceptance, not a real verify"
    return None if len(case.pre) else "the caller returns before for an idle batch"


def full_width(case: Any) -> str | None:
    return simulated(case) or (None if case.path_width == case.draft_tokens else "the block is the width")


def _observed(case: Any, index: Any, predict: Result, counts: Result) -> dict[str, Any]:
    """The rows of ``index`` must be whole: their root, its successors, then -1."""
    rows, width = len(case.pre), case.path_width
    committed = (counts.tensor + 1).tolist()
    expected = np.arange(width) + np.arange(rows)[:, None] * case.draft_tokens
    expected[np.arange(width) >= np.array(committed)[:, None]] = -1
    emitted = [predict.tensor[index[i, :n].long()].tolist() for i, n in enumerate(committed)]
    whole = index.tolist() == expected.tolist()
    intact = predict.untouched_behind(rows * case.draft_tokens) and counts.untouched_behind(rows)
    return {
        "committed": committed,
        "emitted_tokens": emitted,
        "bonus_token": [tokens[-1] if tokens else FILLER for tokens in emitted],
        "outside_untouched": whole and intact,
    }


def _buffers(engine: Any, case: Any) -> tuple[Any, Result, Result]:
    """``accept_index`` of the real verify, and the buffers written in place."""
    rows = len(case.pre)
    predict, counts = Result(engine, rows * case.draft_tokens, "int32"), Result(engine, rows, case.committed_dtype)
    counts.tensor.copy_(engine.tensor(case.committed - 1, case.committed_dtype))
    return engine.tensor(accept_index(case), "int32", contiguous=True), predict, counts


@adapter(contract=CONTRACT, module="eagle_utils", symbol="generate_simulated_accept_index", observes=OBSERVES,
         needs=("simulated.accept_index",), accepts=simulated)  # fmt: skip
def accept_index_torch(engine: Any, case: Any) -> dict[str, Any]:
    index, predict, counts = _buffers(engine, case)
    real = engine.fact("simulated.real_tokens")
    if not real and case.token_mode == "real":
        raise Unsupported("simulated acceptance emits only stand-in tokens in this version")
    tokens = (engine.tensor(case.block, "int64"), engine.tensor(case.predicted, "int64")) if real else ()
    mode = (TOKEN_MODE[case.token_mode],) if real else ()
    device = cuda_becomes_cpu(engine.torch) if engine.fact("simulated.names_cuda") else nullcontext()
    with device, engine.production():
        found = engine.symbol("simulated.accept_index")(
            index, predict.tensor, counts.tensor, *tokens, len(case.pre), case.path_width - 1,
            float(case.simulated), METHOD, *mode,
        )  # fmt: skip
    return _observed(case, found, predict, counts)


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="simulated_accept", observes=OBSERVES,
         needs=("simulated.kernel",), execution="triton", accepts=simulated)  # fmt: skip
def accept_index_triton(engine: Any, case: Any) -> dict[str, Any]:
    """The kernel gets the length that its caller has sampled and clamped."""
    index, predict, counts = _buffers(engine, case)
    with engine.production():
        found = engine.symbol("simulated.kernel")(
            accept_indices=index,
            predict_tokens=predict.tensor,
            num_correct_drafts=counts.tensor,
            candidate_tokens=engine.tensor(case.block, "int64"),
            target_tokens=engine.tensor(case.predicted, "int64"),
            width=case.path_width,
            num_accept_tokens=min(case.simulated, case.path_width),
            real_tokens=case.token_mode == "real",
        )
    return _observed(case, found, predict, counts)


@adapter(contract=CONTRACT, module="dflash", symbol="apply_dflash_simulated_acceptance", observes=OBSERVES,
         needs=("simulated.dflash",), accepts=full_width)  # fmt: skip
def dflash(engine: Any, case: Any) -> dict[str, Any]:
    rows, width = len(case.pre), case.draft_tokens
    drafts, committed, bonus, tokens = (
        Result(engine, rows, "int32"), Result(engine, rows, "int32"),
        Result(engine, rows, "int64"), Result(engine, rows * width, "int64"),
    )  # fmt: skip
    with engine.production():
        engine.symbol("simulated.dflash")(
            candidates=engine.tensor(case.block, "int64"),
            target_predict=engine.tensor(case.predicted, "int64"),
            accept_len=drafts.tensor,
            commit_lens=committed.tensor,
            bonus=bonus.tensor,
            out_tokens=tokens.tensor.view(rows, width),
            simulate_acc_len=float(case.simulated),
            simulate_acc_method=METHOD,
            simulate_acc_token_mode=TOKEN_MODE[case.token_mode],
        )
    counts = committed.tensor.tolist()
    intact = all(
        r.untouched_behind(n) for r, n in ((drafts, rows), (committed, rows), (bonus, rows), (tokens, rows * width))
    )
    consistent = bool((drafts.tensor + 1 == committed.tensor).all())
    return {
        "committed": counts if consistent else (drafts.tensor + 1).tolist(),
        "emitted_tokens": [tokens.tensor.view(rows, width)[i, :n] for i, n in enumerate(counts)],
        "bonus_token": bonus.tensor,
        "outside_untouched": intact,
    }
