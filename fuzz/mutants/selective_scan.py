"""Mutants of recurrence.selective_scan.

Each runs the reference's own walk with one thing changed: a tensor, a term, where a
request starts, or what is stored at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fuzz.mutants.beyond import beyond
from fuzz.mutants.mutant import Mutant
from oracle.recurrence.approximate import exact
from oracle.recurrence.selective_scan import reference
from oracle.recurrence.selective_scan_behaviours import WIDEST_BLOCK, shown
from oracle.recurrence.selective_scan_case import Request, SelectiveScanCase
from oracle.recurrence.selective_scan_values import Tensors, tensors
from oracle.recurrence.selective_scan_walk import Terms, advance, terms
from oracle.recurrence.words import POISON, UNTOUCHED
from oracle.trace import Trace

Case = SelectiveScanCase
Observed = dict[str, Any]


def _mutant(
    name: str,
    fault: str,
    meaning: str,
    *,
    view: Callable[[Case], Case] = lambda case: case,
    numbers: Callable[[Case, Tensors], Tensors] = lambda case, t: t,
    made: Callable[[Case, Tensors, Terms], Terms] = lambda case, t, m: m,
    row: Callable[[Case, Request], Request] = lambda case, r: r,
    slot: Callable[[Case, Request], int] = lambda case, r: r.source,
    finish: Callable[[Case, Observed], Observed] = lambda case, seen: seen,
) -> Mutant:
    """``view`` is how the arithmetic sees the case, ``row`` how it sees a request, ``slot``
    where the request's state is read; ``finish`` changes what is observed in the end."""

    def observe(case: Case) -> Observed:
        seen = view(case)
        t = numbers(case, tensors(case))
        m = made(case, t, terms(seen, t))
        outputs, states, first = [], [], 0
        for r in case.requests:
            at = slice(first, first + r.length)
            first = at.stop
            if r.null:
                outputs.append(np.zeros((r.length, *case.entry[:2])))
                states.append(np.full(((1 if case.operation == "decode" else r.length), *case.entry), POISON))
                continue
            output, state = advance(case, m, at, row(case, r), t.pool[slot(case, r)])
            outputs.append(output.value)
            states.append(state.value[-1:] if case.operation == "decode" else state.value)
        return finish(case, {"outside": UNTOUCHED, "kept": 0, "output": outputs, "states": states})

    return Mutant(name, fault, meaning, observe)


def _next_group(case: Case, t: Tensors) -> Tensors:
    """B and C dealt out to the heads in turn."""
    heads = np.arange(case.heads) % case.groups
    return replace(t, B=t.B[:, heads], C=t.C[:, heads])


def _unscaled_push(case: Case, t: Tensors, m: Terms) -> Terms:
    heads = np.arange(case.heads) // (case.heads // case.groups)
    return replace(m, push=exact(t.B[:, heads, None, :] * t.x[..., None]))


def _gate_first(case: Case, observed: Observed) -> Observed:
    """The gate is applied to what the state says, and D x is added behind it."""
    if not case.gate:
        return observed
    t = tensors(case)
    m = terms(case, t)
    outputs, first = [], 0
    for seen in observed["output"]:
        at = slice(first, first + len(seen))
        outputs.append(seen + m.skip.value[at] * (1.0 - m.gate.value[at]))
        first = at.stop
    return observed | {"output": outputs}


def _step_early(case: Case, observed: Observed) -> Observed:
    """Each step stores the state that it started from; only a chain says which."""
    pool = tensors(case).pool
    states = list(observed["states"])
    for i, r in enumerate(case.requests):
        if not r.null and not case.tree and case.operation != "decode":
            states[i] = np.concatenate([pool[r.source][None], states[i][:-1]])
    return observed | {"states": states}


def _last_step_missing(case: Case, observed: Observed) -> Observed:
    states = [s.copy() for s in observed["states"]]
    for s in states:
        s[-1] = POISON
    return observed | {"states": states}


def _changed(when: Callable[[Case], int]) -> Callable[[Case, Observed], Observed]:
    """So many cells changed that had to stay."""
    return lambda case, observed: observed | {"kept": when(case)}


def _pool_advanced(case: Case) -> int:
    return case.cells * sum(not r.null for r in case.requests) if case.operation == "verify" else 0


def _null_written(case: Case) -> int:
    return case.cells * sum(r.null for r in case.requests)


def _unkept_written(case: Case) -> int:
    return case.cells if "token_not_kept" in shown(case) else 0


def _in_place(case: Case, observed: Observed) -> Observed:
    elsewhere = "another_destination" in shown(case)
    return observed | {"kept": case.cells} if elsewhere else observed


