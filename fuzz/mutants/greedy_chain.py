"""Mutants of verify.greedy_chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.verify.greedy_chain import GreedyChainCase, Request


def _accepted(r: Request) -> int:
    a = 0
    while a < len(r.block) - 1 and r.block[a + 1] == r.predicted[a]:
        a += 1
    return a


def _build(case: GreedyChainCase, rows: list[tuple[int, int, list[int]]]) -> dict[str, Any]:
    return {
        "accepted": [a for a, _, _ in rows],
        "committed": [a + 1 for a, _, _ in rows],
        "post": [r.pre + a + 1 for r, (a, _, _) in zip(case.requests, rows, strict=True)],
        "bonus_token": [b for _, b, _ in rows],
        "emitted": [e for _, _, e in rows],
    }


def _counting(count: Callable[[Request], int]) -> Callable[[GreedyChainCase], dict[str, Any]]:
    """Accept as many as ``count`` says; the rest follows from that."""

    def observe(case: GreedyChainCase) -> dict[str, Any]:
        rows = []
        for r in case.requests:
            a = count(r)
            bonus = r.predicted[a]
            rows.append((a, bonus, [*r.block[1 : a + 1], bonus]))
        return _build(case, rows)

    return observe


def _bonus(choose: Callable[[Request, int], int]) -> Callable[[GreedyChainCase], dict[str, Any]]:
    """Accept rightly, take the bonus token from elsewhere."""

    def observe(case: GreedyChainCase) -> dict[str, Any]:
        rows = []
        for r in case.requests:
            a = _accepted(r)
            bonus = choose(r, a)
            rows.append((a, bonus, [*r.block[1 : a + 1], bonus]))
        return _build(case, rows)

    return observe


def _all_matches(r: Request) -> int:
    return sum(d == p for d, p in zip(r.block[1:], r.predicted, strict=False))


def _shifted(r: Request) -> int:
    a = 0
    while a < len(r.block) - 1 and r.block[a + 1] == r.predicted[a + 1]:
        a += 1
    return a


def _first_unverified(r: Request) -> int:
    if len(r.block) == 1:
        return 0
    a = 1
    while a < len(r.block) - 1 and r.block[a + 1] == r.predicted[a]:
        a += 1
    return a


def _whole_row(case: GreedyChainCase) -> dict[str, Any]:
    """The rows of a batch share the shortest acceptance."""
    shortest = min(_accepted(r) for r in case.requests)
    return _counting(lambda r: shortest)(case)


def _post(change: int) -> Callable[[GreedyChainCase], dict[str, Any]]:
    def observe(case: GreedyChainCase) -> dict[str, Any]:
        right = _counting(_accepted)(case)
        return right | {"post": [p + change for p in right["post"]]}

    return observe


def _committed_without_bonus(case: GreedyChainCase) -> dict[str, Any]:
    right = _counting(_accepted)(case)
    return right | {"committed": right["accepted"]}


def _emits_rejected(case: GreedyChainCase) -> dict[str, Any]:
    right = _counting(_accepted)(case)
    emitted = [
        [*r.block[1 : a + 1], r.block[a + 1] if a + 1 < len(r.block) else r.predicted[a]]
        for r, a in zip(case.requests, right["accepted"], strict=True)
    ]
    return right | {"emitted": emitted}


MUTANTS = (
    Mutant("counts_all_matches", "prefix", "counts matches behind the first mismatch", _counting(_all_matches)),
    Mutant("shifted_comparison", "off_by_one", "compares a draft with the next prediction", _counting(_shifted)),
    Mutant(
        "first_unverified", "missing_check", "takes the first draft without verifying it", _counting(_first_unverified)
    ),
    Mutant(
        "last_draft_never",
        "off_by_one",
        "never accepts the last draft",
        _counting(lambda r: min(_accepted(r), max(len(r.block) - 2, 0))),
    ),
    Mutant("accepts_none", "missing_commit", "accepts nothing", _counting(lambda r: 0)),
    Mutant("accepts_all", "missing_check", "accepts everything", _counting(lambda r: len(r.block) - 1)),
    Mutant("shortest_of_batch", "wrong_row", "the shortest row decides for all", _whole_row),
    Mutant(
        "bonus_before",
        "off_by_one",
        "the bonus token of one position earlier",
        _bonus(lambda r, a: r.predicted[max(a - 1, 0)]),
    ),
    Mutant(
        "bonus_of_last_row", "off_by_one", "the bonus token of the last position", _bonus(lambda r, a: r.predicted[-1])
    ),
    Mutant(
        "bonus_is_current", "dropped_bonus", "the current token instead of the bonus", _bonus(lambda r, a: r.block[0])
    ),
    Mutant(
        "bonus_is_rejected",
        "missing_check",
        "the rejected draft as bonus",
        _bonus(lambda r, a: r.block[min(a + 1, len(r.block) - 1)]),
    ),
    Mutant(
        "committed_without_bonus", "dropped_bonus", "committed excludes the current token", _committed_without_bonus
    ),
    Mutant("post_without_bonus", "dropped_bonus", "the length misses one token", _post(-1)),
    Mutant("post_plus_one", "off_by_one", "the length counts the new bonus token", _post(1)),
    Mutant("emits_rejected", "wrong_token", "emits the rejected draft in place of the bonus", _emits_rejected),
)
