"""Wrong schedulers: right parts, used in the wrong way or at the wrong time."""

from __future__ import annotations

from oracle.lifecycle.scheduler import Request, Scheduler
from oracle.lifecycle.story import Step
from oracle.lifecycle.tree import Entry


class fork_shares_the_slot(Scheduler):
    """resumes in the filed state's own slot instead of a copy"""

    def resume(self, r: Request, entry: Entry | None) -> tuple[int, list[int]]:
        resumed = super().resume(r, entry)
        if entry is not None:
            self.pool.give_back(r.slot)
            r.slot = entry.slot
        return resumed


class resumes_one_token_short(Scheduler):
    """counts one token less than the resumed state has"""

    def resume(self, r: Request, entry: Entry | None) -> tuple[int, list[int]]:
        length, attention = super().resume(r, entry)
        return max(length - 1, 0), attention[: max(length - 1, 0)]


class late_length(Scheduler):
    """files a checkpoint under the length that was known before the round"""

    def learn(self, r: Request, length: int, boundary: int, position: int) -> None:
        super().learn(r, length, boundary and r.length, position)


class crossing_not_saved(Scheduler):
    """tells of a checkpoint in a round that never wrote it"""

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        if self.requests[r.name].status != "running":
            super().save(r, position, before, start, boundary, end)


class checkpoint_one_step_early(Scheduler):
    """saves the state of the verify step before the boundary"""

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        super().save(r, position, before, start, boundary - 1, end)


class checkpoint_of_the_last_step(Scheduler):
    """saves the state at the end instead of the one at the boundary"""

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        super().save(r, position, before, start, end, end)


class checkpoint_of_a_prefill_lost(Scheduler):
    """does not write the checkpoint of a prefill"""

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        if r.status == "running":
            super().save(r, position, before, start, boundary, end)


class boundary_reached_is_not_crossed(Scheduler):
    """takes no checkpoint when a round ends exactly on the boundary"""

    def next_boundary(self, length: int) -> int:
        return super().next_boundary(length) + 1


class states_never_committed(Scheduler):
    """verifies without committing the states"""

    def commit(self, r: Request, before: int, pre: int, post: int) -> None:
        pass


class current_state_one_step_early(Scheduler):
    """commits the state before the last committed token"""

    def commit(self, r: Request, before: int, pre: int, post: int) -> None:
        super().commit(r, before, pre, post - 1)


class ring_never_folded(Scheduler):
    """folds the dense state without emptying the ring"""

    def commit(self, r: Request, before: int, pre: int, post: int) -> None:
        ring = self.pool.contents[r.slot].ring
        super().commit(r, before, pre, post)
        if not self.pool.contents[r.slot].ring:
            self.pool.append(r.slot, ring)


class launches_from_the_known_length(Scheduler):
    """launches a round from the length that the scheduler knows"""

    def launch_length(self, r: Request, row: int) -> int:
        return r.length


class published_by_row(Scheduler):
    """gives the results of a round to the rows of today's batch"""

    def publish(self, step: Step) -> None:
        for each in self.flight[:1]:
            today = self.running.requests
            each.rows = [(today[i], *line[1:]) for i, line in enumerate(each.rows) if i < len(today)]
        super().publish(step)

    def drop_unpublished(self, r: Request, behaviour: str) -> bool:
        rows = [list(each.rows) for each in self.flight]
        ahead = super().drop_unpublished(r, behaviour)
        for each, line in zip(self.flight, rows, strict=True):
            each.rows = line
        return ahead


class checkpoint_lost_at_the_end(Scheduler):
    """files nothing when a request ends"""

    def file(self, r: Request, renew: bool) -> None:
        if renew:
            super().file(r, renew)


class attention_not_cut(Scheduler):
    """files the whole attention cache of a request with its checkpoint"""

    def file(self, r: Request, renew: bool) -> None:
        length, r.tracks.length = r.tracks.length, 0
        prefix = self.tokens.prefix(r.author, length)
        known = prefix in self.tree.entries
        r.tracks.length = length
        super().file(r, renew)
        if not known:
            self.tree.entries[prefix].attention = list(r.attention)


class ends_with_the_round_in_flight(Scheduler):
    """lets a request end with the length of a round that nobody was told of"""

    def finish(self, step: Step) -> None:
        while self.flight and self.running_request(step):
            self.publish(step)
        super().finish(step)


