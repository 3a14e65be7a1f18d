"""The tensors of a delta-rule case, from its seeds, and the columns that adapters receive.

Everything is float64 and exactly representable in the dtype that the engine is
handed, so both sides start from the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.values import draw

SHORT = 2.0**-10  # squared and summed over a few channels it is near the normalisation's epsilon, 1e-6
STRONG = 32.0  # past softplus's threshold, and decays that forget everything
TOKEN_TENSORS = ("q", "k", "v", "g", "beta", "a", "b")


def tokens(case: DeltaCase, request: Request) -> dict[str, np.ndarray]:
    """What the request brings, per token: ``q`` ``k`` [T, key heads, K], ``v`` [T, value
    heads, V]; given gates ``g`` (log decay, at most 0) and ``beta`` (0 to 1), float32,
    or their inputs ``a`` and ``b``. Decay and ``a`` are [T, value heads] or, per
    channel, [T, value heads, K]; ``beta`` and ``b`` [T, value heads], or [T, value
    heads, V] with a beta per value channel."""
    length, heads, grain = request.length, case.value_heads, case.grain
    decays = (length, heads, case.key_dim) if case.per_channel else (length, heads)
    strength = STRONG if case.strong_gates else 1.0

    def drawn(name: str, shape: tuple[int, ...], dtype: str, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        return draw(request.seed, name, shape, dtype, low, high, grain)

    size = SHORT if case.short_keys else 1.0
    keys = (length, case.key_heads, case.key_dim)
    made = {n: draw(request.seed, n, keys, case.input_dtype, -size, size, grain * size) for n in ("q", "k")}
    made["v"] = drawn("v", (length, heads, case.value_dim), case.input_dtype)
    if case.gate == "given":
        betas = (length, heads, case.value_dim) if case.beta_per_channel else (length, heads)
        return made | {"g": drawn("g", decays, "float32", -strength, 0.0), "beta": drawn("beta", betas, "float32", 0.0)}
    made["a"] = drawn("a", decays, case.input_dtype, -strength, strength)
    return made | {"b": drawn("b", (length, heads), case.input_dtype, -strength, strength)}


def weights(case: DeltaCase) -> dict[str, np.ndarray]:
    """``A_log`` [value heads] and ``dt_bias`` [value heads] or [value heads, K], float32; nothing for given gates."""
    if case.gate == "given":
        return {}
    shape = (case.value_heads, case.key_dim) if case.per_channel else (case.value_heads,)
    return {
        "A_log": draw(case.seed, "A_log", (case.value_heads,), "float32", grain=case.grain),
        "dt_bias": draw(case.seed, "dt_bias", shape, "float32", grain=case.grain),
    }


def slot_state(case: DeltaCase, slot: int) -> np.ndarray:
    """What the pool holds in ``slot`` before the call, [value heads, K, V]."""
    return draw(case.seed, f"slot {slot}", case.entry, case.state_dtype, grain=case.grain)


def parents_of(request: Request) -> tuple[int, ...]:
    """The parent of every token; a chain's are the tokens before."""
    return request.parents or tuple(range(-1, request.length - 1))


def columns(case: DeltaCase) -> dict[str, Any]:
    """The case's scalars as they are, and

    seed                  not sent; ``scale`` as used, ``default_scale`` true where it is the default
    tree, per_channel     whether parents are handed over; whether each key channel has a decay
    length, slot, row, accepted   int64 [B]
    start                 int64 [B + 1], first token of each request in the tensors below
    table                 int64 [B, W], -1 beyond a request's own
    parents               int64 [B, longest request], -1 for roots and beyond
    q, k, v, g, beta, a, b   float64, all tokens of all requests: see ``tokens``; gates as the case has them
    A_log, dt_bias        float64, for computed gates
    pool                  float64 [slots, value heads, K, V], the contents before
    """
    skipped = ("requests", "seed", "scale")
    plain = {n: getattr(case, n) for n in case.__dataclass_fields__ if n not in skipped}
    plain |= {"scale": case.used_scale, "default_scale": case.scale is None, "tree": case.tree}
    plain["per_channel"] = case.per_channel
    arrays = {
        n: np.array([getattr(r, n) for r in case.requests], np.int64) for n in ("length", "slot", "row", "accepted")
    }
    arrays["start"] = np.concatenate([[0], np.cumsum(arrays["length"])])
    arrays["table"] = _padded([r.table for r in case.requests])
    arrays["parents"] = _padded([parents_of(r) for r in case.requests])
    brought = [tokens(case, r) for r in case.requests]
    arrays |= {n: np.concatenate([b[n] for b in brought]) for n in TOKEN_TENSORS if n in brought[0]}
    arrays["pool"] = np.stack([slot_state(case, slot) for slot in range(case.slots)])
    return plain | weights(case) | arrays


def _padded(rows: list[tuple[int, ...]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([[*row, *[NONE] * (width - len(row))] for row in rows], np.int64).reshape(len(rows), width)
