"""What surrounds a round of EAGLE and NGRAM on a machine without its GPU.

The verify input is the shipped class. Streams, process groups, pinned memory and
the batch that the target's forward would receive are taken out for the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np

from fuzz.engines.bound import pinning_dropped
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_round import EagleRound, nothing

GROUP_CONTEXTS = ("draft_tp_context", "speculative_moe_backend_context", "speculative_moe_a2a_backend_context")


def chain_input(seen: EagleRound) -> Any:
    """The shipped verify input for one chain a request (none when idle)."""
    engine, case, torch = seen.engine, seen.case, seen.engine.torch
    rows, width = len(case.pre), case.draft_tokens
    prefix = engine.fact("eagle.tree_fields")
    following = np.append(np.arange(1, width), -1)
    tree = {
        f"{prefix}_index": np.arange(rows * width).reshape(rows, width),
        f"{prefix}_next_token": np.tile(following, (rows, 1)),
        f"{prefix}_next_sibling": np.full((rows, width), -1),
    }
    zeros = torch.zeros(rows * width, dtype=torch.int64, device=engine.device)
    return engine.symbol("eagle.verify_input")(
        draft_token=zeros,
        custom_mask=torch.ones(1, dtype=torch.bool, device=engine.device),
        positions=zeros.clone(),
        spec_steps=width - 1,
        topk=1,
        draft_token_num=width,
        capture_hidden_mode=engine.symbol("eagle.hidden_mode").FULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
        **{name: torch.tensor(value, device=engine.device) for name, value in tree.items()},
        **{f"{prefix}_cum_len": None},
    )


@contextmanager
def surroundings(seen: EagleRound, module: Any) -> Iterator[None]:
    """Patches for one round of a worker of ``module``."""
    engine, torch = seen.engine, seen.engine.torch
    with ExitStack() as stack:
        stack.enter_context(pinning_dropped(torch))
        if engine.device == "cpu":
            stack.enter_context(mock.patch.object(torch.Tensor, "record_stream", nothing))
            stack.enter_context(mock.patch.object(torch.cpu, "Event", _event, create=True))
            stack.enter_context(mock.patch.object(engine.symbol("eagle.cache_locs"), "_is_cuda", True))
        stack.enter_context(mock.patch.object(engine.symbol("eagle.forward_batch"), "init_new", _forward_batch))
        for name in engine.fact("eagle.tree_kernel_modules"):
            sampling = engine.symbol(f"eagle.{name}")
            stack.enter_context(mock.patch.object(sampling, "verify_tree_greedy_func", seen.verify_tree))
        for name in GROUP_CONTEXTS:
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, no_context))
        yield


def no_context(*_: Any, **__: Any) -> Any:
    return nullcontext()


def _event() -> ClosedStub:
    return ClosedStub("event", record=nothing)


def _forward_batch(*_: Any, **__: Any) -> ClosedStub:
    return ClosedStub("forward batch", mark_forward_metadata_ready=nothing)
