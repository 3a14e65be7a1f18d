"""Tell a story to production parts and write down what they show.

The driver knows who is alive, which tokens there are and what applies; a ``World`` does
each step with an engine's own pools, caches and batches. Tokens are named as in
``oracle.lifecycle.tokens``, the vocabulary that a case and its outcome share; what a
slot or an attention entry holds is always read back from where the engine put it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from oracle.lifecycle.tokens import Tokens, author_of, length_of

TREE = -1
PREFILLING, RUNNING, WAITING, FINISHED = "prefilling", "running", "waiting", "finished"


@dataclass
class Life:
    """One request as the driver knows it. ``known`` tokens are published, ``ahead``
    are launched; ``touched`` is the step that last did something to it, ``own`` the
    engine's request object, as the world likes it."""

    name: int
    author: int
    prompt: int
    status: str = PREFILLING
    known: int = 0
    ahead: int = 0
    touched: int = 0
    own: Any = None


@dataclass(frozen=True)
class Filed:
    """An entry of the prefix cache as found there. A world gives the same object again
    while the cache's own slots stay the same; the state in the slot is read each time."""

    prefix: int
    slot: int
    attention: list[int] = field(repr=False)


class World(Protocol):
    """What an engine does with a request. Lengths are in tokens. ``cache_owns``: a filed
    state has a slot of its own, and not one that may be free or a request's as well."""

    tokens: Tokens
    cache_owns: bool

    def admit(self, life: Life) -> int: ...
    def extend(self, life: Life, start: int, end: int) -> None: ...
    def join(self, life: Life) -> None: ...
    def merge(self) -> list[Life]: ...
    def launch(self, rows: list[tuple[Life, int]]) -> None: ...
    def publish(self, ending: list[Life]) -> None: ...
    def finish(self, life: Life) -> None: ...
    def retract(self, life: Life) -> None: ...
    def evict(self) -> None: ...
    def filed(self) -> list[Filed]: ...
    def stamp(self, slot: int) -> int: ...
    def state(self, life: Life) -> tuple[int, list[int]]: ...
    def kept(self, life: Life) -> tuple[int, int] | None: ...
    def owned(self, life: Life) -> list[int]: ...
    def free(self) -> list[int]: ...
    def all_slots(self) -> list[int]: ...


