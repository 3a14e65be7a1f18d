"""Rows over a vocabulary, written sparsely.

A row is one distribution (or one row of scores) over token ids. Most cases need a
few tokens that matter in a vocabulary that may be large, so a row names those and
gives all others one value. Values are float32, because that is what verifiers
receive; ``exact`` gives them as fractions, in which every sum is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from oracle.contract import require


@dataclass(frozen=True)
class Mass:
    """The value of one token."""

    token: int
    value: float


@dataclass(frozen=True)
class Row:
    """``rest`` for every token but those in ``masses`` (rising token ids)."""

    masses: tuple[Mass, ...]
    rest: float = 0.0


def dense(row: Row, vocabulary: int) -> np.ndarray:
    """The row as float32 [vocabulary]."""
    values = np.full(vocabulary, row.rest, dtype=np.float32)
    for mass in row.masses:
        values[mass.token] = mass.value
    return values


def value(row: Row, token: int) -> float:
    """The value of one token."""
    return next((m.value for m in row.masses if m.token == token), row.rest)


def exact(row: Row, vocabulary: int) -> dict[int, Fraction]:
    """Tokens with a value other than 0 in rising order, exactly. All values must be finite."""
    if row.rest == 0.0:
        return {m.token: Fraction(m.value) for m in row.masses if m.value != 0.0}
    named, rest = {m.token: m.value for m in row.masses}, Fraction(row.rest)
    return {t: Fraction(named[t]) if t in named else rest for t in range(vocabulary) if named.get(t, row.rest) != 0.0}


def sparse(values: np.ndarray, rest: float = 0.0) -> Row:
    """The row of float32 ``values`` [vocabulary]; tokens that hold ``rest`` are not named."""
    return Row(tuple(Mass(t, float(v)) for t, v in enumerate(values) if not _same(float(v), rest)), rest)


def is_distribution(row: Row) -> bool:
    """True for finite values, none below 0. Their sum is the contract's business."""
    return all(math.isfinite(v) and v >= 0.0 for v in (row.rest, *(m.value for m in row.masses)))


def require_row(row: Row, vocabulary: int, where: str) -> None:
    """Raise InvalidCase unless ``row`` is one of float32 values over the vocabulary."""
    tokens = [m.token for m in row.masses]
    require(all(0 <= t < vocabulary for t in tokens), f"{where}.masses: token outside the vocabulary")
    require(all(a < b for a, b in zip(tokens, tokens[1:], strict=False)), f"{where}.masses: token ids must rise")
    for v in (row.rest, *(m.value for m in row.masses)):
        require_float32(v, where)


def require_float32(number: float, where: str) -> None:
    """Raise InvalidCase unless ``number`` is a float32 (NaN and infinities are)."""
    with np.errstate(over="ignore"):
        narrow = float(np.float32(number))
    require(_same(narrow, number), f"{where}: {number!r} is no float32")


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
