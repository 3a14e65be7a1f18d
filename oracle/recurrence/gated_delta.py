"""recurrence.gated_delta: a state that fades, forgets one key at a time and learns, token by token.

Definition. A state S is a matrix [K, V] for each value head. A token brings a query
q and a key k of K channels, a value v of V channels, a log decay g <= 0 and a rate
beta in [0, 1]. It advances the state and reads an output:

    S <- e^g S
    S <- S + k (x) beta (v - k . S)
    o  = scale q . S

Value heads share key heads: of n value heads a key head, heads 0 to n - 1 use key
head 0. With ``normalise``, q and k are divided by sqrt(|.|^2 + 10^-6) first. Gates are
given (beta a head or a value channel), or computed per value head from inputs a, b:

    g = -e^A_log softplus(a + dt_bias)     softplus(x) = log(1 + e^x), x itself above 20
    beta = 1 / (1 + e^-b)                  rounded to the inputs' format where the case says so

Which states:

* ``prefill``, ``decode``: the request's slot of the pool (or 0) is where the state
  comes from and where it is left.
* ``verify``: the pool is not touched; the state after each token goes to the request's
  scratch row, step by step. Each token continues its parent, the first one the slot.
* ``accepted``: a request has one slot per verify step. It starts from the slot of the
  last accepted step, ``table[accepted - 1]``, and step j leaves its state in
  ``table[j]``, also when that is the slot it started from.

A state is kept in float32 while a chain runs. What is stored is rounded to the pool's
format; a tree's tokens, and a second call, continue what was stored. Null rows (slot
-1) may compute anything and change nothing but their own scratch row.

Judgement. float64 with a running error bound (``oracle.recurrence.approximate``), exact
for what must not change. An accepted count of 0 is hostile: then the request may start
from any of its own slots or from 0 or do nothing; it may not start from another's.

Source: Yang et al., *Gated Delta Networks* (2024), equation 10; slots, trees and
accepted counts as engines hand them over.
"""

from __future__ import annotations

from typing import Any

from oracle.contract import Contract, Field, Outcome
from oracle.recurrence import delta_behaviours, words
from oracle.recurrence.delta_case import DeltaCase, Request
from oracle.recurrence.delta_case import domain as delta_domain
from oracle.recurrence.delta_defensive import harmless
from oracle.recurrence.delta_outcome import outcome
from oracle.recurrence.delta_second import second
from oracle.recurrence.delta_values import columns
from oracle.recurrence.delta_walk import walk
from oracle.trace import Trace

GATES = ("given", "softplus")


def domain(case: DeltaCase) -> str:
    """``functional``, or ``defensive`` with an accepted count of 0; raises InvalidCase outside the domain."""
    return delta_domain(case, GATES)


def reference(case: DeltaCase, trace: Trace) -> Outcome:
    """Walk all requests token by token."""
    delta_behaviours.account(case, trace)
    delta_behaviours.note(case, trace)
    return harmless(case, outcome(case, walk(case)))


def explain(case: DeltaCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    return delta_behaviours.say(case, reference(case, Trace()), field, where, observed)


FIELDS = (
    Field("outside", "case", "what was written outside the buffers' own cells, in words"),
    Field("kept", "case", "cells of inputs and of slots that nobody writes which changed"),
    Field("output", "request", "outputs [tokens, value heads, V]"),
    Field("states", "request", "the state after each verify step [steps, value heads, K, V]"),
    Field("state", "request", "what the request's slot holds afterwards [value heads, K, V]"),
)

CONTRACT = Contract(
    name="recurrence.gated_delta",
    version=1,
    case_type=DeltaCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=words.kind,
    say=explain,
    padding=delta_behaviours.padding,
    fields=FIELDS,
    behaviours=delta_behaviours.BEHAVIOURS,
    example=DeltaCase(
        operation="prefill", key_heads=1, value_heads=1, key_dim=4, value_dim=4, input_dtype="float32",
        state_dtype="float32", index_dtype="int32", gate="given", beta_per_channel=False, beta_rounded=False,
        normalise=False, scale=None, fresh=False, strong_gates=False, short_keys=False, grain=0.25, split=0, seed=0,
        slots=2, gap=0, rows=0, row_gap=0, steps=0, requests=(Request(1, 2, 1, -1, (), (), 0),),
    ),
)  # fmt: skip
