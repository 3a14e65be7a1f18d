"""The pool of state slots: what each slot holds and who may write to it.

A state is described by what it is the state after: the stamp of a prefix, in two
parts. ``base`` is the prefix of the dense state; inputs behind it may wait in a ring
beside it, and ``ring`` is the prefix that ends with the last of them (0: none waits).
A slot that is handed out keeps what its last owner left in it, as memory does; only
its ring is emptied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Content:
    """Stamps of the dense state and of what its ring reaches, 0 for an empty ring."""

    base: int = 0
    ring: int = 0

    @property
    def stamp(self) -> int:
        """The prefix that this is the state after."""
        return self.ring or self.base


class SlotPool:
    """Slots without an end; what was given back last is handed out first."""

    def __init__(self) -> None:
        self.contents: list[Content] = []
        self.free: list[int] = []

    def take(self) -> int:
        """A slot for a new owner, its ring empty."""
        slot = self.pop()
        self.contents[slot].ring = 0
        return slot

    def pop(self) -> int:
        if self.free:
            return self.free.pop()
        self.contents.append(Content())
        return len(self.contents) - 1

    def give_back(self, slot: int) -> None:
        self.free.append(slot)

    def write(self, slot: int, base: int) -> None:
        """A dense state; the ring beside it is not touched."""
        self.contents[slot].base = base

    def append(self, slot: int, reached: int) -> None:
        """Inputs behind the dense state, up to the prefix ``reached``."""
        self.contents[slot].ring = reached

    def fold(self, slot: int, base: int) -> None:
        """A dense state that has taken in what waited in the ring."""
        self.contents[slot] = Content(base)

    def copy(self, source: int, target: int) -> None:
        """``target`` holds what ``source`` holds, ring included."""
        content = self.contents[source]
        self.contents[target] = Content(content.base, content.ring)

    def read_out(self, slot: int) -> Content:
        """A copy on the host."""
        return Content(self.contents[slot].base, self.contents[slot].ring)

    def read_in(self, slot: int, content: Content) -> None:
        self.contents[slot] = Content(content.base, content.ring)

    def stamp(self, slot: int) -> int:
        return self.contents[slot].stamp
