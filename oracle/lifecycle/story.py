"""A case of commit.lifecycle is a story: settings, and what happens one step after the other.

A step that does not apply where it stands (a request that finishes twice, a name
that enters twice) is skipped. So a story stays one when steps are taken away, which
is how a find is made small. The tokens of a story follow from it: nobody draws them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, require
from oracle.lifecycle.tokens import MAX_TOKENS

ENTER, PREFILL, VERIFY, PUBLISH = "enter", "prefill", "verify", "publish"
FINISH, RETRACT, OFFLOAD, RESTORE, EVICT = "finish", "retract", "offload", "restore", "evict"
ACTIONS = (ENTER, PREFILL, VERIFY, PUBLISH, FINISH, RETRACT, OFFLOAD, RESTORE, EVICT)
NOBODY = -1
MAX_STEPS = 1 << 14
MAX_REQUESTS = 1 << 11
MAX_DRAFT_TOKENS = 64
MAX_WORK = 1 << 23  # steps times tokens: every step looks at everything that is held
LEAST_WORK = 64  # tokens that a request counts for at least


@dataclass(frozen=True)
class Step:
    """One thing that happens.

    enter    ``request`` asks for ``tokens`` prompt tokens, the first ``shared`` of
             them those of request ``source`` (as far as it has them)
    prefill  the next chunk of its prompt
    verify   one round over the running batch, after the newly prefilled requests
             were merged into it; row i commits ``committed[i]`` tokens, a row
             without an entry one
    publish  the scheduler learns the lengths of the round in flight
    finish   the request ends with the length that the scheduler knows
    retract  it gives up what it holds and waits; offload: it copies it out first
    restore  it comes back, by prefilling again or from its copy
    evict    the cache gives up every state that no request holds
    """

    action: str
    request: int = NOBODY
    tokens: int = 0
    source: int = NOBODY
    shared: int = 0
    committed: tuple[int, ...] = ()


@dataclass(frozen=True)
class LifecycleCase:
    """grid          tokens between checkpoints
    draft_tokens  tokens that one round verifies for a request, N
    chunk         grids that one prefill pass covers at most; 0: the whole prompt
    ring          inputs that a state may lag behind, kept beside it; 0: none
    lazy          a second track slot is taken only when a boundary is near
    overlap       a round is launched before the one before it is published
    """

    grid: int
    draft_tokens: int
    chunk: int
    ring: int
    lazy: bool
    overlap: bool
    steps: tuple[Step, ...]


_long: ContextVar[bool] = ContextVar("long", default=False)


@contextmanager
def long_stories() -> Iterator[None]:
    """Stories of any work are inside the domain. For whoever tells their own: a case file
    may come from a stranger, and a long one keeps a reader busy for minutes."""
    token = _long.set(True)
    try:
        yield
    finally:
        _long.reset(token)


def domain(case: LifecycleCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(2 <= case.draft_tokens <= MAX_DRAFT_TOKENS, f"draft_tokens: must be 2 to {MAX_DRAFT_TOKENS}")
    # Two track slots hold one published checkpoint and one in flight; with shorter grids two rounds in
    # flight could each cross a boundary, and there would be three.
    least = case.draft_tokens * (2 if case.overlap else 1)
    require(least <= case.grid <= 1 << 16, f"grid: must be {least} (the tokens that rounds in flight commit) to 65536")
    require(0 <= case.chunk <= 64, "chunk: must be 0 to 64 grids")
    require(
        case.ring == 0 or 2 * case.draft_tokens <= case.ring <= 1 << 10, "ring: must be 0, or 2 draft_tokens to 1024"
    )
    require(1 <= len(case.steps) <= MAX_STEPS, f"steps: must be 1 to {MAX_STEPS}")
    for i, s in enumerate(case.steps):
        at = f"steps[{i}]"
        require(s.action in ACTIONS, f"{at}.action: must be one of {', '.join(ACTIONS)}")
        require(NOBODY <= s.request < MAX_REQUESTS, f"{at}.request: must be -1 to {MAX_REQUESTS - 1}")
        require(NOBODY <= s.source < MAX_REQUESTS, f"{at}.source: must be -1 to {MAX_REQUESTS - 1}")
        require(0 <= s.tokens <= MAX_TOKENS // 4, f"{at}.tokens: must be 0 to {MAX_TOKENS // 4}")
        require(0 <= s.shared <= MAX_TOKENS, f"{at}.shared: must be 0 to {MAX_TOKENS}")
        require(len(s.committed) <= 64, f"{at}.committed: must be at most 64 rows")
        require(all(1 <= c <= case.draft_tokens for c in s.committed), f"{at}.committed: must be 1 to draft_tokens")
    work = len(case.steps) * _tokens(case)
    require(
        work <= MAX_WORK or _long.get(), f"steps: {len(case.steps)} of {_tokens(case)} tokens are too many together"
    )
    return FUNCTIONAL


def _tokens(case: LifecycleCase) -> int:
    """Tokens of all requests at most, whichever steps apply."""
    found = entered = 0
    for s in case.steps:
        if s.action == ENTER:
            found, entered = found + max(s.tokens, LEAST_WORK), entered + 1
        elif s.action == VERIFY:
            found += sum(s.committed) + max(entered - len(s.committed), 0)
    return found


def committed_of(step: Step, row: int) -> int:
    """Tokens that ``row`` of a round commits."""
    return step.committed[row] if row < len(step.committed) else 1


def columns(case: LifecycleCase) -> dict[str, Any]:
    """Settings, ``action`` (a list of words), ``request``, ``tokens``, ``source``, ``shared`` int64 [steps] and
    ``committed`` int64 [steps, 64-bit rows], 1 where a row has no entry."""
    width = max([len(s.committed) for s in case.steps] + [1])
    rows = [[committed_of(s, i) for i in range(width)] for s in case.steps]
    numbers = {
        name: np.array([getattr(s, name) for s in case.steps], dtype=np.int64)
        for name in ("request", "tokens", "source", "shared")
    }
    return {
        "grid": case.grid,
        "draft_tokens": case.draft_tokens,
        "chunk": case.chunk,
        "ring": case.ring,
        "lazy": case.lazy,
        "overlap": case.overlap,
        "action": [s.action for s in case.steps],
        **numbers,
        "committed": np.array(rows, dtype=np.int64),
    }
