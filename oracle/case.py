"""Cases as plain data, both ways, without pickle and without guessing.

A case is a frozen dataclass of integers, floats, strings, booleans, tuples and records.
A float that is no number is written as the string ``nan``, ``inf`` or ``-inf``, because JSON has none;
reading gives ``math.nan`` itself, so that two readings of one case are equal.
``to_plain`` and ``from_plain`` turn it into JSON values and back; ``from_plain``
refuses unknown or missing fields, wrong types and integers outside int64, and
names them, because a case file may come from a stranger.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from functools import cache
from typing import Any

from oracle.contract import InvalidCase

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1  # columns are int64; no field means more
_JSON_TYPES = {int: "integer", str: "string", bool: "boolean"}
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def to_plain(value: Any) -> Any:
    """JSON values for a case, a record or a field of one."""
    if dataclasses.is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [to_plain(v) for v in value]
    if type(value) is float and not math.isfinite(value):
        return str(value)
    return value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_plain(cls: Any, plain: Any, where: str = "case") -> Any:
    """Rebuild ``cls`` from JSON values. Raises InvalidCase naming the field."""
    if dataclasses.is_dataclass(cls):
        return _record(cls, plain, where)
    origin = typing.get_origin(cls)
    if origin is tuple:
        if not isinstance(plain, list):
            raise InvalidCase(f"{where}: expected a list, found {_name(plain)}")
        item = typing.get_args(cls)[0]
        return tuple(from_plain(item, v, f"{where}[{i}]") for i, v in enumerate(plain))
    if origin in (typing.Union, types.UnionType):
        if plain is None:
            return None
        (inner,) = [a for a in typing.get_args(cls) if a is not type(None)]
        return from_plain(inner, plain, where)
    if cls is float:
        return _float(plain, where)
    if type(plain) is not cls:
        raise InvalidCase(f"{where}: expected {_JSON_TYPES[cls]}, found {_name(plain)}")
    if cls is int and not INT64_MIN <= plain <= INT64_MAX:
        raise InvalidCase(f"{where}: must be -2^63 to 2^63 - 1")
    return plain


def _record(cls: type, plain: Any, where: str) -> Any:
    if not isinstance(plain, dict):
        raise InvalidCase(f"{where}: expected an object, found {_name(plain)}")
    hints = _hints(cls)
    for name in hints:
        if name not in plain:
            raise InvalidCase(f"{where}.{name}: missing")
    for name in plain:
        if name not in hints:
            shown = str(name)[:40]  # from a stranger's file: it may hold what a terminal obeys
            raise InvalidCase(f"{where}.{shown if shown.isprintable() else ascii(shown)}: unknown field")
    return cls(**{n: from_plain(t, plain[n], f"{where}.{n}") for n, t in hints.items()})


def _float(plain: Any, where: str) -> float:
    if isinstance(plain, str) and plain in _NOT_FINITE:
        return _NOT_FINITE[plain]
    if type(plain) is not float or not math.isfinite(plain):
        raise InvalidCase(f"{where}: expected a number with a point, 'nan', 'inf' or '-inf', found {_name(plain)}")
    return plain


def _name(plain: Any) -> str:
    return "null" if plain is None else type(plain).__name__


def schema(cls: Any) -> dict[str, Any]:
    """JSON Schema of a case type, the rules of ``from_plain``. Bounds are left to
    ``from_plain`` and the domain: they name the field in the contract's words."""
    if dataclasses.is_dataclass(cls):
        hints = _hints(cls)
        return {
            "type": "object",
            "properties": {n: schema(t) for n, t in hints.items()},
            "required": list(hints),
            "additionalProperties": False,
        }
    origin = typing.get_origin(cls)
    if origin is tuple:
        return {"type": "array", "items": schema(typing.get_args(cls)[0])}
    if origin in (typing.Union, types.UnionType):
        (inner,) = [a for a in typing.get_args(cls) if a is not type(None)]
        return {"anyOf": [schema(inner), {"type": "null"}]}
    if cls is float:
        return {"anyOf": [{"type": "number"}, {"enum": list(_NOT_FINITE)}]}
    return {"type": _JSON_TYPES[cls]}
