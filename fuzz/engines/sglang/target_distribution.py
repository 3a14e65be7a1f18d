"""The distribution that verify samples from: the functions that filter, and what the
callers of the sampling kernels hand to them.

Every function works on all rows of a batch; the row that the case looks at is read
from the result. On a CPU the wrappers of the engine's Triton filters are opened and
stand where its CUDA filters are.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.sglang import eagle_sample, sampling_inputs
from fuzz.engines.sglang.outputs import needs_cuda

CONTRACT = "verify.target_distribution"
OBSERVES = ("kept", "mass")


def parameters(engine: Any, case: Any) -> Any:
    """Sampling parameters as the engine's batch carries them."""
    return sampling_inputs.parameters(
        engine,
        len(case.top_k),
        temperatures=engine.tensor(case.temperature[:, None], "float32", contiguous=True),
        top_ks=engine.tensor(case.top_k, "int32", contiguous=True),
        top_ps=engine.tensor(case.top_p, "float32", contiguous=True),
        min_ps=engine.tensor(case.min_p, "float32", contiguous=True),
        need_top_k_sampling=bool((case.top_k != sampling_inputs.TOP_K_ALL).any()),
        need_top_p_sampling=bool((case.top_p != 1.0).any()),
        need_min_p_sampling=bool((case.min_p > 0).any()),
    )


def observed(case: Any, distribution: Any) -> dict[str, Any]:
    """``distribution`` float32 [B, R, V] or [B * R, V]."""
    values = distribution.detach().cpu().numpy().reshape(case.logits.shape)
    rows = values[np.arange(len(values)), case.row]
    masses = [float(row[token]) for row, token in zip(rows, case.token, strict=True)]
    return {"kept": [np.flatnonzero(row > 0).tolist() for row in rows], "mass": masses}


def _logits(engine: Any, case: Any) -> Any:
    return engine.tensor(case.logits.reshape(-1, case.vocabulary), "float32", contiguous=True)


def _build(engine: Any, case: Any, *, sparse: bool) -> dict[str, Any]:
    info = parameters(engine, case)
    columns_picked = sparse and case.top_k.max() < case.vocabulary
    filters = info.need_top_p_sampling or (info.need_top_k_sampling and not columns_picked)
    if engine.device == "cpu" and filters and not engine.fact("sampling.filters_fall_back"):
        raise Unsupported("the filters of this version are in the kernel wheel")
    batch, rows = case.logits.shape[:2]
    with engine.production():
        found = engine.symbol("sampling.build")(
            next_token_logits=_logits(engine, case),
            sampling_info=info,
            draft_token_num=rows,
            bs=batch,
            use_sparse_topk=sparse,
        )
    return observed(case, found)


@adapter(contract=CONTRACT, module="dflash", symbol="build_speculative_verify_target_probs", observes=OBSERVES,
         needs=("sampling.build",))  # fmt: skip
def build_sparse(engine: Any, case: Any) -> dict[str, Any]:
    """As its callers use it: top-k picks columns, the rest works on those."""
    return _build(engine, case, sparse=True)


@adapter(contract=CONTRACT, module="dflash", symbol="build_speculative_verify_target_probs(dense)", observes=OBSERVES,
         needs=("sampling.build",))  # fmt: skip
def build_dense(engine: Any, case: Any) -> dict[str, Any]:
    """The branch for a top-k that covers the vocabulary, asked for always."""
    return _build(engine, case, sparse=False)


def _only(*, top_k: bool) -> Callable[[Any], str | None]:
    def accepts(case: Any) -> str | None:
        others = (case.top_p != 1.0).any() if top_k else (case.top_k != sampling_inputs.TOP_K_ALL).any()
        if others or (case.min_p > 0).any():
            return "this function is one filter alone"
        return None

    return accepts


def _filtered(engine: Any, case: Any, key: str, limits: Any, *, opened: bool) -> dict[str, Any]:
    """One filter on the softmax of the case."""
    from fuzz.engines.interpreter import cuda_tensors

    rows = case.logits.shape[1]
    temperature = engine.tensor(np.repeat(case.temperature, rows)[:, None], "float32", contiguous=True)
    masses = (_logits(engine, case) / temperature).softmax(dim=-1)
    with cuda_tensors() if opened and engine.device == "cpu" else nullcontext(), engine.production():
        found = engine.symbol(key)(masses, limits)
    return observed(case, found)


