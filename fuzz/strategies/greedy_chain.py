"""Cases of verify.greedy_chain: the accepted count is drawn, the tokens follow
from it and a seed, from a vocabulary small enough for accidental matches."""

from __future__ import annotations

import random

from fuzz.strategies.source import Source, choice
from oracle.verify.greedy_chain import MAX_BLOCK, GreedyChainCase, Request

VOCABULARIES = (8, 3, 2, 100, 32000, 151936)


def structure(source: Source) -> GreedyChainCase:
    """One case; all rows have one width, as in a batch."""
    width = source.integer(1, MAX_BLOCK) if source.integer(0, 3) else choice(source, (2, 1, 4, 8, 16, MAX_BLOCK))
    vocabulary = choice(source, VOCABULARIES)

    def request(source: Source) -> Request:
        accepted = source.integer(0, width - 1)
        pre = source.integer(0, 4096)
        return expand(width, vocabulary, accepted, pre, source.integer(0, 2**16))

    return GreedyChainCase(vocabulary, tuple(source.records(request, 1, 8)))


def expand(width: int, vocabulary: int, accepted: int, pre: int, seed: int) -> Request:
    """A row whose first ``accepted`` drafts match and whose next one does not."""
    rng = random.Random(seed)
    predicted = [rng.randrange(vocabulary) for _ in range(width)]
    block = [rng.randrange(vocabulary) for _ in range(width)]
    block[1 : accepted + 1] = predicted[:accepted]
    if accepted < width - 1:
        block[accepted + 1] = (predicted[accepted] + 1 + rng.randrange(vocabulary - 1)) % vocabulary
    return Request(pre, tuple(block), tuple(predicted))
