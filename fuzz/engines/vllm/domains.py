"""Which cases of verify.chain_rejection vLLM's samplers can get, and which are edges.

An edge is an input that the engine can get, once in 2^53 or 2^23 draws, and on which
its newest release is known to be wrong. Edges have a target of their own, so that what
is known about them covers nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NEAR = 2.0**-20  # relative; wider than any rounding of the accept test


def reachable(case: Any) -> str | None:
    """Why runner 1 cannot get this case, or ``None``."""
    if case.rule != "token":
        return "runner 1 has no block verification"
    if not case.counts.any():
        return "a batch without drafts is sampled elsewhere"
    return reachable_rows(case)


def reachable_rows(case: Any) -> str | None:
    """Why a verify of either runner cannot get these drafts and rows, or ``None``."""
    if ((case.drafts < -1) | (case.drafts >= case.vocabulary)).any():
        return "proposers give ids inside the vocabulary, or the placeholder -1"
    for i, n in enumerate(case.counts):
        proposed = case.has_q[i, :n] & (case.drafts[i, :n] >= 0)
        rows = np.concatenate([case.target[i, : n + 1], case.draft[i, :n][proposed]])
        if not all(np.isnan(row).all() or _is_softmax(row) for row in rows):
            return "a softmax gives no such row"
    return None


def certain(case: Any) -> str | None:
    """Why this is no case, or one of an edge that has a target of its own."""
    return reachable(case) or ("an edge of the draws, which has a target of its own" if on_edge(case) else None)


def edges(case: Any) -> str | None:
    """Only those edges, and numbers everywhere."""
    if np.isnan(case.target).any() or np.isnan(case.draft).any():
        return "rows that are no numbers"
    return reachable(case) or (None if on_edge(case) else "no edge of the draws")


def on_edge(case: Any) -> bool:
    """True where a sampled draft has coin 0 and no mass in the target row, or where
    its coin rejects and rounding left no mass to draw from."""
    for i, n in enumerate(case.counts):
        for j in range(0 if case.greedy[i] else n):
            token, coin, p, q = case.drafts[i, j], float(case.coins[i, j]), case.target[i, j], case.draft[i, j]
            if not 0 <= token < case.vocabulary:
                continue
            if coin == 0 == p[token] or ((p <= q).all() and p[token] <= coin * q[token] * (1 + NEAR)):
                return True
    return False


def _is_softmax(row: np.ndarray) -> bool:
    return bool(np.isfinite(row).all() and (row >= 0).all() and abs(float(row.sum()) - 1) < 2**-11)
