"""recurrence.lightning token by token, and in blocks, in numbers that carry their bound.

See ``oracle.recurrence.lightning`` for the definition. ``advance`` is the walk of a decode,
a verify or an accepted form, whose kernels take one token after the other. ``blocks`` is for a prefill,
whose kernels multiply whole blocks of tokens as matrices: there is no chain of operations
to follow, so the bound of each product of a key, a value and a query is written down by
what any such scheme does to it:

* its decay over a distance of m tokens is a quotient of two exponentials with arguments
  of at most m + 64 decays (the kernels seen count from one end of a block of 32 or 64
  tokens), times one more exponential for each block boundary between;
* it takes part in sums over head_dim and over the tokens, in any order;
* operands of a product of matrices are rounded into the multiplier's format: query, key,
  their product and the value, or query and state; for a state key and value.

Nothing cancels in a product's own relative error, so the bound of a cell is the sum over
its products, each with its magnitude.
"""

from __future__ import annotations

import numpy as np

from oracle.recurrence.approximate import TINY, WORST, Approximate, U, dot, exact, stack
from oracle.recurrence.formats import unit_roundoff
from oracle.recurrence.lightning_case import LightningCase

SMALL_BLOCK = 32  # tokens: decays are carried over at least every so many
FURTHEST = 64  # tokens beyond the distance that an exponential's argument may reach
SPLIT_DIM = 32  # of head_dim: kernels may store the output in parts of so many keys and add them
PARTS = 1.0 + 2.0**-6  # of the roundings of parts: their own errors count, too


def advance(case: LightningCase, token: dict[str, np.ndarray], decay: np.ndarray, start: np.ndarray) -> tuple:
    """Outputs [T, heads, head_dim] and states [T, heads, head_dim, head_dim] of one
    request with the state ``start``. Between calls a state has been stored, and between the
    steps of an accepted form it may have been: each step has a slot."""
    keep = (-exact(decay)).exp()[:, None, None]
    push = exact(token["k"][..., None]) * token["v"][:, :, None, :]
    before, states = exact(start), []
    for t in range(len(push.value)):
        if t and case.operation != "verify":
            before = before.stored(case.state_dtype)
        before = before * keep + push[t]
        states.append(before)
    together = stack(states)
    query = exact(token["q"]) * _scale(case)
    output = dot(query[..., None], together, axis=2)
    parts = np.einsum("thk,thkv->thv", np.abs(query.value), np.abs(together.value))
    return finished(case, output, parts), together.stored(case.state_dtype)


def blocks(
    case: LightningCase, token: dict[str, np.ndarray], decay: np.ndarray, start: Approximate | None, at: tuple[int, ...]
) -> tuple[Approximate, list[Approximate]]:
    """Outputs [T, heads, head_dim] of one call, and the state [heads, head_dim, head_dim]
    after each number of tokens in ``at``; ``start`` is ``None`` where nothing came before."""
    q, k, v = (token[n] for n in "qkv")
    length = len(q)
    scale, step = case.scale, np.arange(length)
    distance = step[:, None] - step
    weight = _decayed(decay, distance)
    products = [np.einsum("thd,jhd->htj", a, b) for a, b in ((q, k), (np.abs(q), np.abs(k)))]
    value = np.einsum("htj,jhv->thv", products[0] * weight, v)
    relative = _relative(case, decay, distance, length, roundings=4)
    magnitudes = np.einsum("htj,jhv->thv", products[1] * weight, np.abs(v))
    error = np.einsum("htj,jhv->thv", products[1] * weight * relative, np.abs(v))
    if start is not None:
        since, relative = _decayed(decay, step + 1), _relative(case, decay, step + 1, length, roundings=4)
        old = [np.einsum("thk,hkv->thv", a, b) for a, b in (
            (q, start.value), (np.abs(q), np.abs(start.value)), (np.abs(q), start.error),
        )]  # fmt: skip
        value = value + _rows(since) * old[0]
        magnitudes = magnitudes + _rows(since) * (old[1] + old[2])
        error = error + _rows(since) * (old[1] * _rows(relative) + old[2] * (1.0 + _rows(relative)))
    flushed = TINY * length * case.head_dim
    output = Approximate(value * scale, (error + flushed) * scale)
    return finished(case, output, magnitudes * scale), [_state(case, k, v, decay, start, n) for n in at]


def _state(
    case: LightningCase, k: np.ndarray, v: np.ndarray, decay: np.ndarray, start: Approximate | None, length: int
) -> Approximate:
    distance = length - 1 - np.arange(length)
    weight = _decayed(decay, distance).T[..., None]  # [T, heads, 1]
    relative = _relative(case, decay, distance, length, roundings=2).T[..., None]
    k, v = k[:length] * weight, v[:length]
    value = np.einsum("thk,thv->hkv", k, v)
    error = np.einsum("thk,thv->hkv", np.abs(k) * relative, np.abs(v)) + TINY * length
    if start is not None:
        since = _decayed(decay, np.array([length]))[..., None]
        own = _relative(case, decay, np.array([length]), length, roundings=0)[..., None]
        value = value + since * start.value
        error = error + since * (np.abs(start.value) * own + start.error * (1.0 + own))
    return Approximate(value, error)


def finished(case: LightningCase, output: Approximate, parts: np.ndarray) -> Approximate:
    """The output as it is stored. Kernels that divide the keys among programs store each
    part in the output's format and add them: ``parts`` is the sum of magnitudes."""
    if case.head_dim > SPLIT_DIM and case.operation != "decode":
        output = Approximate(output.value, output.error + PARTS * unit_roundoff(case.input_dtype) * parts)
    return output.stored(case.input_dtype)


def _scale(case: LightningCase) -> Approximate:
    value = np.asarray(case.scale)
    return Approximate(value, value * U if case.scaled else np.zeros(()))


def _decayed(decay: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """e^(-decay distance) [heads, ...], 0 for distances below 0."""
    far = np.maximum(distance, 0)
    return np.where(distance >= 0, np.exp(-decay.reshape(-1, *[1] * distance.ndim) * far), 0.0)


def _relative(case: LightningCase, decay: np.ndarray, distance: np.ndarray, length: int, roundings: int) -> np.ndarray:
    """Largest relative error of one product over ``distance`` tokens; see above."""
    rate = decay.reshape(-1, *[1] * distance.ndim)
    far = np.maximum(distance, 0)
    boundaries = far / SMALL_BLOCK + 2.0
    quotient = 2.0 * WORST["exp"] + WORST["divide"] + 2.0 * U * rate * (far + FURTHEST)
    carried = boundaries * (WORST["exp"] + 4.0 * U)
    sums = (case.head_dim + length + 16) * U
    multiplied = 0.0 if case.multiplier == "float32" else 2.0 * unit_roundoff(case.multiplier) * roundings
    return quotient + carried + sums + multiplied


def _rows(per_head: np.ndarray) -> np.ndarray:
    """[heads, T] as [T, heads, 1]."""
    return per_head.T[..., None]