def _first_block(case: Case, observed: Observed) -> Observed:
    outputs = [o.copy() for o in observed["output"]]
    for o in outputs:
        o[:, :, WIDEST_BLOCK:] = POISON
    return observed | {"output": outputs}


def _wrapped(behaviour: str, where: str) -> Callable[[Case, Observed], Observed]:
    def finish(case: Case, observed: Observed) -> Observed:
        return observed | {"outside": f"{where}: written before the buffer"} if behaviour in shown(case) else observed

    return finish


def _beyond(field: str) -> Callable[[Case, Observed], Observed]:
    """One cell of the field, moved away by a little more than its bound."""
    return lambda case, observed: observed | {field: beyond(reference(case, Trace())[field], observed[field])}


def _slot_behind(case: Case, r: Request) -> int:
    """The slot in the table's place before the accepted one's: for 0, one that is not the request's."""
    if case.operation != "accepted" or r.accepted:
        return r.source
    return next(s for s in range(case.slots) if s not in r.slots)


def _accepted(by: int) -> Callable[[Case, Request], int]:
    return lambda case, r: r.slots[min(max(r.accepted - 1 + by, 0), len(r.slots) - 1)]


def _chained(case: Case, r: Request) -> Request:
    return replace(r, parents=())


def _grandparents(case: Case, r: Request) -> Request:
    """The root's children are right; further down each token hangs one level too high."""
    return replace(r, parents=tuple(r.parents[p] if p > 0 else p for p in r.parents))


def _without(name: str) -> Callable[[Case, Tensors], Tensors]:
    return lambda case, t: replace(t, **{name: np.zeros_like(getattr(t, name))})


def _first_decay(case: Case, t: Tensors) -> Tensors:
    return replace(t, A=np.broadcast_to(t.A[:1], t.A.shape))


MUTANTS = (
    _mutant("bias_forgotten", "missing_term", "dt is taken without its bias", numbers=_without("dt_bias")),
    _mutant("softplus_forgotten", "missing_term", "dt is taken as it is", view=lambda c: replace(c, softplus=False)),
    _mutant("skip_forgotten", "missing_term", "D x is left out", numbers=_without("D")),
    _mutant("gate_forgotten", "missing_term", "outputs are not gated", view=lambda c: replace(c, gate=False)),
    _mutant("gate_before_skip", "wrong_order", "D x is added behind the gate", finish=_gate_first),
    _mutant("push_without_step", "missing_term", "B x enters the state without dt", made=_unscaled_push),
    _mutant("groups_dealt_in_turn", "wrong_group", "head h reads group h modulo groups", numbers=_next_group,
            view=lambda c: replace(c, groups=c.heads)),
    _mutant("one_decay_for_all", "wrong_head", "every head decays like the first", numbers=_first_decay),
    _mutant("tree_as_chain", "wrong_parent", "a draft continues the draft before it", row=_chained),
    _mutant("grandparent", "wrong_parent", "a draft continues its parent's parent", row=_grandparents),
    _mutant("accepted_one_early", "off_by_one", "starts one step before the accepted one", slot=_accepted(-1)),
    _mutant("accepted_one_late", "off_by_one", "starts one step behind the accepted one", slot=_accepted(1)),
    _mutant("accepted_ignored", "missing_check", "starts from the first step's slot", slot=lambda c, r: r.slots[0]),
    _mutant("nothing_accepted_unchecked", "missing_check", "reads a slot before the request's own", slot=_slot_behind),
    _mutant("states_one_step_early", "off_by_one", "a step stores the state it started from", finish=_step_early),
    _mutant("last_step_missing", "not_stored", "the last state is not stored", finish=_last_step_missing),
    _mutant("verify_advances_pool", "neighbour", "a verify stores into the pool", finish=_changed(_pool_advanced)),
    _mutant("null_row_stored", "sentinel", "a null row is stored into the last slot", finish=_changed(_null_written)),
    _mutant("unkept_token_stored", "sentinel", "destination -1 counts from the end", finish=_changed(_unkept_written)),
    _mutant("stored_in_place", "slot_for_slot", "the destination is ignored", finish=_in_place),
    _mutant("first_block_only", "tail", f"only the first {WIDEST_BLOCK} rows of a head", finish=_first_block),
    _mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements",
            finish=_wrapped("slot_offset_beyond_int32", "pool")),
    _mutant("row_offset_in_32_bits", "wrap", "scratch row times stride wraps at 2^31 elements",
            finish=_wrapped("row_offset_beyond_int32", "scratch")),
    _mutant("output_beyond_bound", "rounding", "one output is off by 1.5 times its bound", finish=_beyond("output")),
    _mutant("state_beyond_bound", "rounding", "one state is off by 1.5 times its bound", finish=_beyond("states")),
)  # fmt: skip
