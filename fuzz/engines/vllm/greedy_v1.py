"""Greedy verification in runner 1: the kernel behind its function, and the whole
sampler, which splits the logits, samples the bonus token and parses the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.vllm.chains import counts_of, emitted_rows, fits, has_drafts, preferring
from fuzz.engines.vllm.launches import counted
from fuzz.engines.vllm.sampling import bonus_sampler, metadata_of, sampling_metadata

CONTRACT = "verify.greedy_chain"
FIELDS = ("accepted", "committed", "bonus_token", "emitted")


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="rejection_sample",
    observes=FIELDS,
    needs=("v1.rejection_sample", "v1.greedy_kernel"),
    execution="triton",
    accepts=has_drafts,
    engine="vllm",
)
def rejection_sample(engine: Any, case: Any) -> dict[str, Any]:
    """Of the logits it asks only the shape and the argmax, so they hold no more."""
    rows, width = case.block.shape
    drafts = width - 1
    predicted = engine.tensor(case.predicted[:, :-1].reshape(-1), "int64", contiguous=True)
    logits = ClosedStub(
        "logits",
        shape=(rows * drafts, case.vocabulary),
        ndim=2,
        device=predicted.device,
        argmax=lambda dim: predicted.clone(),
    )
    greedy = ClosedStub("sampling metadata", all_greedy=True, all_random=False)
    with counted(engine.symbol("v1.greedy_kernel")) as runs, engine.production():
        sampled = engine.symbol("v1.rejection_sample")(
            engine.tensor(case.block[:, 1:].reshape(-1), "int32", contiguous=True),
            [drafts] * rows,
            drafts,
            engine.tensor(drafts * np.arange(1, rows + 1), "int32", contiguous=True),
            None,
            logits,
            engine.tensor(case.predicted[:, -1:], "int32", contiguous=True),
            greedy,
        )
    engine.require_path(runs.count == 1, "greedy rejection kernel")
    return counts_of(emitted_rows(sampled))


def _whole(case: Any) -> str | None:
    return has_drafts(case) or fits(case)


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="RejectionSampler.forward",
    observes=FIELDS,
    needs=("v1.sampler", "v1.rejection_sampler", "v1.metadata", "v1.sampling_metadata", "v1.greedy_kernel"),
    execution="worker",
    accepts=_whole,
    engine="vllm",
)
def forward(engine: Any, case: Any) -> dict[str, Any]:
    rows, width = case.block.shape
    logits = preferring(engine, case.predicted, case.vocabulary)
    metadata = metadata_of(engine, case.block[:, 1:].tolist())
    sampler = engine.symbol("v1.rejection_sampler")(bonus_sampler(engine))
    with counted(engine.symbol("v1.greedy_kernel")) as runs, engine.production():
        output = sampler(metadata, None, logits, sampling_metadata(engine, rows, temperature=np.zeros(rows)))
        parsed = engine.symbol("v1.rejection_sampler").parse_output(output.sampled_token_ids, case.vocabulary)
    engine.require_path(runs.count == 1, "greedy rejection kernel")
    return counts_of([list(r) for r in (parsed[0] if isinstance(parsed, tuple) else parsed)])
