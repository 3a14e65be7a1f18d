"""The semantic events of a delta-rule case, and the words for its differences."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from oracle.recurrence import words
from oracle.recurrence.delta_case import NONE, DeltaCase, Request
from oracle.recurrence.delta_outcome import OUTPUT_AXES, STATE_AXES, STATES_AXES, is_null
from oracle.recurrence.delta_values import parents_of, tokens, weights
from oracle.recurrence.delta_walk import SOFTPLUS_THRESHOLD
from oracle.trace import Trace

INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
VALUE_BLOCK = 8  # value channels a program takes at least, in the kernels seen
FORGETS = 2.0**-24  # a decay below it leaves nothing of the state in float32
AXES = {"output": OUTPUT_AXES, "states": STATES_AXES, "state": STATE_AXES}

BEHAVIOURS = {
    "decoded": "one token a request advances its state in the pool",
    "prefilled": "several tokens advance a state in the pool",
    "verified": "draft tokens leave one state each, and the pool as it was",
    "accepted_form": "a request starts from the slot of its last accepted step and leaves a state in each step's slot",
    "accepted_first": "it starts from the first slot of its table",
    "accepted_last": "it starts from the last slot of its table",
    "start_overwritten": "the slot that it starts from receives a state",
    "step_not_kept": "a step has no slot of its own",
    "table_wider_than_tokens": "a table has slots that this call does not use",
    "two_dimensional_table": "several requests have tables of several slots",
    "split": "a second call goes on from the state that the first one stored",
    "split_leaves_nothing": "the first call of a split takes all tokens of a request",
    "fresh": "a request starts from 0",
    "tree_branches": "a token continues one that is not the token before it",
    "chain_as_tree": "parents are handed over and make a chain",
    "no_tokens": "a request has no token",
    "ragged_lengths": "requests have different numbers of tokens",
    "null_row": "a row only fills the batch",
    "shared_slot": "two requests verify from one slot",
    "scattered_rows": "a request leaves its states in a scratch row other than its own place",
    "scratch_wider_than_tokens": "a scratch row has room for more steps",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
    "row_offset_beyond_int32": "a scratch row used lies 2^31 elements or more into the scratch",
    "wide_indices": "slots and rows are 64-bit integers",
    "grouped_heads": "several value heads share a key head",
    "several_key_heads": "there is more than one key head",
    "state_not_square": "keys and values differ in size",
    "odd_sizes": "a size is no power of two",
    "several_blocks": f"values are longer than {VALUE_BLOCK}, so that several programs make one state",
    "sixteen_bit_inputs": "inputs and outputs have a 16-bit type",
    "sixteen_bit_state": "states are stored in a 16-bit type",
    "gates_given": "decay and beta are inputs",
    "gates_computed": "decay and beta are computed from weights",
    "beta_per_channel": "every value channel has a beta",
    "beta_rounded": "a computed beta is rounded to 16 bits",
    "softplus_is_identity": "a gate input lies above softplus's threshold",
    "forgets_everything": "a decay leaves nothing of the state",
    "normalised": "queries and keys are normalised",
    "not_normalised": "queries and keys are taken as they are",
    "epsilon_matters": "a normalised key is so short that epsilon decides its length",
    "own_scale": "queries are scaled by something else than 1 / sqrt(key size)",
    "accepted_nothing": "a request has an accepted count of 0",
}


def note(case: DeltaCase, trace: Trace) -> None:
    """Name the events of ``case`` in ``trace``."""
    facts = _options(case) | _requests(case)
    if case.operation == "accepted":
        facts |= _accepted(case)
    if case.operation == "verify":
        facts |= _verify(case)
    brought = [tokens(case, r) for r in case.requests if not is_null(r)]
    facts |= _gates(case, brought)
    for name, shown in facts.items():
        if shown:
            trace.behaviour(name)


def _options(case: DeltaCase) -> dict[str, bool]:
    sides = (case.key_dim, case.value_dim)
    sixteen = case.input_dtype != "float32"
    return {
        "split": case.split > 0,
        "fresh": case.fresh,
        "wide_indices": case.index_dtype == "int64",
        "grouped_heads": case.value_heads > case.key_heads,
        "several_key_heads": case.key_heads > 1,
        "state_not_square": case.key_dim != case.value_dim,
        "odd_sizes": any(n & (n - 1) for n in sides),
        "several_blocks": case.value_dim > VALUE_BLOCK,
        "sixteen_bit_inputs": sixteen,
        "sixteen_bit_state": case.state_dtype != "float32",
        "gates_given": case.gate == "given",
        "gates_computed": case.gate != "given",
        "beta_per_channel": case.beta_per_channel,
        "beta_rounded": case.beta_rounded and sixteen,
        "normalised": case.normalise,
        "not_normalised": not case.normalise,
        "epsilon_matters": case.normalise and case.short_keys,
        "own_scale": case.scale is not None and case.scale != case.key_dim**-0.5,
    }


def _requests(case: DeltaCase) -> dict[str, bool]:
    real = [r for r in case.requests if not is_null(r)]
    slots = [s for r in real for s in (r.slot, *r.table) if s != NONE]
    far = case.gap + max(slots, default=0) if max(slots, default=0) >= case.slots // 2 else 0
    return {
        "decoded": case.operation == "decode" and bool(real),
        "prefilled": case.operation == "prefill" and any(r.length > 1 for r in real),
        "split_leaves_nothing": case.split > 0 and any(0 < r.length <= case.split for r in real),
        "no_tokens": any(r.length == 0 for r in real),
        "ragged_lengths": len({r.length for r in case.requests}) > 1,
        "null_row": len(real) < len(case.requests),
        "slot_offset_beyond_int32": far * prod(case.entry) >= INT32_ELEMENTS,
    }


def _accepted(case: DeltaCase) -> dict[str, bool]:
    real = [r for r in case.requests if not is_null(r)]
    return {
        "accepted_form": bool(real),
        "accepted_first": any(r.accepted == 1 < len(r.table) for r in real),
        "accepted_last": any(r.accepted == len(r.table) > 1 for r in real),
        "start_overwritten": any(0 < r.accepted <= r.length for r in real),
        "step_not_kept": any(NONE in r.table[: r.length] for r in real),
        "table_wider_than_tokens": any(len(r.table) > r.length for r in real),
        "two_dimensional_table": sum(len(r.table) > 1 for r in real) > 1,
        "accepted_nothing": any(r.accepted == 0 for r in real),
    }


def _verify(case: DeltaCase) -> dict[str, bool]:
    real = [r for r in case.requests if not is_null(r)]
    slots = [r.slot for r in real]
    per_row = prod(case.entry) * case.steps
    branching = [r for r in real if parents_of(r) != tuple(range(-1, r.length - 1))]
    return {
        "verified": bool(real),
        "tree_branches": bool(branching),
        "chain_as_tree": any(len(r.parents) > 1 and r not in branching for r in real),
        "shared_slot": len(set(slots)) < len(slots),
        "scattered_rows": any(r.row not in (i, NONE) for i, r in enumerate(case.requests)),
        "scratch_wider_than_tokens": any(r.length < case.steps for r in real),
        "row_offset_beyond_int32": any((r.row + case.row_gap) * per_row >= INT32_ELEMENTS for r in real),
    }


def _gates(case: DeltaCase, brought: list[dict[str, np.ndarray]]) -> dict[str, bool]:
    if case.gate == "given":
        return {"forgets_everything": any((b["g"] < np.log(FORGETS)).any() for b in brought)}
    if case.gate == "bounded":
        return {}
    made = weights(case)
    high = [b["a"] + made["dt_bias"] > SOFTPLUS_THRESHOLD for b in brought]
    rate = np.exp(made["A_log"]).reshape(-1, *[1] * case.per_channel)
    faded = [(-rate * np.logaddexp(0.0, b["a"] + made["dt_bias"]) < np.log(FORGETS)).any() for b in brought]
    return {"softplus_is_identity": any(h.any() for h in high), "forgets_everything": any(faded)}


def account(case: DeltaCase, trace: Trace) -> None:
    """The decisions of ``case`` in their order."""
    trace.step("nothing outside the buffers may change", decides="outside")
    trace.step("inputs and the slots of others are only read", decides="kept")
    for i, request in enumerate(case.requests):
        if is_null(request):
            trace.step("a null row: whatever it computes is dropped", i)
            continue
        start = request.table[max(request.accepted - 1, 0)] if request.table else request.slot
        trace.step("the state before", i, slot=NONE if case.fresh else start)
        trace.step("each token: fade, correct, write, read", i, "output", tokens=request.length)
        if case.operation in ("verify", "accepted"):
            trace.step("the state after each token is kept", i, "states", parents=list(parents_of(request)))
        trace.step("what the slot holds afterwards", i, "state", slot=request.slot)


def say(case: DeltaCase, legal: dict[str, Any], field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field == "outside":
        return f"outside the buffers: {observed}"
    if field == "kept":
        return f"{observed} cells of inputs or of other slots changed; they are only read"
    request = where[0]
    if len(where) == 1:
        return f"request {request}: {field} has the shape {np.shape(observed)}, not {legal[field][request].value.shape}"
    return f"{field} of " + words.cell(legal[field][request], where, float(observed), AXES[field])


def padding(case: DeltaCase) -> Request:
    """A null row."""
    table = (NONE,) if case.operation == "accepted" else ()
    return Request(0, 1, NONE, NONE, (), table, 1 if table else 0)
