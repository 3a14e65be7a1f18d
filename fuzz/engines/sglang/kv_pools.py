"""A case of commit.kv_move in the engine's own KV pools, stamped, and read back as nodes.

Every 4-byte word of every buffer gets a number of its own, whatever dtype the pool has, so
a slot afterwards says whose entry it holds: in one layer and buffer all words must come
from one slot, and all layers and buffers must agree. The pools allocate for themselves, so
a write outside a buffer is not watched; every slot inside is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import Unsupported
from fuzz.engines.closed import ClosedStub
from oracle.commit.kv_move import DIVIDED, FOREIGN, OTHER, PARTS
from oracle.commit.kv_move_case import HEADS, HYBRID, INDEXER, LATENT, SCALE_WORDS, SCALED, SCALED_LATENT, WINDOWED

WORD_ELEMENTS = 2  # bfloat16 elements of a 4-byte word
FP4_ELEMENTS = 8  # of a 4-byte word
INDEX_DIM = 128  # of an index key; its scale is one word
INDEX_KEY_WORDS = INDEX_DIM // 4
MODEL_LAYERS = 100  # layer numbers of a hybrid model are not those of the pool
NATIVE, HND = "SGLANG_NATIVE_MOVE_KV_CACHE", "SGLANG_USE_HND_KVCACHE"  # heads first within a page


@dataclass(frozen=True)
class Buffer:
    """What one tensor of a layer keeps: ``views`` are int32 views of it, a layer each,
    whose elements in order are [slots, words]. ``field``: the outcome field it counts for."""

    field: str
    words: int
    views: tuple[Any, ...]


class KvPools:
    """A pool of the engine that holds a stamped case."""

    def __init__(self, engine: Any, case: Any, switch: str | None = None):
        self.engine, self.case = engine, case
        environment = {name: "1" if name == switch else "0" for name in (NATIVE, HND)}
        self._switched = mock.patch.dict(os.environ, environment)
        with self._switched:
            self.pool, self._buffers = _BUILD[case.pool](engine, case)
        for buffer in self._buffers:
            self._stamp(buffer)

    def move_kv_cache(self, to: Any, source: Any) -> None:
        """The engine's own move, under the pool's switch."""
        with self._switched:
            self.pool.move_kv_cache(to, source)

    def _stamp(self, buffer: Buffer) -> None:
        torch, first = self.engine.torch, 1
        for view in buffer.views:
            numbers = torch.arange(first, first + view.numel(), dtype=torch.int32, device=self.engine.device)
            view.copy_(numbers.view(view.shape))
            first += view.numel()

    def observed(self) -> dict[str, Any]:
        """``kv``, ``index``, ``window`` a request, and ``neighbours``."""
        case, found, strangers = self.case, {}, 0
        for field in ("kv", "index", "window"):
            buffers = [b for b in self._buffers if b.field == field and b.views]
            if not buffers:
                found[field] = [[] for _ in case.pre]
                continue
            holds = _agreed([_origins(buffer) for buffer in buffers])
            blocks = case.window_block if field == "window" else case.block
            found[field] = [_nodes(holds, block) for block in blocks]
            nobody = 1 if field == "window" else case.page  # slots that may be written
            mine = np.zeros(len(holds), dtype=bool)
            mine[blocks.reshape(-1)] = mine[:nobody] = True
            strangers += int((holds[~mine] != np.arange(len(holds))[~mine]).sum())
        return found | {"neighbours": strangers}


def _origins(buffer: Buffer) -> np.ndarray:
    """[slots]: the slot whose entry each slot holds in this buffer."""
    layers = []
    for layer, view in enumerate(buffer.views):
        rows = view.reshape(-1, buffer.words).cpu().numpy().astype(np.int64)
        slots = len(rows)
        numbers = rows - 1 - np.arange(buffer.words)
        entry = numbers[:, 0] // buffer.words - layer * slots
        whole = (numbers == numbers[:, :1]).all(axis=1) & (numbers[:, 0] % buffer.words == 0)
        known = (entry >= 0) & (entry < slots)
        layers.append(np.where(~whole, PARTS, np.where(known, entry, FOREIGN)))
    return _agreed(layers)


def _agreed(parts: list[np.ndarray]) -> np.ndarray:
    """What all parts say, DIVIDED where they differ; a row that is broken in one is broken."""
    first = parts[0]
    agreed = np.where(np.logical_and.reduce([part == first for part in parts]), first, DIVIDED)
    return np.where(np.logical_or.reduce([part == PARTS for part in parts]), PARTS, agreed)


def _nodes(holds: np.ndarray, block: np.ndarray) -> list[int]:
    node_of = {int(slot): node for node, slot in enumerate(block)}
    return [int(h) if h < OTHER else node_of.get(int(h), OTHER) for h in holds[block]]


def _heads_of(case: Any) -> int:
    return 1 if (case.key_words | case.value_words) & 1 else 2


def _common(engine: Any, case: Any) -> dict[str, Any]:
    """What every pool takes; it allocates one page more than ``size``."""
    return {
        "size": case.slots - case.page,
        "page_size": case.page,
        "dtype": engine.torch.bfloat16,
        "device": engine.device,
    }


def _head_sizes(case: Any) -> dict[str, int]:
    heads = _heads_of(case)
    return {
        "head_num": heads,
        "head_dim": case.key_words * WORD_ELEMENTS // heads,
        "v_head_dim": case.value_words * WORD_ELEMENTS // heads,
    }


def _view(torch: Any, tensor: Any) -> Any:
    """int32 words of [slots, heads, dim] or, pages first, of [pages, heads, page, dim]."""
    words = tensor.view(torch.int32)
    return words.permute(0, 2, 1, 3) if words.dim() == 4 else words


def _key_value(engine: Any, case: Any, pool: Any, field: str) -> list[Buffer]:
    views = [tuple(_view(engine.torch, t) for t in kept) for kept in (pool.k_buffer, pool.v_buffer)]
    return [Buffer(field, words, v) for words, v in zip((case.key_words, case.value_words), views, strict=True)]


def _heads(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    pool = engine.symbol("kv.heads")(
        layer_num=case.layers, enable_memory_saver=False, enable_kv_cache_copy=True, **_head_sizes(case),
        **_common(engine, case),
    )  # fmt: skip
    return pool, _key_value(engine, case, pool, "kv")


def _latent_sizes(case: Any) -> dict[str, int]:
    return {"kv_lora_rank": case.key_words * WORD_ELEMENTS - 1, "qk_rope_head_dim": 1}


def _latent_buffer(engine: Any, case: Any, pool: Any) -> Buffer:
    return Buffer("kv", case.key_words, tuple(_view(engine.torch, t) for t in pool.kv_buffer))


def _latent(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    pool = engine.symbol("kv.latent")(
        layer_num=case.layers, enable_memory_saver=False, **_latent_sizes(case), **_common(engine, case)
    )
    return pool, [_latent_buffer(engine, case, pool)]


def _indexer(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    common = _common(engine, case)
    pool = engine.symbol("kv.indexer")(
        layer_num=case.layers, enable_memory_saver=False, index_head_dim=INDEX_DIM, index_buf_size=common["size"],
        kv_cache_dim=case.key_words * WORD_ELEMENTS, **_latent_sizes(case), **common,
    )  # fmt: skip
    keys, scales = [], []
    for kept in pool.index_k_with_scale_buffer:
        words = kept.view(engine.torch.int32)  # [pages, keys of the page and behind them its scales]
        end = case.page * INDEX_KEY_WORDS
        keys.append(words[:, :end].unflatten(1, (case.page, INDEX_KEY_WORDS)))
        scales.append(words[:, end:].unflatten(1, (case.page, 1)))
    index = [Buffer("index", INDEX_KEY_WORDS, tuple(keys)), Buffer("index", 1, tuple(scales))]
    return pool, [_latent_buffer(engine, case, pool), *index]


def _windowed(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    torch = engine.torch
    if not case.layers and not engine.fact("kv.windows_alone"):
        raise Unsupported("a windowed pool of this version keeps all tokens in one layer at least")
    block = case.block.reshape(-1)
    window_pages = -(-(len(block) + 2) // case.page)
    pool = engine.symbol("kv.windowed")(
        size_swa=window_pages * case.page, enable_kv_cache_copy=True,
        swa_attention_layer_ids=list(range(case.layers, case.layers + case.window_layers)),
        full_attention_layer_ids=list(range(case.layers)),
        **_head_sizes(case), **_common(engine, case), **engine.fact("kv.windowed_arguments"),
    )  # fmt: skip
    mapping = torch.zeros(case.slots + 1, dtype=torch.int64)
    mapping[torch.from_numpy(block)] = torch.from_numpy(case.window_block.reshape(-1))
    pool.register_mapping(mapping.to(engine.device))
    return pool, [
        *(_key_value(engine, case, pool.full_kv_pool, "kv") if case.layers else []),
        *_key_value(engine, case, pool.swa_kv_pool, "window"),
    ]


def _hybrid(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    sizes = _head_sizes(case)
    pool = engine.symbol("kv.hybrid")(
        head_num=sizes["head_num"], head_dim=sizes["head_dim"], enable_memory_saver=False, enable_kv_cache_copy=True,
        full_attention_layer_ids=[MODEL_LAYERS + 4 * i for i in range(case.layers)],
        mamba_pool=ClosedStub("recurrent states"), **_common(engine, case), **engine.fact("kv.hybrid_arguments"),
    )  # fmt: skip
    return pool, _key_value(engine, case, pool.full_kv_pool, "kv")


def _scale_buffers(engine: Any, case: Any, *kept: Any) -> list[Buffer]:
    """Scales of 4-bit blocks, [slots, bytes] a layer."""
    words = case.key_words // SCALE_WORDS
    return [Buffer("kv", words, tuple(t.view(engine.torch.int32) for t in tensors)) for tensors in kept]


def _scaled(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    common = _common(engine, case) | {"dtype": engine.torch.float4_e2m1fn_x2}
    pool = engine.symbol("kv.heads")(
        layer_num=case.layers, enable_memory_saver=False, enable_kv_cache_copy=True, head_num=1,
        head_dim=case.key_words * FP4_ELEMENTS, quant_method=engine.symbol("kv.scaled_method")(), **common,
    )  # fmt: skip
    scales = _scale_buffers(engine, case, pool.k_scale_buffer, pool.v_scale_buffer)
    return pool, [*_key_value(engine, case, pool, "kv"), *scales]


def _scaled_latent(engine: Any, case: Any) -> tuple[Any, list[Buffer]]:
    common = _common(engine, case) | {"dtype": engine.torch.float4_e2m1fn_x2}
    pool = engine.symbol("kv.scaled_latent")(
        layer_num=case.layers, enable_memory_saver=False, kv_lora_rank=case.key_words * FP4_ELEMENTS - 8,
        qk_rope_head_dim=8, **common,
    )  # fmt: skip
    return pool, [_latent_buffer(engine, case, pool), *_scale_buffers(engine, case, pool.kv_scale_buffer)]


_BUILD: dict[str, Callable[[Any, Any], tuple[Any, list[Buffer]]]] = {
    HEADS: _heads,
    LATENT: _latent,
    INDEXER: _indexer,
    WINDOWED: _windowed,
    HYBRID: _hybrid,
    SCALED: _scaled,
    SCALED_LATENT: _scaled_latent,
}