class Driver:
    def __init__(self, case: Any, world: World):
        self.case, self.world = case, world
        self.tokens = world.tokens
        self.lives: dict[int, Life] = {}
        self.flight: list[list[tuple[Life, int]]] = []
        self._checked: dict[int, tuple[Filed, int]] = {}  # right attention entries of what was filed

    def run(self) -> dict[str, list[Any]]:
        """The observed fields of commit.lifecycle."""
        names = ("violations", "slots", "states", "resumed", "filed", "dropped")
        observed: dict[str, list[Any]] = {name: [] for name in names}
        before: dict[int, Filed] = {}
        for i in range(len(self.case.action)):
            resumed = self.step(i)
            now = {entry.prefix: entry for entry in self.world.filed()}
            observed["violations"].append(self.violations(now))
            observed["slots"].append(self.slot_accounts(now))
            observed["states"].append([self._state(life) for life in self._alive()])
            observed["resumed"].append(resumed)
            new = [now[p] for p in sorted(set(now) - set(before))]
            observed["filed"].append([[e.prefix, self.world.stamp(e.slot), len(e.attention)] for e in new])
            observed["dropped"].append(sorted(set(before) - set(now)))
            before = now
        return observed

    def step(self, i: int) -> list[int]:
        action, name = self.case.action[i], int(self.case.request[i])
        life = self.lives.get(name)
        if life is not None:
            life.touched = i
        if action == "enter":
            return self.enter(i, name) if name >= 0 and life is None and self.case.tokens[i] else []
        if action == "verify":
            self.verify(i)
        elif action == "publish":
            self.publish(i)
        elif action == "evict":
            self.world.evict()
        elif life is None:
            return []
        elif action == "prefill" and life.status == PREFILLING:
            self.extend(life)
        elif action in ("finish", "retract") and life.status == RUNNING:
            self.leave(life, action)
        elif action == "restore" and life.status == WAITING:
            life.status, life.prompt, life.ahead = PREFILLING, life.known + 1, 0
            return self.admit(life)
        return []

    def enter(self, i: int, name: int) -> list[int]:
        source = self.lives.get(int(self.case.source[i]))
        tokens = int(self.case.tokens[i])
        shared = min(int(self.case.shared[i]), tokens, source.known) if source else 0
        author = self.tokens.begin(name, source.author if shared else None, shared)
        self.lives[name] = life = Life(name, author, tokens, touched=i)
        return self.admit(life)

    def admit(self, life: Life) -> list[int]:
        life.known = life.ahead = self.world.admit(life)
        slot, attention = self.world.state(life)
        resumed = [life.known, self.world.stamp(slot), len(attention)]
        self.extend(life)
        return resumed

    def extend(self, life: Life) -> None:
        start = life.known
        most = int(self.case.chunk) * int(self.case.grid)
        end = min(life.prompt, start + most) if most else life.prompt
        self.world.extend(life, start, end)
        life.known = life.ahead = end
        if end == life.prompt:
            life.status = RUNNING
            self.world.join(life)

    def verify(self, i: int) -> None:
        rows, committed = self.world.merge(), self.case.committed[i]
        if not rows:
            return
        counts = [int(committed[at]) if at < len(committed) else 1 for at in range(len(rows))]
        self.world.launch(list(zip(rows, counts, strict=True)))
        for life, count in zip(rows, counts, strict=True):
            life.ahead += count
        self.flight.append([(life, life.ahead) for life in rows])
        if len(self.flight) > int(self.case.overlap):
            self.publish(i)

    def publish(self, i: int) -> None:
        if not self.flight:
            return
        for life, length in self.flight.pop(0):
            life.known = length
        self.world.publish(self.ending(i))

    def ending(self, i: int) -> list[Life]:
        """Who finishes before the next lengths are published. An engine learns of an
        end while it processes the result that brings it, and may act on that."""
        names = []
        for at in range(i + 1, len(self.case.action)):
            if self.case.action[at] in ("verify", "publish", "retract"):
                break
            if self.case.action[at] == "finish":
                names.append(int(self.case.request[at]))
        return [life for life in (self.lives.get(name) for name in names) if life and life.status == RUNNING]

    def leave(self, life: Life, action: str) -> None:
        ahead = life.ahead > life.known
        self.flight = [[line for line in each if line[0] is not life] for each in self.flight]
        getattr(self.world, action)(life)
        life.status = FINISHED if action == "finish" else WAITING
        if action == "retract" and ahead:
            life.author = self.tokens.begin(life.name, life.author, life.known + 1)
        life.ahead = life.known

    # -- what is seen ----------------------------------------------------------------------

    def violations(self, now: dict[int, Filed]) -> list[list[int]]:
        """As in ``oracle.lifecycle.walk``: every state that is not what it belongs to."""
        lines = []
        for entry in now.values():
            known = self._checked.get(entry.prefix)
            if known is None or known[0] is not entry:
                known = self._checked[entry.prefix] = entry, self._right(entry.prefix, entry.attention)
            lines.append([TREE, entry.prefix, self.world.stamp(entry.slot), known[1], len(entry.attention)])
        for life in self._alive():
            slot, attention = self.world.state(life)
            prefix = self.tokens.prefix(life.author, life.ahead)
            right = self._right(prefix, attention)
            lines.append([life.name, prefix, self.world.stamp(slot), right, len(attention)])
            kept = self.world.kept(life)
            if kept is not None:
                length, slot = kept
                lines.append(
                    [life.name, self.tokens.prefix(life.author, length), self.world.stamp(slot), length, length]
                )
        return sorted(line for line in lines if not (line[1] == line[2] and line[3] == line[4] == length_of(line[1])))

    def slot_accounts(self, now: dict[int, Filed]) -> list[int]:
        """[slots lost, with two owners, free and owned]."""
        owners = Counter(e.slot for e in now.values()) if self.world.cache_owns else Counter()
        for life in self._alive():
            owners.update(self.world.owned(life))
        free = Counter(self.world.free())
        return [
            sum(1 for s in self.world.all_slots() if s not in owners and s not in free),
            sum(1 for n in owners.values() if n > 1) + sum(1 for n in free.values() if n > 1),
            sum(1 for s in owners if s in free),
        ]

    def _right(self, prefix: int, attention: list[int]) -> int:
        must = self.tokens.entries(author_of(prefix), 0, length_of(prefix)) if prefix else []
        if must == attention:
            return len(must)
        wrong = (i for i, (a, b) in enumerate(zip(must, attention, strict=False)) if a != b)
        return next(wrong, min(len(must), len(attention)))

    def _alive(self) -> list[Life]:
        return sorted((v for v in self.lives.values() if v.status in (PREFILLING, RUNNING)), key=lambda v: v.name)

    def _state(self, life: Life) -> list[int]:
        slot, attention = self.world.state(life)
        return [life.name, life.known, self.world.stamp(slot), len(attention)]
