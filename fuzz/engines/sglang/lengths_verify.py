"""What EAGLE's own verify publishes: the worker method, from sampling to result.

The model's forward and the sampling are stand-ins that answer with the case, so
that the target is the caller: which lengths, which row stride, which tokens, and
for a tree the move of the accepted path to the front of its block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.bound import bound, forwarded
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import model_config
from fuzz.engines.sglang.lengths_inputs import (
    CONTRACT,
    accept_index,
    block_locations,
    located,
    on_chain,
    split,
    token_table,
)
from fuzz.engines.sglang.settings import settings
from fuzz.worker.layout import FILLER

# Names that verify looks up in its module and that stand outside: the forward's
# preparation, stream bookkeeping, and probes of the logits.
OUTSIDE = {
    "record_stream_for_v2_verify": lambda *_: None,
    "record_stream_each": lambda *_: None,
    "maybe_detect_nan": lambda *_: None,
    "maybe_detect_inf": lambda *_: None,
}
ANY_GRID = 256  # verify is handed no track slots, so no grid is used


def is_tree(case: Any) -> bool:
    return len(case.pre) > 0 and on_chain(case) is not None


def guarded_gather(torch: Any, values: Any) -> Any:
    """``values`` as a tensor whose gathers lie between guard zones as long as
    itself: rows stepped by the block's width reach no further.

    Verify gathers the emitted tokens into a tensor of its own and lets a kernel
    index that; a kernel that runs over its end then reads filler, every time.
    """

    guard = values.numel()

    class Guarded(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @forwarded
        def __getitem__(self, index: Any) -> Any:
            found = torch.Tensor.__getitem__(self, index)
            wide = torch.full((found.numel() + 2 * guard,), FILLER, dtype=found.dtype, device=found.device)
            inside = wide[guard : guard + found.numel()].view(found.shape)
            return inside.copy_(found)

    return values.clone().as_subclass(Guarded)


class Moves:
    """The KV cache as the receiver of moves: locations to, and from."""

    def __init__(self):
        self.to: Any = None
        self.source: Any = None

    def move_kv_cache(self, to: Any, source: Any) -> None:
        self.to, self.source = to.clone(), source.clone()

    def observed(self, committed: np.ndarray) -> dict[str, Any]:
        """The moved locations a request; anything behind them but location 0,
        which belongs to nobody, is written outside."""
        used = int(committed.sum())
        behind = [bool((t[used:] == 0).all()) for t in (self.to, self.source)]
        return {
            "accepted_locations": split(self.source, committed),
            "committed_locations": split(self.to, committed),
            "outside_untouched": all(behind),
        }


def run_verify(engine: Any, case: Any) -> tuple[Any, Moves]:
    """One verify of the worker; returns its result and the KV moves."""
    torch, moves = engine.torch, Moves()
    idle = not len(case.pre)
    sampled = (
        engine.tensor(case.predicted.reshape(-1), "int32", contiguous=True),
        engine.tensor(case.committed, case.committed_dtype, contiguous=True),
        engine.tensor(accept_index(case), "int32", contiguous=True),
    )
    if idle:  # as the engine's sampling answers for an idle batch
        sampled = tuple(torch.empty(0, dtype=torch.int32, device=engine.device) for _ in range(3))
    else:
        sampled = (guarded_gather(torch, sampled[0]), *sampled[1:])
    pre = engine.tensor(case.pre, case.length_dtype, contiguous=True)
    locations = block_locations(case) if case.table_width else np.zeros(case.predicted.size, dtype=np.int64)
    pool = ClosedStub("pool", req_to_token=token_table(engine, case))
    batch = ClosedStub(
        "batch",
        seq_lens=pre,
        forward_mode=ClosedStub("forward_mode", is_idle=lambda: idle),
        spec_info=_verify_input(sampled),
        sampling_info=ClosedStub("sampling_info", has_watermark_candidates=False),
        tree_cache=ClosedStub("tree_cache", page_size=1),
        req_pool_indices=engine.tensor(case.pool_row, "int64", contiguous=True),
        req_to_token_pool=pool,
        out_cache_loc=engine.tensor(locations, "int64", contiguous=True),
        device=engine.device,
        input_ids=None,
        mamba_track_indices=None,
        hisparse_coordinator=None,
        has_grammar=False,
        return_logprob=False,
    )
    worker = _worker(engine, case, pool, moves)
    with settings(engine, interval=ANY_GRID), _outside(engine, sampled) as fused, engine.production():
        result = engine.symbol("lengths.verify")(worker, batch)
    engine.require_path(fused is None or idle or fused.called, "the fused commit outputs")
    return result, moves


FORWARDED = ClosedStub("verify batch")


def _verify_input(sampled: tuple) -> ClosedStub:
    """A verify input whose sampling is decided already."""
    return ClosedStub(
        "verify_input",
        prepare_for_v2_verify=lambda *_: (FORWARDED, False),
        sample=lambda *_, **__: sampled,
    )


def _worker(engine: Any, case: Any, pool: ClosedStub, moves: Moves) -> ClosedStub:
    answer = ClosedStub(
        "target answer",
        logits_output=ClosedStub("logits", next_token_logits=None, hidden_states=None),
        routed_experts_output=None,
        indexer_topk_output=None,
    )
    config = model_config(False)
    runner = ClosedStub(
        "model_runner", model_config=config, mambaish_config=None, hybrid_gdn_config=None, mamba2_config=None,
        watermark_state=None, attn_backend=ClosedStub("attention backend", verify_mask=None),
    )  # fmt: skip
    kv_cache = SimpleNamespace(move_kv_cache=moves.move_kv_cache)
    return bound(
        engine.symbol("lengths.verify_worker"),
        "worker",
        device=engine.device,
        plan_stream=None,
        plan_stream_ctx=nullcontext(),
        req_to_token_pool=pool,
        target_worker=ClosedStub("target_worker", model_runner=runner, forward_batch_generation=lambda **_: answer),
        token_to_kv_pool_allocator=ClosedStub("allocator", get_kvcache=lambda: kv_cache),
        speculative_num_steps=case.path_width - 1,
        speculative_num_draft_tokens=case.draft_tokens,
        topk=2 if is_tree(case) else 1,
    )


@contextmanager
def _outside(engine: Any, sampled: tuple) -> Iterator[Any]:
    """Take out of verify what stands outside it, for this call. Yields a spy on
    the fused kernel where verify takes that path on a GPU."""
    torch, module = engine.torch, engine.symbol("lengths.verify_module")
    from fuzz.engines.interpreter import cuda_tensors

    with ExitStack() as stack:
        patch = lambda owner, name, value: stack.enter_context(mock.patch.object(owner, name, value))  # noqa: E731
        patch(torch.Tensor, "record_stream", forwarded(lambda tensor, stream: None))
        for name, value in OUTSIDE.items():
            if hasattr(module, name):
                patch(module, name, value)
        if engine.fact("lengths.verify_calls") == "functions":
            patch(module, "eagle_sample", lambda *_, **__: sampled)
            patch(module, "eagle_prepare_for_verify", lambda *_, **__: (FORWARDED, False))
        fused = None
        if engine.fact("lengths.verify_fuses"):
            if engine.device == "cpu":
                stack.enter_context(cuda_tensors())
            spy = mock.Mock(wraps=module.prepare_verify_commit_outputs)
            fused = patch(module, "prepare_verify_commit_outputs", spy)
        yield fused


def _accepts(case: Any) -> str | None:
    if case.simulated:
        return "a real verify, not simulated acceptance"
    return "a tree's accepted path is moved by the token table" if is_tree(case) and not case.table_width else None


@adapter(contract=CONTRACT, module="eagle_v2", symbol="verify", observes=("committed", "post", "bonus_token"),
         needs=("settings.config", "lengths.verify", "lengths.verify_module"),
         execution="worker", accepts=_accepts)  # fmt: skip
def verify(engine: Any, case: Any) -> dict[str, Any]:
    result, _ = run_verify(engine, case)
    where = engine.fact("lengths.published_in")
    published = result if where["lengths"] == "result" else result.next_draft_input
    return {
        "committed": result.accept_lens,
        "post": published.new_seq_lens,
        "bonus_token": getattr(result.next_draft_input, where["bonus"]),
    }


def _trees(case: Any) -> str | None:
    return located(case) or (None if is_tree(case) else "a chain lies at the front of its block already")


@adapter(contract=CONTRACT, module="eagle_v2", symbol="verify(accepted tree path)",
         observes=("emitted_tokens", "accepted_locations", "committed_locations", "outside_untouched"),
         needs=("settings.config", "lengths.compacts_tree", "lengths.verify", "lengths.verify_module"),
         execution="worker", accepts=_trees)  # fmt: skip
def verify_tree(engine: Any, case: Any) -> dict[str, Any]:
    result, moves = run_verify(engine, case)
    engine.require_path(moves.to is not None, "the move of the accepted path")
    tokens = result.next_token_ids.view(len(case.pre), case.draft_tokens)
    emitted = [tokens[i, :n] for i, n in enumerate(case.committed)]
    return {"emitted_tokens": emitted, **moves.observed(case.committed)}


@adapter(contract=CONTRACT, module="eagle_v2", symbol="move_accepted_tokens_to_target_kvcache",
         observes=("accepted_locations", "committed_locations", "outside_untouched"),
         needs=("lengths.move_accepted",), execution="worker", accepts=located)  # fmt: skip
def move_accepted(engine: Any, case: Any) -> dict[str, Any]:
    """Behind ``accept_index`` lie nodes of other requests here, so that reading
    over its end shows instead of by luck."""
    torch, moves = engine.torch, Moves()
    nodes = accept_index(case)
    wide = torch.zeros(len(case.pre) * case.draft_tokens + nodes.size, dtype=torch.int32, device=engine.device)
    index = wide[: nodes.size].view(nodes.shape)
    index.copy_(torch.from_numpy(nodes))
    drafts = engine.fact("lengths.move_counts") == "drafts"
    counts = engine.tensor(case.committed - drafts, case.committed_dtype, contiguous=True)
    pool = ClosedStub("pool", req_to_token=token_table(engine, case))
    allocator = ClosedStub("allocator", get_kvcache=lambda: SimpleNamespace(move_kv_cache=moves.move_kv_cache))
    batch = ClosedStub(
        "batch",
        seq_lens=engine.tensor(case.pre, case.length_dtype, contiguous=True),
        req_pool_indices=engine.tensor(case.pool_row, "int64", contiguous=True),
        req_to_token_pool=pool,
        out_cache_loc=engine.tensor(block_locations(case), "int64", contiguous=True),
    )
    worker = ClosedStub(
        "worker", device=engine.device, req_to_token_pool=pool, token_to_kv_pool_allocator=allocator,
        speculative_num_draft_tokens=case.draft_tokens,
    )  # fmt: skip
    method = engine.fact("lengths.move_form") == "method"
    arguments = (worker, batch, index, counts) if method else (batch, index, counts, allocator)
    with engine.production():
        engine.symbol("lengths.move_accepted")(*arguments)
    return moves.observed(case.committed)
