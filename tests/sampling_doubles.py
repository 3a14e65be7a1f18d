"""The adapters of CUDA-only sampling targets, driven on a CPU.

``tree_kernel`` is a slow double of the sampling kernel in plain Python. With it the
adapters do all they do on a GPU, so that a GPU run does not end on a misspelt name.
Imported by a worker only; ``ADAPTERS`` is what the test asks for.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

from fuzz import adapter as adapters
from fuzz.adapter import Adapter, accept_all
from fuzz.engines.sglang import dflash_sampling, eagle_sample, tree_sampling
from fuzz.engines.sglang.sampling_inputs import ROUNDING_ULP

CONTRACT = "verify.tree_sampling"


def tree_kernel(*, predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, retrive_index: Any,
                retrive_next_token: Any, retrive_next_sibling: Any, uniform_samples: Any,
                uniform_samples_for_final_sampling: Any, target_probs: Any, draft_probs: Any,
                threshold_single: float, threshold_acc: float, deterministic: bool) -> None:  # fmt: skip
    """As the kernel is called: outputs in place, rejected tokens marked in ``draft_probs``."""
    rows, nodes = candidates.shape
    target = target_probs.view(rows, nodes, -1)
    marked = draft_probs.view(rows, nodes, -1)
    for r in range(rows):
        path, vocabulary = [0], target.shape[-1]
        while len(path) < accept_index.shape[1]:
            at, child, mass = path[-1], int(retrive_next_token[r, path[-1]]), np.float32(0)
            while child != -1:
                token = int(candidates[r, child])
                p = np.float32(target[r, at, token]) if 0 <= token < vocabulary else np.float32(0)
                mass += p if p > 0 else np.float32(0)
                below = np.float32(uniform_samples[r, at]) < mass / np.float32(threshold_acc)
                if p > 0 and (below or p >= np.float32(threshold_single)):
                    path.append(child)
                    break
                if p > 0:
                    marked[r, at, token] = target[r, at, token]
                child = int(retrive_next_sibling[r, child])
            if path[-1] == at:
                break
        for n, node in enumerate(path):
            accept_index[r, n] = retrive_index[r, node]
            if n:
                predicts[retrive_index[r, path[n - 1]]] = int(candidates[r, node])
        accept_token_num[r] = len(path) - 1
        predicts[retrive_index[r, path[-1]]] = _drawn(
            (target[r, path[-1]] - marked[r, path[-1]]).numpy(), target[r, path[-1]].numpy(),
            float(uniform_samples_for_final_sampling[r]),
        )  # fmt: skip


def _drawn(residual: np.ndarray, row: np.ndarray, coin: float) -> int:
    left = np.where(residual > 0, residual, 0).astype(np.float64)
    if not left.any():
        left = np.where(row > 0, row, 0).astype(np.float64)
    left[np.isinf(left)] = 1.0
    behind = np.flatnonzero((np.cumsum(left) > coin * left.sum()) & (left > 0))
    return int(behind[0]) if len(behind) else 0


def kernel(engine: Any, case: Any) -> dict[str, Any]:
    return tree_sampling.call(engine, case, tree_kernel)


def eagle(engine: Any, case: Any) -> dict[str, Any]:
    unfiltered = dict.fromkeys(eagle_sample.RENORMALISE, lambda masses, limits: masses)
    with eagle_sample.kernels(engine, {eagle_sample.KERNEL: tree_kernel} | unfiltered):
        return eagle_sample.sampled(engine, case)


def dflash(engine: Any, case: Any) -> dict[str, Any]:
    module = engine.symbol("sampling.dflash_module")
    available = mock.patch.object(module, "_DFLASH_SAMPLING_VERIFY_AVAILABLE", True)
    with available, mock.patch.object(module, eagle_sample.KERNEL, tree_kernel, create=True):
        return dflash_sampling.call(engine, case)


def _double(symbol: str, run: Any, observes: tuple[str, ...], needs: tuple[str, ...], accepts: Any = accept_all,
            slack: float = 0.0) -> Adapter:  # fmt: skip
    return Adapter("sglang", CONTRACT, "double", symbol, run, observes, needs, "worker", accepts, slack)


FIELDS = tree_sampling.PATH_FIELDS
ADAPTERS = {
    "kernel": _double("kernel", kernel, (*FIELDS, "outside_writes"), (), tree_sampling.repeats),
    "eagle": _double("eagle", eagle, FIELDS, eagle_sample.NEEDS, eagle_sample._accepts, ROUNDING_ULP),
    "dflash": _double("dflash", dflash, ("accepted", "bonus_token"), ("sampling.dflash", "sampling.dflash_module"),
                      dflash_sampling._accepts, ROUNDING_ULP),
}  # fmt: skip


def register() -> None:
    """Make the doubles known to the process that calls this: a worker."""
    adapters._ADAPTERS.update({a.id: a for a in ADAPTERS.values()})
