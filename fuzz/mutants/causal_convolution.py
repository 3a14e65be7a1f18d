"""Mutants of recurrence.causal_convolution.

Each is the plain walk over tokens with one thing changed: where a window starts, who comes before a token, what is made
of the taps, what a slot or a scratch row is left with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuzz.mutants.beyond import beyond
from fuzz.mutants.mutant import Mutant
from oracle.recurrence import causal_convolution as convolution
from oracle.recurrence.causal_convolution_behaviours import CHANNEL_BLOCK, INT32_ELEMENTS, TOKEN_BLOCK
from oracle.recurrence.causal_convolution_case import (
    NONE,
    CausalConvolutionCase,
    Request,
    inputs_of,
    line_of,
    parents_of,
    weights,
)
from oracle.recurrence.words import POISON, UNTOUCHED
from oracle.trace import Trace

Case = CausalConvolutionCase


@dataclass(frozen=True)
class Walk:
    """What a request goes through. The defaults are right."""

    parents: Callable[[Request], tuple[int, ...]] = parents_of
    start: Callable[[Case, Request, np.ndarray], np.ndarray] = convolution.start
    taps: Callable[[Case, Request, np.ndarray], np.ndarray] = lambda case, r, taps: taps
    output: Callable[[Case, Request, np.ndarray], np.ndarray] = lambda case, r, taps: (
        convolution.convolved(case, taps).value
    )
    states: Callable[[Case, Request, np.ndarray], np.ndarray] = lambda case, r, windows: windows
    state: Callable[[Case, Request, np.ndarray, np.ndarray], np.ndarray] = lambda case, r, line, right: right
    also: Callable[[Case, dict[str, Any]], dict[str, Any]] = lambda case, observed: {}

    def __call__(self, case: Case) -> dict[str, Any]:
        observed: dict[str, Any] = {
            "outside": UNTOUCHED,
            "kept": 0,
            "output": [],
            "states": [],
            "state": [],
            "parents": [],
        }
        for r in case.requests:
            for name, value in self._request(case, r).items():
                observed[name].append(value)
        return observed | self.also(case, observed)

    def _request(self, case: Case, r: Request) -> dict[str, Any]:
        own = case.width - 1
        line, x = line_of(case, r), inputs_of(case, r)
        # An accepted count without a window: a careful kernel takes the nearest that has one.
        r = replace(r, accepted=min(max(r.accepted, 1), case.most_accepted))
        before = self.start(case, r, line)
        taps = np.zeros((r.length, case.channels, case.width))
        for t, parent in enumerate(self.parents(r)):
            taps[t] = np.concatenate([taps[parent, :, 1:] if parent != NONE else before, x[t, :, None]], axis=1)
        taps = self.taps(case, r, taps)
        live, new = r.slot != NONE, line.copy()
        if r.length and case.operation == "accepted":
            new[:, : own - 1 + r.length] = np.concatenate([before[:, 1:], x.T], axis=1)
        elif r.length:
            new[:, :own] = taps[-1, :, 1:]
        windows = self.states(case, r, taps[:, :, 1:])
        return {
            "output": self.output(case, r, taps) if r.length else np.zeros((0, case.channels)),
            "states": windows if live and case.operation == "verify" else np.zeros((0, 0, 0)),
            "state": self.state(case, r, line, new) if live else line * 0,
            "parents": list(r.parents[1:]),
        }


def _output(change: Callable[[Case, np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Walk:
    """``change`` gets taps, weight and bias and makes the output."""
    return Walk(output=lambda case, r, taps: change(case, taps, *weights(case)))


def _sum(taps: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (taps * weight).sum(2)


def _act(case: Case, y: np.ndarray) -> np.ndarray:
    return y / (1 + np.exp(-y)) if case.activation == "silu" else y


def _start(column: Callable[[Case, Request], int]) -> Walk:
    """The window starts in another column (kept inside the slot)."""

    def start(case: Case, r: Request, line: np.ndarray) -> np.ndarray:
        first = min(max(column(case, r), 0), case.columns - case.width + 1)
        window = line[:, first : first + case.width - 1]
        return window if r.initial else np.zeros_like(window)

    return Walk(start=start)


def _zero_start(wanted: Callable[[Case, Request], bool]) -> Walk:
    def start(case: Case, r: Request, line: np.ndarray) -> np.ndarray:
        return convolution.start(case, r, line) * (0.0 if wanted(case, r) else 1.0)

    return Walk(start=start)


def _skips_parent(r: Request) -> tuple[int, ...]:
    """A tree token goes on from its grandparent where it has one."""
    parents = parents_of(r)
    return tuple(parents[p] if r.parents and p > 0 else p for p in parents)


def _forgets_blocks(case: Case, r: Request, taps: np.ndarray) -> np.ndarray:
    """The first tokens of a later block do not see the block before."""
    taps = taps.copy()
    for t in range(TOKEN_BLOCK, r.length):
        seen = t % TOKEN_BLOCK + 1
        taps[t, :, : max(case.width - seen, 0)] = 0
    return taps


def _forgets_split(case: Case, r: Request, taps: np.ndarray) -> np.ndarray:
    """The second call of a split prefill starts from zeros."""
    taps = taps.copy()
    for t in range(case.split, r.length) if case.split else ():
        taps[t, :, : max(case.width - (t - case.split + 1), 0)] = 0
    return taps


def _first_channels(case: Case, r: Request, taps: np.ndarray) -> np.ndarray:
    y = convolution.convolved(case, taps).value
    y[:, CHANNEL_BLOCK:] = POISON
    return y


def _shifted(case: Case, r: Request, line: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The stored window lies one column too far left."""
    own = case.width - 1
    return np.concatenate([right[:, 1:own], right[:, own - 1 : own] * 0, right[:, own:]], axis=1)


