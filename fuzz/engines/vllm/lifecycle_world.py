"""Stories told with vLLM's block manager in align mode.

Real: ``KVCacheManager`` over a full-attention group and a ``MambaManager`` group, its
block pool and prefix cache, ``Request`` with its block hashes, and the scheduler's split
of prefills into steps that end on a boundary. Ours is the device and the runner's copies
around a step, by the rule that the copies before and after a step have (which block a
copy really goes to is commit.aligned_states): a running state lies at the last column of
the tokens scheduled, the states of verify steps in the columns behind it.
"""

from __future__ import annotations

from typing import Any

from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.lifecycle.driver import Filed, Life
from oracle.lifecycle.tokens import Tokens

ATTENTION, STATES = 0, 1  # groups


class Own:
    """A request and what the runner knows of it: its block tables, the column of its
    running state and how many verify steps behind it the state lies."""

    def __init__(self, request: Any):
        self.request = request
        self.tables: tuple[list[int], list[int]] = ([], [])
        self.column: int | None = None
        self.accepted = 1

    def forget(self) -> None:
        self.tables, self.column, self.accepted = ([], []), None, 1


class VllmWorld:
    """A ``fuzz.lifecycle.driver.World``; lengths are published at once."""

    cache_owns = False  # a cached block stays a request's, and is free once nobody uses it

    def __init__(self, engine: Any, case: Any):
        self.engine, self.case = engine, case
        self.grid, self.drafts = int(case.grid), int(case.draft_tokens) - 1
        self.tokens = Tokens()
        self.lives: list[Life] = []
        self.rows: list[Life] = []
        self.fresh: list[Life] = []
        self._ids: dict[int, int] = {}
        self._filed: dict[int, Filed] = {}
        requests = case.action.count("enter")
        longest = int(case.tokens.max()) + case.action.count("verify") * (self.drafts + 1) + len(case.action) + 8
        per_request = longest // self.grid + 2 + self.drafts + 2
        blocks = 2 * (requests + 1) * per_request + 2 * case.action.count("restore") * per_request
        self.states = [0] * blocks
        self.entries = [[0] * self.grid for _ in range(blocks)]
        self.manager = self._manager(blocks, longest)
        hashes = engine.symbol("lifecycle.hashes")
        hashes.init_none_hash(engine.symbol("lifecycle.hash_function"))
        self.hasher = hashes.get_request_block_hasher(self.grid, engine.symbol("lifecycle.hash_function"))
        self.scheduler = self._scheduler()

    def _manager(self, blocks: int, longest: int) -> Any:
        torch, interface = self.engine.torch, self.engine.symbol("lifecycle.interface")
        attention = interface.FullAttentionSpec(block_size=self.grid, num_kv_heads=1, head_size=8, dtype=torch.float32)
        states = interface.MambaSpec(
            block_size=self.grid, shapes=((1, 2),), dtypes=(torch.float32,), mamba_cache_mode="align",
            num_speculative_blocks=self.drafts,
        )  # fmt: skip
        groups = [interface.KVCacheGroupSpec(["attention"], attention), interface.KVCacheGroupSpec(["states"], states)]
        config = interface.KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups)
        more = {"scheduler_block_size": self.grid} if self.engine.fact("lifecycle.block_size_argument") else {}
        return self.engine.symbol("lifecycle.manager")(
            config, max_model_len=longest, hash_block_size=self.grid, enable_caching=True, **more
        )

    def _scheduler(self) -> Any:
        return bound(
            self.engine.symbol("lifecycle.scheduler"),
            "scheduler",
            cache_config=ClosedStub("cache_config", block_size=self.grid),
            scheduler_config=ClosedStub("scheduler_config", long_prefill_token_threshold=0),
            max_num_scheduled_tokens=1 << 20,
            block_size=self.grid,
            hash_block_size=self.grid,
            use_eagle=False,
            use_eagle_block_drop=False,
            num_hash_lookahead_tokens=0,
            mamba_partial_cache_hit=False,
            mamba_shared_prefix_checkpoint=False,
            mamba_has_prefill_checkpoint_blocks=False,
            mamba_prefill_checkpoint_alignment=None,
        )

    # -- prefill ---------------------------------------------------------------------------

    def admit(self, life: Life) -> int:
        if life.own is None:
            self.lives.append(life)
            sampling = self.engine.symbol("lifecycle.sampling")(max_tokens=1 << 20)
            request = self.engine.symbol("lifecycle.request")(
                f"r{life.name}", self.ids(life, 0, life.prompt), sampling, None, block_hasher=self.hasher
            )
            life.own = Own(request)
        own = life.own
        with self.engine.production():
            self.manager.new_step_starts()
            blocks, length, *junction = self.manager.get_computed_blocks(own.request)
        if self.engine.fact("lifecycle.names_junction"):
            own.request.shared_prefix_boundary = junction[0]
        own.hit = blocks
        own.tables = tuple([b.block_id for b in group] for group in blocks.blocks)
        own.column = (length - 1) // self.grid if length else None
        return length

    def extend(self, life: Life, start: int, end: int) -> None:
        """One prefill pass, in the steps that the scheduler makes of it."""
        own, at = life.own, start
        while at < end:
            with self.engine.production():
                self.manager.new_step_starts()
                hit = own.hit
                if hit is None:
                    count = self.scheduler._mamba_block_aligned_split(own.request, end - at)
                    made = self.manager.allocate_slots(own.request, count, num_lookahead_tokens=self.drafts)
                else:
                    own.hit = None
                    count = self.scheduler._mamba_block_aligned_split(own.request, end - at, at)
                    made = self.manager.allocate_slots(own.request, count, at, hit, num_lookahead_tokens=self.drafts)
            self._append(own, made)
            self._before_step(own, at, count)
            self._forward(life, at, at + count)
            own.request.num_computed_tokens = at = at + count
        if end == life.prompt:
            own.request.append_output_token_ids(self.ids(life, end, end + 1)[0])

    def _append(self, own: Own, made: Any) -> None:
        for table, group in zip(own.tables, made.blocks, strict=True):
            table.extend(b.block_id for b in group)

    def _before_step(self, own: Own, computed: int, scheduled: int) -> None:
        """The running state moves to the last column of the tokens scheduled."""
        column = -(-(computed + scheduled) // self.grid) - 1
        table = own.tables[STATES]
        if own.column is None:
            self.states[table[column]] = 0
        elif own.column != column:
            self.states[table[column]] = self.states[table[own.column + own.accepted - 1]]
            own.accepted = 1
        own.column = column

    def _forward(self, life: Life, start: int, end: int) -> None:
        own = life.own
        block = own.tables[STATES][own.column]
        self.states[block] = self._advanced(life, self.states[block], start, end)
        self._write(own, start, self.tokens.entries(life.author, start, end))

    def _write(self, own: Own, start: int, entries: list[int]) -> None:
        for position, entry in enumerate(entries, start):
            self.entries[own.tables[ATTENTION][position // self.grid]][position % self.grid] = entry

    def _advanced(self, life: Life, before: int, start: int, end: int) -> int:
        if before == self.tokens.prefix(life.author, start):
            return self.tokens.prefix(life.author, end)
        return before + end - start

    def join(self, life: Life) -> None:
        self.fresh.append(life)

    # -- verify ----------------------------------------------------------------------------

    def merge(self) -> list[Life]:
        self.rows += self.fresh
        self.fresh = []
        return list(self.rows)

    def launch(self, rows: list[tuple[Life, int]]) -> None:
        with self.engine.production():
            self.manager.new_step_starts()
        for life, count in rows:
            own, request = life.own, life.own.request
            pre, width = request.num_computed_tokens, self.drafts + 1
            with self.engine.production():
                made = self.manager.allocate_slots(request, width, num_lookahead_tokens=self.drafts)
            self._append(own, made)
            self._before_step(own, pre, width)
            self._verify(life, pre, count)
            request.num_computed_tokens = pre + count
            for token in self.ids(life, pre + 1, pre + count + 1):
                request.append_output_token_ids(token)

    def _verify(self, life: Life, pre: int, count: int) -> None:
        """Every verify step leaves its state in a column of its own, as far as drafts were
        right; then what was accepted decides which of them a full block gets."""
        own, table = life.own, life.own.tables[STATES]
        before = self.states[table[own.column + own.accepted - 1]]
        for step in range(self.drafts + 1):
            right = self._advanced(life, before, pre, pre + step + 1) if step < count else 0
            self.states[table[own.column + step]] = right
        self._write(own, pre, self.tokens.entries(life.author, pre, pre + count))
        own.accepted = count
        boundary = (pre + count) // self.grid * self.grid
        if boundary >= pre + 1:
            target = boundary // self.grid - 1
            self.states[table[target]] = self.states[table[own.column + boundary - pre - 1]]
            if target == own.column:
                own.accepted = 1

    def publish(self, ending: list[Life]) -> None:
        """Lengths are known when the step ends."""

    # -- leaving ---------------------------------------------------------------------------

    def finish(self, life: Life) -> None:
        self._free(life)

    def retract(self, life: Life) -> None:
        """Preemption: everything goes back, and nothing is computed any more."""
        self._free(life)
        life.own.request.num_computed_tokens = 0

    def _free(self, life: Life) -> None:
        with self.engine.production():
            self.manager.free(life.own.request)
        life.own.forget()
        for rows in (self.rows, self.fresh):
            if life in rows:
                rows.remove(life)

    def evict(self) -> None:
        """Take every free block and give it back: what was cached in it is gone."""
        pool = self.manager.block_pool
        with self.engine.production():
            pool.free_blocks(pool.get_new_blocks(pool.get_num_free_blocks()))

    # -- what is there ---------------------------------------------------------------------

    def filed(self) -> list[Filed]:
        """Every state that a prompt could resume from: cached under the hash of its
        blocks, with the attention cache of all of them."""
        found: dict[int, Filed] = {}
        for life in self.lives:
            attention: list[int] = []
            for i, name in enumerate(life.own.request.block_hashes):
                cached = self.manager.block_pool.get_cached_block(name, [ATTENTION])
                if cached is None:
                    break
                attention = attention + self.entries[cached[0].block_id]
                state = self.manager.block_pool.get_cached_block(name, [STATES])
                prefix = self.tokens.prefix(life.author, (i + 1) * self.grid)
                if state is not None and prefix not in found:
                    known = self._filed.get(prefix)
                    entry = Filed(prefix, state[0].block_id, attention)
                    found[prefix] = known if known == entry and known.attention == attention else entry
        self._filed = found
        return list(found.values())

    def stamp(self, slot: int) -> int:
        return self.states[slot]

    def state(self, life: Life) -> tuple[int, list[int]]:
        own = life.own
        if own.column is None:
            return 0, []
        attention = [e for block in own.tables[ATTENTION] for e in self.entries[block]]
        return own.tables[STATES][own.column + own.accepted - 1], attention[: life.ahead]

    def kept(self, life: Life) -> tuple[int, int] | None:
        return None

    def owned(self, life: Life) -> list[int]:
        """Blocks that the request writes to, as the manager has them."""
        own = life.own
        if own.column is None:
            return []
        null = self.manager.block_pool.null_block.block_id
        return [b for b in self.manager.get_block_ids(own.request.request_id)[STATES][own.column :] if b != null]

    def free(self) -> list[int]:
        return [b.block_id for b in self.manager.block_pool.free_block_queue.get_all_free_blocks()]

    def all_slots(self) -> list[int]:
        """Blocks that somebody must answer for: none, a cached one may be free too."""
        return []

    def ids(self, life: Life, start: int, end: int) -> list[int]:
        entries = self.tokens.entries(life.author, start, end)
        return [self._ids.setdefault(e, len(self._ids) + 1) for e in entries]
