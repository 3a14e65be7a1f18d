"""NGRAM's round: its worker drafts from a corpus and verifies a tree.

``forward_batch_generation`` runs with its own preparation, verify and commit; the
corpus, the tree reconstruction, the tree kernel and the move of KV are stand-ins.
In the releases without overlap the verify input advances ``batch.seq_lens`` in
place, and the scheduler reads it when the call returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_order import FIELDS
from fuzz.engines.sglang.eagle_round import Round, allocator, short_enough, surroundings
from fuzz.engines.sglang.settings import settings

METHODS = (
    "_prepare_for_speculative_decoding", "_prepare_draft_tokens", "_efficient_concat_last_n", "_update_ngram_corpus",
)  # fmt: skip
CHAIN_DEPTH = 18  # tokens of context the corpus is asked with


def accepts(case: Any) -> str | None:
    if not len(case.pre):
        return "runs without data-parallel attention and gets no idle batch"
    return short_enough(case)


@adapter(contract="commit.call_order", module="ngram", symbol="forward_batch_generation", observes=FIELDS,
         needs=("ngram.worker", "ngram.module"), execution="worker", accepts=accepts)  # fmt: skip
def ngram(engine: Any, case: Any) -> dict[str, Any]:
    round_, cls = Round(engine, case), engine.symbol("ngram.worker")
    with settings(engine, interval=case.grid, extra_buffer=case.tracking):
        target = round_.target_worker()
        worker = ngram_worker(engine, round_, target, cls)
        batch = round_.batch(
            target.model_runner.req_to_token_pool, spec_info=previous_round(engine, case), spec_algorithm=None
        )
        batch.get_model_worker_batch = lambda **kw: batch
        module = engine.symbol("ngram.module")
        with surroundings(engine, round_, module), outside(engine, round_, module), engine.production():
            if engine.fact("ngram.publication") == "callback":
                cls.forward_batch_generation(worker, batch, on_publish=round_.publish)
            else:
                cls.forward_batch_generation(worker, batch)
                round_.publish(batch.seq_lens)
    return round_.outcome()


def ngram_worker(engine: Any, round_: Round, target: ClosedStub, cls: Any) -> ClosedStub:
    """The worker with its buffers for this batch size and a corpus of chains."""
    torch, case = engine.torch, round_.case
    rows, width = len(case.pre), case.draft_tokens

    def buffer(*shape: int, dtype: Any = torch.int64) -> dict[int, Any]:
        return {rows: torch.zeros(shape, dtype=dtype, device=engine.device)}

    drafts = np.zeros(rows * width, dtype=np.int64)
    ancestors = np.tril(np.ones((rows, width, width), dtype=bool))
    corpus = ClosedStub(
        "corpus", synchronize=lambda: None, batch_get=lambda *asked: (drafts, ancestors.reshape(-1)),
        batch_put=lambda tokens: None, erase_match_state=lambda requests: None,
    )  # fmt: skip
    worker = ClosedStub(
        "worker", target_worker=target, model_runner=target.model_runner, device=engine.device, page_size=1,
        token_to_kv_pool_allocator=allocator(), ngram_corpus=corpus, enable_overlap=True, _prev_decode_rids=set(),
        draft_token_num=width, speculative_num_draft_tokens=width, max_trie_depth=CHAIN_DEPTH,
        retrieve_indexes_batch=buffer(rows, width), positions_batch=buffer(rows * width),
        draft_tokens_batch=buffer(rows * width), tree_mask_batch=buffer(rows * width * width, dtype=torch.bool),
    )  # fmt: skip
    prefix = engine.fact("eagle.tree_fields")
    setattr(worker, f"{prefix}_next_token_batch", buffer(rows, width))
    setattr(worker, f"{prefix}_next_sibling_batch", buffer(rows, width))
    for name in METHODS:
        setattr(worker, name, partial(getattr(cls, name), worker))
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
def outside(engine: Any, round_: Round, module: Any) -> Iterator[None]:
    """Replace what the round calls and this contract does not judge."""
    torch = engine.torch
    info = engine.symbol("ngram.info")
    with ExitStack() as stack:
        patch = lambda *args, **kw: stack.enter_context(mock.patch.object(*args, **kw))  # noqa: E731
        patch(module, engine.fact("ngram.reconstruction"), lambda *args: None)
        patch(module, "USE_FULL_MASK", False)
        if engine.fact("ngram.publication") == "callback":
            patch(module, "move_accept_tokens_to_target_kvcache", lambda *args: None)
        else:
            patch(info, "verify_tree_greedy", round_.verify_tree, create=True)
            patch(info, "alloc_token_slots", lambda cache, size: torch.arange(size, device=engine.device))
        yield
