"""What runner 2 publishes after a verify: lengths and tokens in tables by request state."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.vllm.chains import boundaries
from fuzz.engines.vllm.launches import counted
from fuzz.engines.vllm.lengths import CONTRACT, MAX_TOKENS, emitted, in_tables
from fuzz.worker.layout import FILLER


@adapter(
    contract=CONTRACT,
    module="gpu_input_batch",
    symbol="post_update",
    observes=("committed", "post", "emitted_tokens", "bonus_token", "outside_untouched"),
    needs=("inputs.num_rejected", "inputs.post_update", "inputs.post_update_kernel"),
    execution="triton",
    accepts=in_tables,
    engine="vllm",
)
def post_update(engine: Any, case: Any) -> dict[str, Any]:
    """The rejected drafts are counted by the engine as well, as its runner does. The
    current token is in the table of tokens already."""
    torch, rows, width = engine.torch, len(case.pre), case.draft_tokens
    states = np.arange(rows, 0, -1)  # state 0 is nobody's

    def by_state(values: Any, dtype: str) -> Any:
        whole = np.full(rows + 1, FILLER, dtype=np.int64)
        whole[states] = values
        return engine.tensor(whole, dtype, contiguous=True)

    computed, total = by_state(case.pre, "int32"), by_state(case.pre + 1, "int32")
    last, starts = by_state(np.full(rows, FILLER), "int64"), boundaries(engine, np.full(rows, width))
    tokens = torch.full((rows + 1, MAX_TOKENS), FILLER, dtype=torch.int32, device=engine.device)
    mapping = engine.tensor(states, "int32", contiguous=True)
    with counted(engine.symbol("inputs.post_update_kernel")) as runs, engine.production():
        sampled, rejected = engine.symbol("inputs.num_rejected")(
            engine.tensor(case.committed, "int32", contiguous=True),
            engine.tensor(case.pre + width, "int32", contiguous=True),
            starts,
            mapping,
            by_state(np.minimum(case.pre, 1), "int32"),
        )
        engine.symbol("inputs.post_update")(
            mapping,
            computed,
            last,
            None,
            engine.tensor(emitted(case, FILLER), "int64", contiguous=True),
            sampled,
            rejected,
            starts,
            tokens,
            total,
        )
    engine.require_path(runs.count == 1, "post update kernel")
    counts = [int(total[s]) - int(p) - 1 for s, p in zip(states, case.pre, strict=True)]
    published = [
        tokens[s, p + 1 : p + 1 + max(c, 0)].tolist() for s, p, c in zip(states, case.pre, counts, strict=True)
    ]
    for s, p, c in zip(states, case.pre, counts, strict=True):
        tokens[s, p + 1 : p + 1 + max(c, 0)] = FILLER
    nobody = [int(x[0]) for x in (computed, total, last)]
    return {
        "committed": counts,
        "post": [int(computed[s]) for s in states],
        "emitted_tokens": published,
        "bonus_token": [int(last[s]) for s in states],
        "outside_untouched": bool((tokens == FILLER).all()) and nobody == [FILLER] * 3,
    }
