"""The delta rule as one triangular system instead of a walk.

Along the path from a request's first token to token t, let D(t, s) be the sum of
the log decays after s up to t, and D(t, start) all of them. The state of t is

    S_t = e^D(t, start) S_start + sum over s on the path of e^D(t, s) k_s (x) u_s

where the vectors u that each token writes solve, all at once,

    u_t = beta_t (v_t - k_t . [e^D(t, start) S_start + sum over s before t on the path of e^D(t, s) k_s (x) u_s])

which is linear in u and lower triangular. It shares the numbers of the case with
the walk and nothing else. Bounds are left out.
"""

from __future__ import annotations

import numpy as np

from oracle.contract import Outcome
from oracle.recurrence.approximate import Approximate, exact
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_outcome import outcome
from oracle.recurrence.delta_values import parents_of, slot_state, tokens, weights
from oracle.recurrence.delta_walk import EPSILON, SOFTPLUS_THRESHOLD, Walked


def second(case: DeltaCase) -> Outcome:
    """The outcome of ``case`` with errors of 0."""
    solved = [_solve(case, r) for r in case.requests]
    longest = max(r.length for r in case.requests)
    return outcome(case, Walked(*(_stacked([s[part] for s in solved], longest) for part in (0, 1)), _starts(solved)))


def _stacked(parts: list[np.ndarray], longest: int) -> Approximate:
    return exact(np.stack([np.concatenate([p, np.zeros((longest - len(p), *p.shape[1:]))]) for p in parts]))


def _starts(solved: list[tuple[np.ndarray, ...]]) -> Approximate:
    return exact(np.stack([s[2] for s in solved]))


def _solve(case: DeltaCase, request: Request) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs [T, heads, V], states [T, heads, K, V] and the state before, of one request."""
    x = tokens(case, request)
    group = case.value_heads // case.key_heads
    q, k = (np.repeat(_unit(case, x[n]), group, axis=1) for n in ("q", "k"))
    g, beta = _gates(case, x)
    start = _start(case, request)
    length = request.length
    log_start = np.zeros((length, *g.shape[1:]))
    between = np.full((length, length, *g.shape[1:]), -np.inf)  # D(t, s); -inf where s is not on the path
    for t, parent in enumerate(parents_of(request)):
        log_start[t] = g[t] + (log_start[parent] if parent != NONE else 0.0)
        if parent != NONE:
            between[t] = between[parent] + g[t]
        between[t, t] = 0.0
    fade = np.exp(between)  # [T, T, heads, K or 1]
    faded_start = np.exp(log_start)[..., None] * start  # [T, heads, K, V]
    overlap = np.einsum("thk,tshk,shk->hts", k, np.broadcast_to(fade, (length, *k.shape)), k)
    rest = beta * (x["v"] - np.einsum("thk,thkv->thv", k, faded_start))
    u = np.empty_like(rest)  # [T, heads, V]; forward substitution, because pivoting would mix large with small
    for t in range(length):
        u[t] = rest[t] - beta[t] * np.einsum("hs,shv->hv", overlap[:, t, :t], u[:t])
    states = faded_start + np.einsum("tshk,shk,shv->thkv", np.broadcast_to(fade, (length, *k.shape)), k, u)
    return np.einsum("thk,thkv->thv", q * case.used_scale, states), states, start


def _unit(case: DeltaCase, keys: np.ndarray) -> np.ndarray:
    return keys / np.sqrt(np.square(keys).sum(-1, keepdims=True) + EPSILON) if case.normalise else keys


def _gates(case: DeltaCase, x: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Log decay [T, heads, K or 1] and beta [T, heads, V or 1]."""
    if case.gate == "given":
        g = x["g"] if case.per_channel else x["g"][..., None]
        return g, x["beta"] if case.beta_per_channel else x["beta"][..., None]
    w = weights(case)
    a = x["a"] if case.per_channel else x["a"][..., None]
    bias = w["dt_bias"] if case.per_channel else w["dt_bias"][..., None]
    rate = np.exp(w["A_log"])[:, None]
    if case.gate == "bounded":
        g = case.lower_bound / (1.0 + np.exp(-rate * (a + bias)))
    else:
        g = -rate * np.where(a + bias > SOFTPLUS_THRESHOLD, a + bias, np.logaddexp(0.0, a + bias))
    return g, 1.0 / (1.0 + np.exp(-x["b"]))[..., None]


def _start(case: DeltaCase, request: Request) -> np.ndarray:
    slot = request.slot
    if case.operation == "accepted":
        slot = request.table[request.accepted - 1 if request.accepted else 0]
    return np.zeros(case.entry) if case.fresh or slot == NONE else slot_state(case, slot)
