"""The scheduler of the model: it turns steps into changes of slots, tree, tracks and batches.

Everything is an operation of one of the parts; the scheduler only says in which order.
A wrong version of the model replaces one method of one part, so each part is a class
that is handed in (``Parts``).

What a request has taken in is ``length`` as the scheduler knows it; a round that is
in flight is ahead of it. One emitted token, the next input, is in no state yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oracle.lifecycle.batch import Batch
from oracle.lifecycle.slots import Content, SlotPool
from oracle.lifecycle.story import LifecycleCase, Step, committed_of
from oracle.lifecycle.tokens import Tokens, length_of
from oracle.lifecycle.tracks import Tracks
from oracle.lifecycle.tree import Entry, PrefixTree

PREFILLING, RUNNING, WAITING, FINISHED = "prefilling", "running", "waiting", "finished"


@dataclass
class Request:
    """A request and what it owns. ``attention`` are the entries of its attention
    cache; ``branch`` is where its prompt parts from what the tree holds."""

    name: int
    author: int
    prompt: int
    status: str = PREFILLING
    length: int = 0
    slot: int | None = None
    tracks: Tracks | None = None
    held: Entry | None = None
    branch: int = 0
    attention: list[int] = field(default_factory=list)
    copy: tuple[Content, list[int]] | None = None


@dataclass
class Round:
    """What one verify round did, known to the scheduler when it is published: per
    row the request, its length, the checkpoint's length (0: none) and position."""

    rows: list[tuple[int, int, int, int]]


@dataclass(frozen=True)
class Parts:
    pool: type[SlotPool] = SlotPool
    tree: type[PrefixTree] = PrefixTree
    tracks: type[Tracks] = Tracks
    batch: type[Batch] = Batch


