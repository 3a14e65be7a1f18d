"""What it means that two implementations differ on a case.

What both observe is compared value by value, and the reference then says which side it
takes. A difference in which both sides are legal (an edge of rounding, a free choice) is
reported and not red. Neither side is trusted: two that are wrong alike show no
difference, which is what the gate is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.adapter import Adapter
from fuzz.executor import BUFFERS, summary
from fuzz.verdict import Identity, Kind, Verdict
from oracle.contract import Contract

BOTH_LEGAL = "both_legal"
NO_COMPARISON = (Kind.UNSUPPORTED, Kind.HARNESS_ERROR, Kind.OUT_OF_MEMORY, Kind.INVALID_CASE)


@dataclass(frozen=True)
class Side:
    """One side of a pair: what it is called in words, and where its code is found again."""

    name: str
    engine: str
    target: str


def compare(
    contract: Contract,
    adapter: Adapter,
    sides: tuple[Side, Side],
    verdicts: tuple[Verdict, Verdict],
    seen: tuple[dict[str, Any] | None, dict[str, Any] | None],
) -> Verdict:
    """The verdict of a pair from both sides' verdicts against the reference and what
    they observed (``None`` for a side that did not answer with values)."""
    names = (sides[0].name, sides[1].name)
    for name, verdict in zip(names, verdicts, strict=True):
        if verdict.kind in NO_COMPARISON:
            reason = verdict.evidence.get("reason") or verdict.evidence.get("message") or str(verdict.kind)
            evidence = verdict.evidence | {"reason": f"{name}: {reason}", "message": f"{name}: {reason}"}
            return Verdict(verdict.kind, adapter.id, contract.name, evidence=evidence)
    reached = verdicts[0].behaviours | verdicts[1].behaviours
    production_s = verdicts[0].production_s + verdicts[1].production_s
    found = _values_differ(contract, names, verdicts, seen) if None not in seen else _ways_differ(names, verdicts, seen)
    found = found or _outside_differs(names, verdicts)
    if found is None:
        return Verdict(Kind.AGREE, adapter.id, contract.name, None, {}, reached, (), production_s)
    takes = takes_side(verdicts)
    blamed = sides[1] if takes == "left" else sides[0]
    evidence = found.evidence | {
        "claim": f"{found.words}; {says(takes, names)}",
        "takes": takes,
        "sides": list(names),
        "blamed": {"engine": blamed.engine, "target": blamed.target},
    }
    if takes == "both":
        return Verdict(Kind.AGREE, adapter.id, contract.name, None, evidence, reached, (BOTH_LEGAL,), production_s)
    identity = Identity(contract.name, adapter.id, found.field, f"{found.kind}:reference_takes_{takes}")
    return Verdict(Kind.DIVERGE, adapter.id, contract.name, identity, evidence, reached, (), production_s)


@dataclass(frozen=True)
class _Difference:
    field: str
    kind: str
    words: str
    evidence: dict[str, Any]


def _values_differ(
    contract: Contract, names: tuple[str, str], verdicts: tuple[Verdict, Verdict], seen: tuple[dict, dict]
) -> _Difference | None:
    """The first field, in trace order, whose observed values differ."""
    field = next((f for f in contract.fields if f.name in seen[0] and _differ(*(s[f.name] for s in seen))), None)
    if field is None:
        return None
    where = first_difference(*(s[field.name] for s in seen))
    left, right = (_at(s[field.name], where) for s in seen)
    kind = contract.kind(field.name, left, right) if where else "differs"
    for verdict in verdicts:  # the illegal side's own word, where it is illegal in this field
        kind = verdict.identity.kind if verdict.red and verdict.identity.field == field.name else kind
    evidence = {"where": list(where), "left": left, "right": right}
    evidence |= {f"all_{side}": summary(s) for side, s in zip(("left", "right"), seen, strict=True)}
    words = f"{_place(field.axis, where)}{field.name} ({field.meaning}): {_both(names, (left, right))}"
    return _Difference(field.name, kind, words, evidence)


def _ways_differ(names: tuple[str, str], verdicts: tuple[Verdict, Verdict], seen: tuple) -> _Difference | None:
    """A side that crashed, hung or gave two answers, unless the other did just so."""
    ways = [v.identity and (v.identity.field, v.identity.kind) for v in verdicts]
    if ways[0] == ways[1]:
        return None
    identity = verdicts[0 if seen[0] is None else 1].identity
    said = tuple(f"{v.kind} {v.identity.kind}" if v.red else "an answer" for v in verdicts)
    plain = [{"verdict": str(v.kind), "how": w and list(w)} for v, w in zip(verdicts, ways, strict=True)]
    return _Difference(identity.field, identity.kind, _both(names, said), {"left": plain[0], "right": plain[1]})


def _outside_differs(names: tuple[str, str], verdicts: tuple[Verdict, Verdict]) -> _Difference | None:
    """The same values, but one side alone wrote outside its buffers."""
    said = [v.evidence["outside"] if v.red and v.identity.field == BUFFERS else "" for v in verdicts]
    if bool(said[0]) == bool(said[1]):
        return None
    words = _both(names, tuple(f"written outside its buffers ({s})" if s else "not" for s in said))
    return _Difference(BUFFERS, "written_outside", words, {"left": said[0], "right": said[1]})


def takes_side(verdicts: tuple[Verdict, Verdict]) -> str:
    """``left``, ``right``, ``both`` or ``neither``: whose answer is legal."""
    legal = tuple(v.kind is Kind.AGREE for v in verdicts)
    return {(True, True): "both", (True, False): "left", (False, True): "right", (False, False): "neither"}[legal]


def says(takes: str, names: tuple[str, str]) -> str:
    """The reference's word in a sentence."""
    if takes in ("left", "right"):
        return f"the reference takes the {takes} side, {names[takes == 'right']}"
    return "both are legal" if takes == "both" else "the reference takes neither"


def _differ(left: Any, right: Any) -> bool:
    """Unequal; a value that is not a number equals itself here, on either side."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.shape != right.shape or bool(_cells(left, right).any())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) != len(right) or any(map(_differ, left, right))
    return left != right and (left == left or right == right)


def _cells(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return (left != right) & ((left == left) | (right == right))


def first_difference(left: Any, right: Any) -> tuple[int, ...]:
    """Where two observations of a field first differ; empty for the whole."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and left.shape == right.shape:
        return tuple(int(i) for i in np.argwhere(_cells(left, right))[0])
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return (next(i for i, pair in enumerate(zip(left, right, strict=True)) if _differ(*pair)),)
    return ()


def _at(value: Any, where: tuple[int, ...]) -> Any:
    if not where:
        return f"shape {value.shape}" if isinstance(value, np.ndarray) else value
    found = value[where] if isinstance(value, np.ndarray) else value[where[0]]
    return found.item() if isinstance(found, np.generic) else found


def _place(axis: str, where: tuple[int, ...]) -> str:
    if not where:
        return ""
    return f"request {where[0]}: " if axis == "request" else f"at {where}: "


def _both(names: tuple[str, str], values: tuple) -> str:
    return " and ".join(f"{name} has {value}" for name, value in zip(names, values, strict=True))
