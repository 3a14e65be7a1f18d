"""The second definition: every outcome from the tokens alone.

No slot, no track buffer, no batch. A request is the tuple of its tokens, each token is
the name of the prefix it ends, and the cache is a set of such tuples. When the
invariant holds, a state is simply named by the tokens before it; so this says what an
honest engine shows, and never how it keeps its books.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.lifecycle import story
from oracle.lifecycle.story import LifecycleCase, Step, committed_of
from oracle.lifecycle.tokens import MAX_TOKENS, REWRITES

Prefix = tuple[int, ...]


@dataclass
class _Life:
    """``text``: its tokens so far; ``known``: how many the scheduler knows to be taken
    in; ``ahead``: how many are; ``joined``: where verification began; ``author``: of
    tokens to come; ``sitting`` on the prefix that it holds."""

    text: Prefix
    author: int
    prompt: int
    known: int = 0
    ahead: int = 0
    joined: int = 0
    branch: int = 0
    rewrites: int = 0
    state: str = "prefilling"
    sitting: Prefix = ()
    copied: bool = False


def recount(case: LifecycleCase) -> dict[str, list[Any]]:
    """The outcome fields of ``oracle.lifecycle.walk``, each with one entry a step."""
    lives: dict[int, _Life] = {}
    order: list[int] = []  # running rows
    fresh: list[int] = []
    flight: list[dict[int, int]] = []
    cache: set[Prefix] = set()
    outcome: dict[str, list[Any]] = {n: [] for n in ("violations", "slots", "states", "resumed", "filed", "dropped")}

    def grow(life: _Life, length: int) -> None:
        life.text += tuple(life.author * MAX_TOKENS + p + 1 for p in range(len(life.text), length))

    def file(life: _Life, length: int, stay: bool) -> None:
        cache.add(life.text[:length])
        if stay:
            life.sitting = life.text[:length]

    def prefill(name: int) -> None:
        life, g = lives[name], case.grid
        start = life.known
        end = min(life.prompt, start + case.chunk * g) if case.chunk else life.prompt
        grow(life, end)
        inside = [b for b in range((start // g + 1) * g, end + 1, g)]
        if inside:
            file(life, life.branch if life.branch in inside else inside[-1], stay=True)
        life.known = life.ahead = end
        if end == life.prompt:
            life.state, life.joined = "running", end
            fresh.append(name)

    def admit(name: int) -> list[int]:
        life, g = lives[name], case.grid
        grow(life, life.prompt)
        key = life.text[: life.prompt - 1]
        best = max((p for p in cache if key[: len(p)] == p), key=len, default=())
        reach = max((_common(key, p) for p in cache), default=0) // g * g
        life.branch = reach if reach > len(best) else 0
        life.sitting, life.known = best, len(best)
        prefill(name)
        return [len(best), best[-1] if best else 0, len(best)]

    def tell() -> None:
        for name, length in (flight.pop(0) if flight else {}).items():
            lives[name].known = length

    def leave(name: int, state: str) -> None:
        life = lives[name]
        for told in flight:
            told.pop(name, None)
        for rows in (order, fresh):
            if name in rows:
                rows.remove(name)
        life.state, life.sitting = state, ()

    def do(step: Step) -> list[int]:
        name, life = step.request, lives.get(step.request)
        running = life is not None and life.state == "running"
        if step.action == story.ENTER and name >= 0 and life is None and step.tokens:
            source = lives.get(step.source)
            shared = source.text[: min(step.shared, step.tokens, source.known)] if source else ()
            lives[name] = _Life(shared, name * REWRITES, step.tokens)
            return admit(name)
        if step.action == story.PREFILL and life is not None and life.state == "prefilling":
            prefill(name)
        if step.action == story.VERIFY:
            order.extend(fresh)
            fresh.clear()
            for i, each in enumerate(order):
                lives[each].ahead += committed_of(step, i)
                grow(lives[each], lives[each].ahead)
            if order:
                flight.append({each: lives[each].ahead for each in order})
                if len(flight) > case.overlap:
                    tell()
        if step.action == story.PUBLISH:
            tell()
        if step.action == story.FINISH and running:
            last = life.known // case.grid * case.grid
            if last > life.joined:
                file(life, last, stay=False)
            leave(name, "finished")
        if step.action == story.RETRACT and running:
            if life.ahead > life.known:
                grow(life, life.known + 1)
                life.text, life.rewrites = life.text[: life.known + 1], life.rewrites + 1
                life.author = name * REWRITES + min(life.rewrites, REWRITES - 1)
            leave(name, "waiting")
        if step.action == story.OFFLOAD and running:
            while flight:
                tell()
            life.copied = True
            leave(name, "waiting")
        if step.action == story.RESTORE and life is not None and life.state == "waiting":
            if not life.copied:
                life.state, life.prompt, life.ahead = "prefilling", life.known + 1, 0
                return admit(name)
            life.copied, life.state, life.joined = False, "running", life.known
            fresh.append(name)
        if step.action == story.EVICT:
            held = {each.sitting for each in lives.values()}
            cache.intersection_update(held)
        return []

    for step in case.steps:
        before = set(cache)
        resumed = do(step)
        alive = sorted(n for n, each in lives.items() if each.state in ("running", "prefilling"))
        states = [[n, lives[n].known, lives[n].text[lives[n].ahead - 1], lives[n].ahead] for n in alive]
        for field, value in (
            ("violations", []),
            ("slots", [0, 0, 0]),
            ("states", states),
            ("resumed", resumed),
            ("filed", sorted([p[-1], p[-1], len(p)] for p in cache - before)),
            ("dropped", sorted(p[-1] for p in before - cache)),
        ):
            outcome[field].append(value)
    return outcome


def _common(one: Prefix, other: Prefix) -> int:
    """Length of the longest common prefix."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    low, high = 0, most - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low
