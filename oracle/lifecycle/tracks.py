"""The two track slots of a request, used in turn.

A round writes a checkpoint into the slot at ``next``; when the scheduler learns of
it, that slot becomes the one that is kept and ``next`` moves to the other, so that no
later round overwrites a checkpoint before it is filed. Lazily, the second slot is
taken only while a boundary is near.
"""

from __future__ import annotations

from oracle.lifecycle.slots import SlotPool


class Tracks:
    """slots   at both positions, ``None`` where there is none
    next    position that the next checkpoint is written to
    kept    position of the last one published
    length  its length in tokens, 0 when nothing waits to be filed
    """

    def __init__(self, pool: SlotPool, lazy: bool):
        self.pool, self.lazy = pool, lazy
        self.slots: list[int | None] = [pool.take(), None if lazy else pool.take()]
        self.next, self.kept, self.length = 0, 0, 0

    def prepare(self, position: int) -> int | None:
        """The slot at ``position`` before a round in whose reach a boundary lies; taken
        now where there was none."""
        if self.slots[position] is None:
            self.slots[position] = self.pool.take()
        return self.slots[position]

    def saved(self, position: int, length: int) -> None:
        """A checkpoint of ``length`` tokens was written at ``position``, and that is known now."""
        self.kept, self.length = position, length
        self.next = self.other(position)
        if self.lazy:
            self.drop(self.next)

    def other(self, position: int) -> int:
        return 1 - position

    def drop(self, position: int) -> None:
        slot = self.slots[position]
        if slot is not None:
            self.pool.give_back(slot)
            self.slots[position] = None

    def hand_over(self, renew: bool) -> int:
        """The kept slot goes to the tree; ``renew`` puts a new one in its place."""
        slot = self.slots[self.kept]
        self.slots[self.kept] = self.pool.take() if renew else None
        return slot

    def filed(self) -> None:
        self.length = 0

    def release(self) -> None:
        for position in (0, 1):
            self.drop(position)
