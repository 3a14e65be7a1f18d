"""Wrong slot pools and track buffers. Class names are the mutants' names, docstrings their meaning."""

from __future__ import annotations

from oracle.lifecycle.slots import Content, SlotPool
from oracle.lifecycle.tracks import Tracks


class slot_reused_before_release(SlotPool):
    """hands out a slot that stays in the free list"""

    def pop(self) -> int:
        return self.free[-1] if self.free else super().pop()


class ring_left_in_a_new_slot(SlotPool):
    """does not empty the ring of a slot that had an owner before"""

    def take(self) -> int:
        return self.pop()


class copy_out_forgets_the_ring(SlotPool):
    """copies out the dense state without the inputs that wait beside it"""

    def read_out(self, slot: int) -> Content:
        return Content(self.contents[slot].base)


class restore_forgets_the_ring(SlotPool):
    """restores the dense state without the inputs that wait beside it"""

    def read_in(self, slot: int, content: Content) -> None:
        self.contents[slot] = Content(content.base)


class copy_leaves_the_target(SlotPool):
    """does not copy the filed state into the request's slot"""

    def copy(self, source: int, target: int) -> None:
        pass


class copy_moves(SlotPool):
    """moves the filed state into the request's slot"""

    def copy(self, source: int, target: int) -> None:
        super().copy(source, target)
        self.contents[source] = Content()


class slots_never_freed(SlotPool):
    """keeps what is given back out of the free list"""

    def give_back(self, slot: int) -> None:
        pass


class ping_pong_not_flipped(Tracks):
    """writes the next checkpoint over the one that is kept"""

    def saved(self, position: int, length: int) -> None:
        super().saved(position, length)
        self.next = position


class keeps_the_other_slot(Tracks):
    """takes the track slot that was not written for the one to keep"""

    def saved(self, position: int, length: int) -> None:
        super().saved(position, length)
        if self.slots[1 - position] is not None:
            self.kept = 1 - position


class filed_one_boundary_early(Tracks):
    """files a checkpoint under the last token before it"""

    def saved(self, position: int, length: int) -> None:
        super().saved(position, length - 1)


class gives_away_and_keeps(Tracks):
    """goes on writing to the slot that it gave to the tree"""

    def hand_over(self, renew: bool) -> int:
        slot = self.slots[self.kept]
        if not renew:
            self.slots[self.kept] = None
        return slot


class frees_what_it_gave_away(Tracks):
    """gives the slot of a finished request to the tree and back to the pool"""

    def hand_over(self, renew: bool) -> int:
        slot = self.slots[self.kept]
        if renew:
            self.slots[self.kept] = self.pool.take()
        return slot


class gives_the_slot_in_use(Tracks):
    """gives the tree the slot that the next checkpoint is written to"""

    def hand_over(self, renew: bool) -> int:
        if self.slots[self.next] is not None:
            self.kept = self.next
        return super().hand_over(renew)


class track_slots_not_released(Tracks):
    """keeps the track slots of a request that left"""

    def release(self) -> None:
        pass


class second_track_slot_not_released(Tracks):
    """gives back the first track slot only"""

    def release(self) -> None:
        self.drop(0)


class lazy_slot_is_the_kept_one(Tracks):
    """lazily uses the kept slot in place of a second one"""

    def prepare(self, position: int) -> int | None:
        if self.slots[position] is None:
            self.slots[position] = self.slots[1 - position]
        return self.slots[position]


class lazy_frees_the_checkpoint(Tracks):
    """lazily gives back the slot that was just written"""

    def saved(self, position: int, length: int) -> None:
        super().saved(position, length)
        if self.lazy:
            self.pool.give_back(self.slots[position])


class lazy_keeps_both(Tracks):
    """lazily loses the slot that it stops tracking"""

    def saved(self, position: int, length: int) -> None:
        was = self.slots[1 - position]
        self.slots[1 - position] = None
        super().saved(position, length)
        if not self.lazy:
            self.slots[1 - position] = was


class forgets_to_forget(Tracks):
    """files a checkpoint again that was filed before"""

    def filed(self) -> None:
        pass


class two_share_a_track_slot(Tracks):
    """gives a request the track slot of the one before it"""

    def __init__(self, pool: SlotPool, lazy: bool):
        super().__init__(pool, lazy)
        before = getattr(pool, "last_track_slot", None)
        if before is not None:
            pool.give_back(self.slots[0])
            self.slots[0] = before
        pool.last_track_slot = self.slots[0]


SLOTS = (
    ("pool", "slot_accounting", slot_reused_before_release),
    ("pool", "stale_state", ring_left_in_a_new_slot),
    ("pool", "ring", copy_out_forgets_the_ring),
    ("pool", "ring", restore_forgets_the_ring),
    ("pool", "copy", copy_leaves_the_target),
    ("pool", "copy", copy_moves),
    ("pool", "slot_accounting", slots_never_freed),
    ("tracks", "ping_pong", ping_pong_not_flipped),
    ("tracks", "ping_pong", keeps_the_other_slot),
    ("tracks", "off_by_one", filed_one_boundary_early),
    ("tracks", "slot_accounting", gives_away_and_keeps),
    ("tracks", "slot_accounting", frees_what_it_gave_away),
    ("tracks", "ping_pong", gives_the_slot_in_use),
    ("tracks", "slot_accounting", track_slots_not_released),
    ("tracks", "slot_accounting", second_track_slot_not_released),
    ("tracks", "lazy", lazy_slot_is_the_kept_one),
    ("tracks", "lazy", lazy_frees_the_checkpoint),
    ("tracks", "lazy", lazy_keeps_both),
    ("tracks", "stale_state", forgets_to_forget),
    ("tracks", "slot_accounting", two_share_a_track_slot),
)
