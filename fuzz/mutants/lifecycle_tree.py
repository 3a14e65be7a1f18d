"""Wrong prefix trees."""

from __future__ import annotations

from oracle.lifecycle.tokens import length_of
from oracle.lifecycle.tree import Entry, PrefixTree


class match_takes_the_whole_prompt(PrefixTree):
    """lets a prompt resume with no token left to prefill"""

    def match(self, author: int, most: int) -> tuple[Entry | None, int]:
        return super().match(author, most + 1)


class match_takes_the_shortest(PrefixTree):
    """resumes from the shortest filed prefix"""

    def match(self, author: int, most: int) -> tuple[Entry | None, int]:
        entry, shared = super().match(author, most)
        shortest = min((e for e in self._fitting(author, most)), key=lambda e: length_of(e.prefix), default=entry)
        return shortest, shared

    def _fitting(self, author: int, most: int) -> list[Entry]:
        lengths = [(e, length_of(e.prefix)) for e in self.entries.values()]
        return [e for e, n in lengths if n <= most and self.tokens.prefix(author, n) == e.prefix]


class match_trusts_the_attention_cache(PrefixTree):
    """resumes from a state that lies on the stored path but behind where the prompt parts from it"""

    def match(self, author: int, most: int) -> tuple[Entry | None, int]:
        entry, shared = super().match(author, most)
        if entry is None and shared:
            entry = next(e for e in self.entries.values() if length_of(e.prefix) >= shared)
        return entry, shared


class match_by_length(PrefixTree):
    """resumes from any filed state that is not longer than the prompt"""

    def match(self, author: int, most: int) -> tuple[Entry | None, int]:
        entry, shared = super().match(author, most)
        fitting = [e for e in self.entries.values() if length_of(e.prefix) <= most]
        return entry or (fitting[0] if fitting else None), shared


class filing_again_replaces(PrefixTree):
    """replaces a filed state and loses its slot"""

    def file(self, prefix: int, slot: int, attention: list[int]) -> bool:
        holders = self.entries[prefix].holders if prefix in self.entries else 0
        self.entries[prefix] = Entry(prefix, slot, attention, holders)
        return True


class takes_a_slot_it_does_not_need(PrefixTree):
    """takes over the slot of a state that is filed already, and drops it"""

    def file(self, prefix: int, slot: int, attention: list[int]) -> bool:
        super().file(prefix, slot, attention)
        return True


class attention_one_token_short(PrefixTree):
    """pairs a filed state with an attention cache that lacks the last token"""

    def file(self, prefix: int, slot: int, attention: list[int]) -> bool:
        return super().file(prefix, slot, attention[:-1])


class evicts_held_states(PrefixTree):
    """evicts states that requests hold"""

    def evictable(self, entry: Entry) -> bool:
        return True


class evicts_nothing(PrefixTree):
    """evicts no state"""

    def evictable(self, entry: Entry) -> bool:
        return False


class evicted_slots_are_lost(PrefixTree):
    """forgets evicted states without giving their slots back"""

    def evict(self) -> int:
        before = len(self.entries)
        self.entries = {p: e for p, e in self.entries.items() if not self.evictable(e)}
        return before - len(self.entries)


class evicted_states_stay_filed(PrefixTree):
    """gives back the slots of evicted states and leaves the states filed"""

    def evict(self) -> int:
        gone = [e for e in self.entries.values() if self.evictable(e)]
        for entry in gone:
            if entry.slot not in self.pool.free:
                self.pool.give_back(entry.slot)
        return len(gone)


class hold_is_not_counted(PrefixTree):
    """does not note who resumed from a state"""

    def hold(self, entry: Entry | None) -> Entry | None:
        return None


class held_for_ever(PrefixTree):
    """never lets go of a state that was held once"""

    def release(self, entry: Entry | None) -> None:
        pass


class released_twice(PrefixTree):
    """lets go of a state for all who hold it"""

    def release(self, entry: Entry | None) -> None:
        if entry is not None:
            entry.holders = 0


TREES = (
    ("tree", "off_by_one", match_takes_the_whole_prompt),
    ("tree", "wrong_match", match_takes_the_shortest),
    ("tree", "wrong_match", match_trusts_the_attention_cache),
    ("tree", "wrong_match", match_by_length),
    ("tree", "slot_accounting", filing_again_replaces),
    ("tree", "slot_accounting", takes_a_slot_it_does_not_need),
    ("tree", "attention_cache", attention_one_token_short),
    ("tree", "eviction", evicts_held_states),
    ("tree", "eviction", evicts_nothing),
    ("tree", "slot_accounting", evicted_slots_are_lost),
    ("tree", "eviction", evicted_states_stay_filed),
    ("tree", "eviction", hold_is_not_counted),
    ("tree", "eviction", held_for_ever),
    ("tree", "eviction", released_twice),
)
