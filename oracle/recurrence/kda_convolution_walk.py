"""The evaluation of recurrence.kda_convolution_verify with its bounds: the convolution, then the rules of
``delta_walk`` on its result."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.recurrence.approximate import Approximate, concatenate, exact, stack
from oracle.recurrence.delta_walk import Rules
from oracle.recurrence.formats import smallest_normal, unit_roundoff
from oracle.recurrence.kda_convolution_case import KdaConvolutionCase, inputs, taps, weights

Tensors = dict[str, np.ndarray]


def convolved(case: KdaConvolutionCase, windows: np.ndarray, w: Tensors) -> Approximate:
    """Convolution, bias and activation of ``windows`` [steps, channels, 4], in the type of the inputs."""
    products = exact(windows) * exact(np.broadcast_to(w["weight"], windows.shape))
    if case.input_dtype == case.weight_dtype != "float32":
        u, tiny = unit_roundoff(case.input_dtype), smallest_normal(case.input_dtype)
        products = Approximate(products.value, products.error + np.abs(products.value) * u + 2 * u * tiny)
    bias = np.broadcast_to(w["bias"][:, None], (*windows.shape[:2], 1))
    return concatenate([products, exact(bias)], 2).sum(2).silu().stored(case.input_dtype)


@lru_cache(maxsize=32)
def evaluated(case: KdaConvolutionCase) -> tuple[dict[str, Approximate], ...]:
    """Per request ``output``, ``states`` and ``records``, with bounds."""
    w, rules = weights(case), Rules()
    return tuple(_evaluated(case, inputs(case, r), w, rules) for r in case.requests)


def _evaluated(
    case: KdaConvolutionCase, x: dict[str, np.ndarray], w: dict[str, np.ndarray], rules: Rules
) -> dict[str, Approximate]:
    steps, keys = case.steps, case.keys
    y = convolved(case, taps(x["x"], x["line"]), w)
    raw_q, raw_k = (part.reshape(1, steps, case.key_heads, -1) for part in (y[:, :keys], y[:, keys : 2 * keys]))
    raw_v = y[:, 2 * keys :].reshape(1, steps, case.value_heads, -1)
    q, k = rules.queries(case, raw_q), rules.keys(case, raw_k)
    g = rules.decay(case, exact(x["a"][None]), w["A_log"], w["dt_bias"])
    beta, decay = rules.beta(case, exact(x["b"][None])), g.exp()
    state, states = exact(x["state"][None]), []
    for t in range(steps):
        state = rules.advance(state, k[:, t], raw_v[:, t], decay[:, t], beta[:, t, :, None])
        states.append(state[0])
    every = stack(states)
    output = rules.output(every, q[0]).stored(case.input_dtype)
    record = concatenate([raw_k.reshape(steps, -1), raw_v.reshape(steps, -1), g.reshape(steps, -1), beta[0]], 1)
    return {"output": output, "states": every, "records": record}
