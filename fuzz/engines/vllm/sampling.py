"""What runner 1's sampler is handed: real metadata with nothing switched on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# Every field of the engine's sampling metadata that has no default, switched off.
PLAIN = {
    "top_p": None,
    "top_k": None,
    "max_num_logprobs": None,
    "no_penalties": True,
    "prompt_token_ids": None,
    "allowed_token_ids_mask": None,
}


def bonus_sampler(engine: Any) -> Any:
    """The engine's own sampler, which draws the bonus token."""
    return engine.symbol("v1.sampler")()


def sampling_metadata(engine: Any, rows: int, *, temperature: Any, generators: Any = None) -> Any:
    """Sampling metadata of ``rows`` requests; ``temperature`` [B], 0 for a greedy one."""
    none = engine.torch.empty(0, device=engine.device)
    greedy = np.asarray(temperature) == 0
    return engine.symbol("v1.sampling_metadata")(
        temperature=None if greedy.all() else engine.tensor(temperature, "float32", contiguous=True),
        all_greedy=bool(greedy.all()),
        all_random=not greedy.any(),
        generators=generators or {},
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[[] for _ in range(rows)],
        bad_words_token_ids={},
        logitsprocs=engine.symbol("v1.logits_processors")(),
        **PLAIN,
    )


def metadata_of(engine: Any, drafts: list[list[int]]) -> Any:
    """The engine's own metadata of ragged ``drafts``. Its logits lie request by
    request, the drafts' rows first and the bonus row behind them."""
    counts = np.array([len(d) for d in drafts])
    starts = np.concatenate([[0], np.cumsum(counts + 1)[:-1]])
    targets = [int(s) + j for s, c in zip(starts, counts, strict=True) for j in range(c)]

    def int32(values: Any) -> Any:
        return engine.tensor(np.asarray(values, dtype=np.int32), "int32", contiguous=True)

    given = {
        "draft_token_ids": int32([t for d in drafts for t in d]),
        "num_draft_tokens": counts.tolist(),
        "cu_num_draft_tokens": int32(np.cumsum(counts)),
        "cu_num_sampled_tokens": int32(np.cumsum(counts + 1)),
        "target_logits_indices": int32(targets),
        "bonus_logits_indices": int32(starts + counts),
        "logits_indices": int32(np.arange(int((counts + 1).sum()))),
    }
    metadata = engine.symbol("v1.metadata")
    names = {f.name for f in dataclasses.fields(metadata) if f.init}
    return metadata(**{name: value for name, value in given.items() if name in names})
