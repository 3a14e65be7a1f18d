"""A batch of draft chains as both runners lay it out.

Runner 1 flattens the draft tokens alone and hands the bonus token over; runner 2
flattens the whole blocks, the current token first, and has a row of logits for
each. Token ids are int32 on the way in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_LOGIT_CELLS = 2**22  # 16 MiB of float32; a kernel reads every one of them
PLACEHOLDER = -1  # stands behind the emitted tokens of a row in runner 1


def preferring(engine: Any, tokens: Any, vocabulary: int) -> Any:
    """float32 logits [tokens, vocabulary] whose argmax is ``tokens``."""
    torch = engine.torch
    chosen = torch.from_numpy(np.array(tokens, dtype=np.int64)).to(engine.device)
    logits = torch.zeros(chosen.numel(), vocabulary, device=engine.device)
    return logits.scatter_(1, chosen.reshape(-1, 1), 1.0)


def boundaries(engine: Any, counts: Any) -> Any:
    """int32 [B + 1] running sums of ``counts``, from 0."""
    return engine.tensor(np.concatenate([[0], np.cumsum(counts)]), "int32", contiguous=True)


def fits(case: Any) -> str | None:
    """Why the logits of a block batch would be too many, or ``None``."""
    if case.block.size * case.vocabulary > MAX_LOGIT_CELLS:
        return f"its logits would be more than {MAX_LOGIT_CELLS} numbers"
    return None


def has_drafts(case: Any) -> str | None:
    """Runner 1 asks its rejection sampler only when some request has a draft."""
    return None if case.block.shape[1] > 1 else "a batch without drafts is sampled elsewhere"


def emitted_rows(sampled: Any) -> list[list[int]]:
    """The tokens of each row in front of its placeholders, wherever those stand."""
    return [[t for t in row if t != PLACEHOLDER] for row in sampled.tolist()]


def counts_of(rows: list[list[int]]) -> dict[str, Any]:
    """The outcome fields of a chain that its emitted tokens decide."""
    return {
        "accepted": [len(r) - 1 for r in rows],
        "committed": [len(r) for r in rows],
        "bonus_token": [r[-1] if r else PLACEHOLDER for r in rows],
        "emitted": rows,
    }
