"""What the callers of the sampling kernels receive: logits, sampling parameters, coins.

Callers draw their own coins with ``torch.rand`` and ``torch.rand_like``; for the
call these hand out the coins of the case. Logits are the logarithms of the case's
probabilities, at temperature 1 and without top-k and top-p, so that the softmax
gives the probabilities back up to rounding; ``recovered`` says for which rows, and
``ROUNDING_ULP`` how far the decisions may move.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from fuzz.engines.closed import ClosedStub

LEAST_MASS = 2.0**-24
MOST_TOKENS = 64
# In units of 2^-24 of each recovered probability, |ln p| being 16.7 at most: the
# logarithm is off by 1 ULP of itself (2 x 16.7), its exponential by 2 (a further 4),
# the row's sum by as much and its 63 additions, the division by 1; the row itself may
# miss 1 by 64 x 2. Together below 300. A decision adds up probabilities that are off
# alike, so its edge moves by that share of itself: 300 half ULP, at most 300 ULP.
ROUNDING_ULP = 300.0
TOP_K_ALL = 1 << 30  # what a request without top-k carries


def recovered(case: Any) -> str | None:
    """Rows that survive the way through logits; a single threshold that no rounding meets."""
    target = case.target
    if not np.isfinite(target).all() or (target < 0).any() or not (target.sum(-1) > 0.5).all():
        return "the target is made from logits: always a distribution"
    if ((target > 0) & (target < LEAST_MASS)).any() or ((target > 0).sum(-1) > MOST_TOKENS).any():
        return "rows of up to 64 tokens of at least 2^-24 are recovered exactly enough from logits"
    if not ((case.token >= 0) & (case.token < case.vocabulary)).all():
        return "hostile tokens are shown to the kernel itself"
    near = np.abs(target - case.threshold_single) <= 2 * ROUNDING_ULP * 2.0**-24 * target
    if case.threshold_single < 1.0 and (near & (target > 0)).any():
        return "a mass lies on the single threshold, where rounding decides"
    return None


def logits(engine: Any, case: Any) -> Any:
    """float32 [B * N, V]; tokens without mass have minus infinity."""
    with np.errstate(divide="ignore"):
        values = np.log(case.target.astype(np.float64)).astype(np.float32)
    return engine.tensor(values.reshape(-1, case.vocabulary), "float32", contiguous=True)


def parameters(engine: Any, rows: int, **changes: Any) -> ClosedStub:
    """The sampling parameters of a batch that samples at temperature 1."""
    torch, device = engine.torch, engine.device
    plain = {
        "acc_additive_penalties": None,
        "acc_scaling_penalties": None,
        "logit_bias": None,
        "is_all_greedy": False,
        "temperatures": torch.ones(rows, 1, device=device),
        "top_ks": torch.full((rows,), TOP_K_ALL, dtype=torch.int32, device=device),
        "top_ps": torch.ones(rows, device=device),
        "min_ps": torch.zeros(rows, device=device),
        "need_top_k_sampling": False,
        "need_top_p_sampling": False,
        "need_min_p_sampling": False,
        "sampling_seed": None,
        "has_watermark_candidates": False,
    }
    return ClosedStub("sampling_info", **(plain | changes))


@contextmanager
def coins(engine: Any, case: Any) -> Iterator[list[str]]:
    """torch's generators hand out the coins of the case. Yields which were asked."""
    torch, asked = engine.torch, []
    per_node = engine.tensor(case.coin, "float32", contiguous=True)
    final = engine.tensor(case.final_coin, "float32", contiguous=True)

    def answer(shape: tuple[int, ...]) -> Any:
        """Another shape is noted, and the caller finds that the path was another."""
        names = {tuple(per_node.shape): ("nodes", per_node), tuple(final.shape): ("final", final)}
        name, found = names.get(shape, (f"coins of shape {shape}", torch.zeros(shape, device=engine.device)))
        asked.append(name)
        return found.clone()

    def rand(*size: Any, **_: Any) -> Any:
        return answer(tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else tuple(size))

    with (
        mock.patch.object(torch, "rand_like", lambda like, **_: answer(tuple(like.shape))),
        mock.patch.object(torch, "rand", rand),
    ):
        yield asked
