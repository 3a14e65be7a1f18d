"""Accepted KV entries moved by the engine's own pools.

As its callers do, a pool is handed fixed-size lists of locations, filled up with location
0, which is nobody's. Pools whose move is switched by the environment are targets of their
own for each switch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.kv_pools import HND, NATIVE, KvPools
from oracle.commit.kv_move_case import HEADS, HYBRID, INDEXER, LATENT, SCALED, SCALED_LATENT, WINDOWED

CONTRACT = "commit.kv_move"
HELD = ("kv", "index", "window", "neighbours")


def only(pool: str) -> Callable[[Any], str | None]:
    def accepts(case: Any) -> str | None:
        if case.pool != pool:
            return f"a pool of the kind {pool!r} only"
        unequal = pool in (HYBRID, SCALED) and case.key_words != case.value_words
        return "keys and values of this pool have one length" if unequal else None

    return accepts


def committed_slots(case: Any) -> tuple[np.ndarray, np.ndarray]:
    """Slots of the committed paths, and of where they belong, one request after another."""
    rows = list(zip(case.block, case.path, case.committed, strict=True))
    sources = [block[path[:count]] for block, path, count in rows]
    return np.concatenate(sources), np.concatenate([block[:count] for block, _, count in rows])


def _move(engine: Any, case: Any, switch: str | None = None) -> dict[str, Any]:
    pools = KvPools(engine, case, switch)
    wide = np.zeros((2, len(case.pre) * case.path_width), dtype=np.int64)
    for row, slots in zip(wide, committed_slots(case), strict=True):
        row[: len(slots)] = slots
    sources, targets = (engine.tensor(row, "int64", contiguous=True) for row in wide)
    with engine.production():
        pools.move_kv_cache(targets, sources)
    return pools.observed()


@adapter(contract=CONTRACT, module="kv_pools", symbol="MHATokenToKVPool.move_kv_cache", observes=HELD,
         needs=("kv.heads",), execution="triton", accepts=only(HEADS))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="MLATokenToKVPool.move_kv_cache", observes=HELD,
         needs=("kv.latent", "kv.latent_move"), execution="torch", accepts=only(LATENT))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="DSATokenToKVPool.move_kv_cache", observes=HELD,
         needs=("kv.indexer", "kv.indexer_move"), execution="torch", accepts=only(INDEXER))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="SWAKVPool.move_kv_cache", observes=HELD,
         needs=("kv.windowed",), execution="triton", accepts=only(WINDOWED))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="HybridLinearKVPool.move_kv_cache", observes=HELD,
         needs=("kv.hybrid", "kv.hybrid_copies"), execution="triton", accepts=only(HYBRID))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="MHATokenToKVPool.move_kv_cache(4 bit)", observes=HELD,
         needs=("kv.heads", "kv.scaled_method"), execution="triton", accepts=only(SCALED))  # fmt: skip
@adapter(contract=CONTRACT, module="kv_pools", symbol="MLATokenToKVPoolFP4.move_kv_cache", observes=HELD,
         needs=("kv.scaled_latent", "kv.latent_move"), execution="torch", accepts=only(SCALED_LATENT))  # fmt: skip
def move(engine: Any, case: Any) -> dict[str, Any]:
    return _move(engine, case)


@adapter(contract=CONTRACT, module="kv_pools", symbol="MHATokenToKVPool.move_kv_cache(native)", observes=HELD,
         needs=("kv.heads", "kv.native"), execution="torch", accepts=only(HEADS))  # fmt: skip
def move_native(engine: Any, case: Any) -> dict[str, Any]:
    return _move(engine, case, NATIVE)


@adapter(contract=CONTRACT, module="kv_pools", symbol="MHATokenToKVPool.move_kv_cache(heads first)", observes=HELD,
         needs=("kv.heads", "kv.heads_first"), execution="torch", accepts=only(HEADS))  # fmt: skip
def move_heads_first(engine: Any, case: Any) -> dict[str, Any]:
    return _move(engine, case, HND)
