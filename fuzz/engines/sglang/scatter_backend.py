"""The commit of the hybrid backend, on the engine's own state pool.

The pool is built by the engine for a model described here, on the CPU: its shapes,
its deduplicated (overlapping) windows and its shared buffer are the shipped ones.
Only the allocation is replaced, so that every buffer lies between guards, and so
that releases that name a GPU for their scratch get memory of this machine.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.scatter_kernels import CONTRACT
from fuzz.engines.sglang.scatter_state import CommitState
from oracle.commit.state_case import NONE

TREE_TOPK, CHAIN_TOPK = 4, 1
PADDED_ROWS = 2  # rows of a captured graph behind the batch's own, slot -1


def own_pool(case: Any) -> str | None:
    """The engine decides how large its pool is, and every model it keeps there
    has a convolution."""
    if case.operation != "verify":
        return "copies from the verify scratch only"
    if case.gap or case.rows_before:
        return "the pool is the engine's own"
    if case.slots < 2:
        return "the pool has a slot of its own besides those of requests"
    return None if case.window_channels else "there is no convolution"


@adapter(
    contract=CONTRACT, module="hybrid_backend", symbol="update_mamba_state_after_mtp_verify",
    observes=("outside", "source_changed", "state", "windows"),
    needs=(
        "backend.class", "pool.class", "pool.dtypes",
        "pool.gdn_shape", "pool.gdn_params", "pool.kda_shape", "pool.kda_params",
    ),
    execution="triton", accepts=own_pool,
)  # fmt: skip
def commit(engine: Any, case: Any) -> dict[str, Any]:
    from fuzz.engines import interpreter

    if len(case.window_channels) > engine.fact("backend.convolutions"):
        raise Unsupported("commits one convolution; no model of this version brings more to this backend")
    if case.indexed_source and not engine.fact("scatter.source_rows"):
        raise Unsupported("rows cannot name their scratch row in this version")
    with Memory(engine.torch, engine.device) as memory:
        state = CommitState(engine, memory, case)
        pool = _pool(engine, memory, case, state)
        backend = _backend(engine, case, state, pool)
        track = [state.index("track_slot"), state.index("track_step")] if case.tracking else [None, None]
        requests = (state.index("source"),) if case.indexed_source else ()
        rows_by_request = engine.symbol("backend.rows_by_request").override(True) if requests else nullcontext()
        steps = state.index("step")
        memory.seal()
        with rows_by_request, interpreter.cuda_tensors(), engine.production():
            backend.update_mamba_state_after_mtp_verify(steps, *track, None, *requests)
        return state.observe("state", "windows")


def _pool(engine: Any, memory: Memory, case: Any, state: CommitState) -> Any:
    """The engine's pool for the case, its cells filled with their numbers."""
    overlapping = case.overlapping and _overlap_possible(engine, case)
    options = {"speculative_eagle_topk": CHAIN_TOPK if overlapping else TREE_TOPK}
    options = options if engine.fact("pool.knows_topk") else {}
    if engine.strided and engine.fact("scatter.strided_pool") and _one_buffer_possible(state):
        options["envelope_layout"] = True
    with mock.patch.object(engine.torch, "zeros", _allocator(engine, memory)):
        pool = engine.symbol("pool.class")(
            size=case.slots - 1, spec_state_size=state.rows_in_memory - 1, device=engine.device,
            mamba_layer_ids=list(range(case.layers)), speculative_num_draft_tokens=case.steps,
            cache_params=_model(engine, case, kda=case.window_first and not overlapping), **options,
        )  # fmt: skip
    cache = pool.mamba_cache
    for tensor in state.tensors["state"]:
        state.fill_pool("state", tensor, cache.temporal)
        state.fill_scratch("state", cache.intermediate_ssm, tensor.scratch_numbers())
    for i, tensor in enumerate(state.tensors["windows"]):
        state.fill_pool("windows", tensor, cache.conv[i])
        view = cache.intermediate_conv_window[i]
        if overlapping:
            engine.require_path(view.stride(2) == view.stride(3 + tensor.sliding), "overlapping windows")
            state.fill_scratch("windows", pool._intermediate_conv_window_phys[i], tensor.scratch_numbers())
        else:
            engine.require_path(view.is_contiguous(), "windows of their own for every step")
            state.fill_scratch("windows", view, tensor.numbers_by_step())
    return pool


