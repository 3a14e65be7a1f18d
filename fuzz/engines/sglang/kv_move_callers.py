"""Who computes where accepted KV entries go: the location kernels and their callers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.bound import forwarded
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.kv_move import CONTRACT, HELD
from fuzz.engines.sglang.kv_pools import KvPools
from fuzz.engines.sglang.lengths_inputs import next_power_of_2, split
from oracle.commit.kv_move_case import HEADS

MOVED = ("sources", "targets", "stray", "read_beyond")


class Recorded:
    """A pool that remembers the locations it was handed, and moves."""

    def __init__(self, pools: KvPools):
        self.pools = pools
        self.to: Any = None
        self.source: Any = None

    def move_kv_cache(self, to: Any, source: Any) -> None:
        self.to, self.source = to.clone(), source.clone()
        self.pools.move_kv_cache(to, source)


def moves(case: Any, to: Any, source: Any) -> dict[str, Any]:
    """Locations a request; behind them, moves that do not go to page 0, and reads."""
    used = int(case.committed.sum())
    return {
        "sources": split(source, case.committed),
        "targets": split(to, case.committed),
        "stray": int((to[used:] >= case.page).sum() + (to[used:] < 0).sum()),
        "read_beyond": int((source[used:] != 0).sum()),
    }


def _accept_index(case: Any) -> np.ndarray:
    """Global node numbers [B, path_width], -1 behind the path."""
    offsets = np.arange(len(case.pre))[:, None] * case.draft_tokens
    return np.where(case.path < 0, -1, case.path + offsets)


def _table(engine: Any, case: Any) -> Any:
    """``req_to_token``: row 0 is nobody's, requests have theirs from the last one up."""
    width = int(case.pre.max()) + case.draft_tokens
    table = np.zeros((len(case.pre) + 1, width), dtype=np.int32)
    for i, (pre, block) in enumerate(zip(case.pre, case.block, strict=True)):
        table[_pool_row(case, i), pre : pre + case.draft_tokens] = block
    return engine.tensor(table, "int32", contiguous=True)


def _pool_row(case: Any, i: int) -> int:
    return len(case.pre) - i


def _whole(case: Any) -> str | None:
    if case.uncovered:
        return "its caller hands over committed nodes only"
    if case.pre.max() > 2**20:
        return "a token table of that length is not laid out"
    return None


def _heads(case: Any) -> str | None:
    if case.value_words > case.key_words:
        return "how a pool copies values longer than keys is a target of its own"
    return _whole(case) or (None if case.pool == HEADS else "driven with a pool of keys and values")


@adapter(contract=CONTRACT, module="spec_utils", symbol="move_accept_tokens_to_target_kvcache",
         observes=(*MOVED, *HELD), needs=("lengths.move_accepted", "kv.heads"), execution="triton",
         accepts=_heads)  # fmt: skip
def move_accepted(engine: Any, case: Any) -> dict[str, Any]:
    """Behind ``accept_index`` lie nodes of the batch here, so that reading over its end
    shows instead of by luck."""
    torch, kept = engine.torch, Recorded(KvPools(engine, case))
    nodes = _accept_index(case)
    wide = torch.zeros(len(case.pre) * case.draft_tokens + nodes.size, dtype=torch.int32, device=engine.device)
    index = wide[: nodes.size].view(nodes.shape)
    index.copy_(torch.from_numpy(nodes))
    drafts = engine.fact("lengths.move_counts") == "drafts"
    counts = engine.tensor(case.committed - drafts, "int32", contiguous=True)
    pool = ClosedStub("pool", req_to_token=_table(engine, case))
    allocator = ClosedStub("allocator", get_kvcache=lambda: SimpleNamespace(move_kv_cache=kept.move_kv_cache))
    rows = [_pool_row(case, i) for i in range(len(case.pre))]
    batch = ClosedStub(
        "batch",
        seq_lens=engine.tensor(case.pre, "int64", contiguous=True),
        req_pool_indices=engine.tensor(rows, "int64", contiguous=True),
        req_to_token_pool=pool,
        out_cache_loc=engine.tensor(case.block.reshape(-1), "int64", contiguous=True),
    )
    worker = ClosedStub(
        "worker", device=engine.device, req_to_token_pool=pool, token_to_kv_pool_allocator=allocator,
        speculative_num_draft_tokens=case.draft_tokens,
    )  # fmt: skip
    method = engine.fact("lengths.move_form") == "method"
    arguments = (worker, batch, index, counts) if method else (batch, index, counts, allocator)
    with engine.production():
        engine.symbol("lengths.move_accepted")(*arguments)
    return moves(case, kept.to, kept.source) | kept.pools.observed()


