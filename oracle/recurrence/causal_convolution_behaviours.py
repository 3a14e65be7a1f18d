"""The semantic events that a case of recurrence.causal_convolution can show."""

from __future__ import annotations

import numpy as np

from oracle.recurrence.causal_convolution_case import NONE, CausalConvolutionCase, path_of
from oracle.trace import Trace

INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
TOKEN_BLOCK, CHANNEL_BLOCK = 8, 256  # tokens and channels that one program takes in the kernels seen

BEHAVIOURS = {
    "decode": "one token after the window",
    "verify_chain": "a chain of draft tokens, one window a step",
    "verify_tree": "a tree of draft tokens, one window a step",
    "accepted_form": "a kept line of inputs with an accepted count",
    "prefill": "packed requests of any length",
    "width_2": "a kernel of width 2",
    "width_3": "a kernel of width 3",
    "width_4": "a kernel of width 4",
    "bias": "a bias is added",
    "silu": "the activation is SiLU",
    "linear": "there is no activation",
    "null_row": "a row of the batch has slot -1",
    "tree_branches": "two draft tokens have one parent",
    "parent_far_back": "a draft token's parent is not the token before it",
    "path_longer_than_window": "a tree path is so long that the slot's window has left its last token's",
    "windows_overlap": "windows slide over one shared line of inputs",
    "scattered_scratch_rows": "a request's scratch row is not its place in the batch",
    "accepted_first": "only the current token of the last call counts",
    "accepted_last": "every token of the last call counts",
    "accepted_between": "some of the draft tokens of the last call count",
    "fewer_tokens_than_steps": "a request has fewer tokens than the longest allows",
    "row_without_tokens": "a row of the batch has a slot and no token",
    "shorter_than_window": "a request has fewer tokens than its window",
    "initial_state": "a prefill goes on from its slot's window",
    "no_initial_state": "a prefill starts from zeros",
    "several_token_blocks": "a request has more tokens than one program takes",
    "several_channel_blocks": "there are more channels than one program takes",
    "unequal_lengths": "requests of one call have different lengths",
    "split": "a prefill comes in two calls",
    "spare_columns": "the pool has more columns than the call needs",
    "window_first": "the pool lies as (columns, channels)",
    "channels_first": "the pool lies as (channels, columns)",
    "sixteen_bit": "inputs have a 16-bit type",
    "mixed_dtypes": "inputs and pool have different types",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
    "token_offset_beyond_int32": "a token lies 2^31 elements or more into the inputs",
    "accepted_zero": "the accepted count is 0",
    "accepted_too_large": "the window of the accepted count ends behind the slot",
    "not_a_number": "an input is NaN",
}


def show(case: CausalConvolutionCase, trace: Trace) -> None:
    """Put the behaviours of ``case`` into the trace."""
    live = [r for r in case.requests if r.slot != NONE]
    trees = [r for r in live if r.parents]
    verify, rolling, prefill = (case.operation == name for name in ("verify", "accepted", "prefill"))
    far = [r for r in live if case.gap and r.slot >= case.slots // 2]
    ends = case.tokens_before + np.cumsum([r.length for r in case.requests])
    facts = {
        "decode": case.operation == "decode" and bool(live),
        "verify_chain": verify and any(not r.parents for r in live),
        "verify_tree": bool(trees),
        "accepted_form": rolling and bool(live),
        "prefill": prefill and bool(live),
        f"width_{case.width}": True,
        "bias": case.bias,
        case.activation if case.activation == "silu" else "linear": True,
        "null_row": len(live) < len(case.requests),
        "tree_branches": any(len(set(r.parents)) < len(r.parents) for r in trees),
        "parent_far_back": any(p != t - 1 for r in trees for t, p in enumerate(r.parents)),
        "path_longer_than_window": any(len(path_of(r, t)) >= case.width for r in trees for t in range(r.length)),
        "windows_overlap": case.overlapping,
        "scattered_scratch_rows": any(r.row not in (i, NONE) for i, r in enumerate(case.requests)),
        "accepted_first": rolling and case.steps > 1 and any(r.accepted == 1 for r in live),
        "accepted_last": rolling and case.steps > 1 and any(r.accepted == case.steps for r in live),
        "accepted_between": rolling and any(1 < r.accepted < case.steps for r in live),
        "fewer_tokens_than_steps": rolling and any(r.length < case.steps for r in live),
        "row_without_tokens": any(r.length == 0 for r in live),
        "shorter_than_window": prefill and any(0 < r.length < case.width - 1 for r in live),
        "initial_state": prefill and any(r.initial and r.length for r in live),
        "no_initial_state": any(not r.initial and r.length for r in live),
        "several_token_blocks": any(r.length > TOKEN_BLOCK for r in live),
        "several_channel_blocks": case.channels > CHANNEL_BLOCK,
        "unequal_lengths": len({r.length for r in live}) > 1,
        "split": case.split > 0 and any(r.length > case.split for r in live),
        "spare_columns": case.spare > 0,
        "window_first": case.window_first,
        "channels_first": not case.window_first,
        "sixteen_bit": case.input_dtype != "float32",
        "mixed_dtypes": case.input_dtype != case.state_dtype,
        "slot_offset_beyond_int32": any(
            (r.slot + case.gap) * case.channels * case.columns >= INT32_ELEMENTS for r in far
        ),
        "token_offset_beyond_int32": int(ends[-1] - 1) * case.channels >= INT32_ELEMENTS,
        "accepted_zero": any(r.accepted == 0 for r in live),
        "accepted_too_large": any(r.accepted > case.most_accepted for r in live),
        "not_a_number": any(r.bad != NONE for r in live),
    }
    for name, shown in facts.items():
        if shown:
            trace.behaviour(name)
