"""recurrence.lightning: linear attention with one decay a head.

Definition. Head h of a request has a state S of shape head_dim x head_dim (key, value). A
token brings a query q, a key k and a value v. With the head's decay s >= 0,

    S' = e^-s S + k v^T
    y  = scale q^T S'               scale: 1, or 1 / sqrt(head_dim) where queries are scaled

S' is the state of the token and y its output.

* ``decode``: calls of one token each; the state stands in a slot of the pool and the next
  one is stored there.
* ``verify``: all draft tokens, a chain, in one call. Each token's state is stored in the
  scratch row of the request, one state a step. The pool stays as it is.
* ``accepted``: the request owns several slots, one for each step of the round before, of
  which ``accepted`` tokens count; so its state stands in slot number ``accepted``, counted
  from 1. The tokens are a chain, and each one's state goes to the slot of its step. With
  ``accepted`` 0, which no round leaves behind, only safety is asked: the state comes from
  one of the request's own slots, or is 0.
* ``prefill``: any number of tokens in one call, from the slot's state, or from 0 where
  nothing came before. The state after the last token is stored in the slot, and where a
  request tracks one, the state after so many tokens in its track slot. With a split the
  tokens come in two calls, the second of which goes on from the slot.

A null row has slot -1. Nothing is stored for it, and its output is nobody's. Other slots,
the inputs, and scratch beyond the call's steps stay as they are.

Bounds. Values are float64; the bound of each cell follows from the case (see
``approximate`` and ``lightning_walk``). Products of a prefill may be taken in a tensor
core's format where the case says so: a GPU does, the interpreter does not.

Source: Qin et al., *Lightning Attention-2*, in the recurrent form; null rows, scratch and
tracked states as SGLang and vLLM document their kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.legal import Branched, Within
from oracle.recurrence import words
from oracle.recurrence.approximate import Approximate, exact
from oracle.recurrence.lightning_behaviours import BEHAVIOURS, shown
from oracle.recurrence.lightning_case import NONE, LightningCase, Request, columns, decays, domain, slot_state, tokens
from oracle.recurrence.lightning_walk import advance, blocks
from oracle.trace import Trace

AXES = {"output": ("token", "head", "column"), "states": ("state", "head", "key", "column")}


def reference(case: LightningCase, trace: Trace) -> Outcome:
    """Advance every request from its own state."""
    trace.step("nothing outside the buffers may change", decides="outside")
    trace.step("other slots, inputs and unused scratch stay", decides="kept")
    decay = decays(case)
    outputs, states = [], []
    for i, r in enumerate(case.requests):
        trace.step("find the state", i, slot=r.source, tokens=r.length)
        trace.step("outputs of the tokens", i, "output")
        trace.step("states that are kept", i, "states")
        if r.null:
            output, state = nobodys(case, r)
        elif case.operation == "prefill":
            output, state = prefilled(case, r, decay)
        else:
            output, state = _walked(case, r, decay)
        outputs.append(output)
        states.append(state)
    for name in shown(case):
        trace.behaviour(name)
    return {"outside": words.UNTOUCHED, "kept": 0, "output": outputs, "states": states}


def _walked(case: LightningCase, r: Request, decay: np.ndarray) -> tuple[Any, Any]:
    """Outputs and states of a walk; from each state that it may start from, where nothing was accepted."""
    starts = [slot_state(case, r.source)]
    if not r.accepted:
        starts = [*(slot_state(case, s) for s in r.slots), np.zeros(case.entry)]
    outputs, states = [], []
    for start in starts:
        output, after = advance(case, tokens(case, r), decay, start)
        outputs.append(output.legal())
        states.append((after[-1:] if case.operation == "decode" else after).legal())
    return either(outputs), either(states)


def nobodys(case: LightningCase, r: Request) -> tuple[Within, Within]:
    """A null row: any output; its scratch stays as it was, and there is no other place to look at."""
    kept = {"decode": 1, "prefill": 2}.get(case.operation, r.length)
    if case.operation != "verify":
        return Within.anything(r.length, *case.entry[:2]), Within.anything(kept, *case.entry)
    stays = np.full((kept, *case.entry), words.POISON)
    return Within.anything(r.length, *case.entry[:2]), Within(stays, np.zeros_like(stays))


def prefilled(case: LightningCase, r: Request, decay: np.ndarray) -> tuple[Within, Within]:
    """Outputs, and the tracked state (anything without one) with the slot's behind it."""
    token, state = tokens(case, r), exact(slot_state(case, r.source)) if r.initial else None
    parts, tracked = [], None
    for first, last in _calls(case, r):
        at = (last - first, *((r.track_length,) if r.track_length else ()))
        output, after = blocks(case, {n: v[first:last] for n, v in token.items()}, decay, state, at)
        parts.append(output.legal())
        state = after[0].stored(case.state_dtype)
        tracked = after[1].stored(case.state_dtype) if r.track_length else None
    output = Within(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("value", "error")))
    return output, _pair(tracked, state)


