"""FlashInfer's rejection sampling of a draft chain, a CUDA kernel.

Chains of a batch have one width; shorter ones are padded with -1. The kernel consumes a coin for each test, then, after
a rejection, one for each position from the rejected one on (for a count that is no part of the contract), and last the
one that draws: so the last coin stands at two places of a row of coins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.flashinfer import known_coins

CONTRACT = "verify.chain_rejection"
GUARD = 4096  # bytes before and after each buffer
GUARD_BYTE = 0xA5


def accepts(case: Any) -> str | None:
    if case.rule != "token":
        return "token rule only"
    if case.greedy.any():
        return "it has no greedy requests"
    if case.drafts.shape[1] == 0:
        return "a batch has at least one draft"
    if (case.coins == 0).any() or (case.final_coin == 0).any():
        return "its generator draws from (0, 1]"
    return None


def coins(case: Any) -> np.ndarray:
    """Float32 [B, K + 2] in the order in which they are drawn: K tests and the last one, or, after a rejection, one
    more before it, which decides nothing here."""
    last = np.repeat(case.final_coin[:, None], 2, axis=1)
    return np.concatenate([case.coins, last], axis=1).astype(np.float32)


def observed(tokens: list[list[int]], emitted: list[int]) -> dict[str, Any]:
    """``tokens`` [B, K + 1]: the drafts kept, the last token, then -1; ``emitted`` drafts a row."""
    kept = [min(max(n, 0), len(row) - 1) for row, n in zip(tokens, emitted, strict=True)]
    return {
        "accepted": emitted,
        "accepted_drafts": [row[:n] for row, n in zip(tokens, kept, strict=True)],
        "bonus_token": [row[n] for row, n in zip(tokens, kept, strict=True)],
    }


class _Guarded:
    """A contiguous tensor between guard zones, in which a read beside a row finds the same each time."""

    def __init__(self, engine: Any, values: np.ndarray, dtype: str):
        torch = engine.torch
        given = torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
        size = given.numel() * given.element_size()
        self._wide = torch.full((size + 2 * GUARD,), GUARD_BYTE, dtype=torch.uint8, device=engine.device)
        self._inside = self._wide[GUARD : GUARD + size]
        self.tensor = self._inside.view(given.dtype).view(given.shape)
        self.tensor.copy_(given)
        self._before = self._wide.clone()

    def changed(self, with_inside: bool) -> int:
        """Bytes that are not what they were, in the zones alone or everywhere."""
        now = self._wide.clone()
        if not with_inside:
            now[GUARD : GUARD + len(self._inside)] = self._before[GUARD : GUARD + len(self._inside)]
        return int((now != self._before).sum())


@adapter(
    engine="flashinfer",
    contract=CONTRACT,
    module="sampling",
    symbol="chain_speculative_sampling",
    observes=("accepted", "accepted_drafts", "bonus_token", "outside_writes"),
    needs=("chain.sampling", "chain.core", "chain.environment"),
    execution="triton",
    accepts=accepts,
)
def chain_speculative_sampling(engine: Any, case: Any) -> dict[str, Any]:
    if engine.device == "cpu":
        raise Unsupported("chain_speculative_sampling runs on CUDA devices only")
    sampling = engine.symbol("chain.sampling")
    known_coins.use(sampling, engine.symbol("chain.core"), engine.symbol("chain.environment"))
    torch, rows = engine.torch, len(case.drafts)
    read = {
        "draft_probs": _Guarded(engine, case.draft, "float32"),
        "draft_token_ids": _Guarded(engine, case.drafts, "int32"),
        "target_probs": _Guarded(engine, case.target, "float32"),
    }
    counts = [_Guarded(engine, np.zeros(rows, np.int32), "int32") for _ in range(2)]
    stream = torch.from_numpy(coins(case)).to(engine.device)
    addresses = [stream.data_ptr() + r * stream.stride(0) * stream.element_size() for r in range(rows)]
    with engine.production():
        tokens, _, emitted = sampling.chain_speculative_sampling(
            **{name: guarded.tensor for name, guarded in read.items()},
            maybe_output_accepted_token_num=counts[0].tensor,
            maybe_output_emitted_draft_token_num=counts[1].tensor,
            seed=torch.tensor(addresses, dtype=torch.int64, device=engine.device),
            offset=torch.zeros(rows, dtype=torch.int64, device=engine.device),
        )
    outside = sum(g.changed(with_inside=True) for g in read.values())
    outside += sum(g.changed(with_inside=False) for g in counts)
    return observed(tokens.cpu().tolist(), emitted.cpu().tolist()) | {"outside_writes": outside}
