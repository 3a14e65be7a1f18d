"""recurrence.kda_convolution_verify: convolution and gated delta rule of a verify pass in one.

Definition. A draft chain's inputs x [steps, queries | keys | values] go through a causal convolution of four weights a
channel, which goes on from the three inputs that the request's slot keeps; then bias and x / (1 + e^-x)
(``recurrence.causal_convolution``). Its result, in the type of the inputs, is the query, key and value of
``recurrence.kda``: every channel of K fades by its own gate, and the state advances from the slot's. For every
step the request's scratch row receives the window of the convolution and, without a ``ring``, the state. With a ring
it receives the step's *record* instead: key before it is normalised, value, log gate and beta, from which a commit
replays the step; steps beyond the ring's end are not kept and are written nowhere.

Verify commits nothing: the slot's state stays. What its window holds afterwards is not judged, because a commit
writes it in any case; but all that reads it must have read the old one. Idle rows (slot -1) change nothing and
their output means nothing.

Bounds: products of two 16-bit numbers may be rounded before they are summed in float32; the rules' own are in
``delta_walk``. Source: this project's own statement, composed of the two contracts named.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Within
from oracle.recurrence import replay_walk, words
from oracle.recurrence.approximate import Approximate, exact
from oracle.recurrence.kda_convolution_case import (
    NONE,
    KdaConvolutionCase,
    Request,
    columns,
    domain,
    inputs,
    taps,
    weights,
)
from oracle.recurrence.kda_convolution_walk import evaluated
from oracle.recurrence.words import UNTOUCHED
from oracle.trace import Trace

TILE = 4  # value channels of one program in the kernels seen; the keys' history is read by each
AXES = {
    "output": ("step", "head", "V"),
    "windows": ("step", "channel", "place"),
    "states": ("step", "head", "K", "V"),
    "records": ("step", "key, value, gate or beta"),
}

BEHAVIOURS = {
    "states_written": "every step's state goes to the scratch",
    "records_written": "every step's inputs go to the ring",
    "ring_shorter_than_the_window": "steps have no place in the ring",
    "several_tiles": "values need more than one program, and all read one history of the keys",
    "part_of_a_tile": "the last program has fewer value channels than the others",
    "grouped_heads": "several value heads share a key head",
    "bounded_gate": "gates lie between a lower bound and 0",
    "convolution_bias": "the convolution has a bias",
    "not_normalised": "keys and queries are taken as they are",
    "sixteen_bit_inputs": "inputs are bfloat16",
    "sixteen_bit_products": "inputs and weights are both bfloat16",
    "window_longer_than_the_convolution": "the last step sees nothing of what the slot kept",
    "several_requests": "more than one request",
    "scattered_rows": "a request's scratch row is not its place in the batch",
    "null_row": "an idle row of the batch",
}


def reference(case: KdaConvolutionCase, trace: Trace) -> Outcome:
    """Convolve, then advance token by token."""
    trace.step("nothing beside the rows of the batch may change", decides="outside")
    trace.step("states in the pool, other rows and other rings stay", decides="kept")
    outcome: Outcome = {"outside": UNTOUCHED, "kept": 0} | {name: [] for name in AXES}
    for i, r in enumerate(case.requests):
        found = evaluated(case)[i] | {"windows": exact(_windows(case, r))}
        for name in AXES:
            numbers = found[name][: _kept_steps(case, name)]
            legal = _asked(r, numbers)
            trace.step(f"{name} of every step", i, name, value=legal)
            outcome[name].append(legal)
    _behaviours(case, trace)
    return outcome


def _windows(case: KdaConvolutionCase, r: Request) -> np.ndarray:
    x = inputs(case, r)
    return taps(x["x"], x["line"])[:, :, 1:]


def _kept_steps(case: KdaConvolutionCase, name: str) -> int:
    """How many steps of a field there are to see."""
    if name == "states":
        return 0 if case.ring else case.steps
    return min(case.ring, case.steps) if name == "records" else case.steps


def _asked(r: Request, numbers: Approximate) -> Within:
    return Within(numbers.value, np.full_like(numbers.error, np.inf) if r.slot == NONE else numbers.error)


def second(case: KdaConvolutionCase) -> Outcome:
    """With NumPy's convolution, channel by channel, and the plain rule of ``replay_walk``."""
    w = weights(case)
    outcome: Outcome = {"outside": UNTOUCHED, "kept": 0} | {name: [] for name in AXES}
    for i, r in enumerate(case.requests):
        x, keys, steps = inputs(case, r), case.keys, case.steps
        lines = np.concatenate([x["line"], x["x"].T], 1)
        y = np.array([np.convolve(line, v[::-1], "valid") for line, v in zip(lines, w["weight"], strict=True)]).T
        y = y + w["bias"]
        y = y * (1 + np.tanh(y / 2)) / 2
        raw_k, raw_v = (part.reshape(steps, heads, -1) for part, heads in (
            (y[:, keys : 2 * keys], case.key_heads), (y[:, 2 * keys :], case.value_heads)))  # fmt: skip
        q, k = y[:, :keys].reshape(raw_k.shape), raw_k
        if case.normalise:
            q, k = replay_walk.unit(q), replay_walk.unit(k)
        q, k = (z.repeat(case.value_heads // case.key_heads, 1) for z in (q * case.used_scale, k))
        gates, rate = x["a"] + w["dt_bias"], np.exp(w["A_log"])[:, None]
        if case.gate == "bounded":
            g = case.lower_bound / (1 + np.exp(-rate * gates))
        else:
            g = -rate * np.log1p(np.exp(gates))
        beta = 1 / (1 + np.exp(-x["b"]))
        state, states = x["state"][None], []
        for t in range(steps):
            state = replay_walk.advance(state, k[None, t], raw_v[None, t], g[None, t], beta[None, t])
            states.append(state[0])
        found = {
            "output": np.stack([replay_walk.read(s, q[t]) for t, s in enumerate(states)]),
            "windows": np.stack([lines[:, t + 1 : t + 4] for t in range(steps)]),
            "states": np.stack(states),
            "records": np.concatenate([z.reshape(steps, -1) for z in (raw_k, raw_v, g, beta)], 1),
        }
        for name in AXES:
            errors = evaluated(case)[i][name].error if name != "windows" else np.zeros_like(found[name])
            part = slice(_kept_steps(case, name))
            outcome[name].append(_asked(r, Approximate(found[name][part], errors[part])))
    return outcome


def _behaviours(case: KdaConvolutionCase, trace: Trace) -> None:
    real = [(i, r) for i, r in enumerate(case.requests) if r.slot != NONE]
    facts = {
        "states_written": not case.ring,
        "records_written": case.ring > 0,
        "ring_shorter_than_the_window": 0 < case.ring < case.steps,
        "several_tiles": case.value_size > TILE,
        "part_of_a_tile": case.value_size % TILE > 0,
        "grouped_heads": case.value_heads > case.key_heads,
        "bounded_gate": case.gate == "bounded",
        "convolution_bias": case.bias,
        "not_normalised": not case.normalise,
        "sixteen_bit_inputs": case.input_dtype != "float32",
        "sixteen_bit_products": case.input_dtype == case.weight_dtype != "float32",
        "window_longer_than_the_convolution": case.steps > 3,
        "several_requests": len(real) > 1,
        "scattered_rows": any(r.row != i for i, r in real),
    }
    for name, shown in facts.items():
        if shown and real:
            trace.behaviour(name)
    if len(real) < len(case.requests):
        trace.behaviour("null_row")


def explain(case: KdaConvolutionCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words."""
    if field == "outside":
        return f"nothing beside the rows of the batch may change, but: {observed}"
    if field == "kept":
        return f"{observed} cells changed of what had to stay: states in the pool, other rows, other rings"
    legal = reference(case, Trace())[field][where[0]]
    return f"{field} of {words.cell(legal, where, observed, AXES[field])}"


CONTRACT = Contract(
    name="recurrence.kda_convolution_verify",
    version=1,
    case_type=KdaConvolutionCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=words.kind,
    fields=(
        Field("outside", "case", "what changed beside the rows of the batch"),
        Field("kept", "case", "cells changed that had to stay"),
        Field("output", "request", "output of every step"),
        Field("windows", "request", "window of the convolution after every step"),
        Field("states", "request", "state after every step"),
        Field("records", "request", "what a fold replays of every step"),
    ),
    behaviours=BEHAVIOURS,
    padding=lambda case: Request(0, NONE, NONE),
    say=explain,
    example=KdaConvolutionCase(
        1, 1, 8, 4, 3, 0, "softplus", False, True, "float32", "float32", 3, 3, 0, 0.25, (Request(1, 1, 0),)
    ),
)
