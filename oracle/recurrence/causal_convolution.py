"""recurrence.causal_convolution: a depthwise causal convolution that goes on from a window.

Definition. Each channel c has `width` weights. A token's output is

    y_t[c] = act(bias[c] + sum over j of weight[c, j] * x_(t - width + 1 + j)[c]),    j = 0 .. width - 1,

so the last weight meets the token itself. "Before" a token are its ancestors: the tokens before it in a chain, its
parent, grandparent ... in a tree of draft tokens, and behind the root what the request's slot keeps. `act` is the
identity or x / (1 + e^-x). The *window* of a token is the last width - 1 inputs up to and with it, oldest first.

* `decode`: one token after the slot's window; the slot then holds the window of that token.
* `verify`: `steps` tokens, a chain or a tree. The window of every step goes to the request's row of the scratch. What
  the slot's window holds afterwards is not judged: a commit follows and writes it in any case.
* `accepted`: the slot keeps a line of inputs, the window and the tokens of the last call. `accepted` of those tokens
  count, so the window starts in column accepted - 1. Afterwards the line is that window without its oldest input, then
  all tokens of this call, from column 0 on. Columns behind stay.
* `prefill`: requests of any length, packed; each goes on from its slot's window or, without an initial state, from
  zeros. The slot then holds the last window. With `split` the first tokens come in one call and the rest in a second,
  which goes on from what the first one stored: the outcome is the same.

A row with slot -1 is nobody's: its output may be anything and nothing is written for it. A row without tokens changes
nothing. No other slot, no spare column, no scratch row of another, no input changes.

Defensive: an input that is NaN (everything it does not reach is as defined) and an accepted count whose window is not
in the slot (0, or too large): then outputs and line are bounded by what the request itself holds.

Numbers: windows are copies and exact. Products may be rounded into the operands' own type before they are summed in
float32, as compilers do that multiply two 16-bit numbers; sums may be taken in any order.

Source: this project's own statement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Within
from oracle.recurrence import words
from oracle.recurrence.approximate import Approximate, concatenate, exact
from oracle.recurrence.causal_convolution_behaviours import BEHAVIOURS, show
from oracle.recurrence.causal_convolution_case import (
    NONE,
    CausalConvolutionCase,
    Request,
    columns,
    domain,
    inputs_of,
    line_of,
    parents_of,
    path_of,
    weights,
)
from oracle.recurrence.formats import smallest_normal, unit_roundoff
from oracle.trace import Trace

SAFE = 64.0  # times what own numbers can make at most: NaN, poison and foreign memory are far beyond


def reference(case: CausalConvolutionCase, trace: Trace) -> Outcome:
    """Token by token: the window of its parent, then the token itself."""
    trace.step("nothing but outputs, windows and slots may change", decides="outside")
    trace.step("other slots, spare columns and inputs stay", decides="kept")
    outcome: Outcome = {"outside": words.UNTOUCHED, "kept": 0, "output": [], "states": [], "state": [], "parents": []}
    for i, r in enumerate(case.requests):
        fields = _nobody(case, r) if r.slot == NONE else _request(case, r, i, trace)
        for name, legal in fields.items():
            outcome[name].append(legal)
    for name in ("output", "states", "state", "parents"):
        trace.step(f"the requests' {name}", decides=name)
    show(case, trace)
    return outcome


def _request(case: CausalConvolutionCase, r: Request, place: int, trace: Trace) -> dict[str, Any]:
    if not 1 <= r.accepted <= case.most_accepted:
        trace.step("no window in the slot: only safety is asked", place, accepted=r.accepted)
        return _bounded(case, r)
    line, x = line_of(case, r), inputs_of(case, r)
    before, taps = start(case, r, line), np.zeros((r.length, case.channels, case.width))
    bad, bad_taps = np.zeros((r.length, case.channels), bool), np.zeros(taps.shape, bool)
    if r.bad != NONE:
        bad[r.bad, 0] = True
    for t, parent in enumerate(parents_of(r)):
        taps[t, :, :-1] = taps[parent, :, 1:] if parent != NONE else before
        bad_taps[t, :, :-1] = bad_taps[parent, :, 1:] if parent != NONE else False
        taps[t, :, -1], bad_taps[t, :, -1] = x[t], bad[t]
        trace.step("token after its parent", place, token=t, parent=parent)
    y = convolved(case, taps)
    hidden = np.where(bad_taps.any(-1), np.inf, 0.0)
    last = taps[-1, :, 1:] if r.length else None
    return {
        "output": Within(y.value, y.error + hidden),
        "states": copied(taps[:, :, 1:], bad_taps[:, :, 1:]) if case.operation == "verify" else nothing(3),
        "state": _slot_afterwards(case, r, line, last, x, bad),
        "parents": list(r.parents[1:]),
    }


def start(case: CausalConvolutionCase, r: Request, line: np.ndarray) -> np.ndarray:
    """The window in front of the first token, [channels, width - 1]."""
    window = line[:, r.accepted - 1 : r.accepted + case.width - 2]
    return window if r.initial else np.zeros_like(window)


def convolved(case: CausalConvolutionCase, taps: np.ndarray) -> Approximate:
    """Outputs of tokens whose inputs, oldest first, are ``taps`` [tokens, channels, width]."""
    weight, bias = weights(case)
    products = exact(taps) * exact(np.broadcast_to(weight, taps.shape))
    if case.input_dtype != "float32":
        types = [t for t in (case.input_dtype, case.state_dtype) if t != "float32"]
        u, tiny = max(map(unit_roundoff, types)), max(map(smallest_normal, types))
        products = Approximate(products.value, products.error + np.abs(products.value) * u + 2 * u * tiny)
    terms = concatenate([products, exact(np.broadcast_to(bias[:, None], (*taps.shape[:2], 1)))], axis=2)
    total = terms.sum(2)
    return (total.silu() if case.activation == "silu" else total).stored(case.input_dtype)


def _slot_afterwards(
    case: CausalConvolutionCase, r: Request, line: np.ndarray, last: np.ndarray | None, x: np.ndarray, bad: np.ndarray
) -> Within:
    if last is None:
        return copied(line)
    if case.operation == "accepted":
        new = np.concatenate([start(case, r, line)[:, 1:], x.T], axis=1)
    else:
        new = last
    after, hidden = line.copy(), np.zeros(line.shape, bool)
    after[:, : new.shape[1]] = new
    reached = min(r.length, new.shape[1])
    hidden[:, new.shape[1] - reached : new.shape[1]] = bad.T[:, r.length - reached :]
    if case.operation == "verify":
        hidden[:, : new.shape[1]] = True
    return copied(after, hidden)


def _bounded(case: CausalConvolutionCase, r: Request) -> dict[str, Any]:
    """Whatever window was used, if it was the request's own: no more than its largest numbers can make."""
    weight, bias = weights(case)
    line, x = line_of(case, r), inputs_of(case, r)
    largest = np.maximum(np.abs(line).max(1), np.abs(x).max(0, initial=0.0))
    most = SAFE * (np.abs(weight).sum(1) * largest + np.abs(bias))
    held = np.broadcast_to(SAFE * largest[:, None], line.shape)
    return {
        "output": Within(np.zeros((r.length, case.channels)), np.broadcast_to(most, (r.length, case.channels))),
        "states": nothing(3),
        "state": Within(np.zeros(line.shape), held),
        "parents": [],
    }


