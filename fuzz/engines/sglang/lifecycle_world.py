"""Stories told with SGLang's own pools, prefix cache, requests and batches.

Real: the request-to-token pool with its state pool and ping-pong track buffers, the
prefix cache, ``Req``, ``ScheduleBatch`` (extend preparation, lazy track plan, filter,
merge, the copy that results are processed with), the preparation of track slots, the
result processor's bookkeeping, filing and release. Ours is the device: a forward writes
stamps where the batch says, verify commits the steps that the definition names, and a
round's token slots come from the real allocator.
"""

from __future__ import annotations

from array import array
from typing import Any

from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.lifecycle_pools import Pools
from fuzz.lifecycle.driver import Filed, Life
from oracle.lifecycle.tokens import Tokens

EVERYTHING = 1 << 40  # more than any cache holds


class SglangWorld:
    """A ``fuzz.lifecycle.driver.World``."""

    cache_owns = True

    def __init__(self, engine: Any, case: Any, pools: Pools):
        self.engine, self.case, self.pools = engine, case, pools
        self.tokens = Tokens()
        self.running: Any = None
        self.fresh: list[Any] = []
        self.flight: list[tuple[Any, list[tuple[Life, int]], Any]] = []
        self.lives: list[Life] = []
        self._known: dict[int, Filed] = {}  # by slot
        processor = engine.symbol("boundary.processor")
        self.processor = bound(processor, "processor", tree_cache=pools.tree)

    # -- prefill ---------------------------------------------------------------------------

    def admit(self, life: Life) -> int:
        """Match, lock, and say how much of the prompt is there already."""
        if life.own is None:
            self.lives.append(life)
            life.own = self.pools.request(life.name, self.ids(life, 0, life.prompt))
        request, tree = life.own, self.pools.tree
        with self.engine.production():
            request.init_next_round_input(tree)
            self.pools.lock(request)
        return self.pools.prefix_length(request)

    def extend(self, life: Life, start: int, end: int) -> None:
        """One prefill pass: prepare, run the forward, file what was tracked."""
        request, done = life.own, end == life.prompt
        with self.engine.production():
            if start and self.pools.holds_row(request):
                request.init_next_round_input()  # a later pass: the prefix is its own
            self.pools.set_extent(request, start, end)
            batch = self.pools.batch([request], bool(self.case.overlap))
            batch.prepare_for_extend()
        self._forward(batch, life, start, end)
        if done:
            request.output_ids.extend(self.ids(life, end, end + 1))
        with self.engine.production():
            self.pools.file(request, chunked=not done)
        self.fresh_batch = batch

    def _forward(self, batch: Any, life: Life, start: int, end: int) -> None:
        """What the device does in a prefill pass."""
        pool = self.pools
        if pool.deferred and batch.mamba_cow_src_indices is not None:
            pool.states.copy_from(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
        if pool.deferred and batch.mamba_clear_indices is not None:
            pool.states.clear_slots(batch.mamba_clear_indices)
        slot = self._slot(life)
        before = pool.stamp(slot)
        pool.write_entries(batch.out_cache_loc, self.tokens.entries(life.author, start, end))
        if bool(batch.mamba_track_mask[0]):
            # The snapshot of the last whole chunk, or of the end when that is one.
            length = start + (int(batch.mamba_track_seqlens[0]) - start) // pool.chunk * pool.chunk
            pool.write_state(int(batch.mamba_track_indices[0]), self._advanced(life, before, start, length))
        pool.write_state(slot, self._advanced(life, before, start, end))

    def _advanced(self, life: Life, before: int, start: int, end: int) -> int:
        """As in the model: from a wrong state comes a wrong one."""
        if before == self.tokens.prefix(life.author, start):
            return self.tokens.prefix(life.author, end)
        return before + end - start

    def join(self, life: Life) -> None:
        self.fresh.append(self.fresh_batch)

    # -- verify ----------------------------------------------------------------------------

    def merge(self) -> list[Life]:
        for batch in self.fresh:
            if self.running is None or not self.running.reqs:
                self.running = batch
            else:
                with self.engine.production():
                    self.running.merge_batch(batch)
        self.fresh = []
        by_request = {id(life.own): life for life in self.lives}
        return [by_request[id(r)] for r in self.running.reqs] if self.running is not None else []

    def launch(self, rows: list[tuple[Life, int]]) -> None:
        batch, grid = self.running, int(self.case.grid)
        with self.engine.production():
            if self.case.lazy:
                batch.mamba_lazy_spec_prepare(grid, int(self.case.draft_tokens))
            slots = self._track_slots(batch)
        lengths = batch.seq_lens.tolist()
        for i, (life, count) in enumerate(rows):
            pre, post = lengths[i], lengths[i] + count
            entries = self.tokens.entries(life.author, pre, post)
            self.pools.append_entries(life.own, pre, post, entries)
            slot = self._slot(life)
            before = self.pools.stamp(slot)
            boundary = post // grid * grid
            if boundary > pre and slots[i] >= 0:
                self.pools.write_state(slots[i], self._advanced(life, before, pre, boundary))
            self.pools.write_state(slot, self._advanced(life, before, pre, post))
        counts = self.engine.torch.tensor([count for _, count in rows])
        batch.seq_lens = batch.seq_lens + counts.to(batch.seq_lens)
        if batch.seq_lens_cpu is not None:
            batch.seq_lens_cpu = batch.seq_lens_cpu + counts.to(batch.seq_lens_cpu)
        with self.engine.production():
            snapshot = batch.copy()
        self.flight.append((snapshot, list(rows), {id(life) for life, _ in rows}))

    def _track_slots(self, batch: Any) -> list[int]:
        """The slots that the round's checkpoints go to, by row."""
        if self.pools.fact("lifecycle.tracks_prepared_by") == "worker":
            states = [self.pools.state(r) for r in batch.reqs]
            return [int(s.mamba_ping_pong_track_buffer[s.mamba_next_track_idx]) for s in states]
        self.engine.symbol("tracks.prepare")(batch)
        return [int(s) for s in batch.mamba_track_indices]

    def publish(self, ending: list[Life]) -> None:
        """The scheduler processes the oldest result, request by request."""
        for life in ending:
            self._end(life)
        snapshot, rows, alive = self.flight.pop(0)
        drafts = [count - 1 for _, count in rows]
        result = ClosedStub(
            "result",
            num_correct_drafts_per_req_cpu=drafts,
            accept_length_per_req_cpu=drafts,
            num_non_draft_tokens_per_req=1,
            grammar_retained_tokens=None,
        )
        for i, (life, count) in enumerate(rows):
            if id(life) not in alive:
                continue
            request = life.own
            length = self.pools.committed(request)
            request.output_ids.extend(self.ids(life, length + 1, length + 1 + count))
            self.pools.commit(request, count)
            with self.engine.production():
                self.processor._mamba_prefix_cache_update(request, snapshot, result, i)

    # -- leaving ---------------------------------------------------------------------------

    def _end(self, life: Life) -> None:
        life.own.finished_reason = self.engine.symbol("lifecycle.finish_reason")(length=0)

    def finish(self, life: Life) -> None:
        self._end(life)
        with self.engine.production():
            self.pools.release(life.own, True)
        self._leave(life)

    def retract(self, life: Life) -> None:
        with self.engine.production():
            self.pools.release(life.own, False)
            life.own.reset_for_retract()
        self._leave(life)

    def _leave(self, life: Life) -> None:
        for _, _, alive in self.flight:
            alive.discard(id(life))
        for batch in [self.running, *self.fresh]:
            if batch is not None and any(r is life.own for r in batch.reqs):
                keep = [i for i, r in enumerate(batch.reqs) if r is not life.own]
                with self.engine.production():
                    batch.filter_batch(keep_indices=keep)
        self.fresh = [b for b in self.fresh if b.reqs]

    def evict(self) -> None:
        with self.engine.production():
            self.pools.evict(EVERYTHING)

    # -- what is there ---------------------------------------------------------------------

    def filed(self) -> list[Filed]:
        """Every state in the prefix cache. The cache says which slots it owns; under which
        prefix each is filed is found by asking it for the texts that are known, those
        of the requests that did something last first."""
        slots = set(self.pools.tree.all_mamba_values_flatten().tolist())
        self._known = {slot: entry for slot, entry in self._known.items() if slot in slots}
        left = sorted(self.lives, key=lambda life: -life.touched)
        while slots - set(self._known) and left:
            life = left.pop(0)
            length = life.known
            while length and (entry := self._entry(life, length)) is not None:
                self._known.setdefault(entry.slot, entry)
                length = len(entry.attention) - 1
        return list(self._known.values())

    def _entry(self, life: Life, length: int) -> Filed | None:
        matched = self.pools.match(self.ids(life, 0, length))
        if matched is None:
            return None
        reached, slot, locations = matched
        return Filed(self.tokens.prefix(life.author, reached), slot, self.pools.entries(locations))

    def stamp(self, slot: int) -> int:
        return self.pools.stamp(slot)

    def state(self, life: Life) -> tuple[int, list[int]]:
        if not self.pools.holds_row(life.own):  # matched, not prepared yet
            return self.pools.resumed(life.own)
        return self._slot(life), self.pools.row_entries(life.own, life.ahead)

    def _slot(self, life: Life) -> int:
        return int(self.pools.state(life.own).mamba_pool_idx)

    def kept(self, life: Life) -> tuple[int, int] | None:
        state = self.pools.state(life.own)
        if state.mamba_last_track_seqlen is None:
            return None
        return int(state.mamba_last_track_seqlen), int(state.mamba_ping_pong_track_buffer[self.pools.kept(life.own)])

    def owned(self, life: Life) -> list[int]:
        state = self.pools.state(life.own)
        tracks = [int(s) for s in state.mamba_ping_pong_track_buffer if int(s) >= 0]
        return [int(state.mamba_pool_idx), *tracks]

    def free(self) -> list[int]:
        slots = self.pools.allocator.free_slots
        return slots if isinstance(slots, list) else slots.tolist()

    def all_slots(self) -> list[int]:
        return self.pools.all_slots

    def ids(self, life: Life, start: int, end: int) -> Any:
        ids = self.pools.ids(self.tokens.entries(life.author, start, end))
        return ids if self.pools.fact("lifecycle.ids") == "list" else array("q", ids)
