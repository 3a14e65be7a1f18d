"""verify.draft_select once more, by other means: sorted float32 arrays instead of
exact numbers and walks, another exponential, tails instead of heads.

Only the rounding model and the walk over near edges are shared: they say what is
legal beside the exact answer, not what the exact answer is.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, islice
from typing import Any

import numpy as np

from oracle.legal import Between, Each, OneOf, Real
from oracle.verify.edges import Decide, branched, explore
from oracle.verify.rows import dense
from oracle.verify.select_case import DraftSelectCase, Request
from oracle.verify.select_rows import MAX_TIED, keys
from oracle.verify.select_tree import MAX_WAYS, each, either
from oracle.verify.select_walk import (
    NO_MASS,
    Distribution,
    coins_of,
    exponents,
    point_mass,
    relative_errors,
    scores_of,
)


def rows(case: DraftSelectCase, request: Request) -> dict[str, Any]:
    """By a stable sort of the whole row, and by comparing all tokens with each choice."""
    scores = dense(request.slots[0].rows[0], case.vocabulary)
    if request.divisor is not None:
        with np.errstate(all="ignore"):
            scores = scores / dense(request.divisor, case.vocabulary)
    order = np.argsort(-scores, kind="stable")[: case.width]
    tokens = [int(t) for t in order]
    tied: list[Any] = []
    for token in tokens:
        equal = np.flatnonzero(scores == scores[token])
        listed = len(equal) <= MAX_TIED or not _rest_ties(request, scores[token], case)
        some = OneOf(tuple(int(t) for t in equal)) if listed else Between(int(equal[0]), int(equal[-1]))
        tied.append(int(token) if len(equal) == 1 else some)
    loose = Each(tuple(tied), True) if any(not isinstance(t, int) for t in tied) else tokens
    found = {
        "tokens": tokens,
        "any_tokens": loose,
        "values": Each(tuple(Real(float(scores[t]), float(scores[t])) for t in tokens)),
    }
    if case.form == "top1":
        found |= {"values": [1.0], "stored": tokens, "next_position": request.position + 1}
    return found


def _rest_ties(request: Request, key: Any, case: DraftSelectCase) -> bool:
    named, rest = keys(case, request)
    return len(named) < case.vocabulary and rest == key


def walk(case: DraftSelectCase, request: Request) -> dict[str, Any]:
    """By another exponential (a power series in whole numbers), tails instead of
    heads, and a count of the edges at or below the coin."""

    def path(decide: Decide) -> dict[str, Any]:
        index, tokens, rows = 0, [], []
        for j, slot in enumerate(request.slots):
            scores = scores_of(slot.rows[index], case.width)
            if request.greedy:
                index = min(range(case.width), key=lambda c: (-scores[c], c))
                rows.append(point_mass(index, case.width))
            else:
                known = _by_tails(scores, request.temperature)
                passed = [c for c, m in enumerate(known.masses) if m]
                below = (decide.below(j, known.cumulated[c], known.within_ulp[c]) for c in passed[:-1])
                index = passed[next((k for k, yes in enumerate(below) if yes), len(passed) - 1)]
                rows.append(known.q)
            tokens.append(slot.candidates[index])
        return {"tokens": tokens, "rows": Each(tuple(rows))}

    return branched(explore(path, coins_of(request)))


@lru_cache(maxsize=4096)
def _by_tails(scores: tuple[float, ...], temperature: float) -> Distribution:
    z = exponents(scores, temperature)
    finite = [x for x in z if x is not None]
    top = max(finite)
    weights = [Fraction(0) if x is None else _series(top - x) for x in z]
    masses = [w / sum(weights) for w in weights]
    masses = [m if m >= NO_MASS else Fraction(0) for m in masses]
    cumulated = [sum(masses) - sum(masses[c + 1 :], Fraction(0)) for c in range(len(z))]
    return Distribution(tuple(masses), relative_errors(z, masses), tuple(cumulated))


def _series(power: Fraction, bits: int = 320) -> Fraction:
    """exp(-power) for power >= 0 in fixed point: Taylor near 0, then squared up."""
    if power > 400:
        return Fraction(0)
    halvings = max(0, math.ceil(power)).bit_length() + 8
    one = 1 << bits
    small = int(power * one) >> halvings
    term, total, n = one, one, 0
    while term:
        n += 1
        term = term * small // (n << bits)
        total += -term if n % 2 else term
    for _ in range(halvings):
        total = total * total >> bits
    return Fraction(total, one)


def tree(case: DraftSelectCase, request: Request) -> dict[str, Any]:
    """With float32 arrays and stable sorts."""
    k, tokens = case.width, [t for slot in request.slots for t in slot.candidates]
    scores = dense(request.slots[0].rows[0], k)
    all_scores, values, picks = [scores], [], []
    for step in range(1, len(request.slots)):
        masses = np.stack([dense(row, k) for row in request.slots[step].rows])
        children = (scores[:, None] * masses).reshape(-1)
        order = np.argsort(-children, kind="stable")[:k]
        all_scores.append(children)
        scores = children[order]
        values += [float(v) for v in scores]
        picks += [(step, int(c)) for c in order]
    offset = {step: k + (step - 1) * k * k for step in range(1, len(request.slots))}
    equal = [np.flatnonzero(all_scores[s] == all_scores[s][c]) for s, c in picks]
    flat = np.concatenate(all_scores)
    cut = np.sort(flat)[::-1][case.draft_tokens - 2]
    sure, open_ = np.flatnonzero(flat > cut), np.flatnonzero(flat == cut)
    wanted = case.draft_tokens - 1 - len(sure)
    ways = [sorted(map(int, [*sure, *w])) for w in islice(combinations(open_, wanted), MAX_WAYS + 1)]
    if len(ways) > MAX_WAYS:
        selected: Any = Each((Between(0, len(flat) - 1),) * (case.draft_tokens - 1), True)
        drafts: Any = Each((OneOf(tuple(dict.fromkeys(tokens))),) * (case.draft_tokens - 1))
    else:
        selected = ways[0] if len(ways) == 1 else OneOf(tuple(ways))
        named = [[tokens[n] for n in way] for way in ways]
        drafts = named[0] if len(ways) == 1 else OneOf(tuple(named))
    return {
        "values": Each(tuple(Real(v, v) for v in values)),
        "picks": each([either([offset[s] + int(c) for c in e]) for (s, _), e in zip(picks, equal, strict=True)], True),
        "next_inputs": each(
            [either([tokens[offset[s] + int(c)] for c in e]) for (s, _), e in zip(picks, equal, strict=True)]
        ),
        "hidden_rows": each([either([int(c) // k for c in e]) for e in equal]),
        "selected": selected,
        "any_tokens": drafts,
        "orphans": 0,
    }
