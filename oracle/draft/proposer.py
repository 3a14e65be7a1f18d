"""A draft model that can be read: proposals from a small table, hidden states with stamps.

What a draft model computes is no question of this project; what it is *fed* is. So its
proposals follow from the token and the draft step alone, and the state it produces says
whose it is. The trade: a hand-over that is wrong shows in the stamps and not in the
drafts, which is why both are observed.

A proposal row has CANDIDATES tokens with logits well apart, all others share the logit 0.
A stamp is (round, request, producer, place): a request is named by its pool row; producer 0
is the target, k the k-th run of the draft model; place is a position, or a row's number among the rows of one request.
"""

from __future__ import annotations

import math
import random
from functools import cache

VOCABULARY = 256
CANDIDATES = 4  # tokens of a row that can be proposed
BEST = 6.0  # logit of the first candidate
GAP = (0.25, 1.0)  # least and largest distance of the logits of two neighbours
HIDDEN = 72  # numbers of a hidden state: more than one block of 64, and whole stamps
PARTS = 3  # numbers of one stamp: owner, producer, place
NOBODY = -1  # a hidden state that is no stamp
REQUESTS = 64  # names of requests: pool rows
PRODUCERS = 16
PLACES = 2**12


@cache
def rows() -> tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]:
    """Candidate tokens and their logits of every proposal row, best first."""
    rng = random.Random(1)
    table = []
    for _ in range(VOCABULARY):
        tokens = tuple(rng.sample(range(VOCABULARY), CANDIDATES))
        logits = [BEST]
        for _ in range(CANDIDATES - 1):
            logits.append(logits[-1] - rng.uniform(*GAP))
        table.append((tokens, tuple(logits)))
    return tuple(table)


def row_of(token: int, step: int) -> int:
    """Which proposal row the ``step``-th run of the model gives for a token."""
    return (37 * token + 101 * step) % VOCABULARY


def proposals(token: int, step: int) -> list[tuple[int, float]]:
    """Candidate tokens and their logarithmic probabilities, best first."""
    tokens, logits = rows()[row_of(token, step)]
    whole = math.log(sum(map(math.exp, logits)) + VOCABULARY - CANDIDATES)
    return [(token, logit - whole) for token, logit in zip(tokens, logits, strict=True)]


def proposal(token: int, step: int) -> int:
    """The best candidate."""
    return rows()[row_of(token, step)][0][0]


def stamp(round_: int, request: int, producer: int, place: int) -> int:
    """One hidden state as a number."""
    return ((round_ * REQUESTS + request) * PRODUCERS + producer) * PLACES + place


def unstamp(number: int) -> tuple[int, int, int, int]:
    """Round, request, producer and place of a stamp."""
    rest, place = divmod(number, PLACES)
    rest, producer = divmod(rest, PRODUCERS)
    return *divmod(rest, REQUESTS), producer, place


def numbers(of: int) -> list[float]:
    """The hidden state of a stamp: owner + 1, producer and place, over and over."""
    round_, request, producer, place = unstamp(of)
    return [float(round_ * REQUESTS + request + 1), float(producer), float(place)] * (HIDDEN // PARTS)


def read(state: list[float]) -> int:
    """The stamp of a hidden state; NOBODY for one that is torn or never was one."""
    owner, producer, place = state[:PARTS]
    torn = list(state) != list(state[:PARTS]) * (HIDDEN // PARTS)
    whole = all(float(x).is_integer() for x in state[:PARTS])
    if torn or not whole or owner < 1 or not 0 <= producer < PRODUCERS or not 0 <= place < PLACES:
        return NOBODY
    return stamp(0, int(owner) - 1, int(producer), int(place))
