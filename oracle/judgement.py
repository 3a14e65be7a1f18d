"""Compare an observation with the legal outcome, field by field in trace order.

The judgement stops at the first illegal field, because later fields of a wrong
run are usually wrong in consequence; identity and explanation both hang on that
first one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle import legal as _legal
from oracle.contract import Contract, Outcome


@dataclass(frozen=True)
class Judgement:
    """Result of comparing one observation with the legal outcome.

    ``field`` is ``None`` when everything observed is legal. ``where`` is the
    request, or the cell of an array, at which the first illegal value stands.
    """

    field: str | None = None
    where: tuple[int, ...] = ()
    expected: Any = None
    observed: Any = None
    kind: str | None = None
    illegal: int = 0
    near_tie: bool = False
    margin_ulp: float | None = None

    @property
    def agrees(self) -> bool:
        return self.field is None


def judge(contract: Contract, outcome: Outcome, observed: dict[str, Any]) -> Judgement:
    """First illegal field of ``observed`` in the contract's trace order.

    Fields that ``observed`` lacks are not judged: a target observes the part of
    the outcome it computes, and its adapter declares which part that is.
    """
    near_tie, margin_ulp = False, None
    for field in contract.fields:
        if field.name not in observed:
            continue
        expected, seen = outcome[field.name], observed[field.name]
        if field.axis == "array":
            verdict = _judge_array(contract, field.name, expected, np.asarray(seen))
        else:
            if field.axis == "case":
                verdict = replace(_judge_list(contract, field.name, [expected], [seen]), where=())
            else:
                verdict = _judge_list(contract, field.name, expected, seen)
        if not verdict.agrees:
            return verdict
        if verdict.near_tie:
            near_tie, margin_ulp = True, verdict.margin_ulp
    return Judgement(near_tie=near_tie, margin_ulp=margin_ulp)


def _judge_list(contract: Contract, name: str, expected: list, seen: list) -> Judgement:
    if len(seen) != len(expected):
        return Judgement(name, (), f"{len(expected)} entries", f"{len(seen)} entries", "wrong_shape", 1)
    wrong = [i for i, (e, o) in enumerate(zip(expected, seen, strict=True)) if not _legal.admits(e, o)]
    if wrong:
        i = wrong[0]
        kind = contract.kind(name, expected[i], seen[i])
        return Judgement(name, (i,), expected[i], seen[i], kind, len(wrong))
    ties = [e.margin_ulp for e, o in zip(expected, seen, strict=True) if _legal.is_near_tie(e, o)]
    return Judgement(near_tie=bool(ties), margin_ulp=min(ties, default=None))


def _judge_array(contract: Contract, name: str, expected: np.ndarray, seen: np.ndarray) -> Judgement:
    if seen.shape != expected.shape:
        return Judgement(name, (), f"shape {expected.shape}", f"shape {seen.shape}", "wrong_shape", 1)
    wrong = np.argwhere(seen != expected)
    if not len(wrong):
        return Judgement()
    where = tuple(int(i) for i in wrong[0])
    was, is_ = int(expected[where]), int(seen[where])
    return Judgement(name, where, was, is_, contract.kind(name, was, is_), len(wrong))
