"""What a contract is, and what makes a case of it invalid.

A contract is one named, versioned operation of verify or commit. It owns the
case type, the reference, a second independent definition, the domain, the order
in which its outcome fields are decided, the behaviours worth reaching and the
words for how an observation can be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oracle.trace import Trace

FUNCTIONAL = "functional"
DEFENSIVE = "defensive"

# What a case may hold at most. Engines stay far below; beyond, NumPy columns and
# an engine's int32 indices overflow, and a small file asks for gigabytes.
INT32_MAX = 2**31 - 1
MAX_LENGTH = 2**62  # tokens of an int64 length: a block more still fits
MAX_RECORDS = 2**16
MAX_CELLS = 2**22  # records times columns of an array that a case is expanded to


class InvalidCase(ValueError):
    """A case outside the contract's domain. The message names the field."""


@dataclass(frozen=True)
class Field:
    """One field of an outcome.

    ``axis`` is ``"request"`` (a list with one entry a request), ``"case"`` (one
    value) or ``"array"`` (a NumPy integer array compared cell by cell).
    """

    name: str
    axis: str
    meaning: str


Outcome = dict[str, Any]


def differs(field: str, expected: Any, observed: Any) -> str:
    """The kind of difference when a contract has no finer words for it."""
    return "differs"


@dataclass(frozen=True)
class Contract:
    """One operation of verify or commit semantics.

    reference      case, trace -> legal outcome (see ``oracle.legal``)
    second         case -> the same outcome by an independent definition
    domain         case -> ``"functional"`` or ``"defensive"``; raises InvalidCase
    columns        case -> scalars and NumPy arrays, the form an adapter receives
    fields         outcome fields in the order in which the trace decides them
    behaviours     name -> meaning of every semantic event a case can show
    kind           field, expected, observed -> word for the difference (identity)
    records        name of the case attribute that holds one record per request
    padding        case -> an inert record that may be appended, or ``None``
    ordered        the order of the records is part of what is asked, such as the
                   steps of a story: they are never shown in another
    say            case, field, where, observed -> the claim in words, for a
                   contract whose values need them; ``None`` to say it generally
    example        a small healthy case in which nothing special happens
    """

    name: str
    version: int
    case_type: type
    reference: Callable[[Any, Trace], Outcome]
    second: Callable[[Any], Outcome]
    domain: Callable[[Any], str]
    columns: Callable[[Any], dict[str, Any]]
    fields: tuple[Field, ...]
    behaviours: Mapping[str, str]
    example: Any
    kind: Callable[[str, Any, Any], str] = differs
    records: str = "requests"
    padding: Callable[[Any], Any] | None = None
    ordered: bool = False
    say: Callable[[Any, str, tuple[int, ...], Any], str] | None = None

    def run(self, case: Any) -> tuple[Outcome, Trace]:
        """The reference's legal outcome of ``case`` and its trace."""
        trace = Trace()
        return self.reference(case, trace), trace


def require(condition: bool, message: str) -> None:
    """Raise InvalidCase with ``message`` unless ``condition`` holds."""
    if not condition:
        raise InvalidCase(message)


def require_size(records: tuple[Any, ...], name: str, columns: int = 1) -> None:
    """Raise InvalidCase unless ``records``, expanded to ``columns`` cells each,
    are few enough to be walked and sent."""
    require(len(records) <= MAX_RECORDS, f"{name}: must be at most {MAX_RECORDS} records")
    require(len(records) * columns <= MAX_CELLS, f"{name}: {len(records)} records of {columns} cells are too many")
