"""Which semantic events a case of recurrence.selective_scan shows."""

from __future__ import annotations

from oracle.recurrence.selective_scan_case import NONE, SelectiveScanCase

INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
WIDEST_BLOCK = 32  # rows of a head that one program of the kernels seen takes at most

BEHAVIOURS = {
    "decoded": "one token in one call",
    "several_rounds": "a state is carried through the pool from call to call",
    "another_destination": "the next state goes to another slot",
    "verified_chain": "several drafts of a chain are verified",
    "tree_branches": "a draft's parent is not the draft before it",
    "scratch_longer_than_call": "the scratch has room for more steps than the call makes",
    "accepted_first": "only the first token of a longer round counts",
    "accepted_inside": "some tokens of the round before count",
    "accepted_last": "all tokens of a longer round count",
    "accepted_nothing": "hostile: no token counts, not even the one before the drafts",
    "two_dimensional_table": "a request has more slots than this call has tokens",
    "token_not_kept": "a token's state is kept nowhere",
    "lengths_differ": "requests have different numbers of tokens",
    "null_row": "a row has no slot",
    "heads_share_a_group": "several heads read one B and C",
    "several_groups": "there is more than one B and C",
    "general_decay": "A has a value for each cell",
    "gated": "outputs are multiplied with silu(z)",
    "step_as_it_is": "time steps are taken without softplus",
    "step_above_threshold": "time steps so large that softplus is the identity",
    "step_vanishes": "time steps so small that the state hardly moves",
    "sixteen_bit_state": "states are stored in 16 bits",
    "sixteen_bit_input": "inputs and outputs have 16 bits",
    "several_blocks": f"a head has more rows than one program takes ({WIDEST_BLOCK})",
    "uneven_state": "state_dim is no power of two",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
    "row_offset_beyond_int32": "a scratch row used lies 2^31 elements or more into the scratch",
}


def shown(case: SelectiveScanCase) -> list[str]:
    """The names of the events that ``case`` shows."""
    verify, accepted = case.operation == "verify", case.operation == "accepted"
    rows = [r for r in case.requests if not r.null]
    counted = [r for r in rows if accepted and len(r.slots) > 1]
    moves = [move for r in rows for move in zip(r.slots, r.destinations, strict=not verify)]
    far = [s for r in rows for s in (*r.slots, *r.destinations) if s >= case.slots // 2 and case.gap]
    last_row = max((i for i, r in enumerate(case.requests) if not r.null), default=NONE)
    facts = {
        "decoded": case.operation == "decode" and any(r.length == 1 for r in rows),
        "several_rounds": case.operation == "decode" and any(r.length > 1 for r in rows),
        "another_destination": any(d not in (NONE, s) for s, d in moves),
        "verified_chain": verify and not case.tree and any(r.length > 1 for r in rows),
        "tree_branches": any(p != t - 1 for r in rows for t, p in enumerate(r.parents)),
        "scratch_longer_than_call": verify and any(r.length < case.steps for r in rows),
        "accepted_first": any(r.accepted == 1 for r in counted),
        "accepted_inside": any(1 < r.accepted < len(r.slots) for r in counted),
        "accepted_last": any(r.accepted == len(r.slots) for r in counted),
        "accepted_nothing": any(r.accepted == 0 for r in rows),
        "two_dimensional_table": any(r.length < len(r.slots) for r in counted),
        "token_not_kept": accepted and any(d == NONE for r in rows for d in r.destinations[: r.length]),
        "lengths_differ": len({r.length for r in rows}) > 1,
        "null_row": any(r.null for r in case.requests),
        "heads_share_a_group": bool(rows) and case.heads > case.groups,
        "several_groups": bool(rows) and case.groups > 1,
        "general_decay": bool(rows) and not case.tied,
        "gated": bool(rows) and case.gate,
        "step_as_it_is": bool(rows) and not case.softplus,
        "step_above_threshold": case.softplus and any(r.shift > 0 for r in rows),
        "step_vanishes": case.softplus and any(r.shift < 0 for r in rows),
        "sixteen_bit_state": bool(rows) and case.state_dtype != "float32",
        "sixteen_bit_input": bool(rows) and case.input_dtype != "float32",
        "several_blocks": bool(rows) and case.head_dim > WIDEST_BLOCK,
        "uneven_state": bool(rows) and case.state_dim & (case.state_dim - 1) != 0,
        "slot_offset_beyond_int32": any((s + case.gap) * case.cells >= INT32_ELEMENTS for s in far),
        "row_offset_beyond_int32": last_row != NONE
        and (case.rows_before + last_row) * case.steps * case.cells >= INT32_ELEMENTS,
    }  # fmt: skip
    return [name for name, happens in facts.items() if happens]
