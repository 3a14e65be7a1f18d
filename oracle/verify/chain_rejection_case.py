"""The cases of verify.chain_rejection: records, their domain and their columns.

A request holds its drafts and the target row behind the last one. A draft carries
the target row ``p`` and the proposal row ``q`` of its position and the coin of its
accept test, so that one record is one position. ``q`` is ``None`` where the proposer
has no distribution (n-gram drafts): it then stands for all mass on the draft itself.
The token -1 is a placeholder: there is no draft at this position or behind it.

Functional: finite rows whose masses are 0 or 2^-80 to 1 and sum to 1 within 2^-12
(a float32 softmax over the largest vocabularies stays inside; products of smaller
masses underflow, which the rounding model does not cover), drafts inside the
vocabulary that their own ``q`` gives mass. All else is defensive. Coins are 0 or 2^-40 to below 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, require, require_size
from oracle.legal import OneOf
from oracle.verify.rows import Row, dense, is_distribution, require_float32, require_row, value

PLACEHOLDER = -1
TOKEN, BLOCK = "token", "block"
MAX_DRAFTS = 64
MAX_VOCABULARY = 2**20
SMALLEST_MASS = 2.0**-80
SMALLEST_COIN = 2.0**-40  # other than 0; no generator makes smaller ones
SUM_WITHIN = 2.0**-12


@dataclass(frozen=True)
class Draft:
    """One position: the drafted ``token``, the rows of its position and the coin of its accept test."""

    token: int
    p: Row
    q: Row | None
    coin: float


@dataclass(frozen=True)
class Request:
    """``bonus`` is the target row behind the last draft. ``final_coin`` draws the last token; ``race_seed``
    stands for the exponentials of a race that draws it instead. ``greedy`` requests use no coin."""

    drafts: tuple[Draft, ...]
    bonus: Row
    final_coin: float
    race_seed: int
    greedy: bool


@dataclass(frozen=True)
class ChainRejectionCase:
    """One verify of a batch of chains under one ``rule``: ``token`` or ``block``."""

    vocabulary: int
    rule: str
    requests: tuple[Request, ...]


class NothingLeft(OneOf):
    """The tokens of a target row of which the residual kept none. A class of its own, so that a verifier that fails
    here is told from one that fails on hostile input."""


class LastWithMass(OneOf):
    """The last token with mass, drawn by a coin so near 1 that the total times the coin may come out above the sum of
    all masses. A class of its own too: a verifier that runs past the end is told from one that draws wrongly."""


def domain(case: ChainRejectionCase) -> str:
    """``functional`` or ``defensive``; raises InvalidCase outside the domain."""
    require(2 <= case.vocabulary <= MAX_VOCABULARY, "vocabulary: must be 2 to 2^20")
    require(case.rule in (TOKEN, BLOCK), "rule: must be token or block")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests")  # before a walk over all of them
    for i, r in enumerate(case.requests):
        require(len(r.drafts) <= MAX_DRAFTS, f"requests[{i}].drafts: must be at most {MAX_DRAFTS}")
        require(0 <= r.race_seed < 2**32, f"requests[{i}].race_seed: must be 0 to 2^32 - 1")
        _require_coin(r.final_coin, f"requests[{i}].final_coin")
        require_row(r.bonus, case.vocabulary, f"requests[{i}].bonus")
        for j, d in enumerate(r.drafts):
            where = f"requests[{i}].drafts[{j}]"
            require(-(2**31) <= d.token < 2**31, f"{where}.token: must be an int32")
            _require_coin(d.coin, f"{where}.coin")
            require_row(d.p, case.vocabulary, f"{where}.p")
            if d.q is not None:
                require_row(d.q, case.vocabulary, f"{where}.q")
    width = max(len(r.drafts) for r in case.requests) + 1
    require_size(case.requests, "requests", width * case.vocabulary)
    return FUNCTIONAL if all(is_functional(r, case.vocabulary) for r in case.requests) else DEFENSIVE


def _require_coin(coin: float, where: str) -> None:
    require_float32(coin, where)
    require(coin == 0.0 or SMALLEST_COIN <= coin < 1.0, f"{where}: must be 0 or 2^-40 to below 1")


def is_functional(r: Request, vocabulary: int) -> bool:
    """True when every row and draft of the request is what a verifier may count on."""
    if not _is_healthy(r.bonus, vocabulary):
        return False
    for d in r.drafts:
        if not _is_healthy(d.p, vocabulary) or (d.q is not None and not _is_healthy(d.q, vocabulary)):
            return False
        if d.token == PLACEHOLDER:
            continue
        if not 0 <= d.token < vocabulary or (d.q is not None and value(d.q, d.token) == 0.0):
            return False
    return True


def _is_healthy(row: Row, vocabulary: int) -> bool:
    if not is_distribution(row):
        return False
    named = [m.value for m in row.masses]
    rest = vocabulary - len(named)
    if any(v != 0.0 and not SMALLEST_MASS <= v <= 1.0 for v in (*named, *([row.rest] if rest else []))):
        return False
    return abs(math.fsum([*named, rest * row.rest]) - 1.0) <= SUM_WITHIN


def has_mass(number: float) -> bool:
    """True for a mass that a draw may land on: above 0, and a number."""
    return not math.isnan(number) and number > 0.0


def drafted(r: Request) -> int:
    """Drafts before the first placeholder."""
    return next((j for j, d in enumerate(r.drafts) if d.token == PLACEHOLDER), len(r.drafts))


def target_row(r: Request, position: int) -> Row:
    """The target row of a position; the one behind the last draft is the bonus row."""
    return r.drafts[position].p if position < len(r.drafts) else r.bonus


@lru_cache(maxsize=16)  # up to 4 MiB each
def exponentials(seed: int, vocabulary: int) -> np.ndarray:
    """Float32 [vocabulary] of the race: -log of uniforms from PCG64's raw stream, which no NumPy release changes.
    Read-only, because it is shared."""
    raw = np.random.PCG64(seed).random_raw(vocabulary) >> np.uint64(11)
    found = (-np.log((raw.astype(np.float64) + 0.5) * 2.0**-53)).astype(np.float32)
    found.setflags(write=False)
    return found


def columns(case: ChainRejectionCase) -> dict[str, Any]:
    """With K the most drafts of a request, V the vocabulary:

    ``vocabulary`` and ``rule``; ``counts`` int64 [B], drafts a request; ``drafts`` int64 [B, K], -1 behind the count;
    ``target`` float32 [B, K + 1, V], where row ``counts[b]`` is the bonus row and rows behind it are 0;
    ``draft`` float32 [B, K, V], one-hot on the draft where ``q`` is absent, 0 at placeholders and behind the count;
    ``has_q`` bool [B, K]; ``coins`` float32 [B, K] (0.5 behind the count); ``final_coin`` float32 [B];
    ``exponentials`` float32 [B, V], the race's; ``greedy`` bool [B].
    """
    size, v = len(case.requests), case.vocabulary
    k = max(len(r.drafts) for r in case.requests)
    made = {
        "vocabulary": v,
        "rule": case.rule,
        "counts": np.array([len(r.drafts) for r in case.requests], dtype=np.int64),
        "drafts": np.full((size, k), PLACEHOLDER, dtype=np.int64),
        "target": np.zeros((size, k + 1, v), dtype=np.float32),
        "draft": np.zeros((size, k, v), dtype=np.float32),
        "has_q": np.zeros((size, k), dtype=bool),
        "coins": np.full((size, k), 0.5, dtype=np.float32),
        "final_coin": np.array([r.final_coin for r in case.requests], dtype=np.float32),
        "exponentials": np.stack([exponentials(r.race_seed, v) for r in case.requests]),
        "greedy": np.array([r.greedy for r in case.requests], dtype=bool),
    }
    for i, r in enumerate(case.requests):
        for j, d in enumerate(r.drafts):
            made["drafts"][i, j], made["coins"][i, j] = d.token, d.coin
            made["target"][i, j] = dense(d.p, v)
            made["has_q"][i, j] = d.q is not None
            if d.q is not None and d.token != PLACEHOLDER:
                made["draft"][i, j] = dense(d.q, v)
            elif 0 <= d.token < v:
                made["draft"][i, j, d.token] = 1.0
        made["target"][i, len(r.drafts)] = dense(r.bonus, v)
    return made
