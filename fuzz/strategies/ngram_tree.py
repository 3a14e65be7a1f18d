"""Cases of verify.ngram_tree: short texts over few tokens, so that contexts match; a
context is a piece of the corpus or made up."""

from __future__ import annotations

import random

from fuzz.strategies.source import Source, choice, flag
from oracle.verify.ngram_paths import inserted
from oracle.verify.ngram_tree import ORDERS, NgramTreeCase, Request, Text

ALPHABETS = (3, 2, 6, 100)
BEYOND = 151_000  # a text over large ids


def structure(source: Source) -> NgramTreeCase:
    """One case. The corpus comes first, then what asks."""
    depth = source.integer(2, 8)
    draft_tokens = choice(source, (4, 8, 1, 2, 3, 12, 16))
    order = choice(source, ORDERS)
    breadth = source.integer(1, 8)
    alphabet = choice(source, ALPHABETS)
    offset = BEYOND if source.integer(0, 7) == 7 else 0
    small = source.integer(0, 4) == 4

    def text(source: Source) -> Text:
        length = source.integer(0, 12)
        rng = random.Random(source.integer(0, 2**12))
        return Text(tuple(offset + rng.randrange(alphabet) for _ in range(length)))

    corpus = tuple(source.records(text, 0, 4))
    seen = [t for x in corpus for t in x.tokens]

    def request(source: Source) -> Request:
        length = source.integer(1, depth)
        if flag(source) or len(seen) < length:
            rng = random.Random(source.integer(0, 15))
            return Request(tuple(offset + rng.randrange(alphabet) for _ in range(length)))
        at = source.integer(0, len(seen) - length)
        return Request(tuple(seen[at : at + length]))

    requests = tuple(source.records(request, 1, 4))
    case = NgramTreeCase(order, draft_tokens, depth, breadth, 2**12, corpus, requests)
    if small:  # too small for what was put in
        capacity = max(depth + 2, inserted(case) // 2)
        case = NgramTreeCase(order, draft_tokens, depth, breadth, capacity, corpus, requests)
    return case
