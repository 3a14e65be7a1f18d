"""The filters of verify.target_distribution on one row, with every legal outcome.

Masses are exponentials of 40 digits, the same on every machine. A filter leaves a
front part of the tokens in order of likelihood; where it may leave more than one,
because of equal tokens or because of rounding, all of them are followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

import numpy as np

from oracle.legal import OneOf, Real
from oracle.verify.rows import Row

ULP_AT_ONE = Decimal(2) ** -23
HALF = Decimal(2) ** -24
Tokens = tuple[int, ...]  # falling likelihood, equals by token id
Counts = tuple[list[int], Decimal | None]  # how many tokens may stay, the exact number first; the nearest margin


class ExactRow:
    """One row in exact decimals: ``weight`` is exp(z - max z)."""

    def __init__(self, row: Row, temperature: float):
        scaled = {m.token: Decimal(m.value) / Decimal(temperature) for m in row.masses}
        top, low = max(scaled.values()), min(scaled.values())
        self.weight = {t: (z - top).exp() for t, z in scaled.items()}
        self.order = sorted(scaled, key=lambda t: (-scaled[t], t))
        self.logit = {m.token: m.value for m in row.masses}
        reach, n = max(abs(top), abs(low)), len(scaled)
        self.error = HALF * (2 * (2 * reach + top - low + 4) + 3 * (n + 2))
        self.edge = self.error + HALF * (n + 2)

    def cut(self, kept: Tokens, count: int) -> list[Tokens]:
        """The first ``count`` of ``kept``; any choice, or all, among equals at the cut."""
        if count >= len(kept):
            return [kept]
        equal = [t for t in kept if self.logit[t] == self.logit[kept[count - 1]]]
        before = kept[: kept.index(equal[0])]
        choices = [(*before, *c) for c in combinations(equal, count - len(before))]
        return choices if len(choices) == 1 and len(equal) == 1 else [*choices, (*before, *equal)]


def top_p_counts(row: ExactRow, kept: Tokens, top_p: Decimal) -> Counts:
    """How many tokens may stay, the exact number first; the margin when several may."""
    total, front, counts, margin = sum(row.weight[t] for t in kept), Decimal(0), [], None
    exact = len(kept)
    for place, token in enumerate(kept):
        if place and front / total >= top_p:
            exact = min(exact, place)
        if place and abs(front / total - top_p) <= row.edge:
            distance = abs(front / total - top_p) / ULP_AT_ONE
            margin = distance if margin is None else min(margin, distance)
            counts += [place, place + 1]
        front += row.weight[token]
    return [exact, *sorted(set(counts) - {exact})], margin


def min_p_counts(row: ExactRow, kept: Tokens, min_p: Decimal) -> Counts:
    """The same for min-p: relative to the most likely token nothing is normalised."""
    exact = sum(row.weight[t] >= min_p * row.weight[kept[0]] for t in kept)
    unequal = [(p, row.weight[t]) for p, t in enumerate(kept) if row.logit[t] != row.logit[kept[0]]]
    near = [p for p, weight in unequal if abs(weight - min_p) <= row.error * weight]
    counts = {c for p in near for c in (p, p + 1)} - {exact}
    return [exact, *sorted(counts)], (Decimal(0) if near else None)


@dataclass(frozen=True)
class Kept(OneOf):
    """Legal sets of tokens, and those that would be legal if min-p were not asked for:
    leaving it out is a fault of its own."""

    without_min_p: tuple[list[int], ...] = ()

    def describe(self) -> str:
        return str(self.values[0]) if len(self.values) == 1 else super().describe()


@dataclass(frozen=True)
class Filtered:
    """Legal sets of tokens, the exact one first, and how the exact run went."""

    supports: tuple[Tokens, ...]
    without_min_p: tuple[Tokens, ...]
    margin: float | None
    stages: tuple[Tokens, Tokens, Tokens, Tokens]  # after softmax, top-k, top-p, min-p: the exact run
    tie: bool


def supports(row: ExactRow, top_k: int, top_p: float, min_p: float, by_top_p: Callable = top_p_counts) -> Filtered:
    """Every legal set of tokens, the exact one (equals by token id) first."""
    everything, margins = tuple(row.order), []
    ways = row.cut(everything, top_k)
    stages, before = [everything, ways[0]], None
    tie = len(ways) > 1
    for filter_, limit in ((by_top_p, Decimal(top_p)), (min_p_counts, Decimal(min_p))):
        following: list[Tokens] = []
        if (limit < 1) if filter_ is by_top_p else (limit > 0):
            for way in ways:
                counts, margin = filter_(row, way, limit)
                margins += [] if margin is None else [margin]
                cuts = [row.cut(way, c) for c in counts]
                tie |= len(cuts[0]) > 1
                following += [kept for cut in cuts for kept in cut]
            ways = following
        stages.append(ways[0])
        before = before or ways
    margin = float(f"{min(margins):.3g}") if margins else None
    return Filtered(_unique(ways), _unique(before), margin, tuple(stages), tie)


def _unique(ways: list[Tokens]) -> tuple[Tokens, ...]:
    return tuple(dict.fromkeys(tuple(sorted(w)) for w in ways))


def _outwards(number: Decimal, up: bool) -> float:
    """The nearest float32 that is not below (above) ``number``."""
    value = np.float32(float(number))
    exact = Decimal(float(value))
    if exact != number and (exact < number) == up:
        value = np.nextafter(value, np.float32(2.0 if up else 0.0))
    return float(value)


def mass_of(row: ExactRow, token: int, supports: tuple[Tokens, ...]) -> Real | float:
    """The mass of a token, over all legal sets."""
    low, high = [], []
    for kept in supports:
        mass = row.weight[token] / sum(row.weight[t] for t in kept) if token in kept else Decimal(0)
        low.append(_outwards(mass * (1 - row.error), up=False) if mass else 0.0)
        high.append(_outwards(mass * (1 + row.error), up=True) if mass else 0.0)
    return Real(min(low), max(high)) if max(high) else 0.0


def top_p_from_behind(row: ExactRow, kept: Tokens, top_p: Decimal) -> Counts:
    """A token goes when it and all behind it hold at most 1 - top_p."""
    total = sum(row.weight[t] for t in kept)
    behind = [sum(row.weight[t] for t in kept[p:]) / total for p in range(len(kept))]
    stays = [p == 0 or b > 1 - top_p for p, b in enumerate(behind)]
    near = {p: abs(b - 1 + top_p) for p, b in enumerate(behind) if p and abs(b - 1 + top_p) <= row.edge}
    counts = {c for p in near for c in (p, p + 1)} - {sum(stays)}
    return [sum(stays), *sorted(counts)], (min(near.values()) / ULP_AT_ONE if near else None)
