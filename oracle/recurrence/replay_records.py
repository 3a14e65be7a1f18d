"""Records of a ring with their bounds: reading a state through them, and folding them into it.

A record of a token is its update d, its key k and its gate g. The state after the records is

    e^G S + sum over j of e^(G - G_j) k_j d_j^T,    G_j: the sum of gates up to record j, G: of all,

and with the unit lower triangular I + A, A_ti = beta_t e^(G_t - G_i) (k_t . k_i), the updates of a window are
D = (I + A)^-1 R, R_t = beta_t (v_t - e^G_t (S^T k_t)). What each way of computing it may round is declared in
``replay_bound``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.recurrence.approximate import TINY, Approximate, U, concatenate, dot, exact, stack, where
from oracle.recurrence.formats import unit_roundoff
from oracle.recurrence.replay_case import ReplayCase

PARTS = 4  # products of two numbers of two parts each


@dataclass(frozen=True)
class Tokens:
    """Per layer, head and token: ``k``, ``q`` (scaled), ``v``, gate ``g`` (last axis 1 or K) and ``beta``."""

    k: Approximate
    q: Approximate
    v: Approximate
    g: Approximate
    beta: Approximate

    def part(self, first: int, end: int) -> Tokens:
        return Tokens(*(getattr(self, n)[:, :, first:end] for n in ("k", "q", "v", "g", "beta")))


@dataclass(frozen=True)
class Records:
    """Per layer, head and committed token: update ``d`` [.., V], key ``k`` [.., K], gate ``g`` [.., 1 or K]."""

    d: Approximate
    k: Approximate
    g: Approximate


def joined(old: Records | None, new: Records, count: int) -> Records:
    """The records of before with the first ``count`` of the new ones."""
    kept = [getattr(new, n)[:, :, :count] for n in ("d", "k", "g")]
    if old is None:
        return Records(*kept)
    return Records(*(concatenate([x, y], 2) for x, y in zip((old.d, old.k, old.g), kept, strict=True)))


def _running(g: Approximate) -> Approximate:
    """Sums of the gates up to and with each token."""
    sums = [g[:, :, 0]]
    for t in range(1, g.shape[2]):
        sums.append(sums[-1] + g[:, :, t])
    return stack(sums, 2)


def _decays(g: Approximate) -> tuple[Approximate, Approximate]:
    """Of everything before the records, and of each record by those behind it."""
    sums = _running(g)
    total = sums[:, :, -1]
    return total.exp(), (total[:, :, None] - sums).exp()


def _operands(case: ReplayCase) -> str:
    """What a dot product's operands may be rounded to."""
    return "tfloat32" if "float32" in (case.state_dtype, case.input_dtype) else case.input_dtype


def folded(case: ReplayCase, state: Approximate, records: Records, into: str | None = None) -> Approximate:
    """State [layers, heads, K, V] after the records, as it is stored (``into`` another type than the pool's)."""
    total, decays = _decays(records.g)
    if case.operation == "decode":  # the decay goes to the key or to the update, whichever has its shape
        d, k = (y.stored(case.state_dtype).stored(case.input_dtype) for y in (records.d, records.k))
        k = k * decays
        inputs_ = "tfloat32" if case.input_dtype == "float32" else case.input_dtype
        change = dot(k[..., None], d[..., None, :], 2, inputs_)
    elif case.input_dtype == "float32":
        change = dot(records.k[..., None], (records.d * decays)[..., None, :], 2, "tfloat32")
    else:
        d, k = (_two_parts(y, case.input_dtype) for y in (records.d, records.k))
        d = _two_parts(d * decays, case.input_dtype)
        change = dot(k[..., None], d[..., None, :], 2)
        sizes = (k.magnitude[..., None] * d.magnitude[..., None, :]).sum(2)
        change = Approximate(change.value, change.error + PARTS * (k.shape[2] + 1) * U * sizes)
    return (state * total[..., None] + change).stored(into or case.state_dtype)


def _two_parts(x: Approximate, dtype: str) -> Approximate:
    """A number kept as its rounding and the rounding of what is left."""
    return Approximate(x.value, x.error + x.magnitude * unit_roundoff(dtype) ** 2 + TINY)


def _read(case: ReplayCase, state: Approximate, records: Records | None, x: Approximate, into: str) -> Approximate:
    """``x`` [layers, heads, tokens, K] times the state with its records: [layers, heads, tokens, V]."""
    direct = dot(state[:, :, None], x[..., None], 3, into)
    if records is None:
        return direct
    total, decays = _decays(records.g)
    d, k = records.d.stored(case.input_dtype), records.k.stored(case.input_dtype)
    scores = dot(k[:, :, :, None], x[:, :, None], 4, into)  # [.., records, tokens]
    return total[:, :, None] * direct + dot((d * decays)[:, :, :, None], scores[..., None], 2, into)


def window(case: ReplayCase, state: Approximate, records: Records | None, x: Tokens) -> tuple[Approximate, Records]:
    """Outputs and records of a window, all at once."""
    into = _operands(case)
    sums = _running(x.g)  # [layers, heads, tokens, 1]
    count = x.k.shape[2]
    before = np.tril(np.ones((count, count), bool), -1)
    upto = before | np.eye(count, dtype=bool)
    difference = sums - sums.transpose(0, 1, 3, 2)  # row t, column i
    decay = where(upto, difference, 0.0).exp()
    keys = dot(x.k[:, :, :, None], x.k[:, :, None], 4, into)
    queries = dot(x.q[:, :, :, None], x.k[:, :, None], 4, into)
    between = where(before, x.beta[..., None] * decay * keys, 0.0)
    rest = x.beta[..., None] * (x.v - sums.exp() * _read(case, state, records, x.k, into))
    rows = [exact(np.broadcast_to(np.eye(count)[0], (*x.beta.shape[:2], count)))]
    for t in range(1, count):
        known = between[:, :, t, :t, None] * stack(rows, 2)
        rows.append(exact(np.eye(count)[t]) - known.sum(2))
    changes = dot(stack(rows, 2)[..., None], rest[:, :, None], 3)
    output = sums.exp() * _read(case, state, records, x.q, into)
    output = output + dot(where(upto, decay * queries, 0.0)[..., None], changes[:, :, None], 3)
    return output, Records(changes, x.k, x.g)


def decoded(case: ReplayCase, state: Approximate, records: Records | None, x: Tokens) -> tuple[Approximate, Records]:
    """Output and record of one token."""
    if records is not None:  # the state is put together first, in tiles
        state = folded(case, state, records, into="float32")
    k, q, alpha = x.k[:, :, 0], x.q[:, :, 0], x.g[:, :, 0].exp()
    if case.gate == "channel":
        seen_k, seen_q = dot(state, (k * alpha)[..., None], 2), dot(state, (q * alpha)[..., None], 2)
    else:
        seen_k, seen_q = (dot(state, y[..., None], 2) * alpha for y in (k, q))
    change = x.beta * (x.v[:, :, 0] - seen_k)
    output = seen_q + change * dot(k, q)[..., None]
    return output[:, :, None], Records(change[:, :, None], x.k, x.g)