def _spare_moved(case: Case, r: Request, line: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The window is stored at the end of the slot, behind the spare columns."""
    own = case.width - 1
    if case.operation in ("accepted", "verify") or not r.length:
        return right
    return np.concatenate([line[:, own:], right[:, :own]], axis=1)


def _short_zeros(case: Case, r: Request, line: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A prefill shorter than its window leaves zeros in front."""
    right = right.copy()
    if case.operation == "prefill" and r.length:
        right[:, : max(case.width - 1 - r.length, 0)] = 0
    return right


def _all_steps(case: Case, r: Request, line: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The line is stored as if every request had all tokens: the last ones again."""
    missing = case.steps - r.length
    if case.operation != "accepted" or not missing or not r.length:
        return right
    end = case.width - 2 + r.length
    return np.concatenate(
        [right[:, :end], right[:, end - 1 : end].repeat(missing, 1), right[:, end + missing :]], axis=1
    )


def _cleared(case: Case, r: Request, line: np.ndarray, right: np.ndarray) -> np.ndarray:
    return right if r.length else right * 0


def _dense(case: Case, r: Request, windows: np.ndarray) -> np.ndarray:
    """Overlapping windows written side by side: each but the first is overwritten in part."""
    return np.roll(windows, 1, axis=2) if case.overlapping and case.width > 2 else windows


def _by_place(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """Each request's windows go to the scratch row of its place in the batch."""
    if case.operation != "verify":
        return {}
    nobody = np.full((case.steps, case.channels, case.width - 1), POISON)
    by_row = {i: s for i, (r, s) in enumerate(zip(case.requests, observed["states"], strict=True)) if r.row != NONE}
    rows = [
        s if r.row == NONE else by_row.get(r.row, nobody)
        for r, s in zip(case.requests, observed["states"], strict=True)
    ]
    return {"states": rows}


def _null_written(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """A null row writes the last slot."""
    return {"kept": case.channels} if any(r.slot == NONE and r.length for r in case.requests) else {}


def _slot_wraps(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    cells, half = case.channels * case.columns, case.slots // 2
    far = [r for r in case.requests if case.gap and r.slot >= half and (r.slot + case.gap) * cells >= INT32_ELEMENTS]
    return {"outside": "pool: written before the buffer"} if far else {}


def _token_wraps(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """Tokens beyond 2^31 elements are read, and written, before the buffer."""
    ends = case.tokens_before + np.cumsum([r.length for r in case.requests])
    return {"outside": "outputs: written before the buffer"} if ends[-1] * case.channels > INT32_ELEMENTS else {}


def _beyond_bound(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """One output cell is off by a little more than its bound."""
    return {"output": beyond(convolution.reference(case, Trace())["output"], observed["output"])}


def _nan_spreads(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """A NaN input reaches the other channels."""
    bad = [r.bad != NONE for r in case.requests]
    return {"output": [o * np.nan if b else o for o, b in zip(observed["output"], bad, strict=True)]}


def _unbounded(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """An accepted count of 0 reads in front of the slot, a large one behind it."""
    wild = [r.slot != NONE and not 1 <= r.accepted <= case.most_accepted for r in case.requests]
    return {"output": [o * np.nan if w else o for o, w in zip(observed["output"], wild, strict=True)]}


def _unread_parents(case: Case, observed: dict[str, Any]) -> dict[str, Any]:
    """The parents handed on say that every token hangs on the root."""
    return {"parents": [[0] * len(p) for p in observed["parents"]]}


_accepted = _start(lambda case, r: r.accepted)
_column_0 = _start(lambda case, r: 0)
_next_column = _start(lambda case, r: r.accepted - 2)
_no_initial = _zero_start(lambda case, r: case.operation == "prefill")
_always_initial = Walk(start=lambda case, r, line: convolution.start(case, replace(r, initial=True), line))
_chain = Walk(parents=lambda r: tuple(range(-1, r.length - 1)))
_grandparent = Walk(parents=_skips_parent)
_no_bias = _output(lambda case, taps, w, b: _act(case, _sum(taps, w)))
_late_bias = _output(lambda case, taps, w, b: _act(case, _sum(taps, w)) + b)
_linear = _output(lambda case, taps, w, b: _sum(taps, w) + b)
_silu = _output(lambda case, taps, w, b: _act(replace(case, activation="silu"), _sum(taps, w) + b))
_reversed = _output(lambda case, taps, w, b: _act(case, _sum(taps, w[:, ::-1]) + b))
_rolled = _output(lambda case, taps, w, b: _act(case, _sum(taps, np.roll(w, 1, 0)) + b))
_unmoved = Walk(state=lambda case, r, line, right: line)
_last_for_all = Walk(states=lambda case, r, windows: windows[[-1] * len(windows)])
_before_token = Walk(states=lambda case, r, windows: np.roll(windows, 1, axis=2))

MUTANTS = (
    Mutant("bias_forgotten", "forgotten_term", "no bias is added", _no_bias),
    Mutant("bias_after_activation", "wrong_order", "the bias is added behind the activation", _late_bias),
    Mutant("activation_forgotten", "forgotten_term", "SiLU is left out", _linear),
    Mutant("activation_always", "missing_check", "SiLU also where there is none", _silu),
    Mutant("weights_reversed", "wrong_order", "the first weight meets the newest input", _reversed),
    Mutant("weights_of_next_channel", "off_by_one", "each channel has its neighbour's weights", _rolled),
    Mutant("slot_not_advanced", "missing_commit", "the slot keeps its old window", _unmoved),
    Mutant("stored_one_column_early", "off_by_one", "the stored window is shifted", Walk(state=_shifted)),
    Mutant("stored_behind_spare", "wrong_offset", "the window is stored at the slot's end", Walk(state=_spare_moved)),
    Mutant("accepted_excludes_current", "off_by_one", "the window starts at the accepted count", _accepted),
    Mutant("accepted_one_less", "off_by_one", "one accepted token too few counts", _next_column),
    Mutant("accepted_ignored", "missing_check", "the window always starts in column 0", _column_0),
    Mutant("accepted_unbounded", "out_of_bounds", "a count outside the slot is followed", Walk(also=_unbounded)),
    Mutant("all_steps_stored", "ragged", "a short request is stored as a long one", Walk(state=_all_steps)),
    Mutant("idle_row_cleared", "missing_check", "a row without tokens clears its slot", Walk(state=_cleared)),
    Mutant("tree_as_chain", "wrong_parent", "a tree token goes on from the token before it", _chain),
    Mutant("parent_skipped", "wrong_parent", "a tree token goes on from its grandparent", _grandparent),
    Mutant(
        "parents_not_handed_on", "wrong_parent", "every token is said to hang on the root", Walk(also=_unread_parents)
    ),
    Mutant("last_window_for_all", "step_for_step", "every step gets the last window", _last_for_all),
    Mutant("windows_rotated", "off_by_one", "the newest input lies in front of the window", _before_token),
    Mutant("windows_by_place", "row_for_place", "windows go to the row of the batch place", Walk(also=_by_place)),
    Mutant("overlap_written_dense", "wrong_stride", "overlapping windows lie side by side", Walk(states=_dense)),
    Mutant("null_row_written", "sentinel", "a null row writes a slot", Walk(also=_null_written)),
    Mutant("initial_state_ignored", "missing_check", "a prefill starts from zeros", _no_initial),
    Mutant("initial_state_always", "missing_check", "a prefill goes on from what the slot held", _always_initial),
    Mutant("short_prefill_zeroes", "boundary", "a short prefill drops the old window", Walk(state=_short_zeros)),
    Mutant("blocks_forget", "tail", "a block of tokens does not see the one before", Walk(taps=_forgets_blocks)),
    Mutant("first_channels_only", "tail", "channels behind one block are not written", Walk(output=_first_channels)),
    Mutant("split_restarts", "split", "the second part of a prefill starts from zeros", Walk(taps=_forgets_split)),
    Mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements", Walk(also=_slot_wraps)),
    Mutant("token_offset_in_32_bits", "wrap", "token times stride wraps at 2^31 elements", Walk(also=_token_wraps)),
    Mutant("just_beyond_the_bound", "numbers", "a cell is 1.5 times its bound away", Walk(also=_beyond_bound)),
    Mutant("nan_spreads", "isolation", "a NaN reaches other channels", Walk(also=_nan_spreads)),
)
