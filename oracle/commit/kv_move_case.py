"""The case of commit.kv_move: whose KV entries move where, and what may be asked.

See ``oracle.commit.kv_move`` for the definition. Pages are named by the case and not
handed out in order, so that a slot never follows from its neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, MAX_LENGTH, require

NONE = -1
HEADS, LATENT, INDEXER, WINDOWED, HYBRID = "heads", "latent", "indexer", "windowed", "hybrid"
SCALED, SCALED_LATENT = "scaled", "scaled_latent"
POOLS = (HEADS, LATENT, INDEXER, WINDOWED, HYBRID, SCALED, SCALED_LATENT)
SCALE_WORDS = 8  # words of 4-bit elements that one word of scales stands for
INDEX_PAGE = 64  # the index keys of sparse attention are kept in pages of this size
MAX_PAGES = 4096
MAX_REQUESTS = 512
MAX_WORDS = 2**24  # of all buffers together, 4 bytes each
TILE_BYTES = 128  # of a row that a program copies at least in the kernels seen
LAUNCH_SLOTS = 256  # that one launch takes in the kernels seen


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before verify, ``path`` the nodes of its committed path, root
    first, ``pages`` the pages that its block lies in."""

    pre: int
    path: tuple[int, ...]
    pages: tuple[int, ...]


@dataclass(frozen=True)
class KvMoveCase:
    """One verified batch.

    pool           what is kept a token: ``heads`` (keys and values), ``latent`` (one
                   compressed entry), ``indexer`` (latent and an index key), ``windowed``
                   (heads, and window layers that have slots of their own), ``hybrid``
                   (heads in the attention layers of a model that has others), ``scaled``
                   and ``scaled_latent`` (4-bit elements, and the scales of their blocks)
    layers         layers that keep all tokens
    window_layers  layers that keep a window, of a ``windowed`` pool
    page           slots a page
    draft_tokens   nodes of a verify block
    path_width     columns of ``accept_index``, the most nodes a path can have
    uncovered      entries behind the accepted nodes that nothing is committed for
    key_words, value_words  4-byte words of a key and of a value a layer; a latent entry
                   is a key, and has no value
    """

    pool: str
    layers: int
    window_layers: int
    page: int
    draft_tokens: int
    path_width: int
    uncovered: int
    key_words: int
    value_words: int
    requests: tuple[Request, ...]


def pages_of(pre: int, draft_tokens: int, page: int) -> int:
    """How many pages a block of ``draft_tokens`` from position ``pre`` lies in."""
    return (pre + draft_tokens - 1) // page - pre // page + 1


def block_slots(case: KvMoveCase, r: Request) -> list[int]:
    """The slot of each node of a request's block; node n is at position ``pre + n``."""
    first = r.pre // case.page
    spots = (divmod(r.pre + n, case.page) for n in range(case.draft_tokens))
    return [r.pages[number - first] * case.page + offset for number, offset in spots]


def pool_pages(case: KvMoveCase) -> int:
    """Pages of the pool: the highest one named, and one of a neighbour behind it."""
    return max(p for r in case.requests for p in r.pages) + 2


def kept_end(case: KvMoveCase, r: Request) -> int:
    """The first position behind the block's slots that stay with the request."""
    post = r.pre + len(r.path)
    return min(-(-post // case.page) * case.page, r.pre + case.draft_tokens)


def window_slots(case: KvMoveCase) -> dict[int, int]:
    """The slot in the window layers of each slot of a block; slot 0 for all others."""
    if case.pool != WINDOWED:
        return {}
    slots = sorted((s for r in case.requests for s in block_slots(case, r)), reverse=True)
    return {slot: 1 + i for i, slot in enumerate(slots)}


def domain(case: KvMoveCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.pool in POOLS, f"pool: must be one of {', '.join(POOLS)}")
    for name, low, high in (
        ("layers", 0, 64), ("window_layers", 0, 64), ("draft_tokens", 1, 128), ("path_width", 1, case.draft_tokens),
        ("uncovered", 0, 64), ("key_words", 1, 4096), ("value_words", 0, 4096),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(1 <= case.page <= 256 and case.page & (case.page - 1) == 0, "page: must be a power of two up to 256")
    require(case.layers + case.window_layers >= 1, "layers: the pool keeps nothing")
    require(case.pool == WINDOWED or not case.window_layers, "window_layers: only a windowed pool has them")
    require(case.pool == WINDOWED or case.layers >= 1, "layers: must be at least 1")
    latent = case.pool in (LATENT, INDEXER, SCALED_LATENT)
    require(latent == (case.value_words == 0), "value_words: 0 for a latent entry, at least 1 else")
    scaled = case.pool in (SCALED, SCALED_LATENT)
    require(not scaled or case.key_words % SCALE_WORDS == 0, f"key_words: scales stand for {SCALE_WORDS} words each")
    require(case.pool != INDEXER or case.page == INDEX_PAGE, f"page: index keys have pages of {INDEX_PAGE}")
    require(bool(case.requests), "requests: must not be empty")
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        require(0 <= r.pre <= MAX_LENGTH, f"{where}.pre: must be 0 to {MAX_LENGTH}")
        require(1 <= len(r.path) <= case.path_width, f"{where}.path: must have 1 to path_width nodes")
        require(r.path[0] == 0, f"{where}.path: starts at the root, node 0")
        rising = all(a < b for a, b in zip(r.path, r.path[1:]))
        require(rising and r.path[-1] < case.draft_tokens, f"{where}.path: rising nodes below draft_tokens")
        spans = pages_of(r.pre, case.draft_tokens, case.page)
        require(len(r.pages) == spans, f"{where}.pages: the block lies in {spans}")
        require(all(1 <= p <= MAX_PAGES for p in r.pages), f"{where}.pages: must be 1 to {MAX_PAGES}; 0 is nobody's")
    pages = [p for r in case.requests for p in r.pages]
    require(len(set(pages)) == len(pages), "requests.pages: a page is named twice")
    words = pool_pages(case) * case.page * (case.key_words + case.value_words) * (case.layers + case.window_layers)
    require(words <= MAX_WORDS, f"key_words: {words} words of all buffers, at most {MAX_WORDS} are laid out")
    return FUNCTIONAL


def columns(case: KvMoveCase) -> dict[str, Any]:
    """Scalars and ``pages``, ``slots`` of the pool; int64 ``pre``, ``committed`` [B],
    ``path`` [B, path_width] padded with -1, ``block`` and ``window_block`` [B, N]: the
    slot of each node, in the window layers 0 where there are none."""
    rows = case.requests
    path = np.full((len(rows), case.path_width), NONE, dtype=np.int64)
    for i, r in enumerate(rows):
        path[i, : len(r.path)] = r.path
    block = np.array([block_slots(case, r) for r in rows], dtype=np.int64)
    in_window = window_slots(case)
    plain = {n: getattr(case, n) for n in KvMoveCase.__dataclass_fields__ if n != "requests"}
    return plain | {
        "pages": pool_pages(case),
        "slots": pool_pages(case) * case.page,
        "pre": np.array([r.pre for r in rows], dtype=np.int64),
        "committed": np.array([len(r.path) for r in rows], dtype=np.int64),
        "path": path,
        "block": block,
        "window_block": np.array([[in_window.get(int(s), 0) for s in row] for row in block], dtype=np.int64),
    }