class Scheduler:
    def __init__(self, case: LifecycleCase, parts: Parts | None = None):
        self.case, self.parts = case, parts or Parts()
        self.tokens = Tokens()
        self.pool = self.parts.pool()
        self.tree = self.parts.tree(self.pool, self.tokens)
        self.requests: dict[int, Request] = {}
        self.running, self.fresh = self.parts.batch(), self.parts.batch()
        self.flight: list[Round] = []
        self.said: list[str] = []  # behaviours of the step

    # -- steps ---------------------------------------------------------------------------

    def step(self, step: Step) -> list[int]:
        """Do one step. Returns what a request resumed from: its length, the prefix of
        its state, the entries of its attention cache; empty when none came in."""
        self.said = []
        return getattr(self, step.action)(step) or []

    def enter(self, step: Step) -> list[int] | None:
        if step.request < 0 or step.request in self.requests or step.tokens < 1:
            return None
        source = self.requests.get(step.source)
        shared = min(step.shared, step.tokens, source.length) if source else 0
        author = self.tokens.begin(step.request, source.author if shared else None, shared)
        self.requests[step.request] = r = Request(step.request, author, step.tokens)
        if shared and source.status == RUNNING:
            self.said.append("fork_of_a_running_request")
        return self.admit(r)

    def prefill(self, step: Step) -> None:
        r = self.requests.get(step.request)
        if r is not None and r.status == PREFILLING:
            self.extend(r)

    def verify(self, step: Step) -> None:
        if self.fresh.requests and self.running.requests:
            self.said.append("batches_merged")
        self.running.merge(self.fresh)
        if not self.running.requests:
            return
        self.flight.append(self.launch(step))
        if len(self.flight) > int(self.case.overlap):
            self.publish(step)

    def publish(self, step: Step) -> None:
        """Tell the scheduler what the oldest round in flight did."""
        if not self.flight:
            return
        if self.case.overlap:
            self.said.append("published_late")
        for name, length, boundary, position in self.flight.pop(0).rows:
            self.learn(self.requests[name], length, boundary, position)

    def finish(self, step: Step) -> None:
        r = self.running_request(step)
        if r is None:
            return
        self.drop_unpublished(r, "finished_with_a_round_in_flight")
        if r.tracks.length:
            self.file(r, renew=False)
        else:
            self.said.append("finished_without_checkpoint")
        self.release(r)
        r.status = FINISHED
        self.filter()

    def retract(self, step: Step) -> None:
        r = self.running_request(step)
        if r is None:
            return
        self.said.append("retracted")
        if self.drop_unpublished(r, "retracted_with_a_round_in_flight"):
            r.author = self.tokens.begin(r.name, r.author, r.length + 1)
        self.release(r)
        r.status = WAITING
        self.filter()

    def offload(self, step: Step) -> None:
        """Rounds in flight are published first: a copy must be of the length that
        the scheduler knows."""
        if self.running_request(step) is None:
            return
        while self.flight:
            self.publish(step)
        r = self.requests[step.request]
        self.said.append("offloaded")
        r.copy = (self.pool.read_out(r.slot), list(r.attention[: r.length]))
        self.release(r)
        r.status = WAITING
        self.filter()

    def restore(self, step: Step) -> list[int] | None:
        r = self.requests.get(step.request)
        if r is None or r.status != WAITING:
            return None
        if r.copy is not None:
            self.said.append("restored_from_copy")
            content, r.attention = r.copy
            r.copy = None
            self.take_slots(r)
            self.pool.read_in(r.slot, content)
            self.join(r)
            return None
        self.said.append("restored_by_prefill")
        r.status, r.prompt = PREFILLING, r.length + 1  # the token that was emitted last is an input too
        return self.admit(r)

    def evict(self, step: Step) -> None:
        if self.tree.evict():
            self.said.append("evicted")
        if self.tree.entries:
            self.said.append("held_state_survives_eviction")

    # -- what steps consist of -------------------------------------------------------------

    def running_request(self, step: Step) -> Request | None:
        r = self.requests.get(step.request)
        return r if r is not None and r.status == RUNNING else None

    def admit(self, r: Request) -> list[int]:
        """Look up the prompt, all but its last token, resume, and prefill the first pass."""
        entry, shared = self.tree.match(r.author, r.prompt - 1)
        self.take_slots(r)
        r.length, r.attention = self.resume(r, entry)
        r.held = self.tree.hold(entry)
        branch = shared // self.case.grid * self.case.grid
        r.branch = branch if branch > r.length else 0
        if r.branch:
            self.said.append("prompt_parts_from_a_stored_one")
        self.said.append("resumed_from_a_state" if entry else "nothing_to_resume_from")
        resumed = [r.length, self.pool.stamp(r.slot), len(r.attention)]
        self.extend(r)
        return resumed

    def take_slots(self, r: Request) -> None:
        known = len(self.pool.contents)
        r.slot = self.pool.take()
        r.tracks = self.parts.tracks(self.pool, self.case.lazy)
        if r.slot < known:
            self.said.append("slot_used_again")

    def resume(self, r: Request, entry: Entry | None) -> tuple[int, list[int]]:
        """The request's own copy of a filed state and the attention cache beside it."""
        if entry is None:
            self.pool.write(r.slot, 0)
            return 0, []
        self.pool.copy(entry.slot, r.slot)
        return len(entry.attention), list(entry.attention)

    def extend(self, r: Request) -> None:
        """One prefill pass: advance the state, save the checkpoint on the way, file it."""
        grid, start, before = self.case.grid, r.length, self.pool.stamp(r.slot)
        end = min(r.prompt, start + self.case.chunk * grid) if self.case.chunk else r.prompt
        boundary = self.prefill_boundary(r, start, end)
        position = r.tracks.next
        if boundary:
            r.tracks.prepare(position)
            self.save(r, position, before, start, boundary, end)
        self.pool.write(r.slot, self.advanced(r, before, start, end))
        r.attention[start:] = self.tokens.entries(r.author, start, end)
        r.length = end
        if boundary:
            self.said.append("prefill_ends_on_a_boundary" if boundary == end else "prefill_crosses_a_boundary")
            r.tracks.saved(position, boundary)
            self.file(r, renew=True)
        if end < r.prompt:
            self.said.append("prefilled_in_passes")
        else:
            self.join(r)

    def prefill_boundary(self, r: Request, start: int, end: int) -> int:
        """The checkpoint of a pass: its last boundary, but where the prompt parts from
        a stored one the last boundary before that, because others will part there too."""
        last = end // self.case.grid * self.case.grid
        if last <= start:
            return 0
        return r.branch if start < r.branch <= last else last

    def join(self, r: Request) -> None:
        r.status = RUNNING
        self.fresh.append(r.name, r.length, self.next_boundary(r.length), r.tracks.next)

    def launch(self, step: Step) -> Round:
        """Verify and commit one round on the device."""
        rows = []
        for i, name in enumerate(self.running.requests):
            r, committed = self.requests[name], committed_of(step, i)
            rows.append(self.launch_row(r, i, committed))
        return Round(rows)

    def launch_row(self, r: Request, row: int, committed: int) -> tuple[int, int, int, int]:
        rows, pre = self.running, self.launch_length(r, row)
        position, post = rows.positions[row], pre + committed
        if pre + self.case.draft_tokens >= rows.boundaries[row]:  # whether it is reached is not known yet
            if r.tracks.slots[position] is None:
                self.said.append("second_slot_taken_lazily")
            r.tracks.prepare(position)
        boundary = post // self.case.grid * self.case.grid if post >= rows.boundaries[row] else 0
        before = self.pool.stamp(r.slot)
        if boundary:
            self.save(r, position, before, pre, boundary, post)
            self.said.append("boundary_on_the_last_step" if boundary == post else "boundary_inside_a_round")
            rows.boundaries[row] = self.next_boundary(post)
        self.commit(r, before, pre, post)
        r.attention[pre:] = self.tokens.entries(r.author, pre, post)
        rows.lengths[row] = post
        return r.name, post, boundary, position

    def launch_length(self, r: Request, row: int) -> int:
        """The length that a round starts from: what was launched, not what is known."""
        return self.running.lengths[row]

    def next_boundary(self, length: int) -> int:
        return (length // self.case.grid + 1) * self.case.grid

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        """The state at ``boundary``, on the way from ``start`` to ``end``, into the track slot."""
        self.pool.write(r.tracks.slots[position], self.advanced(r, before, start, boundary))

    def commit(self, r: Request, before: int, pre: int, post: int) -> None:
        """The state after ``post`` tokens: into the ring while it has room, else dense."""
        after, content = self.advanced(r, before, pre, post), self.pool.contents[r.slot]
        waiting = post - length_of(content.base)
        if self.case.ring and waiting + self.case.draft_tokens <= self.case.ring:
            self.pool.append(r.slot, after)
            self.said.append("state_in_the_ring")
        else:
            self.pool.fold(r.slot, after)

    def advanced(self, r: Request, before: int, start: int, end: int) -> int:
        """The state ``before`` after the request's tokens from ``start`` to ``end``. From
        a wrong state comes a wrong one."""
        if before == self.tokens.prefix(r.author, start):
            return self.tokens.prefix(r.author, end)
        return before + end - start

    def learn(self, r: Request, length: int, boundary: int, position: int) -> None:
        r.length = length
        if boundary:
            r.tracks.saved(position, boundary)
            row = self.running.row(r.name)
            if row is not None:
                self.running.positions[row] = r.tracks.next

    def drop_unpublished(self, r: Request, behaviour: str) -> bool:
        """Whether tokens of the request are given up that nobody was told."""
        row = self.running.row(r.name)
        ahead = row is not None and self.running.lengths[row] > r.length
        if ahead:
            self.said.append(behaviour)
        for each in self.flight:
            each.rows = [line for line in each.rows if line[0] != r.name]
        return ahead

    def file(self, r: Request, renew: bool) -> None:
        """Give the kept checkpoint to the tree and hold it from now on."""
        prefix, length = self.tokens.prefix(r.author, r.tracks.length), r.tracks.length
        if self.tree.file(prefix, r.tracks.slots[r.tracks.kept], r.attention[:length]):
            r.tracks.hand_over(renew)
            self.said.append("filed_while_running" if renew else "filed_at_the_end")
        else:
            self.said.append("filed_already")
        r.tracks.filed()
        if renew:
            self.tree.release(r.held)
            r.held = self.tree.hold(self.tree.entries[prefix])

    def release(self, r: Request) -> None:
        """Everything the request owns goes back."""
        self.pool.give_back(r.slot)
        r.tracks.release()
        self.tree.release(r.held)
        r.slot, r.tracks, r.held = None, None, None

    def filter(self) -> None:
        if len(self.running.requests) > 1:
            self.said.append("batch_filtered")
        for batch in (self.running, self.fresh):
            batch.filter(lambda name: self.requests[name].status == RUNNING)
