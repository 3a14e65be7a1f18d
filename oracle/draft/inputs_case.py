"""The case of draft.inputs: requests that come, verify round after round, and leave.

See ``oracle.draft.inputs`` for the definition. A hidden state is a number that says whose
it is and of which position; so is a KV location.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, require

POOL_ROWS = 32  # row 0 belongs to nobody
TABLE = 4096  # positions of a pool row
MAX_ROUNDS = 6
MAX_PROMPT = 2048
MAX_FRONT = 16
MAX_WIDTH = 32
VOCABULARY = 151_936
NOTHING = 0  # token, hidden state, position and location of a row that holds nothing


@dataclass(frozen=True)
class Request:
    """``prompt`` tokens, the last ``chunk`` of which are prefilled at once before round
    ``enters``; ``commits`` tokens kept in each of its rounds; ``seed`` its tokens."""

    prompt: int
    chunk: int
    enters: int
    commits: tuple[int, ...]
    pool_row: int
    seed: int


@dataclass(frozen=True)
class InputsCase:
    """``front`` rows stand before a block of ``width`` tokens; the first ``warmup`` rows
    that hold something only warm up."""

    front: int
    warmup: int
    width: int
    requests: tuple[Request, ...]


def domain(case: InputsCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(1 <= case.front <= MAX_FRONT, f"front: must be 1 to {MAX_FRONT}")
    require(0 <= case.warmup <= case.front, "warmup: must be 0 to front")
    require(1 <= case.width <= MAX_WIDTH, f"width: must be 1 to {MAX_WIDTH}")
    require(1 <= len(case.requests) <= 64, "requests: must be 1 to 64")
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        require(1 <= r.prompt <= MAX_PROMPT, f"{where}.prompt: must be 1 to {MAX_PROMPT}")
        require(1 <= r.chunk <= r.prompt, f"{where}.chunk: must be 1 to prompt")
        require(0 <= r.enters < MAX_ROUNDS, f"{where}.enters: must be 0 to {MAX_ROUNDS - 1}")
        require(len(r.commits) <= MAX_ROUNDS - r.enters, f"{where}.commits: beyond round {MAX_ROUNDS - 1}")
        require(all(1 <= c <= case.width for c in r.commits), f"{where}.commits: must be 1 to width")
        require(1 <= r.pool_row < POOL_ROWS, f"{where}.pool_row: must be 1 to {POOL_ROWS - 1}")
        require(0 <= r.seed < 2**32, f"{where}.seed: must be 0 to 2^32 - 1")
    for row in {r.pool_row for r in case.requests}:
        stays = sorted((r.enters, r.enters + max(len(r.commits), 1)) for r in case.requests if r.pool_row == row)
        apart = all(end <= start for (_, end), (start, _) in zip(stays, stays[1:]))
        require(apart, "requests.pool_row: two requests are in one row at once")
    return FUNCTIONAL


def longest(case: InputsCase, r: Request) -> int:
    """Tokens of a request, the ones behind its last block included."""
    return r.prompt + sum(r.commits) + case.width + 2


def history(case: InputsCase, r: Request) -> list[int]:
    """The token at each position; the one at ``prompt`` is the first generated."""
    rng = random.Random(r.seed)
    return [rng.randrange(1, VOCABULARY) for _ in range(longest(case, r))]


def first_stamp(r: Request) -> int:
    """The number of the hidden state at position 0."""
    return 1 + (r.pool_row * MAX_ROUNDS + r.enters) * TABLE


def drafted(r: Request, number: int) -> int:
    """The token that the draft model proposes in a request's round."""
    return VOCABULARY + 1 + r.seed % 1000 + 1000 * number


def location(pool_row: int, position: int) -> int:
    """Where a token lies in KV; neighbouring positions are not neighbours in memory."""
    return 1 + pool_row * TABLE + (5 * position + 3) % TABLE


def columns(case: InputsCase) -> dict[str, Any]:
    """Scalars; int64 ``prompt``, ``chunk``, ``enters``, ``rounds``, ``pool_row``,
    ``first_stamp`` [B]; ``commits``, ``drafted`` [B, rounds] padded with 0; ``history``
    [B, positions] padded with 0."""
    rows = case.requests
    most = max([len(r.commits) for r in rows] + [1])
    tokens = np.zeros((len(rows), max(longest(case, r) for r in rows)), dtype=np.int64)
    commits, proposed = (np.zeros((len(rows), most), dtype=np.int64) for _ in range(2))
    for i, r in enumerate(rows):
        tokens[i, : longest(case, r)] = history(case, r)
        commits[i, : len(r.commits)] = r.commits
        proposed[i, : len(r.commits)] = [drafted(r, n) for n in range(len(r.commits))]

    def each(value: Any) -> np.ndarray:
        return np.array([value(r) for r in rows], dtype=np.int64)

    return {
        "front": case.front,
        "warmup": case.warmup,
        "width": case.width,
        "prompt": each(lambda r: r.prompt),
        "chunk": each(lambda r: r.chunk),
        "enters": each(lambda r: r.enters),
        "rounds": each(lambda r: len(r.commits)),
        "pool_row": each(lambda r: r.pool_row),
        "first_stamp": each(first_stamp),
        "commits": commits,
        "drafted": proposed,
        "history": tokens,
    }
