"""What a picture is drawn from, and what it consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from oracle.contract import Contract, Outcome
from oracle.legal import Between, Branched, Each, OneOf, Real

NOT_OBSERVED = object()


@dataclass(frozen=True)
class Scene:
    """One divergence: the case, what the reference says, what was observed, and the
    first illegal field with its place. ``observed`` has only values whose form fits
    the contract's field."""

    contract: Contract
    case: Any
    outcome: Outcome
    observed: dict[str, Any]
    field: str
    kind: str
    where: tuple[int, ...]
    seen: Any = None  # the first illegal value

    @property
    def request(self) -> int:
        """The request in which it goes wrong; the first when the field has none."""
        records = getattr(self.case, self.contract.records)
        by_request = any(f.name == self.field and f.axis == "request" for f in self.contract.fields)
        at = self.where[0] if by_request and self.where else 0
        return at if at < len(records) else 0

    def expected(self, field: str, request: int) -> Any:
        """Legal value of a per-request field."""
        values = self.outcome.get(field)
        return values[request] if isinstance(values, list) and request < len(values) else NOT_OBSERVED

    def saw(self, field: str, request: int) -> Any:
        """Observed value of a per-request field, or NOT_OBSERVED."""
        values = self.observed.get(field)
        return values[request] if isinstance(values, list) and request < len(values) else NOT_OBSERVED

    def saw_number(self, field: str, request: int) -> int | None:
        value = self.saw(field, request)
        return value if type(value) is int else None

    def saw_numbers(self, field: str, request: int) -> list[int] | None:
        value = self.saw(field, request)
        fits = isinstance(value, list) and all(type(v) is int for v in value)
        return value if fits else None


@dataclass(frozen=True)
class Picture:
    """``drawing`` is inline SVG; ``story`` says in sentences what it shows."""

    drawing: Markup | None
    story: tuple[str, ...]


def fitting(contract: Contract, outcome: Outcome, observed: Any) -> dict[str, Any]:
    """Of what an event says was observed, the fields whose form is the outcome's.

    The judgement and the contract's own words trust an adapter to return numbers where
    numbers belong; an event may hold anything.
    """
    if not isinstance(observed, dict):
        return {}
    found: dict[str, Any] = {}
    for field in contract.fields:
        if field.name not in observed or field.name not in outcome:
            continue
        value, legal = observed[field.name], outcome[field.name]
        if field.axis == "array":
            value = _array(value)
            fits = value is not None
        elif field.axis == "request":
            fits = isinstance(value, list) and all(map(_alike, _padded(legal, len(value)), value))
        else:
            fits = _alike(legal, value)
        if fits:
            found[field.name] = value
    return found


def _padded(legal: list[Any], size: int) -> list[Any]:
    """``legal`` with its last value repeated: a list that is too long is judged too."""
    return [*legal, *legal[-1:] * (size - len(legal))]


def _alike(legal: Any, seen: Any) -> bool:
    """True when ``seen`` has the form of a legal value: a number for a number, a list
    of numbers for a list."""
    legal = exact(legal)
    if isinstance(legal, Between):
        return type(seen) is int
    if isinstance(legal, Real):
        return type(seen) is float
    if not isinstance(legal, (list, tuple)):
        return type(seen) is type(legal)
    if not legal:
        return isinstance(seen, list) and all(type(v) in (int, str) for v in seen)
    return isinstance(seen, list) and all(map(_alike, _padded(list(legal), len(seen)), seen))


def exact(legal: Any) -> Any:
    """What an exact machine would give, where the legal outcome says it."""
    while isinstance(legal, (OneOf, Branched)):
        legal = legal.values[0]
    return [exact(v) for v in legal.values] if isinstance(legal, Each) else legal


def _array(value: Any) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # ragged, or a number beyond all types
        return None
    return array if array.dtype.kind == "i" else None


def tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"
