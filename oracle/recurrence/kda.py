"""recurrence.kda: the gated delta rule in which every key channel fades by itself.

Definition. As ``recurrence.gated_delta``, but the log decay g of a token is a vector
over the K key channels of each value head, and row i of the state fades by e^g_i:

    S <- diag(e^g) S
    S <- S + k (x) beta (v - k . S)
    o  = scale q . S

Computed gates take ``a`` and ``dt_bias`` per value head and key channel and ``A_log``
per value head, and come in two forms:

    softplus   g = -e^A_log softplus(a + dt_bias)
    bounded    g = lower_bound / (1 + e^-(e^A_log (a + dt_bias))),  lower_bound < 0

Everything else, slots, trees, accepted counts and the judgement, is the same.

Source: Kimi Team, *Kimi Linear* (2025), equation 1; the bounded form is that of its
published code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.contract import Contract, Outcome, require
from oracle.recurrence import delta_behaviours, words
from oracle.recurrence.delta_case import DeltaCase, Request
from oracle.recurrence.delta_case import domain as delta_domain
from oracle.recurrence.delta_defensive import harmless
from oracle.recurrence.delta_outcome import outcome
from oracle.recurrence.delta_second import second
from oracle.recurrence.delta_values import columns
from oracle.recurrence.delta_walk import walk
from oracle.recurrence.gated_delta import FIELDS
from oracle.trace import Trace

GATES = ("given", "softplus", "bounded")


@dataclass(frozen=True)
class KdaCase(DeltaCase):
    """One call. See ``DeltaCase``; ``gate`` may also be ``bounded``.

    lower_bound  bounded: the least log decay, below 0; otherwise 0
    """

    lower_bound: float = 0.0

    @property
    def per_channel(self) -> bool:
        return True


BEHAVIOURS = delta_behaviours.BEHAVIOURS | {"gates_bounded": "log decays are bounded from below"}


def domain(case: KdaCase) -> str:
    """``functional``, or ``defensive`` with an accepted count of 0; raises InvalidCase outside the domain."""
    bounded = case.gate == "bounded"
    require(bounded == (case.lower_bound != 0.0), "lower_bound: 0 unless gates are bounded")
    require(-64.0 <= case.lower_bound <= 0.0, "lower_bound: must be -64 to 0")
    return delta_domain(case, GATES)


def reference(case: KdaCase, trace: Trace) -> Outcome:
    """Walk all requests token by token."""
    delta_behaviours.account(case, trace)
    delta_behaviours.note(case, trace)
    if case.gate == "bounded":
        trace.behaviour("gates_bounded")
    return harmless(case, outcome(case, walk(case)))


def explain(case: KdaCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    return delta_behaviours.say(case, reference(case, Trace()), field, where, observed)


CONTRACT = Contract(
    name="recurrence.kda",
    version=1,
    case_type=KdaCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=words.kind,
    say=explain,
    padding=delta_behaviours.padding,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=KdaCase(
        operation="prefill", key_heads=1, value_heads=1, key_dim=4, value_dim=4, input_dtype="float32",
        state_dtype="float32", index_dtype="int32", gate="given", beta_per_channel=False, beta_rounded=False,
        normalise=False, scale=None, fresh=False, strong_gates=False, short_keys=False, grain=0.25, split=0, seed=0,
        slots=2, gap=0, rows=0, row_gap=0, steps=0, requests=(Request(1, 2, 1, -1, (), (), 0),), lower_bound=0.0,
    ),
)  # fmt: skip
