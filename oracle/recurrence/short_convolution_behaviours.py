"""The semantic events that a case of recurrence.short_convolution can show."""

from __future__ import annotations

from oracle.recurrence.short_convolution_case import NONE, ShortConvolutionCase
from oracle.trace import Trace

INT32_ELEMENTS = 2**31  # an element offset from here on does not fit 32 bits
TOKEN_BLOCK, CHANNEL_BLOCK = 32, 128  # tokens and channels of the smallest program seen

BEHAVIOURS = {
    "gated": "gates in front of and behind the convolution",
    "own_residual": "the input is added",
    "other_residual": "a residual of its own is added",
    "plain": "nothing is added",
    "decode": "one token after the line",
    "verify": "draft tokens, one line a step",
    "prefill": "packed requests of any length",
    "silu": "the activation is SiLU",
    "linear": "there is no activation",
    "dilated": "inputs several tokens apart",
    "null_row": "a row of the batch has slot -1",
    "padding_steps": "a verify has fewer real tokens than steps",
    "no_real_step": "a verify has no real token",
    "shorter_than_line": "a request has fewer tokens than its line",
    "initial_state": "a prefill goes on from its slot's line",
    "no_initial_state": "a prefill starts from zeros",
    "several_token_blocks": "a request has more tokens than one program takes",
    "several_channel_blocks": "there are more channels than one program takes",
    "unequal_lengths": "requests of one call have different lengths",
    "sixteen_bit": "inputs have a 16-bit type",
    "slot_offset_beyond_int32": "a slot used lies 2^31 elements or more into the pool",
    "stale_not_a_number": "a line that must not be used is NaN",
}


def show(case: ShortConvolutionCase, trace: Trace) -> None:
    """Put the behaviours of ``case`` into the trace."""
    live = [r for r in case.requests if r.slot != NONE]
    prefill, verify = case.operation == "prefill", case.operation == "verify"
    far = [r for r in live if case.gap and r.slot >= case.slots // 2]
    facts = {
        case.form: True,
        case.operation: bool(live),
        case.activation if case.activation == "silu" and case.form != "gated" else "linear": True,
        "dilated": case.dilation > 1,
        "null_row": len(live) < len(case.requests),
        "padding_steps": verify and any(0 < r.valid < r.length for r in live),
        "no_real_step": verify and any(r.valid == 0 for r in live),
        "shorter_than_line": prefill and any(r.length < case.reach for r in live),
        "initial_state": prefill and any(r.initial for r in live),
        "no_initial_state": any(not r.initial for r in live),
        "several_token_blocks": any(r.length > TOKEN_BLOCK for r in live),
        "several_channel_blocks": case.channels > CHANNEL_BLOCK,
        "unequal_lengths": len({r.length for r in live}) > 1,
        "sixteen_bit": case.dtype != "float32",
        "slot_offset_beyond_int32": any(
            (r.slot + case.gap) * case.channels * case.reach >= INT32_ELEMENTS for r in far
        ),
        "stale_not_a_number": any(r.stale for r in live),
    }
    for name, shown in facts.items():
        if shown:
            trace.behaviour(name)
