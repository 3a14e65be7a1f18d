"""Mutants of recurrence.short_convolution.

Each is the plain walk with one thing changed: what enters the line, how the taps are summed, what is put around the
sum, what a slot or a scratch row is left with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuzz.mutants.beyond import beyond
from fuzz.mutants.mutant import Mutant
from oracle.recurrence import short_convolution as convolution
from oracle.recurrence.short_convolution_behaviours import CHANNEL_BLOCK, INT32_ELEMENTS, TOKEN_BLOCK
from oracle.recurrence.short_convolution_case import (
    NONE,
    Request,
    ShortConvolutionCase,
    inputs_of,
    line_of,
    parts_of,
    weights,
)
from oracle.recurrence.words import POISON, UNTOUCHED
from oracle.trace import Trace

Case = ShortConvolutionCase
Array = np.ndarray


@dataclass(frozen=True)
class Walk:
    """What a request goes through. The defaults are right."""

    start: Callable[[Case, Request, Array], Array] = lambda case, r, line: line * float(r.initial)
    enters: Callable[[Case, Request], Array] = inputs_of
    taps: Callable[[Case, Request, Array], Array] = lambda case, r, taps: taps
    output: Callable[[Case, Request, Array], Array] = lambda case, r, taps: convolution.result(case, r, taps).value
    states: Callable[[Case, Request, Array], Array] = lambda case, r, lines: lines
    state: Callable[[Case, Request, Array, Array], Array] = lambda case, r, held, right: right
    padding: bool = True  # whether the padding of a verify is left out
    also: Callable[[Case, dict[str, Any]], dict[str, Any]] = lambda case, observed: {}

    def __call__(self, case: Case) -> dict[str, Any]:
        names = ("output", "states", "state", "taps")
        observed: dict[str, Any] = {"outside": UNTOUCHED, "kept": 0} | {n: [] for n in names}
        for r in case.requests:
            for name, value in self._request(case, r).items():
                observed[name].append(value)
        return observed | self.also(case, observed)

    def _request(self, case: Case, r: Request) -> dict[str, Any]:
        held, u, live = line_of(case, r), self.enters(case, r), r.slot != NONE
        whole = np.concatenate([self.start(case, r, held), u.T], axis=1)
        taps = np.lib.stride_tricks.sliding_window_view(whole, case.reach + 1, axis=1).swapaxes(0, 1)
        taps = self.taps(case, r, taps)
        y, lines = self.output(case, r, taps), self.states(case, r, taps[:, :, 1:])
        if case.form == "other_residual" and case.operation == "verify" and self.padding:
            real = np.arange(r.length) < r.valid
            y, lines = np.where(real[:, None], y, 0), np.where(real[:, None, None], lines, 0)
        after = held if case.operation == "verify" else whole[:, -case.reach :]
        nothing = np.zeros((0, 0, 0))
        return {
            "output": y,
            "states": lines if live and case.operation == "verify" else nothing,
            "state": self.state(case, r, held, after) if live else held * 0,
            "taps": taps if live and case.operation == "decode" else nothing,
        }


def _sum(case: Case, taps: Array, weight: Array | None = None) -> Array:
    weight = weights(case) if weight is None else weight
    return (taps[:, :, :: case.dilation] * weight).sum(2)


def _act(case: Case, z: Array) -> Array:
    return z / (1 + np.exp(-z)) if case.activation == "silu" and case.form != "gated" else z


def _around(case: Case, r: Request, act: Array) -> Array:
    parts = parts_of(case, r)
    if case.form == "gated":
        return act * parts["behind"]
    return act + {"plain": 0.0, "own_residual": parts["x"], "other_residual": parts["before"]}[case.form]


def _output(change: Callable[[Case, Request, Array], Array]) -> Walk:
    return Walk(output=change)


def _undilated(case: Case, r: Request, taps: Array) -> Array:
    return _around(case, r, _act(case, (taps[:, :, -case.width :] * weights(case)).sum(2)))


def _inside(case: Case, r: Request, taps: Array) -> Array:
    """The residual goes through the activation."""
    if case.form not in ("own_residual", "other_residual"):
        return _around(case, r, _act(case, _sum(case, taps)))
    return _act(case, _around(case, r, _sum(case, taps)))


def _other(case: Case, r: Request, taps: Array) -> Array:
    """The two residuals are taken for each other."""
    swapped = {"own_residual": "other_residual", "other_residual": "own_residual"}
    return _around(replace(case, form=swapped.get(case.form, case.form)), r, _act(case, _sum(case, taps)))


def _gates_swapped(case: Case, r: Request) -> Array:
    parts = parts_of(case, r)
    return parts["x"] * parts["behind"] if case.form == "gated" else parts["x"]


def _forgets_blocks(case: Case, r: Request, taps: Array) -> Array:
    taps = taps.copy()
    for t in range(TOKEN_BLOCK, r.length):
        taps[t, :, : max(case.reach - t % TOKEN_BLOCK, 0)] = 0
    return taps


def _first_channels(case: Case, r: Request, taps: Array) -> Array:
    y = convolution.result(case, r, taps).value.copy()
    y[:, CHANNEL_BLOCK:] = POISON
    return y


def _advanced(case: Case, r: Request, held: Array, right: Array) -> Array:
    """A verify leaves its last line in the slot."""
    if case.operation != "verify":
        return right
    return np.concatenate([held, inputs_of(case, r).T], axis=1)[:, -case.reach :]


def _null_written(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    return {"kept": case.channels} if any(r.slot == NONE for r in case.requests) else {}


def _slot_wraps(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    cells, half = case.channels * case.reach, case.slots // 2
    far = [r for r in case.requests if case.gap and r.slot >= half and (r.slot + case.gap) * cells >= INT32_ELEMENTS]
    return {"outside": "pool: written before the buffer"} if far else {}


def _beyond_bound(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """One output cell is off by a little more than its bound."""
    return {"output": beyond(convolution.reference(case, Trace())["output"], observed["output"])}


def _stale_used(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """A line that is masked by a multiplication: NaN times 0 is NaN."""
    pairs = zip(observed["output"], case.requests, strict=True)
    return {"output": [o * np.nan if r.stale else o for o, r in pairs]}


_no_gate_in = Walk(enters=lambda case, r: parts_of(case, r)["x"])
_no_gate_out = _output(
    lambda case, r, taps: _around(
        replace(case, form="plain") if case.form == "gated" else case, r, _act(case, _sum(case, taps))
    )
)
_no_residual = _output(
    lambda case, r, taps: _act(case, _sum(case, taps)) * (parts_of(case, r)["behind"] if case.form == "gated" else 1.0)
)
_linear = _output(lambda case, r, taps: _around(case, r, _sum(case, taps)))
_silu = _output(lambda case, r, taps: _around(case, r, _act(replace(case, activation="silu"), _sum(case, taps))))
_reversed = _output(lambda case, r, taps: _around(case, r, _act(case, _sum(case, taps, weights(case)[:, ::-1]))))
_zeros = Walk(start=lambda case, r, line: line * float(case.operation != "prefill"))
_always = Walk(start=lambda case, r, line: line)
_shifted = Walk(start=lambda case, r, line: np.roll(line, 1, axis=1) * float(r.initial))
_unmoved = Walk(state=lambda case, r, held, right: held)
_last = Walk(states=lambda case, r, lines: lines[[-1] * len(lines)])
_rotated = Walk(states=lambda case, r, lines: np.roll(lines, 1, axis=2))

MUTANTS = (
    Mutant("gate_in_forgotten", "forgotten_term", "the input is not gated", _no_gate_in),
    Mutant("gate_out_forgotten", "forgotten_term", "the output is not gated", _no_gate_out),
    Mutant("gates_swapped", "wrong_order", "the gate behind stands in front", Walk(enters=_gates_swapped)),
    Mutant("residual_forgotten", "forgotten_term", "no residual is added", _no_residual),
    Mutant("residual_in_activation", "wrong_order", "the residual goes through the activation", _output(_inside)),
    Mutant("residual_of_the_other", "wrong_operand", "input and residual are taken for each other", _output(_other)),
    Mutant("activation_forgotten", "forgotten_term", "SiLU is left out", _linear),
    Mutant("activation_always", "missing_check", "SiLU also where there is none", _silu),
    Mutant("dilation_ignored", "wrong_stride", "neighbouring inputs are taken", _output(_undilated)),
    Mutant("weights_reversed", "wrong_order", "the first weight meets the newest input", _reversed),
    Mutant("initial_state_ignored", "missing_check", "a prefill starts from zeros", _zeros),
    Mutant("initial_state_always", "missing_check", "a prefill goes on from what the slot held", _always),
    Mutant("line_shifted", "off_by_one", "the line is read one column late", _shifted),
    Mutant("slot_not_advanced", "missing_commit", "the slot keeps its old line", _unmoved),
    Mutant("verify_advances_slot", "early_commit", "a verify leaves its last line in the slot", Walk(state=_advanced)),
    Mutant("last_line_for_all", "step_for_step", "every step gets the last line", _last),
    Mutant("lines_rotated", "off_by_one", "the newest input lies in front of the line", _rotated),
    Mutant("padding_computed", "missing_check", "padding of a verify gets outputs and lines", Walk(padding=False)),
    Mutant("null_row_written", "sentinel", "a null row writes a slot", Walk(also=_null_written)),
    Mutant("blocks_forget", "tail", "a block of tokens does not see the one before", Walk(taps=_forgets_blocks)),
    Mutant("first_channels_only", "tail", "channels behind one block are not written", _output(_first_channels)),
    Mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements", Walk(also=_slot_wraps)),
    Mutant("masked_by_product", "isolation", "NaN of an unused line reaches the output", Walk(also=_stale_used)),
    Mutant("just_beyond_the_bound", "numbers", "a cell is 1.5 times its bound away", Walk(also=_beyond_bound)),
)
