"""Cases of commit.kv_move. Simplest first: one request whose chain of four stays in place.

Blocks are placed by their distance to a page boundary. Pages are handed out afterwards by
one seed: requests that drew their own would collide.
"""

from __future__ import annotations

import random
from dataclasses import replace

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.kv_move_case import (
    HEADS,
    HYBRID,
    INDEX_PAGE,
    INDEXER,
    LATENT,
    MAX_WORDS,
    POOLS,
    SCALED,
    SCALED_LATENT,
    WINDOWED,
    KvMoveCase,
    Request,
    pages_of,
    pool_pages,
)

DRAFT_TOKENS = (4, 8, 2, 16, 6, 64, 1, 5, 29)  # few: a kernel is compiled for each
WORDS = (2, 2, 33, 40, 1100, 2050)  # one to several tiles of 128, 256 and 512 bytes
SCALED_WORDS = (8, 40)
MOST_PAGES = 64  # before the block


def structure(source: Source) -> KvMoveCase:
    pool = choice(source, (HEADS, HEADS, *POOLS))  # callers are driven with heads
    page = INDEX_PAGE if pool == INDEXER else choice(source, (4, 1, 16, 2, 64, 256))
    draft_tokens = choice(source, DRAFT_TOKENS)
    width = draft_tokens if flag(source) else source.integer(1, draft_tokens)
    layers = source.integer(1, 3)
    window_layers = source.integer(1, 2) if pool == WINDOWED else 0
    layers = 0 if window_layers and source.integer(0, 3) == 3 else layers
    uncovered = source.integer(1, 3) if source.integer(0, 3) == 3 else 0
    key_words = choice(source, WORDS)
    value_words = {0: key_words, 1: choice(source, WORDS)}[source.integer(0, 1)]
    if pool in (SCALED, SCALED_LATENT):
        key_words = choice(source, SCALED_WORDS)
    if pool in (LATENT, INDEXER, SCALED_LATENT):
        value_words = 0
    elif pool in (HYBRID, SCALED):  # keep keys and values of one length
        value_words = key_words

    def request(source: Source) -> Request:
        path, most = [0], source.integer(1, width)
        while len(path) < most and path[-1] + 1 < draft_tokens:
            path.append(min(path[-1] + 1 + (source.integer(1, 3) if flag(source) else 0), draft_tokens - 1))
        boundary = source.integer(0, MOST_PAGES) * page
        back = choice(source, (len(path), len(path) - 1, draft_tokens, 0, len(path) + 1))
        return Request(max(0, boundary - back), tuple(path), ())

    most = 6 if draft_tokens <= 16 or page > 1 or source.integer(0, 3) == 3 else 3
    drawn = source.records(request, 1, most)
    case = KvMoveCase(
        pool, layers, window_layers, page, draft_tokens, width, uncovered, key_words, value_words, tuple(drawn)
    )
    return _fitting(with_pages(case, source.integer(0, 2**16)))


def with_pages(case: KvMoveCase, seed: int) -> KvMoveCase:
    """Give every block its pages; seed 0 counts upwards."""
    spans = [pages_of(r.pre, case.draft_tokens, case.page) for r in case.requests]
    numbers = list(range(1, sum(spans) + 1))
    if seed:
        random.Random(seed).shuffle(numbers)
    rows = []
    for r, span in zip(case.requests, spans, strict=True):
        rows.append(replace(r, pages=tuple(numbers[:span])))
        del numbers[:span]
    return replace(case, requests=tuple(rows))


def _fitting(case: KvMoveCase) -> KvMoveCase:
    """Shorter entries and fewer layers until the pool is small: a call lays it out whole."""
    while _words(case) > MAX_WORDS // 32:
        if max(case.key_words, case.value_words) > 40:
            case = replace(case, key_words=min(case.key_words, 40), value_words=min(case.value_words, 33))
        else:
            least = SCALED_WORDS[0] if case.pool in (SCALED, SCALED_LATENT) else 2
            case = replace(case, key_words=least, value_words=min(case.value_words, least), layers=min(case.layers, 1))
    return case


def _words(case: KvMoveCase) -> int:
    layers = case.layers + case.window_layers
    return pool_pages(case) * case.page * (case.key_words + case.value_words) * layers
