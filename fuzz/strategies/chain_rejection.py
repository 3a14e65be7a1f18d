"""Cases of verify.chain_rejection.

A position is drawn as a target row and how its proposal row relates to it: the relations are those at which rejection
goes wrong (equal, equal up to rounding, disjoint, absent). Two thirds of the draws are shapes that every engine can be
shown; the rest mixes ragged chains, placeholders and greedy requests. One coin of a request may be planted on an edge
of this very request, or a few float32 beside it; never more, because every edge doubles what is legal.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np

from fuzz.strategies.rows import LAST_COIN, beside, coin, expand
from fuzz.strategies.source import Source, choice, flag
from oracle.verify.chain_rejection_case import (
    BLOCK,
    PLACEHOLDER,
    SMALLEST_COIN,
    TOKEN,
    ChainRejectionCase,
    Draft,
    Request,
    is_functional,
)
from oracle.verify.chain_rejection_masses import Chain
from oracle.verify.chain_rejection_walk import walk
from oracle.verify.edges import explore
from oracle.verify.rows import Mass, Row, value

SMALL = (4, 2, 3, 8, 16, 33, 64)
LARGE = (4097, 8193, 151936, 4095, 4096, 8191, 8192)
KINDS = ("dyadic", "random", "uniform", "peaked", "few", "random", "one_token", "tail")
LARGE_KINDS = ("dyadic", "one_token", "few", "tail")  # few masses: rounding of a long sum hides every fault
RELATIONS = ("independent", "same", "absent", "disjoint", "above", "below", "mixed")
HOSTILE = (
    "token_end", "token_negative", "no_proposal", "nan_p", "inf_p", "negative_p", "zero_p", "nan_q", "inf_q",
    "negative_q", "zero_q", "nan_bonus", "zero_bonus",
)  # fmt: skip


def structure(source: Source) -> ChainRejectionCase:
    """One case."""
    every_engine = source.integer(0, 2) < 2
    rule = choice(source, (TOKEN, BLOCK))
    large = source.integer(0, 11) == 11
    vocabulary = choice(source, LARGE if large else SMALL)
    hostile = source.integer(0, 7) == 7
    width = source.integer(1, 2 if large else 5)

    def request(source: Source) -> Request:
        count = width if every_engine else source.integer(0, width)
        drafts = tuple(source.records(lambda s: _draft(s, vocabulary, every_engine), count, count))
        made = Request(drafts, _row(source, vocabulary), coin(source), source.integer(0, 2**16), False)
        if not every_engine and source.integer(0, 4) == 4:
            return _greedy(source, made, vocabulary)
        made = _planted(source, made, vocabulary, rule)
        return _hostile(source, made, vocabulary) if hostile and flag(source) else made

    return ChainRejectionCase(vocabulary, rule, tuple(source.records(request, 1, 2 if large else 4)))


def _row(source: Source, vocabulary: int) -> Row:
    kinds = KINDS if vocabulary <= 64 else LARGE_KINDS
    return expand(choice(source, kinds), vocabulary, source.integer(0, 2**16))


def _draft(source: Source, vocabulary: int, every_engine: bool) -> Draft:
    """One position: the rows, then a token that the proposal row gives mass."""
    p = _row(source, vocabulary)
    relation = choice(source, RELATIONS)
    q = _related(source, p, relation, vocabulary)
    token = _token(source, p, q, vocabulary)
    if not every_engine and source.integer(0, 9) == 9:
        token = PLACEHOLDER
    return Draft(token, p, q, coin(source))


def _related(source: Source, p: Row, relation: str, vocabulary: int) -> Row | None:
    if relation == "absent":
        return None
    if relation == "same":
        return p
    if relation in ("above", "below"):
        return _stepped(p, source.integer(1, 64) * (1 if relation == "above" else -1))
    q = _row(source, vocabulary)
    if relation == "disjoint":
        return _without(q, p, vocabulary)
    return _mixed(p, q, vocabulary) if relation == "mixed" else q


def _stepped(row: Row, steps: int) -> Row:
    """Every mass some float32 higher or lower: the rows of two programs that round differently."""

    def move(number: float) -> float:
        if number == 0.0:
            return 0.0
        bits = np.float32(number).view(np.int32) + np.int32(steps)
        return min(float(bits.view(np.float32)), 1.0)

    return Row(tuple(Mass(m.token, move(m.value)) for m in row.masses), move(row.rest))


def _without(q: Row, p: Row, vocabulary: int) -> Row:
    """``q`` without the tokens of ``p``; one token, when nothing is left, that p lacks if there is one."""
    if vocabulary <= 64:
        taken = {t for t in range(vocabulary) if value(p, t) > 0.0}
    else:
        taken = {m.token for m in p.masses}
    left = [m for m in q.masses if m.token not in taken and m.value > 0.0]
    total = sum(m.value for m in left)
    if not left or total < 2.0**-20:
        free = next((t for t in range(vocabulary) if t not in taken), 0)
        return Row((Mass(free, 1.0),))
    return Row(tuple(Mass(m.token, float(np.float32(m.value / total))) for m in left))


def _mixed(p: Row, q: Row, vocabulary: int) -> Row:
    """Half of each; exact for dyadic masses."""
    if p.rest or q.rest:
        return q
    masses: dict[int, float] = {}
    for m in (*p.masses, *q.masses):
        masses[m.token] = masses.get(m.token, 0.0) + m.value / 2
    return Row(tuple(Mass(t, float(np.float32(v))) for t, v in sorted(masses.items())))


def _token(source: Source, p: Row, q: Row | None, vocabulary: int) -> int:
    """A token that q gives mass: any, one that p gives mass too, or one that it does not."""
    wanted, seed = choice(source, ("likely", "any", "unlikely", "likely")), source.integer(0, 2**16)
    rng = random.Random(seed)
    if q is None:
        support = [m.token for m in p.masses if m.value > 0.0] if wanted != "any" else []
        return rng.choice(support) if support else rng.randrange(vocabulary)
    support = [m.token for m in q.masses if m.value > 0.0] if q.rest == 0.0 else _dense_support(q, vocabulary)
    likely = [t for t in support if (value(p, t) > 0.0) == (wanted == "likely")]
    return rng.choice(likely if likely and wanted != "any" else support)


def _dense_support(row: Row, vocabulary: int) -> list[int]:
    zero = {m.token for m in row.masses if m.value == 0.0}
    return [t for t in range(vocabulary) if t not in zero]


def _greedy(source: Source, made: Request, vocabulary: int) -> Request:
    """A greedy request whose first drafts are the largest masses of their rows."""
    matching = source.integer(0, len(made.drafts))
    drafts = [
        replace(d, token=_largest(d.p, vocabulary), q=None) if j < matching and d.token != PLACEHOLDER else d
        for j, d in enumerate(made.drafts)
    ]
    return replace(made, drafts=tuple(drafts), greedy=True)


def _largest(row: Row, vocabulary: int) -> int:
    return max(range(vocabulary) if vocabulary <= 64 else [m.token for m in row.masses], key=lambda t: value(row, t))


def _planted(source: Source, made: Request, vocabulary: int, rule: str) -> Request:
    """One coin moved to an edge of the request, or a few float32 beside it."""
    where, index, steps = source.integer(0, 3), source.integer(0, 63), choice(source, (0, 1, -1, 4, -4, 64, -64))
    if where < 2 or not is_functional(made, vocabulary):
        return made
    chain = Chain(made, vocabulary, rule)
    if where == 2 and chain.count:
        j = index % chain.count
        edge = min(chain.accepting[j].exact, Fraction(1))
        drafts = list(made.drafts)
        drafts[j] = replace(drafts[j], coin=_grain(beside(float(edge), steps)))
        return replace(made, drafts=tuple(drafts))
    left = chain.residual(explore(lambda d: walk(chain, d), chain.coins)[0].result["accepted"])
    if not left.total:
        return replace(made, final_coin=LAST_COIN)
    edge = Fraction(left.cumulated[index % len(left.cumulated)], left.total)
    return replace(made, final_coin=_grain(beside(float(edge), steps)))


def _grain(coin: float) -> float:
    """Coins that no generator makes become 0."""
    return coin if coin >= SMALLEST_COIN else 0.0


def _hostile(source: Source, made: Request, vocabulary: int) -> Request:
    """One thing that a verifier should never be handed."""
    what, position = choice(source, HOSTILE), source.integer(0, 63)
    if what.endswith("_bonus") or not made.drafts:
        return replace(made, bonus=_broken(made.bonus, what.partition("_")[0], vocabulary))
    j = position % len(made.drafts)
    d = made.drafts[j]
    if what == "token_end":
        d = replace(d, token=vocabulary)
    elif what == "token_negative":
        d = replace(d, token=-2)
    elif what == "no_proposal":
        d = replace(d, token=max(d.token, 0), q=Row((Mass((max(d.token, 0) + 1) % vocabulary, 1.0),)))
    elif what.endswith("_p"):
        d = replace(d, p=_broken(d.p, what.partition("_")[0], vocabulary))
    else:
        d = replace(d, q=_broken(d.q or d.p, what.partition("_")[0], vocabulary))
    return replace(made, drafts=(*made.drafts[:j], d, *made.drafts[j + 1 :]))


def _broken(row: Row, how: str, vocabulary: int) -> Row:
    """The row with its first mass replaced, or without any for ``zero``."""
    if how == "zero":
        return Row(())
    number = {"nan": math.nan, "inf": math.inf, "negative": -0.5}.get(how, math.nan)
    first = row.masses[0].token if row.masses else 0
    others = tuple(m for m in row.masses if m.token != first)
    return Row((Mass(first, number), *others), row.rest)
