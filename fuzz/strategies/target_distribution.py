"""Cases of verify.target_distribution: parameters a request, logits by kind and seed.

Logits are multiples of 1/16. Equal ones are common where filters cut; top_p is
planted on the edges of the row looked at.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np

from fuzz.strategies.source import Source, choice
from oracle.verify.rows import Mass, Row
from oracle.verify.target_distribution import MAX_EQUAL, MAX_NAMED, TOP_K_ALL, Request, TargetDistributionCase

VOCABULARIES = (8, 2, 3, 16, 64, 1023, 1025, 4097, 32000)
TEMPERATURES = (1.0, 0.5, 2.0, 0.75, 1.5, 0.0625, 16.0)
SPREADS = (16, 4, 2, 64)  # sixteenths between neighbouring logits, at most


def structure(source: Source) -> TargetDistributionCase:
    """One case; all requests have the same number of rows."""
    vocabulary, rows = choice(source, VOCABULARIES), source.integer(1, 4)

    def request(source: Source) -> Request:
        logits = tuple(_logits(source, vocabulary) for _ in range(rows))
        row = source.integer(0, rows - 1)
        made = Request(
            choice(source, TEMPERATURES), choice(source, (TOP_K_ALL, TOP_K_ALL, 1, 2, 3, 5, 20)), 1.0, 0.0,
            logits, row, logits[row].masses[0].token,
        )  # fmt: skip
        values = [m.value for r in logits for m in r.masses]
        if (max(values) - min(values)) / made.temperature > 64:
            made = replace(made, temperature=1.0)
        made = replace(made, top_p=_top_p(source, made), min_p=choice(source, (0.0, 0.0, 0.0, 0.125, 0.5, 1.0)))
        named = [m.token for m in logits[row].masses]
        token = source.integer(0, 2 * len(named))
        return replace(made, token=named[token] if token < len(named) else token % vocabulary)

    return TargetDistributionCase(vocabulary, tuple(source.records(request, 1, 3)))


def _logits(source: Source, vocabulary: int) -> Row:
    """Tokens with falling logits, some of them equal, in a shuffled order."""
    count = source.integer(1, min(vocabulary, 6)) if source.integer(0, 3) < 3 else min(vocabulary, MAX_NAMED)
    spread, seed = choice(source, SPREADS if count <= 6 else SPREADS[:3]), source.integer(0, 2**16)
    rng = random.Random(f"logits:{vocabulary}:{count}:{spread}:{seed}")
    tokens = rng.sample(range(vocabulary), count)
    if rng.random() < 0.5 and vocabulary - 1 not in tokens:
        tokens[0] = vocabulary - 1
    value, equal, masses = rng.randrange(-64, 64) / 16, 1, []
    for token in tokens:
        masses.append(Mass(token, value))
        step = rng.randrange(0, spread + 1) if equal < MAX_EQUAL else 1 + rng.randrange(0, spread)
        equal = equal + 1 if step == 0 else 1
        value -= step / 16
    return Row(tuple(sorted(masses, key=lambda m: m.token)), -math.inf)


def _top_p(source: Source, request: Request) -> float:
    """1 is the simplest; often an edge of the row looked at, or just beside one."""
    how = source.integer(0, 5)
    if how < 2:
        return 1.0
    if how < 4:
        return choice(source, (0.5, 0.9375, 0.75, 0.25, 0.0009765625))
    logits = sorted((m.value for m in request.rows[request.row].masses), reverse=True)[: request.top_k]
    weights = np.exp((np.array(logits) - logits[0]) / request.temperature)
    edges = np.cumsum(weights) / weights.sum()
    edge = float(np.float32(edges[source.integer(0, len(edges) - 1)])) + source.integer(-2, 2) * 2.0**-12
    return float(np.float32(min(max(edge, 2.0**-10), 1.0)))
