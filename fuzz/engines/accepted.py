"""Accepted counts as recurrent kernels read them, and the hostile count 0.

A count of 0 names the step before a request's first one. Kernels that look it up without a bound find whatever stands
before the row; that is known, and asked of targets of their own, so that its listing hides nothing else about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracle.recurrence.delta_case import NONE

Accepts = Callable[[Any], str | None]
NOTHING_ACCEPTED = "(nothing_accepted)"  # behind the symbol of such a target


def nothing_accepted(case: Any) -> bool:
    """Whether a request that has slots has an accepted count of 0."""
    holds = case.table.max(axis=1, initial=NONE) != NONE
    return case.operation == "accepted" and bool(((case.accepted == 0) & holds).any())


def something_accepted(accepts: Accepts) -> Accepts:
    """What ``accepts`` does, without hostile counts."""

    def narrowed(case: Any) -> str | None:
        return accepts(case) or ("a count of 0 is asked separately" if nothing_accepted(case) else None)

    return narrowed


def only_nothing_accepted(accepts: Accepts) -> Accepts:
    """What ``accepts`` does, with a hostile count."""

    def narrowed(case: Any) -> str | None:
        return accepts(case) or (None if nothing_accepted(case) else "asked about a count of 0 only")

    return narrowed


def behind_zeros(engine: Any, memory: Any, values: Any) -> Any:
    """``values`` [rows, ...] behind a row of zeros, between guard zones: what a count of 0 in the first row finds is
    the same each time, and no request's."""
    whole = memory.zeros((values.shape[0] + 1, *values.shape[1:]), values.dtype)
    table = whole[1:]
    table.copy_(values)
    memory.know("slots", table[None])
    return table


def steps_of(case: Any) -> np.ndarray:
    """How many steps of its table each request uses, int64 [B]: its tokens' and the ones that its count names."""
    return np.maximum(case.length, case.accepted)