def _nobody(case: CausalConvolutionCase, r: Request) -> dict[str, Any]:
    anything = Within.anything(r.length, case.channels)
    return {"output": anything, "states": nothing(3), "state": nothing(2), "parents": []}


def nothing(axes: int) -> Within:
    """No cell is judged; what is observed still has this many axes."""
    return Within(np.zeros((0,) * axes), np.zeros((0,) * axes))


def copied(values: np.ndarray, hidden: Any = False) -> Within:
    """Exactly these, except where they are ``hidden``."""
    return Within(values, np.where(hidden, np.inf, np.zeros(values.shape)))


def second(case: CausalConvolutionCase) -> Outcome:
    """By lines: each token's path from the root, laid behind the window, goes through NumPy's convolution."""
    weight, bias = weights(case)
    outcome: Outcome = {"outside": words.UNTOUCHED, "kept": 0, "output": [], "states": [], "state": [], "parents": []}
    own = case.width - 1
    for r in case.requests:
        line, x = line_of(case, r), inputs_of(case, r)
        if r.slot == NONE or not 1 <= r.accepted <= case.most_accepted:
            fields = _nobody(case, r) if r.slot == NONE else _bounded(case, r)
        else:
            first = r.accepted - 1
            window = line[:, first : first + own] * (1.0 if r.initial else 0.0)
            paths = [path_of(r, t) for t in range(r.length)]
            lines = [np.concatenate([window, x[path].T], axis=1) for path in paths]
            y = np.array([[np.convolve(v, w[::-1], "valid")[-1] for v, w in zip(each, weight, strict=True)]
                          for each in lines]).reshape(r.length, case.channels) + bias  # fmt: skip
            if case.activation == "silu":
                y = y * (1 + np.tanh(y / 2)) / 2
            state = line.copy()
            if r.length and case.operation == "accepted":
                state[:, : own - 1 + r.length] = lines[-1][:, 1:]
            elif r.length:
                state[:, :own] = lines[-1][:, -own:]
            states = np.array([each[:, -own:] for each in lines])
            fields = {
                "output": copied(y),
                "states": copied(states) if case.operation == "verify" else nothing(3),
                "state": copied(state),
                "parents": [p[-2] for p in paths[1:]] if r.parents else [],
            }
        for name, legal in fields.items():
            outcome[name].append(legal)
    return outcome


