"""Walk a story on the model and write down, after each step, what can be seen from outside.

Nothing here trusts the model's bookkeeping: what a slot holds is read from the slot,
and compared with the tokens that the request or the tree says it belongs to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from oracle.lifecycle.scheduler import PREFILLING, RUNNING, Parts, Request, Scheduler
from oracle.lifecycle.story import LifecycleCase
from oracle.lifecycle.tokens import author_of, length_of
from oracle.lifecycle.tree import Entry

TREE = -1  # as a holder: the prefix cache
FIELDS = ("violations", "slots", "filed", "dropped", "resumed", "states")
Seen = Callable[[int, Scheduler, dict[str, Any]], None]


def walk(case: LifecycleCase, parts: Parts | None = None, make: type[Scheduler] = Scheduler, seen: Seen | None = None):
    """The outcome fields of a story, each a list with one entry a step. ``seen`` is
    called after each step with what was observed there."""
    scheduler = make(case, parts)
    outcome: dict[str, list[Any]] = {name: [] for name in FIELDS}
    checked: dict[int, tuple[Entry, int]] = {}
    before: set[int] = set()
    for i, step in enumerate(case.steps):
        resumed = scheduler.step(step)
        now = set(scheduler.tree.entries)
        observed = {
            "violations": violations(scheduler, checked),
            "slots": slot_accounts(scheduler),
            "states": [_state(scheduler, r) for r in _alive(scheduler)],
            "resumed": resumed,
            "filed": [_entry(scheduler, p) for p in sorted(now - before)],
            "dropped": sorted(before - now),
        }
        for name, value in observed.items():
            outcome[name].append(value)
        if seen is not None:
            seen(i, scheduler, observed)
        before = now
    return outcome


def violations(scheduler: Scheduler, checked: dict[int, tuple[Entry, int]]) -> list[list[int]]:
    """Every state that is not the state after exactly the tokens it belongs to, and
    every attention cache of another length than the state it is paired with:
    [holder, prefix, prefix of the state, right entries of the attention cache, its entries]."""
    found = []
    for entry in scheduler.tree.entries.values():
        if id(entry) not in checked:  # with the entry, so that its id is not given to another one
            checked[id(entry)] = entry, right_entries(scheduler, entry.prefix, entry.attention)
        right = checked[id(entry)][1]
        line = [TREE, entry.prefix, scheduler.pool.stamp(entry.slot), right, len(entry.attention)]
        found.append(line)
    for r in _alive(scheduler):
        length = launched(scheduler, r)
        prefix = scheduler.tokens.prefix(r.author, length)
        right = right_entries(scheduler, prefix, r.attention)
        found.append([r.name, prefix, scheduler.pool.stamp(r.slot), right, len(r.attention)])
        if r.tracks.length:
            saved, slot = scheduler.tokens.prefix(r.author, r.tracks.length), r.tracks.slots[r.tracks.kept]
            state = 0 if slot is None else scheduler.pool.stamp(slot)
            found.append([r.name, saved, state, length_of(saved), length_of(saved)])
    return sorted(line for line in found if not holds(line))


def holds(line: list[int]) -> bool:
    """The invariant: the state after exactly these tokens, and an attention cache of the same length."""
    _, prefix, state, right, entries = line
    return state == prefix and right == entries == length_of(prefix)


def right_entries(scheduler: Scheduler, prefix: int, attention: list[int]) -> int:
    """How many leading entries are those of ``prefix``."""
    must = scheduler.tokens.entries(author_of(prefix), 0, length_of(prefix))
    if must == attention:
        return len(must)
    wrong = (i for i, (a, b) in enumerate(zip(must, attention, strict=False)) if a != b)
    return next(wrong, min(len(must), len(attention)))


def slot_accounts(scheduler: Scheduler) -> list[int]:
    """[slots that nobody owns and that are not free, slots with two owners, slots
    that are free and owned]: a healthy pool has none of them."""
    owners = Counter(e.slot for e in scheduler.tree.entries.values())
    for r in scheduler.requests.values():
        owners.update([r.slot] if r.slot is not None else [])
        owners.update([s for s in r.tracks.slots if s is not None] if r.tracks is not None else [])
    free = Counter(scheduler.pool.free)
    size = len(scheduler.pool.contents)
    return [
        sum(1 for s in range(size) if s not in owners and s not in free),
        sum(1 for s, n in owners.items() if n > 1) + sum(1 for n in free.values() if n > 1),
        sum(1 for s in owners if s in free),
    ]


def launched(scheduler: Scheduler, r: Request) -> int:
    """The length that rounds launched so far have reached."""
    for batch in (scheduler.running, scheduler.fresh):
        row = batch.row(r.name)
        if row is not None:
            return batch.lengths[row]
    return r.length


def _alive(scheduler: Scheduler) -> list[Request]:
    alive = [r for r in scheduler.requests.values() if r.status in (RUNNING, PREFILLING)]
    return sorted(alive, key=lambda r: r.name)


def _state(scheduler: Scheduler, r: Request) -> list[int]:
    return [r.name, r.length, scheduler.pool.stamp(r.slot), len(r.attention)]


def _entry(scheduler: Scheduler, prefix: int) -> list[int]:
    entry = scheduler.tree.entries[prefix]
    return [prefix, scheduler.pool.stamp(entry.slot), len(entry.attention)]
