"""Greedy requests of verify.chain_rejection: exact match with the largest mass of each target row.

The first of equal masses is the largest. A target whose masses are rounded further (through logits) may take one that
is nearly as large; by the contract itself nothing is rounded, because masses are only compared.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle.verify.chain_rejection_case import Request, drafted, target_row
from oracle.verify.chain_rejection_masses import units
from oracle.verify.edges import EXPLORED_SLACK_ULP, Branch, Decide, ulp


def _result(r: Request, accepted: int, token: Any, raced: Any) -> dict[str, Any]:
    drafts = [d.token for d in r.drafts[:accepted]]
    path = list(range(accepted + 1))
    return {
        "accepted": accepted, "path": path, "accepted_drafts": drafts, "bonus_token": token, "race_token": raced,
    }  # fmt: skip


def walk(r: Request, vocabulary: int, decide: Decide) -> dict[str, Any]:
    """Match draft by draft; the coin ``half`` stands for a comparison of two masses."""
    for j in range(drafted(r) + 1):
        choice = _largest(units(target_row(r, j), vocabulary), decide)
        if j == drafted(r) or r.drafts[j].token != choice:
            return _result(r, j, choice, choice)
    raise AssertionError("the row behind the last draft always ends the walk")


def _largest(row: dict[int, int], decide: Decide) -> int:
    """The first token of the largest mass, or one that a target with rounded masses may take for it."""
    best = max(row, key=lambda t: (row[t], -t))
    for token, mass in row.items():
        if mass < row[best] <= 2 * mass and decide.below("half", Fraction(mass, 2 * row[best]), 0.0):
            return token
    return best


def second(r: Request, vocabulary: int) -> list[Branch]:
    """Sort the rows: a result misses by the row whose largest mass it has to overlook."""
    slack = Fraction(EXPLORED_SLACK_ULP, 2**24)  # of a ratio halved, near 1/2
    found: list[Branch] = []

    def missed(position: int) -> dict[int, float]:
        row = units(target_row(r, position), vocabulary)
        (best, top), *others = sorted(row.items(), key=lambda item: (-item[1], item[0]))
        near = {t: Fraction(1, 2) - Fraction(m, 2 * top) for t, m in others}
        far = {t: float(d / ulp(Fraction(1, 2) - d)) for t, d in near.items() if 0 < d <= slack}
        return {best: 0.0} | {t: m for t, m in far.items() if m <= EXPLORED_SLACK_ULP}

    worst = [0.0]
    for a in range(drafted(r) + 1):
        choices = missed(a)
        draft = r.drafts[a].token if a < drafted(r) else None
        for token, distance in choices.items():
            if token != draft:
                margin = max(*worst, distance)
                found.append(Branch(_result(r, a, token, token), margin, margin))
        if draft not in choices:
            break
        worst.append(choices[draft])
    exact = [b for b in found if b.result == _exact(r, vocabulary)]
    return [*exact, *(b for b in found if b not in exact)]


def _exact(r: Request, vocabulary: int) -> dict[str, Any]:
    rows = [units(target_row(r, j), vocabulary) for j in range(drafted(r) + 1)]
    best = [min(row, key=lambda t, row=row: (-row[t], t)) for row in rows]
    kept = next((j for j in range(drafted(r)) if best[j] != r.drafts[j].token), drafted(r))
    return _result(r, kept, best[kept], best[kept])