def kind(field: str, expected: Any, observed: Any) -> str:
    """What is wrong with the first cell."""
    return "wrong_parent" if field == "parents" else words.kind(field, expected, observed)


AXES = {"output": ("token", "channel"), "states": ("step", "channel", "column"), "state": ("channel", "column")}


def explain(case: CausalConvolutionCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field == "outside":
        return f"outside outputs, windows and slots: {observed}"
    if field == "kept":
        return f"{observed} cells of other slots, spare columns, scratch rows or inputs changed; they must stay"
    expected = reference(case, Trace())[field][where[0]] if where else None
    if field == "parents" or len(where) < 2:
        return f"{field} of request {where}: {observed}; must be {expected}"
    return f"{field} of {words.cell(expected, where, observed, AXES[field])}"


def padding(case: CausalConvolutionCase) -> Request:
    """A row of nobody."""
    return Request(NONE, case.steps if case.operation in ("verify", "accepted") else 1)


EXAMPLE = CausalConvolutionCase(
    operation="decode", channels=4, width=4, bias=True, activation="silu", input_dtype="float32", state_dtype="float32",
    steps=1, spare=0, slots=4, gap=0, scratch_rows=0, tokens_before=0, window_first=False, overlapping=False, split=0,
    exact=True, seed=1, requests=(Request(slot=2, length=1, seed=1),),
)  # fmt: skip

CONTRACT = Contract(
    name="recurrence.causal_convolution",
    version=1,
    case_type=CausalConvolutionCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=explain,
    padding=padding,
    fields=(
        Field("outside", "case", "what was written outside outputs, windows and slots, in words"),
        Field("kept", "case", "cells of other slots, spare columns, scratch rows or inputs that changed"),
        Field("output", "request", "outputs [tokens, channels]"),
        Field("states", "request", "verify: the window of each step [steps, channels, width - 1]"),
        Field("state", "request", "the slot afterwards [channels, columns]"),
        Field("parents", "request", "verify of a tree: the parents of tokens 1 on that the kernel leaves for others"),
    ),
    behaviours=BEHAVIOURS,
    example=replace(EXAMPLE),
)