@adapter(contract=CONTRACT, module="spec_utils", symbol="get_src_tgt_cache_loc+get_target_cache_loc",
         observes=("sources", "targets", "stray", "freed"), needs=("kv.source_target", "kv.target_kernel"),
         execution="triton")  # fmt: skip
def source_target(engine: Any, case: Any) -> dict[str, Any]:
    """As verify on pages chains the two: sources and counts first, then one kernel that
    fills targets and freed slots. What the first leaves uninitialised holds slots of the
    batch here, as memory that was used before may."""
    torch, rows = engine.torch, len(case.pre)
    block = engine.tensor(case.block.reshape(-1), "int64", contiguous=True)
    index = _accept_index(case)
    accepted = np.concatenate([index[index >= 0], np.arange(case.uncovered) % index.size])
    drafts = engine.tensor(case.committed - 1, "int32", contiguous=True)
    function = engine.symbol("kv.source_target")
    function = getattr(function, "_torchdynamo_orig_callable", function)  # poisoned memory must not be compiled away
    poison = int(case.block[-1, -1])
    with _used_before(torch, poison), engine.production():
        source, to, free_counts = function(
            engine.tensor(case.pre, "int64", contiguous=True),
            block,
            engine.tensor(accepted, "int64", contiguous=True),
            drafts,
            case.draft_tokens,
            case.page,
        )
    freed = torch.full((int(free_counts.sum()),), poison, dtype=torch.int64, device=engine.device)
    with engine.production():
        engine.symbol("kv.target_kernel")[(rows,)](
            to, freed, drafts, free_counts, block, case.draft_tokens, next_power_of_2(case.draft_tokens),
            next_power_of_2(rows),
        )  # fmt: skip
    found = moves(case, to, source)
    return {n: found[n] for n in ("sources", "targets", "stray")} | {"freed": split(freed, free_counts.tolist())}


def _used_before(torch: Any, poison: int) -> Any:
    """``torch.empty_like`` answers with memory that holds ``poison``."""
    original = torch.empty_like

    @forwarded
    def empty_like(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs).fill_(poison)

    return mock.patch.object(torch, "empty_like", empty_like)


def _paged(case: Any) -> str | None:
    if case.page == 1:
        return "with pages of one token the table is rewritten and nothing moves"
    return _heads(case)


@adapter(contract=CONTRACT, module="ngram", symbol="_free_cache",
         observes=("sources", "targets", "stray", "read_beyond", "freed", *HELD), needs=("kv.ngram_input", "kv.heads"),
         execution="worker", accepts=_paged)  # fmt: skip
def ngram_free_cache(engine: Any, case: Any) -> dict[str, Any]:
    """How NGRAM's verify commits a tree on pages: locations, move and release."""
    kept, freed = Recorded(KvPools(engine, case)), []
    index = _accept_index(case)
    names = engine.fact("kv.ngram_names")
    rows = [_pool_row(case, i) for i in range(len(case.pre))]
    batch = ClosedStub(
        "batch",
        batch_size=lambda: len(case.pre),
        seq_lens=engine.tensor(case.pre, "int64", contiguous=True),
        out_cache_loc=engine.tensor(case.block.reshape(-1), "int64", contiguous=True),
        req_pool_indices=engine.tensor(rows, "int64", contiguous=True),
        req_to_token_pool=ClosedStub("pool", req_to_token=_table(engine, case)),
        reqs=[ClosedStub("request", kv_committed_len=int(pre), kv_allocated_len=0) for pre in case.pre],
        token_to_kv_pool_allocator=ClosedStub(
            "allocator", free=lambda slots: freed.extend(slots.tolist()), get_kvcache=lambda: kept
        ),
    )
    verify_input = ClosedStub(
        "verify input",
        draft_token_num=case.draft_tokens,
        **{
            names["nodes"]: engine.tensor(index[index >= 0], "int64", contiguous=True),
            names["drafts"]: engine.tensor(case.committed - 1, "int32", contiguous=True),
            names["committed"]: engine.tensor(case.committed, "int32", contiguous=True),
        },
    )
    drafts_on_host = engine.torch.from_numpy(case.committed - 1)
    with engine.production():
        engine.symbol("kv.ngram_input")._free_cache(verify_input, batch, case.page, drafts_on_host)
    of = {int(slot): i for i, block in enumerate(case.block) for slot in block}
    by_request = [[s for s in freed if of.get(s) == i] for i in range(len(case.pre))]
    return moves(case, kept.to, kept.source) | {"freed": by_request} | kept.pools.observed()