class retracted_round_is_published(Scheduler):
    """publishes the round of a request that was retracted meanwhile"""

    def drop_unpublished(self, r: Request, behaviour: str) -> bool:
        rows = [list(each.rows) for each in self.flight]
        ahead = super().drop_unpublished(r, behaviour)
        for each, line in zip(self.flight, rows, strict=True):
            each.rows = line
        return ahead

    def learn(self, r: Request, length: int, boundary: int, position: int) -> None:
        if r.status == "running":
            super().learn(r, length, boundary, position)


class copies_out_what_is_ahead(Scheduler):
    """copies out the state of a round in flight with the length before it"""

    def offload(self, step: Step) -> None:
        flight, self.flight = self.flight, []
        super().offload(step)
        self.flight = flight
        r = self.requests.get(step.request)
        for each in self.flight:
            each.rows = [line for line in each.rows if r is None or r.copy is None or line[0] != r.name]


class copy_out_forgets_the_last_entry(Scheduler):
    """copies out an attention cache without its last entry"""

    def offload(self, step: Step) -> None:
        r = self.running_request(step)
        super().offload(step)
        if r is not None:
            r.copy = (r.copy[0], r.copy[1][:-1])


class restore_leaves_the_last_token_out(Scheduler):
    """prefills a retracted request without the token that it emitted last"""

    def admit(self, r: Request) -> list[int]:
        if r.length:
            r.prompt -= 1
        return super().admit(r)


class prefill_filed_under_its_end(Scheduler):
    """files the checkpoint of a prefill under the length of the whole prompt"""

    def file(self, r: Request, renew: bool) -> None:
        if renew:
            r.tracks.length = r.length
        super().file(r, renew)


class parting_is_ignored(Scheduler):
    """takes the last boundary also where a prompt parts from a stored one"""

    def prefill_boundary(self, r: Request, start: int, end: int) -> int:
        r.branch = 0
        return super().prefill_boundary(r, start, end)


class parting_filed_under_the_last_boundary(Scheduler):
    """saves the state where the prompts part and files it under the last boundary"""

    def save(self, r: Request, position: int, before: int, start: int, boundary: int, end: int) -> None:
        super().save(r, position, before, start, boundary, end)
        self.saved_last = end // self.case.grid * self.case.grid

    def file(self, r: Request, renew: bool) -> None:
        if renew:
            r.tracks.length = self.saved_last
        super().file(r, renew)


class current_slot_not_released(Scheduler):
    """keeps the state slot of a request that left"""

    def release(self, r: Request) -> None:
        slot = r.slot
        super().release(r)
        self.pool.free.remove(slot)


class current_slot_released_twice(Scheduler):
    """gives the state slot of a request back twice"""

    def release(self, r: Request) -> None:
        self.pool.give_back(r.slot)
        super().release(r)


SCHEDULERS = tuple(
    ("scheduler", fault, wrong)
    for fault, wrong in (
        ("copy", fork_shares_the_slot),
        ("off_by_one", resumes_one_token_short),
        ("late_length", late_length),
        ("missing_commit", crossing_not_saved),
        ("off_by_one", checkpoint_one_step_early),
        ("wrong_step", checkpoint_of_the_last_step),
        ("missing_commit", checkpoint_of_a_prefill_lost),
        ("off_by_one", boundary_reached_is_not_crossed),
        ("missing_commit", states_never_committed),
        ("off_by_one", current_state_one_step_early),
        ("ring", ring_never_folded),
        ("late_length", launches_from_the_known_length),
        ("filter", published_by_row),
        ("missing_commit", checkpoint_lost_at_the_end),
        ("attention_cache", attention_not_cut),
        ("late_length", ends_with_the_round_in_flight),
        ("late_length", retracted_round_is_published),
        ("late_length", copies_out_what_is_ahead),
        ("attention_cache", copy_out_forgets_the_last_entry),
        ("off_by_one", restore_leaves_the_last_token_out),
        ("wrong_length", prefill_filed_under_its_end),
        ("wrong_length", parting_is_ignored),
        ("wrong_length", parting_filed_under_the_last_boundary),
        ("slot_accounting", current_slot_not_released),
        ("slot_accounting", current_slot_released_twice),
    )
)
