"""How far verification in logarithms may be off, and which cases survive that.

Runner 2 holds log p and log q in float32 and compares sums of them. With masses of
2^-100 at least, |log p| is below 70, so each rounding of one is up to 2^-18; the
logits, their distance to the log of the sum, the log of the coin and the comparison
make eight of them: 2^-15. Rows that sum to 1 within ``SUM_WITHIN`` add that much. A
decision is therefore off by ``RELATIVE`` of the mass it is about, for each draft that
a running product has in it, and declared as ``ROUNDING_ULP``.

What no such figure covers is cancellation: a residual p - q keeps the error of p.
Cases in which that could matter are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.engines.vllm.domains import reachable_rows

SUM_WITHIN = 2.0**-17
RELATIVE = 2.0**-15 + 2 * SUM_WITHIN
ROUNDING_ULP = 1000.0  # RELATIVE in ULP of at least 2^-24, rounded up; a quarter of it a draft in blocks of four
MAX_BLOCK_DRAFTS = 4
SMALLEST_COIN = 2.0**-31  # of the engine's stream, which stands for coin 0


def certain(case: Any) -> str | None:
    """Why logarithms cannot decide this case, or ``None``."""
    refused = reachable_rows(case)
    if refused:
        return refused
    if case.target.size > 2**20:
        return "its logits would be more than 2^20 numbers"
    for i, n in enumerate(case.counts):
        rows = np.concatenate([case.target[i, : n + 1], case.draft[i, :n]]).astype(np.float64)
        if np.isnan(rows).any():
            return "rows that are no numbers"
        if not _placed(case, i, n):
            return "a sum of masses too far from 1, or a coin below the smallest of the stream decides"
        if not case.greedy[i] and not _apart(case, i, n):
            return "a residual that cancels beyond the accuracy of logarithms"
    return None


def _kept(case: Any, i: int, n: int) -> int:
    """Drafts of request ``i`` in front of its first placeholder."""
    return next((j for j in range(n) if case.drafts[i, j] < 0), n)


def _placed(case: Any, i: int, n: int) -> bool:
    k = _kept(case, i, n)
    rows = np.concatenate([case.target[i, : n + 1], case.draft[i, :k]]).astype(np.float64)
    if (np.abs(rows.sum(axis=1) - 1) > SUM_WITHIN).any():
        return False
    for j in range(k):
        p, q = float(case.target[i, j, case.drafts[i, j]]), float(case.draft[i, j, case.drafts[i, j]])
        if case.coins[i, j] < SMALLEST_COIN and 0 < p <= 2 * SMALLEST_COIN * q:
            return False
    return True


def _apart(case: Any, i: int, n: int) -> bool:
    """True when every accept test and every race that may decide request ``i`` is
    decided by more than cancellation takes away."""
    k = _kept(case, i, n)
    if case.rule == "block" and k > MAX_BLOCK_DRAFTS:
        return False
    prefixes = [1.0]
    for j in range(k if case.rule == "block" else 0):
        target, draft = (float(rows[i, j, case.drafts[i, j]]) for rows in (case.target, case.draft))
        if draft <= 0:  # its logarithm is no number
            return False
        prefixes.append(min(1.0, prefixes[-1] * target / draft))
    ends = _block_ends(case, i, k, prefixes) if case.rule == "block" else _token_ends(case, i, k)
    if ends is None:
        return False
    speeds = case.exponentials[i].astype(np.float64)
    for a in ends:
        left, wrong = _residual(case, i, a, k, prefixes[a] if case.rule == "block" else 1.0)
        if not _race_apart(left / speeds, wrong / speeds):
            return False
    return True


def _residual(case: Any, i: int, a: int, k: int, prefix: float) -> tuple[np.ndarray, np.ndarray]:
    """Masses of the last token after ``a`` drafts, and how far each may be off."""
    p = case.target[i, a].astype(np.float64)
    if a == k:
        return p, np.zeros_like(p)
    return np.maximum(prefix * p - case.draft[i, a], 0.0), (a + 1) * RELATIVE * prefix * p


def _token_ends(case: Any, i: int, k: int) -> set[int]:
    """Numbers of accepted drafts that the token rule may come to."""
    ends = set()
    for j in range(k):
        p, q = float(case.target[i, j, case.drafts[i, j]]), float(case.draft[i, j, case.drafts[i, j]])
        edge = max(float(case.coins[i, j]), SMALLEST_COIN) * q
        if edge >= p * (1 - RELATIVE):
            ends.add(j)
        if edge > p * (1 + RELATIVE):
            return ends
    return ends | {k}


def _block_ends(case: Any, i: int, k: int, prefixes: list[float]) -> set[int] | None:
    """The same for the block rule; ``None`` where an edge is too uncertain."""
    ends = set()
    for j in range(k, 0, -1):
        edge, doubt = prefixes[j], j * RELATIVE * prefixes[j]
        if j < k:
            left, wrong = _residual(case, i, j, k, prefixes[j])
            whole = left.sum() + 1 - prefixes[j]
            edge = left.sum() / whole if prefixes[j] < 1 else 1.0
            doubt = (wrong.sum() + doubt) / whole if whole > 0 else 1.0
        coin = max(float(case.coins[i, j - 1]), SMALLEST_COIN)
        if case.coins[i, j - 1] < SMALLEST_COIN and 0 < edge <= 2 * SMALLEST_COIN:
            return None
        if abs(coin - edge) <= doubt and doubt > RELATIVE * MAX_BLOCK_DRAFTS * edge:
            return None
        if coin < edge + doubt:
            ends.add(j)
        if coin < edge - doubt:
            return ends
    return ends | {0}


def _race_apart(scores: np.ndarray, wrong: np.ndarray) -> bool:
    """True unless a token whose error is not small beside its score could win."""
    best = int(np.argmax(scores))
    if scores[best] <= 0 or wrong[best] > RELATIVE * MAX_BLOCK_DRAFTS * scores[best]:
        return False
    loose = wrong > RELATIVE * MAX_BLOCK_DRAFTS * scores
    return not (loose & (scores + wrong >= scores[best] - wrong[best])).any()
