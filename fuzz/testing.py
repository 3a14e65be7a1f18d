"""Test a function that is not an engine yet.

``assert_conforms`` holds a Python function against a contract: first every frozen
case, then fresh ones through Hypothesis, which shrinks what it finds. The trade: it
runs in the calling process. Nothing isolates a function that crashes or hangs; code
that may do so is attached as an adapter and run by ``specoracle fuzz``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
        returned = _fields(rule, function(columns))
        missing = set(observes or ()) - set(returned)
        if missing:
            raise NotConforming(f"returned no {', '.join(sorted(missing))}")
        observed = undo(rule, case, how, returned)
        found = judge(rule, rule.run(case)[0], observed, rounding_ulp)
        if not found.agrees:
            rows = explain.text(explain.side_by_side(rule, case, observed, rounding_ulp), rule.ordered)
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


def _fields(rule: Contract, returned: Any) -> dict[str, Any]:
    """What the function returned, as a worker would send it: plain values, and arrays for
    the fields that are compared as arrays. Raises NotConforming for anything else."""
    if not isinstance(returned, dict) or not returned:
        raise NotConforming(f"returned {type(returned).__name__} {str(returned)[:60]!r}, not a dict of outcome fields")
    axes = {f.name: f.axis for f in rule.fields}
    unknown = [str(name) for name in returned if name not in axes]
    if unknown:
        raise NotConforming(f"{', '.join(sorted(unknown))}: no field of {rule.name}")
    return {name: _value(name, axes[name], plain(value)) for name, value in returned.items()}


def _value(name: str, axis: str, value: Any) -> Any:
    if axis == "array":
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise NotConforming(f"{name}: must be an array of numbers, found {type(value).__name__}")
        return array
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if axis == "request" and not isinstance(value, list):
        raise NotConforming(f"{name}: must hold one entry a request, found {type(value).__name__}")
    if not _is_plain(value):
        raise NotConforming(f"{name}: must hold numbers, strings and lists of them, found {str(value)[:60]}")
    return value


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, (bool, int, float, str))


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
