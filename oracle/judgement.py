"""Compare an observation with the legal outcome, field by field in trace order.

The judgement stops at the first illegal field, because later fields of a wrong
run are usually wrong in consequence; identity and explanation both hang on that
first one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle import legal as _legal
from oracle.contract import Contract, Outcome


@dataclass(frozen=True)
class Judgement:
    """Result of comparing one observation with the legal outcome.

    ``field`` is ``None`` when everything observed is legal. ``where`` is the
    request, or the cell of an array, at which the first illegal value stands; for a
    request's array the request and then the cell. ``error_of_bound``: the worst error
    among the numbers judged so far, as a fraction of its bound.
    """

    field: str | None = None
    where: tuple[int, ...] = ()
    expected: Any = None
    observed: Any = None
    kind: str | None = None
    illegal: int = 0
    near_tie: bool = False
    margin_ulp: float | None = None
    error_of_bound: float | None = None

    @property
    def agrees(self) -> bool:
        return self.field is None


def judge(contract: Contract, outcome: Outcome, observed: dict[str, Any], slack_ulp: float = 0.0) -> Judgement:
    """First illegal field of ``observed`` in the contract's trace order.

    Fields that ``observed`` lacks are not judged: a target observes the part of
    the outcome it computes, and its adapter declares which part that is.
    ``slack_ulp`` is how much coarser than the contract's rounding model the
    target's own arithmetic is declared to be. Where the order of the records has a
    meaning, the first record with an illegal field decides.
    """
    near_tie, margin_ulp, worst = False, None, None
    runs, wrong = _Branches(slack_ulp), []
    for field in contract.fields:
        if field.name not in observed:
            continue
        expected, seen = outcome[field.name], observed[field.name]
        if field.axis == "array":
            verdict = _judge_array(contract, field.name, expected, np.asarray(seen))
        else:
            if field.axis == "case":
                verdict = replace(_judge_list(contract, field.name, [expected], [seen], _Branches(slack_ulp)), where=())
            else:
                verdict = _judge_list(contract, field.name, expected, seen, runs)
        worst = _worst((worst, verdict.error_of_bound))
        if not verdict.agrees:
            wrong.append(replace(verdict, error_of_bound=worst))
            if not contract.ordered:
                break
        if verdict.near_tie:
            near_tie, margin_ulp = True, verdict.margin_ulp
    if wrong:  # of a story the earliest step, whatever field shows it
        return min(wrong, key=lambda verdict: verdict.where[:1])
    taken = runs.margins()
    if taken:
        near_tie, margin_ulp = True, min([*taken, *([margin_ulp] if margin_ulp is not None else [])])
    return Judgement(near_tie=near_tie, margin_ulp=margin_ulp, error_of_bound=worst)


class _Branches:
    """Which branches of each request are still possible after the fields so far."""

    def __init__(self, slack_ulp: float):
        self._slack_ulp = slack_ulp
        self._left: dict[int, frozenset[int]] = {}
        self._legal: dict[int, _legal.Branched] = {}

    def admits(self, request: int, legal: Any, observed: Any) -> bool:
        """True when ``observed`` is legal given the earlier fields; narrows the branches."""
        if not isinstance(legal, _legal.Branched):
            return _legal.admits(legal, observed)
        left = legal.branches(observed, self._slack_ulp)
        left &= self._left.get(request, left)
        if not left:
            return False
        self._left[request], self._legal[request] = left, legal
        return True

    def narrowed(self, request: int, legal: Any) -> Any:
        """``legal`` without the branches that the earlier fields exclude."""
        left = self._left.get(request)
        if not isinstance(legal, _legal.Branched) or left is None:
            return legal
        keep = sorted(left)
        return _legal.Branched(
            tuple(legal.values[k] for k in keep),
            tuple(legal.margins_ulp[k] for k in keep),
            tuple(legal.excess_ulp[k] for k in keep),
        )

    def margins(self) -> list[float]:
        """Margins of the requests that did not take the exact branch."""
        return [min(self._legal[r].margins_ulp[k] for k in left) for r, left in self._left.items() if 0 not in left]


def _judge_list(contract: Contract, name: str, expected: list, seen: list, runs: _Branches) -> Judgement:
    if len(seen) != len(expected):
        return Judgement(name, (), f"{len(expected)} entries", f"{len(seen)} entries", "wrong_shape", 1)
    # Arrays may be large: how far their cells are off is worked out once.
    excess = {
        i: e.excess(o) for i, (e, o) in enumerate(zip(expected, seen, strict=True)) if isinstance(e, _legal.Within)
    }

    def admitted(i: int) -> bool:
        if i not in excess:
            return runs.admits(i, expected[i], seen[i])
        return excess[i] is not None and bool((excess[i] <= 1).all())

    wrong = [i for i in range(len(expected)) if not admitted(i)]
    worst = _worst(expected[i].worst(e) for i, e in excess.items())
    if wrong and wrong[0] in excess:
        i = wrong[0]
        numbers = _judge_numbers(contract, name, i, expected[i], seen[i], excess[i])
        return replace(numbers, illegal=numbers.illegal or len(wrong), error_of_bound=worst)
    if wrong:
        i = wrong[0]
        must = runs.narrowed(i, expected[i])
        exact = must.values[0] if isinstance(must, _legal.Branched) else must
        return Judgement(name, (i,), must, seen[i], contract.kind(name, exact, seen[i]), len(wrong))
    ties = [e.margin_ulp for e, o in zip(expected, seen, strict=True) if _legal.is_near_tie(e, o)]
    return Judgement(near_tie=bool(ties), margin_ulp=min(ties, default=None), error_of_bound=worst)


def _worst(shares: Iterable[float | None]) -> float | None:
    """The largest share of a bound, of those that have one."""
    return max((s for s in shares if s is not None), default=None)


def _judge_numbers(
    contract: Contract, name: str, request: int, must: _legal.Within, seen: Any, excess: np.ndarray | None
) -> Judgement:
    """The first cell of a request whose numbers are outside their bounds."""
    if excess is None:
        return Judgement(name, (request,), f"shape {must.value.shape}", f"shape {np.shape(seen)}", "wrong_shape")
    cell = tuple(int(i) for i in np.argwhere(excess > 1)[0])
    observed = float(np.asarray(seen)[cell])
    kind = contract.kind(name, float(must.value[cell]), observed)
    return Judgement(name, (request, *cell), must.cell(cell), observed, kind, int((excess > 1).sum()))


def _judge_array(contract: Contract, name: str, expected: np.ndarray, seen: np.ndarray) -> Judgement:
    if seen.shape != expected.shape:
        return Judgement(name, (), f"shape {expected.shape}", f"shape {seen.shape}", "wrong_shape", 1)
    wrong = np.argwhere(seen != expected)
    if not len(wrong):
        return Judgement()
    where = tuple(int(i) for i in wrong[0])
    was, is_ = int(expected[where]), int(seen[where])
    return Judgement(name, where, was, is_, contract.kind(name, was, is_), len(wrong))
