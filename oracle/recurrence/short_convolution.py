"""recurrence.short_convolution: a short convolution with what its model fuses around it.

Definition. Per channel c, with `width` weights `dilation` tokens apart,

    z_t[c] = sum over j of weight[c, j] * u_(t - (width - 1 - j) * dilation)[c],    j = 0 .. width - 1,

where u_t is what enters the line and act is the identity or z * sigmoid(z):

* `plain`:           u = x,            y = act(z)
* `own_residual`:    u = x,            y = act(z) + x
* `other_residual`:  u = x,            y = act(z) + before
* `gated`:           u = before * x,   y = behind * z    (no activation); u is rounded into the dtype, as it is stored

A slot keeps the line of the last (width - 1) * dilation numbers u, oldest first.

* `decode`: one token after the line; the slot then holds the line with the token.
* `verify`: `steps` tokens, of which the first `valid` are real. The line of every real step goes to the scratch row of
  the request's place in the batch. The slot stays as it is. With `other_residual` outputs and lines of the padding
  behind are zero, otherwise they are not judged.
* `prefill`: packed requests; each goes on from its slot's line, or without an initial state from zeros, whatever the
  slot holds (defensive: NaN). The slot then holds the last line.

A row with slot -1 is nobody's: its output may be anything and nothing is written for it.

Numbers: lines are copies and exact. z is summed in float32 in any order. Where the layer is a sequence of operations on
tensors (`gated`, `other_residual`), every one of them may round into the dtype; otherwise only the output is rounded.

Source: this project's own statement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Within
from oracle.recurrence import words
from oracle.recurrence.approximate import Approximate, dot, exact
from oracle.recurrence.short_convolution_behaviours import BEHAVIOURS, show
from oracle.recurrence.short_convolution_case import (
    NONE,
    Request,
    ShortConvolutionCase,
    columns,
    domain,
    inputs_of,
    line_of,
    parts_of,
    weights,
)
from oracle.trace import Trace

SEQUENCES = ("gated", "other_residual")  # forms that stand for several operations on tensors


def reference(case: ShortConvolutionCase, trace: Trace) -> Outcome:
    """Token by token: the line before it, then the token."""
    trace.step("nothing but outputs, lines and slots may change", decides="outside")
    trace.step("other slots and inputs stay", decides="kept")
    outcome: Outcome = {"outside": words.UNTOUCHED, "kept": 0, "output": [], "states": [], "state": [], "taps": []}
    for i, r in enumerate(case.requests):
        fields = _nobody(case, r) if r.slot == NONE else _request(case, r, i, trace)
        for name, legal in fields.items():
            outcome[name].append(legal)
    for name in ("output", "states", "state", "taps"):
        trace.step(f"the requests' {name}", decides=name)
    show(case, trace)
    return outcome


def _request(case: ShortConvolutionCase, r: Request, place: int, trace: Trace) -> dict[str, Any]:
    held, u = line_of(case, r), inputs_of(case, r)
    line = held if r.initial else np.zeros_like(held)
    taps = np.zeros((r.length, case.channels, case.reach + 1))
    for t in range(r.length):
        taps[t] = np.concatenate([line, u[t, :, None]], axis=1)
        line = taps[t, :, 1:]
        trace.step("token after the line", place, token=t)
    y = result(case, r, taps)
    value, error, lines, hidden = y.value, y.error, taps[:, :, 1:], np.zeros((r.length, case.channels, case.reach))
    if case.operation == "verify":
        padding = np.arange(r.length) >= r.valid
        if case.form == "other_residual":
            value, error = (np.where(padding[:, None], 0.0, each) for each in (value, error))
            lines = np.where(padding[:, None, None], 0.0, lines)
        else:
            error, hidden = (
                np.where(padding[:, None], np.inf, error),
                hidden + np.where(padding, np.inf, 0)[:, None, None],
            )
    return {
        "output": Within(value, error),
        "states": Within(lines, hidden) if case.operation == "verify" else _nothing(3),
        "state": _exactly(held if case.operation == "verify" else line),
        "taps": _exactly(taps) if case.operation == "decode" else _nothing(3),
    }


def result(case: ShortConvolutionCase, r: Request, taps: np.ndarray) -> Approximate:
    """Outputs [tokens, channels] of tokens whose lines and inputs are ``taps`` [tokens, channels, reach + 1]."""
    stage = case.dtype if case.form in SEQUENCES else "float32"
    parts, chosen = parts_of(case, r), taps[:, :, :: case.dilation]
    z = dot(chosen, np.broadcast_to(weights(case), chosen.shape)).stored(stage)
    if case.form == "gated":
        return (exact(parts["behind"]) * z).stored(case.dtype)
    act = (z * z.sigmoid()).stored(stage) if case.activation == "silu" else z
    if case.form == "plain":
        return act.stored(case.dtype)
    return (act + parts["x" if case.form == "own_residual" else "before"]).stored(case.dtype)


def _nobody(case: ShortConvolutionCase, r: Request) -> dict[str, Any]:
    anything = Within.anything(r.length, case.channels)
    return {"output": anything, "states": _nothing(3), "state": _nothing(2), "taps": _nothing(3)}


def _nothing(axes: int) -> Within:
    """No cell is judged; what is observed still has this many axes."""
    return Within(np.zeros((0,) * axes), np.zeros((0,) * axes))


def _exactly(values: np.ndarray) -> Within:
    return Within(values, np.zeros(values.shape))


def second(case: ShortConvolutionCase) -> Outcome:
    """By lines: line and inputs side by side, one weighted sum of shifted copies for all tokens at once."""
    outcome: Outcome = {"outside": words.UNTOUCHED, "kept": 0, "output": [], "states": [], "state": [], "taps": []}
    weight, reach = weights(case), case.reach
    for r in case.requests:
        fields = _nobody(case, r)
        if r.slot != NONE:
            whole = np.concatenate([line_of(case, r) * float(r.initial), inputs_of(case, r).T], axis=1)
            z = sum(
                weight[:, j, None] * whole[:, j * case.dilation : j * case.dilation + r.length]
                for j in range(case.width)
            )
            parts = {name: p.T for name, p in parts_of(case, r).items()}
            act = z * (1 + np.tanh(z / 2)) / 2 if case.activation == "silu" and case.form != "gated" else z
            y = {
                "plain": act,
                "gated": parts["behind"] * z,
                "own_residual": act + parts["x"],
                "other_residual": act + parts["before"],
            }[case.form].T
            windows = np.lib.stride_tricks.sliding_window_view(whole, reach, axis=1).swapaxes(0, 1)[1:]
            if case.operation == "verify" and case.form == "other_residual":
                real = np.arange(r.length) < r.valid
                y, windows = np.where(real[:, None], y, 0), np.where(real[:, None, None], windows, 0)
            fields |= {"output": _exactly(y)}
            if case.operation == "verify":
                fields |= {"states": _exactly(windows), "state": _exactly(line_of(case, r))}
            else:
                fields |= {"state": _exactly(whole[:, -reach:])}
            if case.operation == "decode":
                fields |= {"taps": _exactly(whole[None])}
        for name, legal in fields.items():
            outcome[name].append(legal)
    return outcome


AXES = {
    "output": ("token", "channel"),
    "states": ("step", "channel", "column"),
    "state": ("channel", "column"),
    "taps": ("token", "channel", "column"),
}


def explain(case: ShortConvolutionCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field == "outside":
        return f"outside outputs, lines and slots: {observed}"
    if field == "kept":
        return f"{observed} cells of other slots or inputs changed; they must stay"
    expected = reference(case, Trace())[field][where[0]] if where else None
    if len(where) < 2:
        return f"{field} of request {where}: {observed}; must be {expected}"
    return f"{field} of {words.cell(expected, where, observed, AXES[field])}"


CONTRACT = Contract(
    name="recurrence.short_convolution",
    version=1,
    case_type=ShortConvolutionCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=words.kind,
    say=explain,
    padding=lambda case: Request(NONE, case.steps),
    fields=(
        Field("outside", "case", "what was written outside outputs, lines and slots, in words"),
        Field("kept", "case", "cells of other slots or inputs that changed"),
        Field("output", "request", "outputs [tokens, channels]"),
        Field("states", "request", "verify: the line of each step [steps, channels, reach]"),
        Field("state", "request", "the slot afterwards [channels, reach]"),
        Field("taps", "request", "decode: what the convolution gets, line and token [1, channels, reach + 1]"),
    ),
    behaviours=BEHAVIOURS,
    example=ShortConvolutionCase(
        form="plain", operation="decode", channels=4, width=3, dilation=1, activation="none", dtype="float32", steps=1,
        slots=4, gap=0, exact=True, seed=1, requests=(Request(slot=2, length=1, seed=1),),
    ),
)  # fmt: skip
