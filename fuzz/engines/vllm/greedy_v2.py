"""Greedy verification in runner 2, whose kernels find the argmax themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.vllm.batch_v2 import Batch, emitted
from fuzz.engines.vllm.chains import boundaries, counts_of, fits, preferring
from fuzz.engines.vllm.launches import counted

CONTRACT = "verify.greedy_chain"
FIELDS = ("accepted", "committed", "bonus_token", "emitted")


def _positions(case: Any) -> np.ndarray:
    return (case.pre[:, None] + np.arange(case.block.shape[1])).reshape(-1)


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="rejection_sample",
    observes=FIELDS,
    needs=("v2.rejection_sample", "v2.rejection_kernel", "v2.coin_module", "v2.noise_module"),
    execution="triton",
    accepts=fits,
    engine="vllm",
)
def rejection_sample(engine: Any, case: Any) -> dict[str, Any]:
    """At temperature 0 no coin is drawn; the proposal's logits are not given, as
    with drafts that were chosen greedily."""
    from fuzz.engines.vllm import streams

    rows, width = case.block.shape
    batch = Batch(engine, np.full(rows, width), temperature=0.0, positions=_positions(case))
    with streams.of_engine(engine), counted(engine.symbol("v2.rejection_kernel")) as runs, engine.production():
        sampled, count = engine.symbol("v2.rejection_sample")(
            preferring(engine, case.predicted, case.vocabulary),
            None,
            engine.tensor(case.block.reshape(-1), "int32", contiguous=True),
            *batch.arguments,
            width - 1,
        )
    engine.require_path(runs.count == 1, "rejection kernel")
    return counts_of(emitted(sampled, count))


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="probabilistic_rejection_sample",
    observes=FIELDS,
    needs=("v2.probabilistic", "v2.probabilistic_kernel", "v2.coin_module", "v2.noise_module"),
    execution="triton",
    accepts=fits,
    engine="vllm",
)
def probabilistic(engine: Any, case: Any) -> dict[str, Any]:
    from fuzz.engines.vllm import streams

    rows, width = case.block.shape
    batch = Batch(engine, np.full(rows, width), temperature=0.0, positions=_positions(case))
    proposal = engine.torch.zeros(batch.states, max(width - 1, 1), case.vocabulary, device=engine.device)
    with streams.of_engine(engine), counted(engine.symbol("v2.probabilistic_kernel")) as runs, engine.production():
        sampled, count = engine.symbol("v2.probabilistic")(
            preferring(engine, case.predicted, case.vocabulary),
            proposal,
            engine.tensor(case.block.reshape(-1), "int32", contiguous=True),
            *batch.arguments,
            width - 1,
        )
    engine.require_path(runs.count == 1, "probabilistic rejection kernel")
    return counts_of(emitted(sampled, count))


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="strict_rejection_sample",
    observes=FIELDS,
    needs=("v2.strict", "v2.strict_kernel"),
    execution="triton",
    engine="vllm",
)
def strict(engine: Any, case: Any) -> dict[str, Any]:
    """Compares drafts with tokens that the sampler drew before, whatever they are."""
    rows, width = case.block.shape
    with counted(engine.symbol("v2.strict_kernel")) as runs, engine.production():
        sampled, count = engine.symbol("v2.strict")(
            engine.tensor(case.predicted.reshape(-1), "int64", contiguous=True),
            engine.tensor(case.block.reshape(-1), "int32", contiguous=True),
            boundaries(engine, np.full(rows, width)),
            width - 1,
        )
    engine.require_path(runs.count == 1, "strict rejection kernel")
    return counts_of(emitted(sampled, count))