def _overlap_possible(engine: Any, case: Any) -> bool:
    """Whether this version's pool lets windows of this layout share cells. Where
    it does not, the windows of a chain lie one by one, with the same contents."""
    axes = engine.fact("pool.overlapping_axes")
    if case.window_first:
        return "first" in axes and case.window_width not in case.window_channels
    return "last" in axes


def _one_buffer_possible(state: CommitState) -> bool:
    """Whether windows and state of all layers fit one buffer: the engine refuses
    a slot whose parts are not aligned to every item size."""
    sizes = [
        sum(t.layers * t.cells for t in tensors) * state.dtype(field).itemsize
        for field, tensors in state.tensors.items()
    ]
    unit = max(state.dtype(field).itemsize for field in state.tensors)
    return all(size % unit == 0 for size in sizes)


def _model(engine: Any, case: Any, *, kda: bool) -> Any:
    """State parameters of a model with the case's shapes: KDA keeps its windows
    as (width, channels), the others as (channels, width)."""
    entries = [
        (case.window_width, channels) if case.window_first else (channels, case.window_width)
        for channels in case.window_channels
    ]
    shape = {"conv": entries, "temporal": tuple(case.state_entry), "conv_kernel": case.window_width + 1}
    # The rest describes the layers that are not there; the pool does not read it.
    if kda:
        rest = dict.fromkeys(("num_heads", "head_dim", "num_k_heads", "head_k_dim", "num_spec"), 1)
    else:
        names = ("intermediate_size", "conv_dim", "ssm_state_size", "num_heads", "head_dim", "state_size")
        rest = dict.fromkeys(names, 1)
    kind = "kda" if kda else "gdn"
    torch = engine.torch
    return engine.symbol(f"pool.{kind}_params")(
        shape=engine.symbol(f"pool.{kind}_shape")(**shape, **rest),
        dtype=engine.symbol("pool.dtypes")(
            conv=getattr(torch, case.window_dtype), temporal=getattr(torch, case.state_dtype)
        ),
        layers=list(range(case.layers)),
    )


def _allocator(engine: Any, memory: Memory) -> Any:
    """``torch.zeros`` for the pool's constructor: guarded, on the case's device."""

    def zeros(*sizes: Any, size: Any = None, dtype: Any = None, device: Any = None) -> Any:
        shape = size if size is not None else sizes[0] if isinstance(sizes[0], (tuple, list)) else sizes
        return memory.zeros(tuple(shape), dtype or engine.torch.get_default_dtype())

    return zeros


def _backend(engine: Any, case: Any, state: CommitState, pool: Any) -> Any:
    """The backend with the step's metadata: the slots of the batch, and behind
    them rows that only pad a captured graph."""
    slots = state.index("slot", tail=PADDED_ROWS)
    by_request = engine.torch.full((state.rows_in_memory,), NONE, dtype=slots.dtype, device=engine.device)
    for row, slot in zip(case.source_row.tolist(), case.slot.tolist(), strict=True):
        if row != NONE:
            by_request[row] = slot
    requests = ClosedStub(
        "req_to_token_pool",
        mamba_pool=pool,
        get_speculative_mamba2_params_all_layers=pool.get_speculative_mamba2_params_all_layers,
        get_mamba_indices=lambda request: by_request[request],
        short_conv_pool=ClosedStub("short_conv_pool", conv_state=None, intermediate_conv_state=None),
        ngram_pool=ClosedStub("ngram_pool", context=None, intermediate_context=None),
    )
    backend = object.__new__(engine.symbol("backend.class"))
    backend.linear_attn_backend = ClosedStub(
        "linear_attn_backend",
        req_to_token_pool=requests,
        forward_metadata=ClosedStub("forward_metadata", mamba_cache_indices=slots),
        accept_lens_pool=None,
        _translate_mamba_indices=lambda slots: slots,
    )
    return backend