def _limits(engine: Any, case: Any, name: str, dtype: str) -> Any:
    return engine.tensor(np.repeat(getattr(case, name), case.logits.shape[1]), dtype, contiguous=True)


@adapter(contract=CONTRACT, module="renorm_triton", symbol="top_k_renorm_probs_triton", observes=OBSERVES,
         needs=("sampling.top_k_triton",), execution="triton", accepts=_only(top_k=True))  # fmt: skip
def top_k_triton(engine: Any, case: Any) -> dict[str, Any]:
    limits = _limits(engine, case, "top_k", "int32")
    return _filtered(engine, case, "sampling.top_k_triton", limits, opened=True)


@adapter(contract=CONTRACT, module="renorm_triton", symbol="top_p_renorm_probs_triton", observes=OBSERVES,
         needs=("sampling.top_p_triton",), execution="triton", accepts=_only(top_k=False))  # fmt: skip
def top_p_triton(engine: Any, case: Any) -> dict[str, Any]:
    limits = _limits(engine, case, "top_p", "float32")
    return _filtered(engine, case, "sampling.top_p_triton", limits, opened=True)


@adapter(contract=CONTRACT, module="renorm", symbol="top_k_renorm_prob", observes=OBSERVES,
         needs=("sampling.top_k",), execution="triton", accepts=_only(top_k=True))  # fmt: skip
def top_k_cuda(engine: Any, case: Any) -> dict[str, Any]:
    """The filter that the engine takes on CUDA."""
    needs_cuda(engine, "top_k_renorm_prob")
    return _filtered(engine, case, "sampling.top_k", _limits(engine, case, "top_k", "int32"), opened=False)


@adapter(contract=CONTRACT, module="renorm", symbol="top_p_renorm_prob", observes=OBSERVES,
         needs=("sampling.top_p",), execution="triton", accepts=_only(top_k=False))  # fmt: skip
def top_p_cuda(engine: Any, case: Any) -> dict[str, Any]:
    """The filter that the engine takes on CUDA."""
    needs_cuda(engine, "top_p_renorm_prob")
    return _filtered(engine, case, "sampling.top_p", _limits(engine, case, "top_p", "float32"), opened=False)


class HandedOver:
    """Stands in for the sampling kernel: keeps the distribution, accepts nothing."""

    def __init__(self) -> None:
        self.target: Any = None

    def __call__(self, *, accept_index: Any, accept_token_num: Any, retrive_index: Any, target_probs: Any,
                 **others: Any) -> None:  # fmt: skip
        self.target = target_probs.clone()
        accept_index[:, 0] = retrive_index[:, 0]
        accept_token_num.zero_()


@adapter(contract=CONTRACT, module="eagle_utils", symbol="eagle_sample", observes=OBSERVES, needs=eagle_sample.NEEDS,
         execution="worker")  # fmt: skip
def eagle(engine: Any, case: Any) -> dict[str, Any]:
    """What EAGLE's verify hands to the sampling kernel."""
    batch, rows = case.logits.shape[:2]
    none = np.full((batch, rows), -1)
    trees = SimpleNamespace(
        token=np.zeros((batch, rows), dtype=np.int64), next_child=none, next_sibling=none, width=rows,
        coin=np.full((batch, rows), 0.5), final_coin=np.full(batch, 0.5), threshold_single=1.0, threshold_acc=1.0,
    )  # fmt: skip
    info, seen = parameters(engine, case), HandedOver()
    stand_ins = {eagle_sample.KERNEL: seen} | (_filters_on_cpu(engine, info) if engine.device == "cpu" else {})
    with eagle_sample.kernels(engine, stand_ins):
        eagle_sample.sample(engine, trees, _logits(engine, case), info)
    engine.require_path(seen.target is not None, "the sampling kernel")
    return observed(case, seen.target)


def _filters_on_cpu(engine: Any, info: Any) -> dict[str, Callable]:
    """The engine's Triton filters; where it has none, filters that have nothing to do."""
    if not (info.need_top_k_sampling or info.need_top_p_sampling):
        return dict.fromkeys(eagle_sample.RENORMALISE, lambda masses, limits: masses)
    from fuzz.engines.interpreter import cuda_tensors

    def opened(key: str) -> Callable:
        found = engine.symbol(key)

        def filtered(masses: Any, limits: Any) -> Any:
            with cuda_tensors():
                return found(masses, limits)

        return filtered

    keys = ("sampling.top_k_triton", "sampling.top_p_triton")
    return dict(zip(eagle_sample.RENORMALISE, map(opened, keys), strict=True))
