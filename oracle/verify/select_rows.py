"""The best and the k best of one row of scores, exactly.

Scores are compared as the numbers they are; a quotient is rounded once to float32,
to nearest with ties to even, because that is what the operation divides in. Of
tokens that tie, the lower id comes first. Where no rule is promised, each place may
hold any of the tokens that tie for it.

A hostile row has NaN, or fewer scores above minus infinity than are asked for. Two
habits are in use for NaN, both harmless for a draft: it counts as greatest, or it
never wins. So a legal choice is a token that holds NaN or the greatest number; when
no token has either, any id inside the vocabulary.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from oracle.legal import Between, Each, OneOf, Real
from oracle.trace import Trace
from oracle.verify.rows import value
from oracle.verify.select_case import DraftSelectCase, Request

MAX_TIED = 64  # tied tokens that are written down one by one


def nearest_float32(number: Fraction) -> float:
    """The float32 nearest to ``number``, ties to even, infinite beyond the range."""
    with np.errstate(over="ignore", under="ignore"):
        guess = (
            np.float32(float(number))
            if abs(number) < Fraction(2) ** 128
            else np.float32(np.inf if number > 0 else -np.inf)
        )
        if not np.isfinite(guess):
            return float(guess)
        near = [g for g in (np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf)))]
    finite = [float(g) for g in near if np.isfinite(g)]
    even = {float(g): int(g.view(np.int32)) % 2 for g in near}
    return min(finite, key=lambda g: (abs(Fraction(g) - number), even[g]))


def keys(case: DraftSelectCase, request: Request) -> tuple[dict[int, float], float]:
    """What is compared: the keys of named tokens, and the key of all others."""
    row, divisor = request.slots[0].rows[0], request.divisor
    named = sorted({m.token for m in row.masses} | {m.token for m in (divisor.masses if divisor else ())})
    if divisor is None:
        return {t: value(row, t) for t in named}, row.rest
    return {t: quotient(value(row, t), value(divisor, t)) for t in named}, quotient(row.rest, divisor.rest)


def quotient(score: float, divisor: float) -> float:
    """``score / divisor`` as float32; NaN where hostile operands have no quotient."""
    if not (math.isfinite(score) and math.isfinite(divisor)) or divisor == 0.0:
        with np.errstate(all="ignore"):
            return float(np.float32(score) / np.float32(divisor))
    return nearest_float32(Fraction(score) / Fraction(divisor))


def unnamed(named: dict[int, float], vocabulary: int, count: int) -> list[int]:
    """The ``count`` lowest tokens that are not named."""
    found, token = [], 0
    while token < vocabulary and len(found) < count:
        if token not in named:
            found.append(token)
        token += 1
    return found


def last_unnamed(named: dict[int, float], vocabulary: int) -> int:
    token = vocabulary - 1
    while token in named:
        token -= 1
    return token


def ranked(case: DraftSelectCase, request: Request) -> tuple[list[int], list[float], list[Any]]:
    """The first ``width`` tokens by falling key and rising id, their keys, and for
    each place the tokens that may stand there when ties have no rule."""
    named, rest = keys(case, request)
    pool = list(named.items()) + [(t, rest) for t in unnamed(named, case.vocabulary, case.width)]
    best = sorted(pool, key=lambda item: (-item[1], item[0]))[: case.width]
    free = case.vocabulary - len(named)
    return [t for t, _ in best], [k for _, k in best], [_tied(case, named, rest, free, k) for _, k in best]


def _tied(case: DraftSelectCase, named: dict[int, float], rest: float, free: int, key: float) -> Any:
    tokens = sorted(t for t, k in named.items() if k == key)
    if key == rest and free:
        if free + len(tokens) > MAX_TIED:  # too many to list: any id in their range
            return Between(
                min([*tokens, *unnamed(named, case.vocabulary, 1)]),
                max([*tokens, last_unnamed(named, case.vocabulary)]),
            )
        tokens = sorted(tokens + unnamed(named, case.vocabulary, free))
    return tokens[0] if len(tokens) == 1 else OneOf(tuple(tokens))


def safe_choices(case: DraftSelectCase, request: Request) -> Any:
    """Legal single choice of a hostile row."""
    named, rest = keys(case, request)
    free = case.vocabulary - len(named)
    held = [*named.values(), *([rest] if free else [])]
    best = max((k for k in held if k == k), default=-math.inf)

    def fits(key: float) -> bool:
        return key != key or (key == best and key > -math.inf)

    tokens = [t for t, k in named.items() if fits(k)]
    if free and fits(rest):
        if free + len(tokens) > MAX_TIED:
            return Between(0, case.vocabulary - 1)
        tokens += unnamed(named, case.vocabulary, free)
    return OneOf(tuple(sorted(tokens))) if tokens else Between(0, case.vocabulary - 1)


def choose(case: DraftSelectCase, i: int, request: Request, is_hostile: bool, trace: Trace) -> dict[str, Any]:
    """Fields of one request of ``top1`` or ``topk``."""
    if is_hostile:
        trace.step("hostile row", i, "tokens", rule="inside the vocabulary, and a number or NaN if any has one")
        return _unsafe(case, request)
    tokens, values, tied = ranked(case, request)
    for rank, (token, key) in enumerate(zip(tokens, values, strict=True)):
        trace.step("choice", i, rank=rank, token=token, key=key, tied=_text(tied[rank]))
    loose = Each(tuple(tied), True) if any(isinstance(t, OneOf | Between) for t in tied) else tokens
    trace.step("chosen tokens", i, "tokens", value=tokens)
    found = {"tokens": tokens, "any_tokens": loose, "values": Each(tuple(Real(v, v) for v in values))}
    if case.form == "top1":  # a greedy draft is a point mass; the score itself is not handed on
        found |= {"values": [1.0], "stored": tokens, "next_position": request.position + 1}
        trace.step("next position", i, "next_position", value=request.position + 1)
    return found


def _unsafe(case: DraftSelectCase, request: Request) -> dict[str, Any]:
    if case.form == "top1":
        any_safe = Each((safe_choices(case, request),))
        point = {"values": [1.0], "stored": any_safe, "next_position": request.position + 1}
        return {"tokens": any_safe, "any_tokens": any_safe} | point
    inside = Each((Between(0, case.vocabulary - 1),) * case.width)
    return {"tokens": inside, "any_tokens": inside, "values": Each((Real(-math.inf, math.inf, True),) * case.width)}


def _text(tied: Any) -> str:
    return "" if isinstance(tied, int) else tied.describe()
