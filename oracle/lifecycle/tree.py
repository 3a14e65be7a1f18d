"""The prefix cache: states filed under the prefix they are the state after.

Each entry owns a state slot and pairs it with the entries of the attention cache for
the same tokens. A request holds the entry it resumed from or filed last; held entries
are not evicted. The attention cache of the tree reaches as far as its entries do: what
led only to evicted ones goes with them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oracle.lifecycle.slots import SlotPool
from oracle.lifecycle.tokens import Tokens, author_of, length_of


@dataclass
class Entry:
    """``prefix`` is the stamp it is filed under, ``attention`` what its attention cache holds."""

    prefix: int
    slot: int
    attention: list[int] = field(repr=False)
    holders: int = 0


class PrefixTree:
    def __init__(self, pool: SlotPool, tokens: Tokens):
        self.pool, self.tokens = pool, tokens
        self.entries: dict[int, Entry] = {}

    def match(self, author: int, most: int) -> tuple[Entry | None, int]:
        """The longest filed prefix of the first ``most`` tokens of ``author``, and how
        many of these tokens the attention cache of the tree has."""
        best, shared = None, 0
        for entry in self.entries.values():
            length = length_of(entry.prefix)
            if length <= most and self.tokens.prefix(author, length) == entry.prefix:
                shared = max(shared, length)
                if best is None or length > length_of(best.prefix):
                    best = entry
            elif shared < most:
                shared = max(shared, min(length, most, self.tokens.common(author, author_of(entry.prefix))))
        return best, shared

    def file(self, prefix: int, slot: int, attention: list[int]) -> bool:
        """File a state; False where one is filed under the prefix already, and the
        slot stays the caller's."""
        if prefix in self.entries:
            return False
        self.entries[prefix] = Entry(prefix, slot, attention)
        return True

    def hold(self, entry: Entry | None) -> Entry | None:
        if entry is not None:
            entry.holders += 1
        return entry

    def release(self, entry: Entry | None) -> None:
        if entry is not None:
            entry.holders -= 1

    def evict(self) -> int:
        """Give up every entry that nobody holds; how many."""
        gone = [e for e in self.entries.values() if self.evictable(e)]
        for entry in gone:
            del self.entries[entry.prefix]
            self.pool.give_back(entry.slot)
        return len(gone)

    def evictable(self, entry: Entry) -> bool:
        return entry.holders == 0
