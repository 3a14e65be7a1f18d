"""recurrence.selective_scan: the state-space recurrence of Mamba 2, one token at a time.

Definition. Head h of a request has a state S of shape head_dim x state_dim. A token
brings x (head_dim), a time step dt, B and C (state_dim, shared by the heads of a
group) and a gate z (head_dim). With A < 0, dt bias and D of the head,

    d  = softplus(dt + bias)        or dt + bias; softplus(v) = log(1 + e^v), v above 20
    S' = e^(d A) S + d x B^T
    y  = S' C + D x                 then y silu(z) with a gate; silu(v) = v / (1 + e^-v)

A, dt, bias and D are one number a head when tied; otherwise A has one a cell, the
others one a row of the state. S' is the state of the token and y its output.

* ``decode``: calls of one token each. The state stands in a slot of the pool; the
  next one is stored in the destination, which may be the same slot, and the call
  after goes on from there.
* ``verify``: all draft tokens in one call. Each token's state is advanced from its
  parent's, the first from the slot's, and stored in the scratch row of the request,
  one state a step. The pool stays as it is: nothing is accepted yet.
* ``accepted``: the request owns several slots, one for each step of the round before,
  of which ``accepted`` tokens count; so its state stands in slot number ``accepted``,
  counted from 1. The tokens are a chain, and each one's state goes to the destination
  of its step; -1 keeps it nowhere. With ``accepted`` 0, which no round leaves behind,
  only safety is asked: the state comes from one of the request's own slots, or is 0.

A null row has no slot. Nothing is stored for it, and its output is nobody's. Other
slots, the inputs, and scratch beyond the call's steps stay as they are.

Bounds. Values are float64; the bound of each cell follows from the case (see
``approximate``): float32 arithmetic in any order, states rounded into their dtype
where they are stored, outputs likewise. Over a tree the parent's state may have been
read back from the scratch.

Source: Dao and Gu, *Transformers are SSMs*, sections 2 and 6, in the recurrent form;
null rows, step states and accepted counts as SGLang and vLLM document their kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Branched, Within
from oracle.recurrence import words
from oracle.recurrence.selective_scan_behaviours import BEHAVIOURS, shown
from oracle.recurrence.selective_scan_case import NONE, Request, SelectiveScanCase, domain
from oracle.recurrence.selective_scan_values import columns, parents_of, tensors
from oracle.recurrence.selective_scan_walk import advance, terms
from oracle.trace import Trace

AXES = {"output": ("token", "head", "row"), "states": ("step", "head", "row", "column")}


def reference(case: SelectiveScanCase, trace: Trace) -> Outcome:
    """Advance every request from its own state."""
    trace.step("nothing outside the buffers may change", decides="outside")
    trace.step("other slots, inputs and unused scratch stay", decides="kept")
    numbers = tensors(case)
    made = terms(case, numbers)
    outputs, states, first = [], [], 0
    for i, r in enumerate(case.requests):
        at = slice(first, first + r.length)
        first = at.stop
        trace.step("find the state", i, slot=r.source, tokens=r.length)
        trace.step("outputs of the tokens", i, "output")
        trace.step("states that are kept", i, "states")
        if r.null:
            outputs.append(Within.anything(r.length, *case.entry[:2]))
            states.append(_untouched(case, r))
            continue
        results = [advance(case, made, at, r, s) for s in _starts(case, r, numbers.pool)]
        outputs.append(_branched([output.legal() for output, _ in results]))
        states.append(_branched([_kept(case, r, s.value, s.error) for _, s in results]))
    for name in shown(case):
        trace.behaviour(name)
    return {"outside": words.UNTOUCHED, "kept": 0, "output": outputs, "states": states}


def _starts(case: SelectiveScanCase, r: Request, pool: np.ndarray) -> list[np.ndarray]:
    """The states that the request may start from: one, unless nothing was accepted."""
    if r.accepted:
        return [pool[r.source]]
    return [*(pool[s] for s in r.slots), np.zeros(case.entry)]


def _branched(legal: list[Within]) -> Within | Branched:
    return legal[0] if len(legal) == 1 else Branched(tuple(legal), (0.0,) * len(legal), (0.0,) * len(legal))


def _kept(case: SelectiveScanCase, r: Request, value: np.ndarray, error: np.ndarray) -> Within:
    """Of the states after each token, those that the operation keeps."""
    if case.operation == "decode":
        return Within(value[-1:], error[-1:])
    if case.operation == "verify":
        return Within(value, error)
    somewhere = np.array([d != NONE for d in r.destinations[: r.length]])[:, None, None, None]
    return Within(np.where(somewhere, value, 0.0), np.where(somewhere, error, np.inf))


def _untouched(case: SelectiveScanCase, r: Request) -> Within:
    """A null row's scratch stays as it was; anywhere else it has no place to look at."""
    if case.operation != "verify":
        return Within.anything(1 if case.operation == "decode" else r.length, *case.entry)
    shape = (r.length, *case.entry)
    return Within(np.full(shape, words.POISON), np.zeros(shape))


