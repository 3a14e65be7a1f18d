"""Sampled verification in runner 1.

Its probabilities are a softmax of logits, which the stand-in for the logits answers
with the rows of the case, so that every decision is made on the numbers that the
case holds. The bonus token is handed over, drawn as its caller draws it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.vllm import logarithms
from fuzz.engines.vllm.chains import PLACEHOLDER
from fuzz.engines.vllm.domains import certain, edges
from fuzz.engines.vllm.draws import drawing
from fuzz.engines.vllm.guards import Zones, guarded_full
from fuzz.engines.vllm.launches import counted
from fuzz.engines.vllm.sampling import bonus_sampler, metadata_of, sampling_metadata

CONTRACT = "verify.chain_rejection"
FIELDS = ("accepted", "path", "accepted_drafts", "race_token", "outside_writes")
NEEDS = ("v1.rejection_sample", "v1.greedy_kernel", "v1.recovered_kernel", "v1.random_kernel")
MASS_BESIDE = 1.0  # stands before and behind the rows: a read outside them finds all mass


def _ragged(case: Any, rows: np.ndarray) -> np.ndarray:
    """The rows [B, K, ...] of the drafts that exist, one behind the other."""
    return np.concatenate([r[:n] for r, n in zip(rows, case.counts, strict=True)])


def _bonus(case: Any) -> np.ndarray:
    """The token that the caller drew for each request, [B, 1]."""
    last = case.target[np.arange(len(case.counts)), case.counts]
    raced = np.argmax(last / case.exponentials, axis=1)
    return np.where(case.greedy, np.argmax(last, axis=1), raced)[:, None]


def _between_mass(engine: Any, rows: np.ndarray) -> Any:
    """``rows`` contiguous, in a buffer that holds mass on both sides."""
    torch, flat = engine.torch, engine.tensor(rows, "float32", contiguous=True)
    beside = torch.full((2 * rows.shape[1],), MASS_BESIDE, device=engine.device)
    whole = torch.cat([beside, flat.reshape(-1), beside])
    return whole[beside.numel() : -beside.numel()].view(rows.shape)


def run(engine: Any, case: Any, *, seeded: bool) -> dict[str, Any]:
    target = _between_mass(engine, _ragged(case, case.target))
    proposal = _between_mass(engine, _ragged(case, case.draft)) if case.has_q.any() else None
    logits = ClosedStub(
        "logits",
        shape=tuple(target.shape),
        ndim=2,
        device=target.device,
        softmax=lambda dim, dtype: target,
        argmax=lambda dim: target.argmax(dim=dim),
    )
    arguments = (
        engine.tensor(_ragged(case, case.drafts), "int32", contiguous=True),
        case.counts.tolist(),
        int(case.counts.max()),
        engine.tensor(np.cumsum(case.counts), "int32", contiguous=True),
        proposal,
        logits,
        engine.tensor(_bonus(case), "int32", contiguous=True),
    )
    with ExitStack() as stack:
        generators = stack.enter_context(drawing(engine, case, seeded=seeded))
        zones = stack.enter_context(guarded_full(engine.torch))
        names = ("v1.greedy_kernel", "v1.random_kernel", "v1.recovered_kernel")
        greedy, random, recovered = (stack.enter_context(counted(engine.symbol(n))) for n in names)
        metadata = ClosedStub(
            "sampling metadata",
            all_greedy=bool(case.greedy.all()),
            all_random=not case.greedy.any(),
            temperature=engine.tensor(np.where(case.greedy, 0.0, 1.0), "float32", contiguous=True),
            generators=generators,
        )
        with engine.production():
            sampled = engine.symbol("v1.rejection_sample")(*arguments, metadata)
    drawn = not case.greedy.all()
    engine.require_path(greedy.count == case.greedy.any(), "greedy rejection kernel")
    engine.require_path(random.count == recovered.count == drawn, "random rejection and recovery kernels")
    return observed(sampled.tolist(), zones)


def observed(rows: list[list[int]], zones: Zones) -> dict[str, Any]:
    """What the engine's parser reads from the output: every cell that holds a token."""
    tokens = [[t for t in row if t != PLACEHOLDER] for row in rows]
    behind = sum(t != PLACEHOLDER for row, kept in zip(rows, tokens, strict=True) for t in row[len(kept) :])
    return {
        "accepted": [len(t) - 1 for t in tokens],
        "path": [list(range(len(t))) for t in tokens],
        "accepted_drafts": [t[:-1] for t in tokens],
        "race_token": [t[-1] if t else PLACEHOLDER for t in tokens],
        "outside_writes": zones.changed() + behind,
    }


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="rejection_sample",
    observes=FIELDS,
    needs=NEEDS,
    execution="triton",
    accepts=certain,
    engine="vllm",
)
def rejection_sample(engine: Any, case: Any) -> dict[str, Any]:
    return run(engine, case, seeded=False)


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="rejection_sample(generators)",
    observes=FIELDS,
    needs=NEEDS,
    execution="triton",
    accepts=certain,
    engine="vllm",
)
def with_generators(engine: Any, case: Any) -> dict[str, Any]:
    """Each request brings a generator of its own."""
    return run(engine, case, seeded=True)


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="rejection_sample(edges)",
    observes=FIELDS,
    needs=NEEDS,
    execution="triton",
    accepts=edges,
    engine="vllm",
)
def at_edges(engine: Any, case: Any) -> dict[str, Any]:
    """A coin is 0 with probability 2^-53, as its float64 generator draws it; nothing is
    left where two softmaxes differ by rounding alone and the coin is as near to 1."""
    return run(engine, case, seeded=False)


