"""NGRAM's round: its worker drafts from a corpus and verifies a tree.

``forward_batch_generation`` runs with its own preparation, verify and commit; the
corpus, the tree reconstruction, the tree kernel and the move of KV are stand-ins.
In the releases without overlap the verify input advances ``batch.seq_lens`` in
place, and the scheduler reads it when the call returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_order import CONTRACT, FIELDS
from fuzz.engines.sglang.eagle_round import EagleRound, allocator, nothing, short_enough
from fuzz.engines.sglang.eagle_surroundings import surroundings
from fuzz.engines.sglang.round import WorkerStub
from fuzz.engines.sglang.settings import settings

CONTEXT = 18  # tokens that the corpus is asked with


def accepts(case: Any) -> str | None:
    if not len(case.pre):
        return "runs without data-parallel attention and gets no idle batch"
    return short_enough(case)


@adapter(contract=CONTRACT, module="ngram", symbol="forward_batch_generation", observes=FIELDS,
         needs=("settings.config", "ngram.worker", "ngram.module"), execution="worker", accepts=accepts)  # fmt: skip
def ngram(engine: Any, case: Any) -> dict[str, Any]:
    seen, production_class = EagleRound(engine, case), engine.symbol("ngram.worker")
    with settings(engine, interval=case.grid, extra_buffer=case.tracking):
        target = seen.target_worker()
        worker = ngram_worker(seen, target, production_class)
        batch = seen.open(target.model_runner.req_to_token_pool, previous_round(engine, case))
        batch.get_model_worker_batch = lambda: batch
        module = engine.symbol("ngram.module")
        with surroundings(seen, module), outside(seen, module), engine.production():
            if engine.fact("ngram.publication") == "callback":
                result = production_class.forward_batch_generation(worker, batch, on_publish=seen.publish)
                returned = result.new_seq_lens
            else:
                production_class.forward_batch_generation(worker, batch)
                returned = batch.seq_lens
                seen.publish(returned)
    seen.check_recorded_fact(engine.fact("ngram.lengths_at_commit"))
    return seen.observed(returned.tolist())


def ngram_worker(seen: EagleRound, target: ClosedStub, production_class: type) -> WorkerStub:
    """The worker with its buffers for this batch size and a corpus of chains."""
    engine, torch, case = seen.engine, seen.engine.torch, seen.case
    rows, width = len(case.pre), case.draft_tokens

    def buffer(*shape: int, dtype: Any = torch.int64) -> dict[int, Any]:
        return {rows: torch.zeros(shape, dtype=dtype, device=engine.device)}

    drafts = np.zeros(rows * width, dtype=np.int64)
    ancestors = np.tril(np.ones((rows, width, width), dtype=bool)).reshape(-1)
    corpus = ClosedStub(
        "corpus",
        synchronize=nothing,
        batch_get=lambda *asked: (drafts, ancestors),
        batch_put=nothing,
        erase_match_state=nothing,
    )
    worker = WorkerStub(
        production_class,
        target_worker=target,
        model_runner=target.model_runner,
        device=engine.device,
        page_size=1,
        token_to_kv_pool_allocator=allocator(),
        ngram_corpus=corpus,
        enable_overlap=True,
        draft_token_num=width,
        speculative_num_draft_tokens=width,
        max_trie_depth=CONTEXT,
        _prev_decode_rids=set(),
        retrieve_indexes_batch=buffer(rows, width),
        positions_batch=buffer(rows * width),
        draft_tokens_batch=buffer(rows * width),
        tree_mask_batch=buffer(rows * width * width, dtype=torch.bool),
    )
    prefix = engine.fact("eagle.tree_fields")
    setattr(worker, f"{prefix}_next_token_batch", buffer(rows, width))
    setattr(worker, f"{prefix}_next_sibling_batch", buffer(rows, width))
    return worker


def previous_round(engine: Any, case: Any) -> ClosedStub:
    """What the round before left: one committed token a request."""
    torch, rows = engine.torch, len(case.pre)
    return ClosedStub(
        "draft input",
        accept_tokens=torch.zeros(rows * case.draft_tokens, dtype=torch.int32),
        accept_lens=torch.ones(rows, dtype=torch.int32),
    )


@contextmanager
def outside(seen: EagleRound, module: Any) -> Iterator[None]:
    """Replace what the round calls and this contract does not judge."""
    engine, info = seen.engine, seen.engine.symbol("ngram.info")

    def slots(tree_cache: Any, size: int) -> Any:
        return engine.torch.arange(size, device=engine.device)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, engine.fact("ngram.reconstruction"), nothing))
        stack.enter_context(mock.patch.object(module, "USE_FULL_MASK", False))
        if engine.fact("ngram.publication") == "callback":
            stack.enter_context(mock.patch.object(module, "move_accept_tokens_to_target_kvcache", nothing))
        else:
            stack.enter_context(mock.patch.object(info, "verify_tree_greedy", seen.verify_tree, create=True))
            stack.enter_context(mock.patch.object(info, "alloc_token_slots", slots))
        yield