def second(case: SelectiveScanCase) -> Outcome:
    """In closed form: the state of a token is a sum over the tokens on its path, each
    decayed by the time that passed since, so no state enters another."""
    numbers = tensors(case)
    outputs, states, first = [], [], 0
    for r in case.requests:
        at = slice(first, first + r.length)
        first = at.stop
        if r.null:
            outputs.append(Within.anything(r.length, *case.entry[:2]))
            states.append(_untouched(case, r))
            continue
        token = {n: getattr(numbers, n)[at] for n in ("x", "dt", "B", "C", "z")}
        output, state = _closed(case, r, token, numbers)
        outputs.append(Within(output, np.zeros_like(output)))
        states.append(_kept(case, r, state, np.zeros_like(state)))
    return {"outside": words.UNTOUCHED, "kept": 0, "output": outputs, "states": states}


def _closed(case: SelectiveScanCase, r: Request, token: dict[str, np.ndarray], shared: Any) -> tuple[np.ndarray, ...]:
    heads, head_dim, state_dim = case.entry
    wide = (r.length, heads, head_dim)
    per_row = [np.broadcast_to(v[..., None] if case.tied else v, s) for v, s in (
        (token["dt"], wide), (shared.dt_bias, wide[1:]), (shared.D, wide[1:]),
    )]  # fmt: skip
    A = np.broadcast_to(shared.A[:, None, None] if case.tied else shared.A, case.entry)
    time = per_row[0] + per_row[1]
    if case.softplus:
        time = np.where(time > 20.0, time, np.logaddexp(0.0, np.minimum(time, 20.0)))
    share = heads // case.groups
    B, C = (token[n].repeat(share, axis=1) for n in "BC")
    on_path = np.eye(r.length)  # [token, token before it or itself]
    for t, parent in enumerate(parents_of(r)):
        on_path[t] += on_path[parent] if parent >= 0 else 0.0
    passed = np.einsum("tj,jhp->thp", on_path, time)  # since the start, with the token's own
    since = (passed[:, None] - passed[None])[..., None] * A * on_path[:, :, None, None, None]
    pushes = np.einsum("jhp,jhp,jhn->jhpn", time, token["x"], B)
    state = np.einsum("tj,tjhpn,jhpn->thpn", on_path, np.exp(since), pushes)
    state = state + np.exp(passed[..., None] * A) * shared.pool[r.source]
    output = np.einsum("thpn,thn->thp", state, C) + token["x"] * per_row[2]
    return output * token["z"] / (1.0 + np.exp(-token["z"])) if case.gate else output, state


def explain(case: SelectiveScanCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    legal = reference(case, Trace())[field]
    return words.own_claim(legal[where[0]] if where else legal, field, where, observed, AXES.get(field, ()))


def padding(case: SelectiveScanCase) -> Request:
    """A null row as long as the others."""
    r = case.requests[0]
    nobody, parents = (NONE,) * len(r.slots), tuple(range(-1, r.length - 1)) if case.tree else ()
    return Request(0, r.length, nobody, 1, (NONE,) * len(r.destinations), parents, 0)


CONTRACT = Contract(
    name="recurrence.selective_scan",
    version=1,
    case_type=SelectiveScanCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=words.own_kind,
    say=explain,
    padding=padding,
    fields=(
        Field("outside", "case", "what was written outside the buffers' own cells, in words"),
        Field("kept", "case", "cells of other slots, inputs and unused scratch that changed"),
        Field("output", "request", "what each token reads from its state [token, head, row]"),
        Field("states", "request", "the states that were stored [step, head, row, column]"),
    ),
    behaviours=BEHAVIOURS,
    example=SelectiveScanCase(
        operation="decode", tree=False, heads=2, groups=1, head_dim=4, state_dim=4, tied=True, gate=False,
        softplus=True, input_dtype="float32", state_dtype="float32", steps=0, slots=2, gap=0, rows_before=0, seed=0,
        grain=0.25,
        requests=(Request(seed=1, length=1, slots=(1,), accepted=1, destinations=(1,), parents=(), shift=0),),
    ),
)  # fmt: skip
