"""What a case of recurrence.replay can show."""

from __future__ import annotations

from math import prod

from oracle.recurrence.replay_bound import folds
from oracle.recurrence.replay_case import (
    INT32_ELEMENTS,
    NONE,
    ReplayCase,
    Request,
    entry_shape,
    inputs,
    tracked,
    weights,
)
from oracle.recurrence.replay_walk import SOFTPLUS_THRESHOLD

BEHAVIOURS = {
    "folded_with_each_commit": "a ring of one window, folded by every commit",
    "circular_ring": "records follow each other around the end of the ring",
    "decoded": "one token a round",
    "gate_per_channel": "every channel of K has a gate of its own",
    "grouped_heads": "several value heads share a key head",
    "key_and_value_sizes_differ": "K is not V",
    "several_layers": "more than one layer",
    "sixteen_bit_inputs": "inputs and records are bfloat16",
    "sixteen_bit_state": "the stored state is bfloat16",
    "not_normalised": "keys and queries are taken as they are",
    "beyond_softplus_threshold": "a gate input is so large that softplus is the identity",
    "all_accepted": "a window is committed whole",
    "some_rejected": "tokens of a window are never said",
    "only_the_current_token": "one token is committed of a window of several",
    "shorter_window": "a window is not as long as it may be",
    "several_rounds": "a request is verified more than once",
    "history_carried": "a round begins with committed tokens not folded yet",
    "folded_for_room": "a history is folded before a window could overflow the ring",
    "window_longer_than_half_the_ring": "every commit must fold, because two windows do not fit the ring",
    "window_longer_than_the_ring": "a window has more tokens than the ring has places",
    "wrapped": "a window's records pass the end of the ring",
    "ring_filled": "the records fill the ring to the last place",
    "tracked": "a state is saved",
    "tracked_before_the_last_step": "the saved state is earlier than the committed one",
    "tracked_with_history": "a state is saved while earlier tokens are not folded yet",
    "tracked_while_folding": "a state is saved by a commit that folds",
    "track_step_without_slot": "a step is named but no track slot",
    "null_row": "an idle row of the batch",
    "row_is_not_slot": "a request's ring lies at another index than its state",
    "leftover_numbers": "earlier requests left numbers in the ring",
    "leftover_nan": "earlier requests left NaN in the ring",
    "request_left": "a request is gone while another goes on",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
}


def behaviours(case: ReplayCase) -> set[str]:
    """Names of everything the case shows."""
    real = [r for r in case.requests if r.slot != NONE]
    rounds = [x for r in real for x in r.rounds]
    far = [s for r in real for s in (r.slot, r.track_slot) if case.gap and s >= case.slots // 2]
    facts = {
        "folded_with_each_commit": case.operation == "every",
        "circular_ring": case.operation == "circular",
        "decoded": case.operation == "decode",
        "gate_per_channel": case.gate == "channel",
        "grouped_heads": case.value_heads > case.key_heads,
        "key_and_value_sizes_differ": case.key_size != case.value_size,
        "several_layers": case.layers > 1,
        "sixteen_bit_inputs": case.input_dtype != "float32",
        "sixteen_bit_state": case.state_dtype != "float32",
        "not_normalised": not case.normalise,
        "window_longer_than_half_the_ring": case.operation == "circular" and 2 * case.window > case.ring,
        "window_longer_than_the_ring": case.operation == "circular" and case.window > case.ring,
        "all_accepted": any(x.accepted == x.length > 1 for x in rounds),
        "some_rejected": any(x.accepted < x.length for x in rounds),
        "only_the_current_token": any(x.accepted == 1 < x.length for x in rounds),
        "shorter_window": any(x.length < case.window for x in rounds),
        "several_rounds": any(len(r.rounds) > 1 for r in real),
        "null_row": len(real) < len(case.requests),
        "row_is_not_slot": any(r.row != r.slot for r in real),
        "leftover_numbers": case.leftover == "numbers",
        "leftover_nan": case.leftover == "nan",
        "request_left": len({len(r.rounds) for r in real}) > 1,
        "slot_offset_beyond_int32": any((s + case.gap) * prod(entry_shape(case)) >= INT32_ELEMENTS for s in far),
    }
    if not real:
        return {name for name in ("null_row",) if facts[name]}
    if case.wide_gates:
        largest = max(float((inputs(case, r)["a"] + weights(case)["dt_bias"][:, None]).max()) for r in real)
        facts["beyond_softplus_threshold"] = largest > SOFTPLUS_THRESHOLD
    found = {name for name, shown in facts.items() if shown}
    return found.union(*(_of_request(case, r) for r in real))


def _of_request(case: ReplayCase, request: Request) -> set[str]:
    """What depends on where the ring stands when a round begins."""
    found, base, history = set(), 0, 0
    for j, x in enumerate(request.rounds):
        saves = j in tracked(request)
        if x.track_step != NONE and request.track_slot == NONE:
            found.add("track_step_without_slot")
        if history:
            found.add("history_carried")
        start = (base + history) % case.ring
        if case.operation == "circular" and start + x.length > case.ring:
            found.add("wrapped")
        if history + x.length == case.ring:
            found.add("ring_filled")
        if saves:
            found.add("tracked")
            found |= {"tracked_with_history"} if history else set()
            found |= {"tracked_before_the_last_step"} if x.track_step + 1 < x.accepted else set()
        history += x.accepted
        if case.operation == "every":
            history = 0
        elif folds(case, history, saves):
            found |= {"tracked_while_folding"} if saves else set()
            if case.operation == "circular" and case.fold == "capacity":
                found.add("folded_for_room")
            base, history = (base + history) % case.ring if case.operation == "circular" else 0, 0
    return found
