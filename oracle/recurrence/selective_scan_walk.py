"""recurrence.selective_scan, token by token, in numbers that carry their bound.

See ``oracle.recurrence.selective_scan`` for the definition. What does not depend on
the state is worked out for all tokens at once; only the state itself is a walk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.recurrence.approximate import Approximate, dot, exact, stack
from oracle.recurrence.selective_scan_case import Request, SelectiveScanCase
from oracle.recurrence.selective_scan_values import Tensors, parents_of


@dataclass(frozen=True)
class Terms:
    """Per token: ``decay`` [T, heads, head_dim or 1, state_dim or 1] of the state, ``push``
    [T, heads, head_dim, state_dim] that is added to it, ``read`` [T, heads, 1, state_dim],
    ``skip`` [T, heads, head_dim] of the input, ``gate`` alike or ``None``."""

    decay: Approximate
    push: Approximate
    read: Approximate
    skip: Approximate
    gate: Approximate | None


def terms(case: SelectiveScanCase, t: Tensors) -> Terms:
    """Everything of the definition that no state enters."""
    heads = np.arange(case.heads) // (case.heads // case.groups)  # the group of each head
    dt = exact(t.dt) + t.dt_bias
    if case.softplus:
        dt = dt.softplus()
    dt = dt[..., None, None] if case.tied else dt[..., None]
    A = t.A[:, None, None] if case.tied else t.A
    B, C = t.B[:, heads, None, :], t.C[:, heads, None, :]
    D = t.D[:, None] if case.tied else t.D
    gate = exact(t.z).silu() if case.gate else None
    return Terms((dt * A).exp(), dt * B * t.x[..., None], exact(C), exact(t.x) * D, gate)


def advance(case: SelectiveScanCase, made: Terms, at: slice, r: Request, start: np.ndarray) -> tuple[Approximate, ...]:
    """Outputs [T, heads, head_dim] and states [T, heads, head_dim, state_dim] of one
    request whose tokens stand ``at`` and whose state is ``start``.

    Between calls a state has been stored. A tree may read a parent's state back from
    where it was stored, or keep it: the bound allows both.
    """
    begin, before = exact(start), exact(start)
    states: list[Approximate] = []
    for t, parent in enumerate(parents_of(r)):
        before = begin if parent < 0 else states[parent]
        if parent >= 0 and (case.tree or case.operation == "decode"):
            before = before.stored(case.state_dtype)
        states.append(before * made.decay[at.start + t] + made.push[at.start + t])
    together = stack(states)
    output = dot(together, made.read[at]) + made.skip[at]
    if made.gate is not None:
        output = output * made.gate[at]
    return output.stored(case.input_dtype), together.stored(case.state_dtype)
