"""The state of recurrence.replay advanced token by token: the definition, in plain float64.

Nothing here knows of a ring. What a ring, a fold or a record costs in accuracy stands in ``replay_bound``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.recurrence.replay_case import ReplayCase, Request, inputs, spans, tracked

EPSILON = 1e-6  # under the root of a normalised key or query: part of the rule
SOFTPLUS_THRESHOLD = 20.0  # above it softplus(x) is x: part of the rule


@dataclass(frozen=True)
class Outcome:
    """Of one request: ``output`` [layers, tokens, heads, V], ``tracks`` [saved states, layers, heads, K, V] and
    ``state`` [layers, heads, K, V]."""

    output: np.ndarray
    tracks: np.ndarray
    state: np.ndarray


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length one (nearly, for short ones)."""
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + EPSILON)


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + e^x) below the threshold, x above it."""
    return np.where(x > SOFTPLUS_THRESHOLD, x, np.log1p(np.exp(np.minimum(x, SOFTPLUS_THRESHOLD))))


def advance(state: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """One step of the gated delta rule on ``state`` [layers, heads, K, V]:

    S <- e^g S;  S <- S + k (beta (v - S^T k))^T

    with ``k`` [layers, heads, K], ``v`` [.., V], ``g`` [.., 1] or [.., K] and ``beta`` [layers, heads].
    """
    state = state * np.exp(g)[..., None]
    change = beta[..., None] * (v - read(state, k))
    return state + k[..., None] * change[..., None, :]


def read(state: np.ndarray, x: np.ndarray) -> np.ndarray:
    """S^T x: [layers, heads, V]."""
    return np.matmul(x[..., None, :], state)[..., 0, :]


@dataclass(frozen=True)
class Tokens:
    """What the rule takes of each token, [layers, tokens, heads, ...]: ``k`` and ``q`` [.., K], ``v`` [.., V], log
    gate ``g`` [.., 1] or [.., K], and ``beta``."""

    k: np.ndarray
    q: np.ndarray
    v: np.ndarray
    g: np.ndarray
    beta: np.ndarray


def prepared(case: ReplayCase, x: dict[str, np.ndarray], shared: dict[str, np.ndarray]) -> Tokens:
    """The tokens of a request's tensors ``x`` and the layers' weights: heads repeated, keys and queries normalised,
    gates computed."""
    group = case.value_heads // case.key_heads
    k, q = (x[name].repeat(group, 2) for name in ("k", "q"))
    if case.normalise:
        k, q = unit(k), unit(q)
    a = x["a"] + shared["dt_bias"][:, None]
    a = a if case.gate == "channel" else a[..., None]
    g = -np.exp(shared["A_log"])[:, None, :, None] * softplus(a)
    return Tokens(k, q * case.key_size**-0.5, x["v"], g, 1.0 / (1.0 + np.exp(-x["b"])))


def walk(case: ReplayCase, request: Request, shared: dict[str, np.ndarray]) -> Outcome:
    """Verify advances a copy over the whole window; commit keeps the state of the last accepted step."""
    x = inputs(case, request)
    each = prepared(case, x, shared)
    state, outputs, tracks = x["state"], [], []
    for j, (first, end) in enumerate(spans(request)):
        states = [state]
        for t in range(first, end):
            states.append(advance(states[-1], each.k[:, t], each.v[:, t], each.g[:, t], each.beta[:, t]))
            outputs.append(read(states[-1], each.q[:, t]))
        if j in tracked(request):
            tracks.append(states[request.rounds[j].track_step + 1])
        state = states[request.rounds[j].accepted]
    saved = np.stack(tracks) if tracks else np.zeros((0, *state.shape))
    return Outcome(np.stack(outputs, 1), saved, state)
