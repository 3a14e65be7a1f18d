"""SGLang's pools and prefix cache for one story, and how each release is spoken to.

Everything is real and on the CPU or the device asked for; the entries of the state pool
hold two numbers, the author and the length of the prefix they are the state after. The
token pool needs no keys and values: what a token slot holds is a stamp beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fuzz.engines.closed import ClosedStub
from oracle.lifecycle.tokens import MAX_TOKENS, author_of, length_of, stamp

CELLS = 2  # of a state: author and length
VOCABULARY = 1 << 20


def needs(case: Any) -> tuple[int, int, int, int]:
    """What a story needs at most, so that no pool runs dry and nothing is evicted unasked:
    requests alive at once, states filed, token slots, tokens of one request."""
    alive: set[int] = set()
    most = 1
    for action, name in zip(case.action, case.request.tolist(), strict=True):
        if action in ("enter", "restore"):
            alive.add(name)
        elif action in ("finish", "retract") and not case.chunk:  # in passes it may not apply
            alive.discard(name)
        most = max(most, len(alive))
    count = case.action.count
    grown = count("verify") * int(case.draft_tokens)
    longest = int(case.tokens.max()) + grown + count("restore") + 8
    tokens = int(case.tokens.sum()) + most * grown + count("restore") * longest + 64
    return most, sum(map(count, ("enter", "prefill", "restore", "finish"))), tokens, longest


class Pools:
    """``tree``: the key of the prefix cache's symbol; ``options``: of its parameters."""

    def __init__(self, engine: Any, case: Any, tree: str, chunk: int, **options: Any):
        self.engine, self.case, self.chunk = engine, case, chunk
        self.fact = cache(engine.fact)  # asked at every step of a story
        torch = engine.torch
        alive, filings, tokens, longest = needs(case)
        size = 3 * alive + filings + 8
        self.all_slots = list(range(1, size + 1))
        lazy = {"enable_mamba_extra_buffer_lazy": True} if case.lazy else {}
        self.rows = engine.symbol("lifecycle.pool")(
            size=alive + 1,
            mamba_size=size,
            mamba_spec_state_size=alive + 1,
            max_context_len=longest,
            device=engine.device,
            enable_memory_saver=False,
            cache_params=self._shapes(),
            mamba_layer_ids=[0],
            enable_mamba_extra_buffer=True,
            speculative_num_draft_tokens=None,  # no scratch for verify steps: the device is ours
            enable_overlap_schedule=bool(case.overlap),
            **lazy,
        )
        self.states = self.rows.mamba_pool
        self.deferred = self.fact("lifecycle.slot_allocator") == "mamba_allocator"
        self.allocator = self.rows.mamba_allocator if self.deferred else self.states
        self.token_slots = engine.symbol("lifecycle.token_slots")(
            tokens, torch.float16, engine.device, ClosedStub("keys and values"), False
        )
        self.attention = torch.zeros(tokens + 1, dtype=torch.int64, device=engine.device)
        params = engine.symbol("lifecycle.cache_params")(
            disable=False, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.token_slots, page_size=1,
            enable_mamba_extra_buffer=True, **lazy, **options,
        )  # fmt: skip
        self.tree = engine.symbol(tree)(params)
        self.model = ClosedStub(
            "model_config",
            is_encoder_decoder=False,
            is_matryoshka=False,
            vocab_size=VOCABULARY,
            hf_text_config=ClosedStub("hf_text_config", mamba_chunk_size=chunk),
        )
        self._ids: dict[int, int] = {}

    def _shapes(self) -> Any:
        module = self.engine.symbol("lifecycle.state_shapes")
        known = module.Mamba2StateShape.__dataclass_fields__
        shape = module.Mamba2StateShape(
            conv=[(CELLS, 3)], temporal=(1, 1, CELLS), intermediate_size=CELLS, conv_dim=CELLS, ssm_state_size=CELLS,
            num_heads=1, head_dim=1, state_size=CELLS, conv_kernel=4,
            **({"num_k_heads_per_tp": 1} if "num_k_heads_per_tp" in known else {}),
        )  # fmt: skip
        torch = self.engine.torch
        dtype = module.Mamba2StateDType(conv=torch.bfloat16, temporal=torch.float32)
        return module.Mamba2CacheParams(shape=shape, dtype=dtype, layers=[0])

    # -- states and attention entries ------------------------------------------------------

    def stamp(self, slot: int) -> int:
        author, length = self.states.mamba_cache.temporal[0, slot].flatten().tolist()
        return stamp(int(author), int(length))

    def write_state(self, slot: int, name: int) -> None:
        cells = [author_of(name), length_of(name)]
        self.states.mamba_cache.temporal[0, slot] = self.engine.torch.tensor(cells, dtype=self.engine.torch.float32)

    def write_entries(self, locations: Any, entries: list[int]) -> None:
        self.attention[locations.long()] = self.engine.torch.tensor(entries, device=self.engine.device)

    def entries(self, locations: Any) -> list[int]:
        return self.attention[locations.long()].tolist()

    def append_entries(self, request: Any, pre: int, post: int, entries: list[int]) -> None:
        """Token slots of a round, taken from the allocator and written to the row."""
        locations = self.token_slots.alloc(post - pre)
        self.rows.req_to_token[self._row(request), pre:post] = locations.to(self.rows.req_to_token)
        self._allocated(request).kv_allocated_len = post
        self.write_entries(locations, entries)

    def row_entries(self, request: Any, length: int) -> list[int]:
        return self.entries(self.rows.req_to_token[self._row(request), :length])

    def ids(self, entries: list[int]) -> list[int]:
        """Token ids: small numbers, one for each stamp."""
        return [self._ids.setdefault(e, len(self._ids) + 1) for e in entries]

    # -- requests --------------------------------------------------------------------------

    def request(self, name: int, ids: Any) -> Any:
        sampling = self.engine.symbol("lifecycle.sampling")(max_new_tokens=MAX_TOKENS)
        return self.engine.symbol("lifecycle.request")(f"r{name}", "", ids, sampling, vocab_size=VOCABULARY)

    def batch(self, requests: list[Any], overlap: bool) -> Any:
        algorithm = self.engine.symbol("lifecycle.algorithm").EAGLE
        batch = self.engine.symbol("lifecycle.batch").init_new(
            requests, self.rows, self.token_slots, self.tree, self.model, overlap, algorithm
        )
        if self.fact("lifecycle.draft_input_waited_for"):
            # What a worker hangs on the batch; it holds drafts, which no story has.
            nothing = dict.fromkeys(("filter_batch", "merge_batch"), lambda *args, **kwargs: None)
            batch.spec_info = ClosedStub("draft input", verify_done=None, **nothing)
        return batch

    def state(self, request: Any) -> Any:
        """Where this release keeps the states of a request."""
        return request if self.fact("tracks.state_on") == "request" else request.kv

    def _row(self, request: Any) -> int:
        return self.state(request).req_pool_idx

    def holds_row(self, request: Any) -> bool:
        return self._row(request) is not None

    def _allocated(self, request: Any) -> Any:
        return request.kv if self.fact("lifecycle.allocated_on") == "request.kv" else request

    def committed(self, request: Any) -> int:
        return self.state(request).kv_committed_len

    def commit(self, request: Any, count: int) -> None:
        self.state(request).kv_committed_len += count

    def prefix_length(self, request: Any) -> int:
        kind = self.fact("lifecycle.prefix_length")
        return request.prefix_len if kind == "prefix_len" else len(request.prefix_indices)

    def resumed(self, request: Any) -> tuple[int, list[int]]:
        """What a matched request is about to start from: the slot that holds the state
        now (0, which is nobody's, for an empty one) and the attention entries."""
        state = self.state(request)
        length = self.prefix_length(request)
        if not length:
            return 0, []
        source = getattr(state, "mamba_cow_src_index", None) if self.deferred else None
        slot = int(source) if source is not None else int(state.mamba_pool_idx)
        if self.fact("lifecycle.matched_entries") == "path":
            return slot, self.entries(self.tree.path_device_indices(request.last_node)[:length])
        return slot, self.entries(request.prefix_indices)

    def set_extent(self, request: Any, start: int, end: int) -> None:
        kind = self.fact("lifecycle.extent")
        if kind == "extend_end":
            request.extend_end = end
        elif kind == "extend_range":
            request.set_extend_range(start, end)
        else:
            request.set_extend_input_len(end - start)
            if kind == "fill_ids":
                request.fill_ids = request.fill_ids[:end]
            else:
                request.fill_len = end

    def lock(self, request: Any) -> None:
        kind = self.fact("lifecycle.lock")
        if kind == "lock":
            request.lock = self.tree.lock(request.last_node)
            return
        result = self.tree.inc_lock_ref(request.last_node)
        if kind == "lock_receipt":
            request.lock_receipt = result.to_dec_params()

    def file(self, request: Any, chunked: bool) -> None:
        kind = self.fact("lifecycle.filing")
        if kind == "cache":
            self.tree.cache_unfinished_req(request, chunked=chunked)
        elif kind == "chunked":
            self.engine.symbol("lifecycle.file")(request, self.tree, chunked=chunked)
        else:
            self.engine.symbol("lifecycle.file")(request, self.tree)

    def release(self, request: Any, insert: bool) -> None:
        self.engine.symbol("lifecycle.release")(request, self.tree, **{self.fact("lifecycle.release_argument"): insert})

    def kept(self, request: Any) -> int:
        if self.fact("lifecycle.kept") == "method":
            return self.rows.get_mamba_ping_pong_keep_idx(request)
        return self.rows.get_mamba_ping_pong_other_idx(request.mamba_next_track_idx)

    # -- the prefix cache ------------------------------------------------------------------

    def evict(self, most: int) -> None:
        params = self.engine.symbol("lifecycle.prefix_cache").EvictParams(num_tokens=most, mamba_num=most)
        self.tree.evict(params)

    def match(self, ids: Any) -> tuple[int, int, Any] | None:
        """The longest filed prefix of ``ids``: its length, its slot, its token slots."""
        key = self.engine.symbol("lifecycle.key")(ids, None)
        result = self.tree.match_prefix(self.engine.symbol("lifecycle.prefix_cache").MatchPrefixParams(key=key))
        if self.fact("lifecycle.matched_entries") == "path":
            length, node = result.device_prefix_len, result.best_match_node
            locations = self.tree.path_device_indices(node)[:length] if length else None
        else:
            length, node, locations = len(result.device_indices), result.last_device_node, result.device_indices
        return (length, int(self._node_state(node)), locations) if length else None

    def _node_state(self, node: Any) -> Any:
        kind = self.fact("lifecycle.node_state")
        if not hasattr(self.tree, "components"):
            return node.mamba_value
        component = self.engine.symbol("lifecycle.components").MAMBA
        if kind == "tree_core":
            return self.tree.tree_core.get_component_device_value(node, component)
        return node.component_data[component].value
