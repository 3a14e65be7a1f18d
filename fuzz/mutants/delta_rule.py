"""Mutants of the delta rules, for both contracts.

Most change one formula of the reference's own walk, or which state a token starts from; the rest change what is left
behind, or move one number just beyond its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from fuzz.mutants import delta_formulas as formulas
from fuzz.mutants.beyond import BEYOND, beyond
from fuzz.mutants.mutant import Mutant
from oracle.contract import Outcome
from oracle.recurrence.delta_behaviours import INT32_ELEMENTS, VALUE_BLOCK
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_outcome import is_null, outcome
from oracle.recurrence.delta_walk import Rules, walk
from oracle.recurrence.words import POISON


def observed(legal: Outcome) -> dict[str, Any]:
    """An observation that is exactly what ``legal`` says."""
    plain = {name: legal[name] for name in ("outside", "kept")}
    return plain | {name: [within.value for within in legal[name]] for name in ("output", "states", "state")}


def walking(name: str, fault: str, meaning: str, rules: Callable[[], Rules]) -> Mutant:
    """A mutant with other rules."""
    return Mutant(name, fault, meaning, lambda case: observed(outcome(case, walk(case, rules()))))


Change = Callable[[DeltaCase, Outcome, dict[str, Any]], None]


def leaving(name: str, fault: str, meaning: str, change: Change) -> Mutant:
    """A mutant that computes right; ``change`` is what it leaves behind."""

    def observe(case: DeltaCase) -> dict[str, Any]:
        legal = outcome(case, walk(case))
        seen = observed(legal)
        change(case, legal, seen)
        return seen

    return Mutant(name, fault, meaning, observe)


def _real(case: DeltaCase) -> list[tuple[int, Request]]:
    return [(i, r) for i, r in enumerate(case.requests) if not is_null(r)]


def _null_row_written(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    if len(_real(case)) < len(case.requests) and case.operation != "verify":
        seen["kept"] = prod(case.entry)


def _verify_writes_pool(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    if case.operation == "verify":
        seen["state"] = [s[-1] if len(s) else old for s, old in zip(seen["states"], seen["state"], strict=True)]


def _slot_not_written(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    if case.operation in ("prefill", "decode"):
        start = walk(case).start.value
        seen["state"] = [start[i] for i in range(len(case.requests))]


def _states_late(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    if case.operation in ("verify", "accepted"):
        start = walk(case).start.value
        seen["states"] = [np.concatenate([start[i : i + 1], s])[: len(s)] for i, s in enumerate(seen["states"])]


def _first_block(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    for name in ("output", "states"):
        seen[name] = [np.where(np.arange(case.value_dim) < VALUE_BLOCK, s, POISON) for s in seen[name]]


def _state_transposed(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    def turned(state: np.ndarray) -> np.ndarray:
        return np.swapaxes(state, -1, -2).reshape(state.shape)

    if case.operation != "verify":
        seen["state"] = [turned(s) for s in seen["state"]]
    seen["states"] = [turned(s) for s in seen["states"]]


def _wrapped_slot(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    """Far slots are read as 0 and written in front of the pool."""
    far = [s for _, r in _real(case) for s in (r.slot, *r.table) if s != NONE and s >= case.slots // 2]
    if case.index_dtype == "int32" and case.gap * prod(case.entry) >= INT32_ELEMENTS and far:
        seen["outside"] = "state pool: written before the buffer"


def _wrapped_row(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
    if case.index_dtype == "int32" and case.row_gap * case.steps * prod(case.entry) >= INT32_ELEMENTS:
        seen["states"] = [s * 0.0 for s in seen["states"]]


def _beyond(field: str) -> Change:
    """One cell, the one with the largest bound, moved just out of it."""

    def change(case: DeltaCase, legal: Outcome, seen: dict[str, Any]) -> None:
        seen[field] = beyond(legal[field], seen[field])

    return change


SHARED = (
    walking("decay_forgotten", "missing_gate", "the state does not fade", formulas.NoDecay),
    walking("fades_last", "wrong_order", "the state fades after the token was written", formulas.FadesLast),
    walking(
        "corrects_unfaded", "wrong_order", "the correction is read before the state fades", formulas.CorrectsUnfaded
    ),
    walking("no_correction", "missing_term", "what the state knows of a key is not taken off", formulas.NoCorrection),
    walking("beta_forgotten", "missing_gate", "beta is taken as 1", formulas.NoBeta),
    walking("beta_on_the_value", "wrong_side", "beta scales the value and not the correction", formulas.BetaOnValue),
    walking("reads_before_writing", "wrong_order", "a token's output does not see the token", formulas.ReadsBefore),
    walking("scaled_twice", "scale", "queries are scaled twice", formulas.ScaleTwice),
    walking("own_scale_ignored", "scale", "queries are scaled by 1 / sqrt(key size) anyway", formulas.OwnScaleIgnored),
    walking("keys_not_normalised", "normalisation", "only queries are normalised", formulas.KeysNotNormalised),
    walking("epsilon_too_small", "normalisation", "a short key is normalised with 10^-12", formulas.EpsilonTooSmall),
    walking(
        "epsilon_outside", "normalisation", "epsilon is added to the length, not to its square", formulas.EpsilonOutside
    ),
    walking("heads_in_turn", "wrong_head", "value head i uses key head i modulo their number", formulas.HeadsInTurn),
    walking("last_key_channel_lost", "tail", "the last key channel is not read", formulas.LastKeyChannel),
    leaving("first_block_only", "tail", f"only the first {VALUE_BLOCK} value channels are written", _first_block),
    walking("bias_forgotten", "missing_gate", "dt_bias is not added", formulas.NoBias),
    walking("rate_not_exponentiated", "gate_form", "A_log is used as the rate itself", formulas.RateNotExponentiated),
    walking("softplus_ends_early", "gate_form", "softplus is the identity above 2", formulas.EarlyThreshold),
    walking("beta_not_squashed", "gate_form", "beta is its input, not the sigmoid of it", formulas.BetaNotSquashed),
    walking("all_start_with_the_first", "wrong_slot", "all requests start from one state", formulas.StartsWithTheFirst),
    walking("never_fresh", "wrong_slot", "a request that starts from 0 starts from its slot", formulas.NeverFresh),
    walking(
        "accepted_ignored",
        "off_by_one",
        "requests start from the first slots of their tables",
        formulas.AcceptedIgnored,
    ),
    walking(
        "accepted_too_far", "off_by_one", "requests start one slot behind their last step", formulas.AcceptedTooFar
    ),
    walking("accepted_unbounded", "missing_check", "accepted 0 starts from the row before", formulas.AcceptedUnbounded),
    walking("tree_as_chain", "wrong_parent", "every token continues the token before it", formulas.TreeAsChain),
    walking("tree_from_the_root", "wrong_parent", "every token continues the first one", formulas.TreeFromTheRoot),
    walking(
        "split_from_the_start",
        "lost_state",
        "the second call does not see the first one's state",
        formulas.SplitFromTheStart,
    ),
    leaving("null_row_written", "missing_check", "a null row's state goes to some slot", _null_row_written),
    leaving("verify_writes_the_pool", "lost_state", "verify leaves its last state in the slot", _verify_writes_pool),
    leaving("slot_not_written", "lost_state", "the slot keeps the state before the call", _slot_not_written),
    leaving("states_one_step_late", "off_by_one", "a step's state is the one before its token", _states_late),
    leaving("state_transposed", "wrong_stride", "keys and values of a stored state are exchanged", _state_transposed),
    leaving("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements", _wrapped_slot),
    leaving("row_offset_in_32_bits", "wrap", "row times stride wraps at 2^31 elements", _wrapped_row),
    leaving("output_beyond_its_bound", "rounding", f"one output is off by {BEYOND} times its bound", _beyond("output")),
    leaving("state_beyond_its_bound", "rounding", f"a state cell is off by {BEYOND} times its bound", _beyond("state")),
    leaving(
        "step_beyond_its_bound", "rounding", f"a step's cell is off by {BEYOND} times its bound", _beyond("states")
    ),
)
