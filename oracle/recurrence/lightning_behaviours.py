"""Which semantic events a case of recurrence.lightning shows."""

from __future__ import annotations

from oracle.recurrence.lightning_case import NONE, LightningCase, decays
from oracle.recurrence.lightning_walk import SMALL_BLOCK, SPLIT_DIM

INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
LARGE_BLOCK = 256  # tokens that the kernels seen take as one block at most

BEHAVIOURS = {
    "decoded": "one token in one call",
    "several_rounds": "a state is carried through the pool from call to call",
    "verified_chain": "several drafts of a chain are verified",
    "scratch_longer_than_call": "the scratch has room for more steps than the call makes",
    "accepted_first": "only the first token of a longer round counts",
    "accepted_inside": "some tokens of the round before count",
    "accepted_last": "all tokens of a longer round count",
    "accepted_nothing": "hostile: no token counts, not even the one before the drafts",
    "two_dimensional_table": "a request has more slots than this call has tokens",
    "prefilled": "tokens are taken in blocks, on top of a state",
    "nothing_before": "a prefill starts from nothing",
    "one_token_each": "every request of a prefill has one token",
    "several_blocks": f"a prefill of more than one block of {SMALL_BLOCK} tokens",
    "several_large_blocks": f"a prefill of more than one block of {LARGE_BLOCK} tokens",
    "whole_blocks": f"the last block of {SMALL_BLOCK} tokens is full",
    "split": "a prefill in two calls, the state carried through the pool",
    "tracked_on_the_way": "a prefill saves a state before its last token",
    "tracked_at_the_end": "a prefill saves the state after its last token",
    "lengths_differ": "requests have different numbers of tokens",
    "null_row": "a row has slot -1",
    "several_heads": "more than one head, each with its decay",
    "no_decay": "a head forgets nothing",
    "scaled_queries": "queries are divided by the square root of head_dim",
    "sixteen_bit_state": "states are stored in 16 bits",
    "sixteen_bit_input": "inputs and outputs have 16 bits",
    "parts_of_the_keys": f"a head has more than {SPLIT_DIM} keys: several programs may add parts",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
    "row_offset_beyond_int32": "a scratch row used lies 2^31 elements or more into the scratch",
}


def shown(case: LightningCase) -> list[str]:
    """The names of the events that ``case`` shows."""
    decode, verify, prefill = (case.operation == n for n in ("decode", "verify", "prefill"))
    rows = [r for r in case.requests if not r.null]
    counted = [r for r in rows if case.operation == "accepted" and len(r.slots) > 1]
    far = [s for r in rows for s in (*r.slots, r.track_slot) if s >= case.slots // 2 and case.gap]
    last_row = max((i for i, r in enumerate(case.requests) if not r.null), default=NONE)
    longest = max((r.length for r in rows), default=0)
    facts = {
        "decoded": decode and any(r.length == 1 for r in rows),
        "several_rounds": decode and longest > 1,
        "verified_chain": verify and longest > 1,
        "scratch_longer_than_call": verify and 0 < longest < case.steps,
        "accepted_first": any(r.accepted == 1 for r in counted),
        "accepted_inside": any(1 < r.accepted < len(r.slots) for r in counted),
        "accepted_last": any(r.accepted == len(r.slots) for r in counted),
        "accepted_nothing": any(r.accepted == 0 for r in rows),
        "two_dimensional_table": any(r.length < len(r.slots) for r in counted),
        "prefilled": prefill and any(r.initial for r in rows),
        "nothing_before": any(not r.initial for r in rows),
        "one_token_each": prefill and all(r.length == 1 for r in case.requests) and bool(rows),
        "several_blocks": prefill and longest > SMALL_BLOCK,
        "several_large_blocks": prefill and longest > LARGE_BLOCK,
        "whole_blocks": prefill and any(r.length % SMALL_BLOCK == 0 for r in rows),
        "split": any(r.length > case.split > 0 for r in rows),
        "tracked_on_the_way": any(0 < r.track_length < r.length for r in rows),
        "tracked_at_the_end": any(r.track_length == r.length for r in rows),
        "lengths_differ": len({r.length for r in rows}) > 1,
        "null_row": len(rows) < len(case.requests),
        "several_heads": bool(rows) and case.heads > 1,
        "no_decay": bool(rows) and bool((decays(case) == 0).any()),
        "scaled_queries": bool(rows) and case.scaled,
        "sixteen_bit_state": bool(rows) and case.state_dtype != "float32",
        "sixteen_bit_input": bool(rows) and case.input_dtype != "float32",
        "parts_of_the_keys": bool(rows) and not decode and case.head_dim > SPLIT_DIM,
        "slot_offset_beyond_int32": any((s + case.gap) * case.cells >= INT32_ELEMENTS for s in far),
        "row_offset_beyond_int32": last_row != NONE
        and (case.rows_before + last_row) * case.steps * case.cells >= INT32_ELEMENTS,
    }
    return [name for name, happens in facts.items() if happens]
