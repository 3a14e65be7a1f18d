"""The delta rule, token by token, all requests of a batch side by side.

``Rules`` holds the formulas, one method each; the walk only decides which state each token starts from. A wrong version
overrides one method. Arrays are [requests, tokens, value heads, ...], shorter requests padded: what is computed there
is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.recurrence.approximate import Approximate, U, dot, exact, stack
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_values import parents_of, slot_state, tokens, weights

EPSILON = 1e-6  # added to the squared length of a key before it is normalised
SOFTPLUS_THRESHOLD = 20.0  # above, softplus(x) is x


@dataclass(frozen=True)
class Walked:
    """``output`` [requests, tokens, value heads, V]; ``states`` [requests, tokens, value heads, K, V], as stored;
    ``start`` [requests, value heads, K, V]."""

    output: Approximate
    states: Approximate
    start: Approximate


class Rules:
    """The formulas. Log decay ``g`` broadcasts over [..., value heads, K], beta over [..., value heads, V]."""

    def heads(self, case: DeltaCase, keys: Approximate) -> Approximate:
        """Each value head's key head: consecutive value heads share one."""
        return keys.repeat(case.value_heads // case.key_heads, 2)

    def normalised(self, case: DeltaCase, keys: Approximate) -> Approximate:
        length = (dot(keys, keys) + constant(EPSILON)).sqrt()
        return keys * (1.0 / length)[..., None]

    def queries(self, case: DeltaCase, q: Approximate) -> Approximate:
        q = self.normalised(case, q) if case.normalise else q
        return self.heads(case, q * constant(case.used_scale))

    def keys(self, case: DeltaCase, k: Approximate) -> Approximate:
        return self.heads(case, self.normalised(case, k) if case.normalise else k)

    def decay(self, case: DeltaCase, a: Approximate, A_log: np.ndarray, dt_bias: np.ndarray) -> Approximate:
        """Computed log decay, from inputs ``a`` of its own shape."""
        rate = exact(A_log).exp().reshape(-1, *[1] * case.per_channel)
        x = a + dt_bias
        if case.gate == "bounded":
            return (rate * x).sigmoid() * case.lower_bound
        return -(rate * x.softplus(SOFTPLUS_THRESHOLD))

    def beta(self, case: DeltaCase, b: Approximate) -> Approximate:
        beta = b.sigmoid()
        return beta.stored(case.input_dtype) if case.beta_rounded else beta

    def advance(self, h: Approximate, k: Approximate, v: Approximate, decay: Approximate, beta: Any) -> Approximate:
        """One token: the state fades, then what it already knows of ``k`` is taken off ``v``, and beta of the rest
        is written at ``k``."""
        h = h * decay[..., None]
        written = (v - dot(h, k[..., None], axis=-2)) * beta
        return h + k[..., None] * written[..., None, :]

    def output(self, states: Approximate, q: Approximate) -> Approximate:
        return dot(states, q[..., None], axis=-2)

    def start_slot(self, case: DeltaCase, request: Request) -> int:
        """Where the state before the first token lies; -1: it is 0."""
        if case.operation == "accepted":
            return request.table[max(request.accepted - 1, 0)]
        return NONE if case.fresh else request.slot

    def parents(self, case: DeltaCase, request: Request) -> tuple[int, ...]:
        return parents_of(request)

    def kept(self, case: DeltaCase, step: int, state: Approximate) -> Approximate:
        """The state that children start from. A chain stays in registers; a tree, or a second call, reads what
        was stored."""
        return state.stored(case.state_dtype) if case.tree or step + 1 == case.split else state


def constant(value: float) -> Approximate:
    """A number of the definition, which an engine rounds to float32."""
    return Approximate(np.float64(value), np.abs(value) * U)


def walk(case: DeltaCase, rules: Rules | None = None) -> Walked:
    """All requests of ``case`` over their tokens."""
    rules = rules or Rules()
    inputs = _padded([tokens(case, r) for r in case.requests])
    q, k, v = rules.queries(case, exact(inputs["q"])), rules.keys(case, exact(inputs["k"])), exact(inputs["v"])
    if case.gate == "given":
        g, beta = exact(inputs["g"]), exact(inputs["beta"])
    else:
        g, beta = rules.decay(case, exact(inputs["a"]), **weights(case)), rules.beta(case, exact(inputs["b"]))
    decay = (g if case.per_channel else g[..., None]).exp()
    beta = beta if case.beta_per_channel else beta[..., None]
    start = exact(np.stack([_start(case, rules.start_slot(case, r)) for r in case.requests]))
    length = v.shape[1]
    parents = np.array([[*p, *[NONE] * (length - len(p))] for p in (rules.parents(case, r) for r in case.requests)])
    kept, states = [start], []
    for step in range(length):
        before = _gathered(kept, parents[:, step] + 1) if case.tree else kept[-1]
        states.append(rules.advance(before, k[:, step], v[:, step], decay[:, step], beta[:, step]))
        kept.append(rules.kept(case, step, states[-1]))
    every = stack(states, 1)
    return Walked(rules.output(every, q).stored(case.input_dtype), every.stored(case.state_dtype), start)


def _start(case: DeltaCase, slot: int) -> np.ndarray:
    return np.zeros(case.entry) if slot == NONE else slot_state(case, slot)


def _gathered(kept: list[Approximate], which: np.ndarray) -> Approximate:
    """For each request the state that its token starts from."""
    rows = range(len(which))
    return Approximate(
        np.stack([kept[w].value[row] for row, w in zip(rows, which, strict=True)]),
        np.stack([kept[w].error[row] for row, w in zip(rows, which, strict=True)]),
    )


def _padded(brought: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Each tensor as [requests, tokens, ...], zeros behind a request's own tokens."""
    length = max(len(b["v"]) for b in brought)

    def longer(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.zeros((length - len(values), *values.shape[1:]))])

    return {name: np.stack([longer(b[name]) for b in brought]) for name in brought[0]}
