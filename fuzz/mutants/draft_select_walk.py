"""Mutants of verify.draft_select's walks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.mutants.mutant import Mutant
from oracle.verify.select_case import DraftSelectCase, hostile
from oracle.verify.select_columns import columns


@dataclass(frozen=True)
class Version:
    """A way to walk. The defaults are the right one, in float64."""

    row: Callable[[int, int, list[int]], int] = lambda slot, previous, path: previous  # which row is read
    scale: Callable[[np.ndarray, float], np.ndarray] = lambda scores, t: scores / t
    coin: Callable[[list[float], int], float] = lambda coins, slot: coins[slot]
    count: Callable[[np.ndarray, float], int] = lambda masses, coin: _count(masses, coin)
    greedy: Callable[[bool], bool] = lambda asked: asked
    best: Callable[[np.ndarray], int] = lambda scores: int(np.argmax(scores))
    token: Callable[[list[int], int], int] = lambda candidates, index: candidates[index]
    q: Callable[[np.ndarray, np.ndarray, bool], np.ndarray] = lambda right, masses, greedy: right
    transposed: bool = False


def _count(masses: np.ndarray, coin: float) -> int:
    """The first candidate with mass whose cumulated mass exceeds the coin."""
    some = np.flatnonzero(masses > 0)
    fits = some[np.cumsum(masses)[some] > coin]
    return int(fits[0] if len(fits) else some[-1] if len(some) else 0)


def _softmax(scaled: np.ndarray) -> np.ndarray:
    weights = np.exp(scaled - scaled.max())
    masses = weights / weights.sum()
    return np.where(masses < 2.0**-150, 0.0, masses)


def observe(version: Version) -> Callable[[DraftSelectCase], dict[str, Any] | None]:
    def run(case: DraftSelectCase) -> dict[str, Any] | None:
        if case.form != "walk" or any(hostile(case, r) for r in case.requests):
            return None
        seen = columns(case)
        walked = [_walk(version, seen, i) for i in range(len(case.requests))]
        return {
            "massless": [m for _, _, m in walked],
            "tokens": [t for t, _, _ in walked],
            "rows": [q for _, q, _ in walked],
        }

    return run


def _walk(version: Version, seen: dict[str, Any], i: int) -> tuple[list[int], list[list[float]], int]:
    lattice, coins = seen["scores"][i].astype(np.float64), [float(c) for c in seen["coins"][i]]
    previous, path, tokens, rows = 0, [], [], []
    for slot in range(len(lattice)):
        read = version.row(slot, previous, path)
        scores = lattice[slot][:, read] if version.transposed else lattice[slot][read]
        greedy = version.greedy(bool(seen["greedy"][i]))
        with np.errstate(all="ignore"):
            masses = _softmax(version.scale(scores, float(seen["temperature"][i])))
        index = version.best(scores) if greedy else version.count(masses, version.coin(coins, slot))
        right = np.eye(len(scores))[index] if greedy else masses
        rows.append([float(v) for v in version.q(right, masses, greedy)])
        tokens.append(int(version.token([int(t) for t in seen["candidates"][i][slot]], index)))
        previous = index
        path.append(index)
    return tokens, rows, sum(row[index] == 0.0 for row, index in zip(rows, path, strict=True))


def _clamped(masses: np.ndarray, coin: float) -> int:
    """Counts the edges at or below the coin in a sum that falls short of 1."""
    short = np.cumsum(masses) * (1 - 2.0**-23)
    return int(min((coin >= short).sum(), len(masses) - 1))


def _past_the_row(case: DraftSelectCase) -> dict[str, Any] | None:
    """A hostile row ends the search behind its last candidate, in foreign memory."""
    bad = [hostile(case, r) for r in case.requests]
    if case.form != "walk" or not any(bad):
        return None
    tokens = [[s.candidates[0] for s in r.slots] for r in case.requests]
    for row, is_bad in zip(tokens, bad, strict=True):
        row[0] = case.vocabulary if is_bad else row[0]
    return {"tokens": tokens}


_VERSIONS = tuple(
    Mutant(name, fault, meaning, observe(version))
    for name, fault, meaning, version in (
        ("first_row_always", "row_stride", "reads row 0 in every slot", Version(row=lambda s, p, path: 0)),
        (
            "row_of_two_slots_before",
            "row_stride",
            "reads the row that the slot before the last one selects",
            Version(row=lambda s, p, path: path[-2] if len(path) > 1 else 0),
        ),
        ("transposed_lattice", "row_stride", "reads a column where a row belongs", Version(transposed=True)),
        ("temperature_ignored", "missing_step", "draws at temperature 1", Version(scale=lambda x, t: x)),
        ("temperature_inverted", "wrong_operation", "multiplies by the temperature", Version(scale=lambda x, t: x * t)),
        ("coin_reused", "coin", "uses the first slot's coin in every slot", Version(coin=lambda c, s: c[0])),
        ("coin_of_next_slot", "coin", "uses the next slot's coin", Version(coin=lambda c, s: c[(s + 1) % len(c)])),
        ("coin_inverted", "coin", "draws from the other end", Version(coin=lambda c, s: 1.0 - c[s])),
        (
            "coin_zero_takes_first",
            "coin",
            "an edge of 0 is not below coin 0, so a first candidate without mass is drawn",
            Version(count=lambda m, coin: 0 if coin == 0.0 else _count(m, coin)),
        ),
        (
            "last_takes_the_rest",
            "mass",
            "the last candidate takes what rounding leaves, with mass or without",
            Version(count=_clamped),
        ),
        (
            "edge_off_by_one",
            "off_by_one",
            "takes the candidate behind the drawn one",
            Version(count=lambda m, coin: min(_count(m, coin) + 1, len(m) - 1)),
        ),
        ("greedy_draws", "missing_check", "draws for greedy requests too", Version(greedy=lambda asked: False)),
        ("all_greedy", "missing_check", "takes the best for requests that draw", Version(greedy=lambda asked: True)),
        (
            "greedy_last_of_tied",
            "tie",
            "takes the last of tied candidates",
            Version(best=lambda x: len(x) - 1 - int(np.argmax(x[::-1]))),
        ),
        ("index_for_token", "wrong_token", "gives the candidate's number", Version(token=lambda c, i: i)),
        ("first_candidate", "wrong_token", "gives each slot's first candidate", Version(token=lambda c, i: c[0])),
        (
            "q_not_a_point",
            "distribution",
            "hands on the softmax for a greedy request",
            Version(q=lambda right, masses, greedy: masses),
        ),
        (
            "q_is_a_point",
            "distribution",
            "hands on a point mass for a request that draws",
            Version(q=lambda right, masses, greedy: np.eye(len(right))[int(np.argmax(right))]),
        ),
        (
            "q_cumulated",
            "distribution",
            "hands on cumulated masses",
            Version(q=lambda right, masses, greedy: right if greedy else np.cumsum(masses)),
        ),
    )
)


MUTANTS = (
    Mutant("past_the_row", "nan", "takes what lies behind the candidates of a hostile row", _past_the_row),
    *_VERSIONS,
)
