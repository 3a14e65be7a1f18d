"""Sampled verification in runner 2, by the token rule and by blocks.

It takes logits and works in logarithms (see ``logarithms``) and grows its coins from
seeds (see ``streams``). The race is run in double precision, a setting of the engine,
because a single-precision uniform cannot hold every exponential.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.vllm.batch_v2 import Batch, emitted
from fuzz.engines.vllm.guards import guarded_new_empty
from fuzz.engines.vllm.launches import counted
from fuzz.engines.vllm.logarithms import ROUNDING_ULP, certain

CONTRACT = "verify.chain_rejection"
FIELDS = ("accepted", "path", "accepted_drafts", "race_token", "outside_writes")
STREAMS = ("v2.coin_module", "v2.noise_module")
TILE = 1024  # tokens that a program of the race looks at; it reads whole tiles


def _logits(rows: np.ndarray) -> np.ndarray:
    """float32 logarithms of float32 masses; no mass is minus infinity."""
    with np.errstate(divide="ignore"):
        return np.log(rows.astype(np.float64)).astype(np.float32)


def _speeds(engine: Any, case: Any) -> Any:
    """The exponentials [B, tiles], whose row addresses are the requests' seeds."""
    rows, vocabulary = case.exponentials.shape
    table = np.ones((rows, -(-vocabulary // TILE) * TILE), dtype=np.float32)
    table[:, :vocabulary] = case.exponentials
    return engine.tensor(table, "float32", contiguous=True)


def _positions(case: Any, widths: np.ndarray) -> list[int]:
    """The position of each token of a block: the bit pattern of the coin of the draft behind it."""
    coins = np.full((len(widths), int(widths.max())), 0.5, dtype=np.float32)
    coins[:, : case.coins.shape[1]] = case.coins
    return [int(c) for row, w in zip(coins.view(np.int32), widths, strict=True) for c in row[:w]]


def _verify(engine: Any, case: Any, function: str, kernel: str, *, proposal_needed: bool) -> dict[str, Any]:
    from fuzz.engines.vllm import streams

    torch, rows, most = engine.torch, len(case.counts), max(int(case.counts.max()), 1)
    if (case.drafts[np.arange(case.drafts.shape[1]) < case.counts[:, None]] < 0).any():
        _require(engine, "v2.placeholders")
    if engine.device != "cpu" and engine.fact("v2.hashed_seed"):
        raise Unsupported("its seeds are hashed inside the compiled kernel")
    widths = case.counts + 1
    speeds = _speeds(engine, case)
    seeds = [speeds.data_ptr() + i * speeds.stride(0) * speeds.element_size() for i in range(rows)]
    temperature = np.where(case.greedy, 0.0, 1.0)
    batch = Batch(engine, widths, temperature=temperature, positions=_positions(case, widths), seeds=seeds)
    target = np.concatenate([t[:w] for t, w in zip(case.target, widths, strict=True)])
    proposal = None
    if proposal_needed or case.has_q.any():
        table = np.full((batch.states, most, case.vocabulary), -1.0, dtype=np.float32)
        given = np.where((case.draft > 0).any(axis=2)[:, :, None], _logits(case.draft), 0.0)
        table[batch.state_of_row, : case.draft.shape[1]] = given  # a placeholder's row is there too, and says nothing
        proposal = engine.tensor(table, "float32", contiguous=True)
    blocks = [0 if j < 0 else int(d[j]) for d, w in zip(case.drafts, widths, strict=True) for j in range(-1, w - 1)]
    options = dict(engine.fact("v2.double_precision"))
    if case.rule == "block":
        _require(engine, "v2.block_rule")
        options["use_block_verification"] = True
    with ExitStack() as stack:
        if engine.device == "cpu":
            from fuzz.engines.vllm.interpreted import device_functions

            stack.enter_context(device_functions())
        stack.enter_context(streams.of_engine(engine))
        zones = stack.enter_context(guarded_new_empty(torch, torch.int64))
        runs = stack.enter_context(counted(engine.symbol(kernel)))
        with engine.production():
            sampled, count = engine.symbol(function)(
                engine.tensor(_logits(target), "float32", contiguous=True),
                proposal,
                engine.tensor(blocks, "int32", contiguous=True),
                *batch.arguments,
                most,
                **options,
            )
    engine.require_path(runs.count == 1, "rejection kernel")
    tokens = emitted(sampled, count)
    return {
        "accepted": [len(t) - 1 for t in tokens],
        "path": [list(range(len(t))) for t in tokens],
        "accepted_drafts": [t[:-1] for t in tokens],
        "race_token": [t[-1] for t in tokens],
        "outside_writes": zones.changed(),
    }


def _require(engine: Any, fact: str) -> None:
    """Raise Unsupported unless the version has what ``fact`` says."""
    if not engine.fact(fact):
        raise Unsupported(f"{fact}: not in {engine.version}")


def _token_rule(case: Any) -> str | None:
    return certain(case) if case.rule == "token" else "the block rule is a target of its own"


def _block_rule(case: Any) -> str | None:
    return certain(case) if case.rule == "block" else "the token rule is a target of its own"


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="rejection_sample",
    observes=FIELDS,
    needs=("v2.rejection_sample", "v2.rejection_kernel", *STREAMS),
    execution="triton",
    accepts=_token_rule,
    rounding_ulp=ROUNDING_ULP,
    engine="vllm",
)
def rejection_sample(engine: Any, case: Any) -> dict[str, Any]:
    return _verify(engine, case, "v2.rejection_sample", "v2.rejection_kernel", proposal_needed=False)


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="rejection_sample(use_block_verification)",
    observes=FIELDS,
    needs=("v2.rejection_sample", "v2.rejection_kernel", "v2.cumulative_kernel", *STREAMS),
    execution="triton",
    accepts=_block_rule,
    rounding_ulp=ROUNDING_ULP,
    engine="vllm",
)
def block_verification(engine: Any, case: Any) -> dict[str, Any]:
    return _verify(engine, case, "v2.rejection_sample", "v2.rejection_kernel", proposal_needed=False)


@adapter(
    contract=CONTRACT,
    module="gpu_rejection_sampler",
    symbol="probabilistic_rejection_sample",
    observes=FIELDS,
    needs=("v2.probabilistic", "v2.probabilistic_kernel", *STREAMS),
    execution="triton",
    accepts=_token_rule,
    rounding_ulp=ROUNDING_ULP,
    engine="vllm",
)
def probabilistic(engine: Any, case: Any) -> dict[str, Any]:
    return _verify(engine, case, "v2.probabilistic", "v2.probabilistic_kernel", proposal_needed=True)