def _whole(case: Any) -> str | None:
    return certain(case) or logarithms.certain(case)


@adapter(
    contract=CONTRACT,
    module="rejection_sampler",
    symbol="RejectionSampler.forward",
    observes=FIELDS,
    needs=("v1.sampler", "v1.rejection_sampler", "v1.metadata", "v1.sampling_metadata", "v1.expand_kernel", *NEEDS),
    execution="worker",
    accepts=_whole,
    rounding_ulp=1000.0,
    engine="vllm",
)
def forward(engine: Any, case: Any) -> dict[str, Any]:
    """The whole sampler on logits: it splits them, draws the bonus token, divides each
    request's by its own temperature, expanded to its drafts, and takes the softmax.
    Temperatures are powers of two, so that dividing rounds nothing; the logits are as
    exact as in runner 2, whose bounds hold here too."""
    rows = len(case.counts)
    temperature = np.where(case.greedy, 0.0, 2.0 ** (np.arange(rows) % 3 - 1))
    scale = np.where(case.greedy, 1.0, temperature)
    with np.errstate(divide="ignore"):
        logits = np.log(case.target.astype(np.float64)).astype(np.float32) * scale[:, None, None].astype(np.float32)
    flat = np.concatenate([r[: n + 1] for r, n in zip(logits, case.counts, strict=True)])
    drafts = [row[:n].tolist() for row, n in zip(case.drafts, case.counts, strict=True)]
    proposal = _between_mass(engine, _ragged(case, case.draft)) if case.has_q.any() else None
    kernels = ("v1.greedy_kernel", "v1.random_kernel", "v1.recovered_kernel", "v1.expand_kernel")
    sampler = engine.symbol("v1.rejection_sampler")(bonus_sampler(engine))
    with ExitStack() as stack:
        generators = stack.enter_context(drawing(engine, case, seeded=False))
        greedy, random, recovered, expanded = (stack.enter_context(counted(engine.symbol(n))) for n in kernels)
        zones = stack.enter_context(guarded_full(engine.torch))
        metadata = sampling_metadata(engine, rows, temperature=temperature, generators=generators)
        with engine.production():
            output = sampler(
                metadata_of(engine, drafts), proposal, engine.tensor(flat, "float32", contiguous=True), metadata
            )
    drawn = not case.greedy.all()
    engine.require_path(greedy.count == case.greedy.any(), "greedy rejection kernel")
    engine.require_path(random.count == recovered.count == expanded.count == drawn, "random rejection kernels")
    return observed(output.sampled_token_ids.tolist(), zones)