def _calls(case: LightningCase, r: Request) -> list[tuple[int, int]]:
    """First and last token of each call that has some of the request's."""
    middle = min(case.split, r.length) or r.length
    return [(a, b) for a, b in ((0, middle), (middle, r.length)) if a < b]


def _pair(tracked: Approximate | None, final: Approximate) -> Within:
    nothing = Within.anything(*final.value.shape)
    first = nothing if tracked is None else tracked
    return Within(*(np.stack([getattr(first, n), getattr(final, n)]) for n in ("value", "error")))


def either(legal: list[Within]) -> Within | Branched:
    """Any one of several results, the same one in all fields."""
    return legal[0] if len(legal) == 1 else Branched(tuple(legal), (0.0,) * len(legal), (0.0,) * len(legal))


def second(case: LightningCase) -> Outcome:
    """The other way round: decode and verify in closed form, every output a sum over the
    tokens before it; a prefill token by token, its calls joined."""
    decay, outputs, states = decays(case), [], []
    for r in case.requests:
        if r.null:
            output, state = nobodys(case, r)
        else:
            start = slot_state(case, r.source) if r.initial else np.zeros(case.entry)
            made = (_stepped if case.operation == "prefill" else _summed)(tokens(case, r), decay, start, case.scale)
            output, state = Within(made[0], np.zeros_like(made[0])), _kept(case, r, made[1])
        outputs.append(output)
        states.append(state)
    return {"outside": words.UNTOUCHED, "kept": 0, "output": outputs, "states": states}


def _stepped(token: dict[str, np.ndarray], decay: np.ndarray, state: np.ndarray, scale: float) -> tuple:
    keep, outputs, states = np.exp(-decay)[:, None, None], [], []
    for q, k, v in zip(*(token[n] for n in "qkv"), strict=True):
        state = state * keep + k[:, :, None] * v[:, None, :]
        outputs.append(np.einsum("hk,hkv->hv", q, state) * scale)
        states.append(state)
    return np.stack(outputs), states


def _summed(token: dict[str, np.ndarray], decay: np.ndarray, start: np.ndarray, scale: float) -> tuple:
    q, k, v = (token[n] for n in "qkv")
    step = np.arange(len(q))
    distance = step[:, None] - step
    weight = np.where(distance >= 0, np.exp(-decay[:, None, None] * np.maximum(distance, 0)), 0.0)
    since = np.exp(-decay[:, None] * (step + 1)).T[..., None]
    output = np.einsum("htj,thd,jhd,jhv->thv", weight, q, k, v, optimize=True)
    output = output + since * np.einsum("thk,hkv->thv", q, start)
    states = np.einsum("htj,jhk,jhv->thkv", weight, k, v, optimize=True) + since[..., None] * start
    return output * scale, states


def _kept(case: LightningCase, r: Request, states: Any) -> Within:
    if case.operation == "prefill":
        tracked = exact(states[r.track_length - 1]) if r.track_length else None
        return _pair(tracked, exact(states[-1]))
    value = np.asarray(states[-1:] if case.operation == "decode" else states)
    return Within(value, np.zeros_like(value))


def explain(case: LightningCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    legal = reference(case, Trace())[field]
    return words.own_claim(legal[where[0]] if where else legal, field, where, observed, AXES.get(field, ()))


def padding(case: LightningCase) -> Request:
    """A null row as long as the others."""
    r = case.requests[0]
    return Request(0, r.length, (NONE,) * len(r.slots), 1, True, NONE, 0)


CONTRACT = Contract(
    name="recurrence.lightning",
    version=1,
    case_type=LightningCase,
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
        Field("output", "request", "what each token reads from its state [token, head, column]"),
        Field("states", "request", "the states that were stored [state, head, key, column]"),
    ),
    behaviours=BEHAVIOURS,
    example=LightningCase(
        operation="decode", heads=1, head_dim=32, scaled=False, multiplier="float32", input_dtype="float32",
        state_dtype="float32", steps=0, slots=2, gap=0, rows_before=0, split=0, seed=0, grain=0.25,
        requests=(Request(seed=1, length=1, slots=(1,), accepted=1, initial=True, track_slot=NONE, track_length=0),),
    ),
)  # fmt: skip
