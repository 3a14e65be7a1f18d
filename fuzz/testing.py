"""Test a function that is not an engine yet.

``assert_conforms`` holds a Python function against a contract: first every frozen
case, then fresh ones through Hypothesis, which shrinks what it finds. The trade: it
runs in the calling process. Nothing isolates a function that crashes or hangs; code
that may do so is attached as an adapter and run by ``specoracle fuzz``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz import corpus
from fuzz.executor import Columns
from fuzz.presentation import PLAIN, Presentation, present, undo
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import drawn_by_hypothesis
from fuzz.worker.serve import plain
from oracle import contracts, explain
from oracle.contract import Contract
from oracle.judgement import judge


class NotConforming(AssertionError):
    """What ``assert_conforms`` found, explained."""


def accept_all(case: Any) -> str | None:
    return None


def assert_conforms(
    function: Callable[[Any], dict[str, Any]],
    *,
    contract: str,
    observes: tuple[str, ...] | None = None,
    accepts: Callable[[Any], str | None] = accept_all,
    max_examples: int = 200,
    rounding_ulp: float = 0.0,
) -> int:
    """Raise AssertionError with an explanation at the smallest case found on which
    ``function`` does what the contract does not allow. Returns how many cases ran.

    function      case columns (``contract.columns``: NumPy arrays and scalars as
                  attributes) -> {outcome field: value}; arrays, tensors or lists
    observes      the fields it must return, by default whichever it returns
    accepts       case columns -> ``None``, or why the function is not shown the case
    rounding_ulp  how much coarser than the contract's rounding model it computes

    Raises KeyError for an unknown contract, and ValueError when no case was accepted.
    """
    rule, ran = contracts.get(contract), 0

    def check(case: Any, how: Presentation) -> None:
        nonlocal ran
        columns = Columns(rule.columns(present(rule, case, how)))
        if accepts(columns) is not None:
            return
        ran += 1
        returned = _lists(rule, plain(function(columns)))
        missing = set(observes or ()) - set(returned)
        if missing:
            raise NotConforming(f"returned no {', '.join(sorted(missing))}")
        unknown = set(returned) - {f.name for f in rule.fields}
        if unknown:
            raise NotConforming(f"{', '.join(sorted(unknown))}: no field of {contract}")
        observed = undo(rule, case, how, returned)
        found = judge(rule, rule.run(case)[0], observed, rounding_ulp)
        if not found.agrees:
            rows = explain.text(explain.side_by_side(rule, case, observed, rounding_ulp))
            shown = f"shown with: {', '.join(how.names())}\n" if how.names() else ""
            claim = explain.sentence(rule, case, found)
            raise NotConforming("\n".join([claim, "", *rows, "", f"{shown}case: {explain.compact(case)}"]))

    for _, frozen in corpus.load():
        if frozen.contract == contract:
            check(frozen.case, PLAIN)
    _with_hypothesis(contract, check, max_examples)
    if not ran:
        raise ValueError(f"no case of {contract} was accepted, so nothing was tested")
    return ran


def _lists(rule: Contract, returned: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists, but for the fields that are compared as arrays."""
    arrays = {f.name for f in rule.fields if f.axis == "array"}
    return {k: v.tolist() if k not in arrays and hasattr(v, "tolist") else v for k, v in returned.items()}


def _with_hypothesis(contract: str, check: Callable[[Any, Presentation], None], max_examples: int) -> None:
    import hypothesis
    from hypothesis import HealthCheck

    @hypothesis.settings(
        max_examples=max_examples, database=None, deadline=None, derandomize=True, print_blob=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @hypothesis.given(drawn_by_hypothesis(shown_case(contract)))
    def fresh(drawn: tuple[tuple[Any, Presentation], list[int]]) -> None:
        check(*drawn[0])

    try:
        fresh()
    except NotConforming as found:  # without Hypothesis's print of the whole drawn value
        raise NotConforming(str(found)) from None
