"""DFlash's acceptance of a draft block against the target's own predictions.

Four ways to the same answer: the worker's method with its Triton kernel or
without (it falls back in silence, so the launch is counted), the kernel's wrapper
itself, and a helper on plain tensors with a second, fused kernel behind it.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.launches import counted
from fuzz.engines.sglang.predictions import Predictions

KERNEL = "_dflash_accept_bonus_contig_kernel"
ACCEPT_BLOCK_NEEDS = (
    "dflash.accept_block",
    "dflash.accept_buffers",
    "dflash.accept_next_buffers",
    "dflash.accept_module",
)
FUSED_KERNEL = "_fused_correct_drafts_and_bonus_kernel"
POISON = -977  # no token, length or count of any case


def _emitted(out_tokens: Any, committed: Any) -> list[list[int]]:
    """The committed part of each row; what stands behind it may be anything."""
    return [row[: max(0, c)] for row, c in zip(out_tokens.tolist(), committed.tolist(), strict=True)]


def _block(engine: Any, case: Any) -> tuple[Any, Any]:
    """Draft block and predictions, int64 [B, N]. The worker fills its own
    buffers for both, so they are always contiguous."""
    return (
        engine.tensor(case.block, "int64", contiguous=True),
        engine.tensor(case.predicted, "int64", contiguous=True),
    )


def _accept_block(engine: Any, case: Any, *, triton: bool) -> tuple[Any, ...]:
    """Accepted, committed, bonus, emitted and new lengths of one call."""
    block, predicted = _block(engine, case)
    rows, width = block.shape
    worker = _worker(engine, width, triton)
    pre = engine.tensor(case.pre, "int64")
    with counted(engine.symbol("dflash.accept_module"), KERNEL) as launches, engine.production():
        answer = engine.symbol("dflash.accept_block")(
            worker,
            candidates=block,
            next_token_logits=Predictions(predicted.flatten()),
            sampling_info=None,
            draft_input=ClosedStub("draft_input"),
            prefix_lens=pre,
            bs=rows,
        )
    if triton:
        engine.require_path(launches.count == 1 and worker._use_triton_accept_bonus, "Triton accept kernel")
    else:
        engine.require_path(launches.count == 0, "accept without the Triton kernel")
    return answer[:5]


def _worker(engine: Any, width: int, triton: bool) -> ClosedStub:
    """A worker with what accepting a block reads; ``_next_accept_bonus_buffers``
    is the engine's own, on buffers that hold poison."""
    worker = ClosedStub(
        "worker",
        block_size=width,
        device=engine.device,
        _selector_sample=None,
        _use_triton_accept_bonus=triton,
        _tp_sync=ClosedStub("tp_sync", sync=lambda *_: None),
        _accept_bonus_buffer_cap=0,
        _accept_bonus_buffer_slot=0,
    )

    def ensure(bs: int) -> None:
        fresh = worker._accept_bonus_buffer_cap < bs
        engine.symbol("dflash.accept_buffers")(worker, bs)
        if fresh:
            pairs = (
                worker._commit_lens_bufs,
                worker._bonus_id_bufs,
                worker._out_tokens_bufs,
                worker._new_seq_lens_bufs,
            )
            for buffer in (worker._accept_len_buf, *(b for pair in pairs for b in pair)):
                buffer.fill_(POISON)

    worker._ensure_accept_bonus_buffers = ensure
    worker._next_accept_bonus_buffers = lambda bs: engine.symbol("dflash.accept_next_buffers")(worker, bs)
    return worker


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol="_accept_block.triton",
    observes=("accepted", "committed", "post", "bonus_token", "emitted"),
    needs=ACCEPT_BLOCK_NEEDS,
    execution="triton",
)
def accept_block_triton(engine: Any, case: Any) -> dict[str, Any]:
    accepted, committed, bonus, out_tokens, post = _accept_block(engine, case, triton=True)
    return {
        "accepted": accepted,
        "committed": committed,
        "post": post,
        "bonus_token": bonus,
        "emitted": _emitted(out_tokens, committed),
    }


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol="_accept_block.eager",
    observes=("accepted", "committed", "bonus_token", "emitted"),
    needs=ACCEPT_BLOCK_NEEDS,
    execution="worker",
)
def accept_block_eager(engine: Any, case: Any) -> dict[str, Any]:
    """Without the kernel the caller adds up the new lengths itself."""
    accepted, committed, bonus, out_tokens, _ = _accept_block(engine, case, triton=False)
    return {
        "accepted": accepted,
        "committed": committed,
        "bonus_token": bonus,
        "emitted": _emitted(out_tokens, committed),
    }


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol="_compute_dflash_accept_bonus_triton_unchecked",
    observes=("accepted", "committed", "post", "bonus_token", "emitted"),
    needs=("dflash.accept_kernel", "dflash.accept_module"),
    execution="triton",
)
def accept_kernel(engine: Any, case: Any) -> dict[str, Any]:
    torch = engine.torch
    block, predicted = _block(engine, case)
    rows, width = block.shape

    def poisoned(*shape: int, dtype: Any) -> Any:
        return torch.full(shape, POISON, dtype=dtype, device=engine.device)

    accepted, committed = (poisoned(rows, dtype=torch.int32) for _ in range(2))
    bonus = poisoned(rows, dtype=getattr(torch, engine.fact("dflash.bonus_dtype")))
    out_tokens, post = poisoned(rows, width, dtype=torch.int64), poisoned(rows, dtype=torch.int64)
    pre = engine.tensor(case.pre, "int64")
    with counted(engine.symbol("dflash.accept_module"), KERNEL) as launches, engine.production():
        engine.symbol("dflash.accept_kernel")(block, predicted, accepted, committed, bonus, out_tokens, pre, post)
    engine.require_path(launches.count == 1, "Triton accept kernel")
    return {
        "accepted": accepted,
        "committed": committed,
        "post": post,
        "bonus_token": bonus,
        "emitted": _emitted(out_tokens, committed),
    }


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol="compute_dflash_correct_drafts_and_bonus",
    observes=("accepted", "bonus_token"),
    needs=("dflash.correct_drafts",),
)
def correct_drafts(engine: Any, case: Any) -> dict[str, Any]:
    block, predicted = engine.tensor(case.block, "int64"), engine.tensor(case.predicted, "int64")
    engine.require_path(not block.is_cuda, "plain tensors")
    with engine.production():
        accepted, bonus = engine.symbol("dflash.correct_drafts")(candidates=block, target_predict=predicted)
    return {"accepted": accepted, "bonus_token": bonus}


@adapter(
    contract="verify.greedy_chain",
    module="dflash",
    symbol=FUSED_KERNEL,
    observes=("accepted", "bonus_token"),
    needs=("dflash.correct_drafts", "dflash.correct_drafts_kernel", "dflash.correct_drafts_module"),
    execution="triton",
)
def correct_drafts_kernel(engine: Any, case: Any) -> dict[str, Any]:
    """The kernel is reached through its wrapper, which asks for CUDA tensors."""
    from fuzz.engines.interpreter import cuda_tensors

    block, predicted = engine.tensor(case.block, "int64"), engine.tensor(case.predicted, "int64")
    module = engine.symbol("dflash.correct_drafts_module")
    with counted(module, FUSED_KERNEL) as launches, cuda_tensors(), engine.production():
        accepted, bonus = engine.symbol("dflash.correct_drafts")(candidates=block, target_predict=predicted)
    engine.require_path(launches.count == 1, "fused kernel")
    return {"accepted": accepted, "bonus_token": bonus}
