"""Walks of verify.draft_select: lattices by kind and seed, coins planted on the
edges of the very row that the walk will reach."""

from __future__ import annotations

import math
import random
from fractions import Fraction

from fuzz.strategies.draft_select_kinds import kind_of
from fuzz.strategies.rows import LAST_COIN, beside
from fuzz.strategies.source import Source, choice, flag
from oracle.contract import InvalidCase
from oracle.verify.edges import explore
from oracle.verify.rows import Mass, Row
from oracle.verify.select_case import DTYPES, DraftSelectCase, Request, Slot, hostile
from oracle.verify.select_walk import coins_of, distribution, scores_of
from oracle.verify.select_walk import walk as walked

KINDS = ("spread", "equal", "first_masked", "last_masked", "peaked", "tie")
HOSTILE = ("nan", "nothing")
TEMPERATURES = (1.0, 0.5, 2.0, 0.125, 0.75, 0.0)
COINS = ("inside", "edge", "above_edge", "below_edge", "zero", "last")
PLANTED = 2  # coins on an edge in one request: each doubles the ways to round


def walk(source: Source) -> DraftSelectCase:
    width = choice(source, (2, 4, 1, 8, 3, 16))
    slots = source.integer(1, 5)
    dtype = choice(source, DTYPES)
    vocabulary = choice(source, (100, 16, 151936))

    def request(source: Source) -> Request:
        greedy = not flag(source)
        temperature = 1.0 if greedy else choice(source, TEMPERATURES)
        kind, seed = kind_of(source, KINDS, HOSTILE), source.integer(0, 2**16)
        coins = [(choice(source, COINS), source.integer(0, 255)) for _ in range(slots)]
        return expand(width, vocabulary, greedy, temperature, kind, seed, coins)

    return DraftSelectCase("walk", dtype, vocabulary, width, 0, tuple(source.records(request, 1, 4)))


def expand(
    width: int, vocabulary: int, greedy: bool, temperature: float, kind: str, seed: int, coins: list[tuple[str, int]]
) -> Request:
    """A request whose coins lie where ``coins`` says on the path it takes."""
    rng = random.Random(f"{kind}:{width}:{seed}")
    lattice = [tuple(row(kind, width, rng) for _ in range(width)) for _ in coins]
    tokens = [tuple(rng.randrange(vocabulary) for _ in range(width)) for _ in coins]
    plain = Request(tuple(Slot(t, r) for t, r in zip(tokens, lattice, strict=True)), 0, None, greedy, temperature)
    if greedy or hostile(DraftSelectCase("walk", "float32", vocabulary, width, 0, (plain,)), plain):
        return plain
    slots, previous, planted = [], 0, 0
    for (where, place), candidates, rows in zip(coins, tokens, lattice, strict=True):
        known = distribution(scores_of(rows[previous], width), temperature)
        heavy = max(range(width), key=lambda c: known.masses[c])
        value = float(known.cumulated[heavy] - known.masses[heavy] / 2)
        if where != "inside" and planted < PLANTED:
            planted, value = planted + 1, _coin(where, place, known.cumulated, value)
        coin = _grid(value)
        previous = next(
            (c for c, edge in enumerate(known.cumulated) if known.masses[c] and Fraction(coin) < edge), heavy
        )
        slots.append(Slot(candidates, rows, coin))
    made = Request(tuple(slots), 0, None, greedy, temperature)
    try:
        explore(lambda decide: walked(made, width, decide), coins_of(made))
    except InvalidCase:  # more ways to round than can be listed
        return plain if _explorable(plain, width) else Request(plain.slots, 0, None, True, 1.0)
    return made


def _explorable(request: Request, width: int) -> bool:
    try:
        explore(lambda decide: walked(request, width, decide), coins_of(request))
    except InvalidCase:
        return False
    return True


def _coin(where: str, place: int, cumulated: tuple[Fraction, ...], otherwise: float) -> float:
    if where == "zero":
        return 0.0
    if where == "last":
        return LAST_COIN
    edges = [edge for edge in cumulated if 0 < edge < 1]
    if not edges:
        return otherwise
    edge = float(edges[place % len(edges)])
    steps = {"edge": 0, "above_edge": 2000 * (1 + place % 3), "below_edge": -2000 * (1 + place % 3)}[where]
    return beside(edge, 0) if steps == 0 else min(max(edge * (1 + steps * 2.0**-23), 0.0), LAST_COIN)


def _grid(value: float) -> float:
    """A float32 in [0, 1)."""
    return beside(min(max(value, 0.0), LAST_COIN), 0)


def row(kind: str, width: int, rng: random.Random) -> Row:
    """K scores of a kind."""
    scores = [rng.randint(-40, 40) / 8 for _ in range(width)]
    if kind == "equal":
        scores = [scores[0]] * width
    elif kind == "first_masked" and width > 1:
        scores[0] = -math.inf
    elif kind == "last_masked" and width > 1:
        scores[-1] = -math.inf
    elif kind == "peaked":
        scores[rng.randrange(width)] = 120.0
    elif kind == "tie":
        best = max(scores)
        for c in rng.sample(range(width), min(width, 2)):
            scores[c] = best
    elif kind == "nan":
        scores[rng.randrange(width)] = math.nan
    elif kind == "nothing":
        scores = [-math.inf] * width
    return Row(tuple(Mass(c, s) for c, s in enumerate(scores)))
