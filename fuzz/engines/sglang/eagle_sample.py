"""EAGLE's verify by sampling: from the target's logits to the accepted path.

The function makes the target distribution, draws the coins and calls the kernel. On
a CPU there is no kernel; ``handed_over`` then stands in for it, which is how the
distribution itself is looked at (``target_distribution``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang import sampling_inputs as inputs
from fuzz.engines.sglang.outputs import needs_cuda
from fuzz.engines.sglang.settings import settings
from fuzz.engines.sglang.tree_sampling import CONTRACT, PATH_FIELDS, observed, repeats

NEEDS = ("settings.config", "sampling.eagle", "sampling.eagle_module", "sampling.headers")
KERNEL = "tree_speculative_sampling_target_only"
RENORMALISE = ("top_k_renorm_prob", "top_p_renorm_prob")


def verify_input(engine: Any, case: Any) -> ClosedStub:
    """What the draft worker hands over, under the names of all releases."""
    rows, nodes = case.token.shape
    index = np.arange(rows * nodes).reshape(rows, nodes)
    links = {"index": index, "next_token": case.next_child, "next_sibling": case.next_sibling}
    tensors = {name: engine.tensor(values, "int64", contiguous=True) for name, values in links.items()}
    return ClosedStub(
        "verify_input",
        draft_token=engine.tensor(case.token.reshape(-1), "int64", contiguous=True),
        draft_token_num=nodes,
        max_tree_depth=case.width,
        spec_steps=case.width - 1,
        topk=2,
        tree_topk=2,
        draft_probs=None,
        **{f"retrieve_{name}": t for name, t in tensors.items()},
        **{f"retrive_{name}": t for name, t in tensors.items()},
    )


def batch_of(engine: Any, rows: int, sampling_info: ClosedStub) -> ClosedStub:
    lengths = engine.torch.full((rows,), 7, dtype=engine.torch.int64, device=engine.device)
    return ClosedStub(
        "batch",
        device=engine.device,
        input_ids=lengths,
        seq_lens=lengths,
        sampling_info=sampling_info,
        forward_mode=ClosedStub("forward mode", is_idle=lambda: False),
    )


@contextmanager
def alone(engine: Any) -> Iterator[None]:
    """One rank: no process group is asked to broadcast."""
    group = ClosedStub("group", world_size=1)
    with ExitStack() as stack:
        for key in engine.fact("sampling.group_functions"):
            path, _, name = key.rpartition(":")
            module = engine.symbol(path)
            answer = group if name != "get_parallel" else ClosedStub("parallel", tp_group=group, attn_tp_group=group)
            stack.enter_context(mock.patch.object(module, name, lambda answer=answer: answer))
        for key in engine.fact("sampling.attention_functions"):
            path, _, name = key.rpartition(":")
            stack.enter_context(mock.patch.object(engine.symbol(path), name, lambda: False))
        yield


@contextmanager
def kernels(engine: Any, stand_ins: dict[str, Callable]) -> Iterator[None]:
    """The kernels of the function, where it looks them up, are ``stand_ins``."""
    with ExitStack() as stack:
        if engine.fact("sampling.eagle_kernels") == "module":
            module = engine.symbol("sampling.eagle_module")
            for name, stand_in in stand_ins.items():
                stack.enter_context(mock.patch.object(module, name, stand_in, create=True))
        else:
            stack.enter_context(_in_place_of("sgl_kernel", SimpleNamespace(**stand_ins, __spec__=None)))
        yield


@contextmanager
def _in_place_of(name: str, package: Any) -> Iterator[None]:
    """``import name`` finds ``package``. Only this entry is put back: what the
    engine imports meanwhile must stay."""
    before = sys.modules.get(name)
    sys.modules[name] = package
    try:
        yield
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


def sample(engine: Any, case: Any, logits: Any, info: ClosedStub) -> tuple[Any, list[int], Any]:
    """One call: ``predict``, accepted drafts and ``accept_index``."""
    made, rows = verify_input(engine, case), len(case.token)
    fields = engine.fact("sampling.eagle_fields")
    thresholds = {
        "speculative_accept_threshold_single": case.threshold_single,
        "speculative_accept_threshold_acc": case.threshold_acc,
    }
    off = {name: False for name in fields}
    output = ClosedStub("logits_output", next_token_logits=logits)
    batch = batch_of(engine, rows, info)
    with (
        settings(engine, interval=256, **thresholds, **off),
        alone(engine),
        inputs.coins(engine, case) as asked,
        engine.production(),
    ):
        found = engine.symbol("sampling.eagle")(made, batch, output)
    engine.require_path(sorted(asked) == ["final", "nodes"], "the sampling branch with coins of its own")
    predict, lengths, index = found
    return predict, (lengths - 1).tolist(), index


def _accepts(case: Any) -> str | None:
    return repeats(case) or inputs.recovered(case)


@adapter(contract=CONTRACT, module="eagle_utils", symbol="eagle_sample", observes=PATH_FIELDS, needs=NEEDS,
         execution="worker", accepts=_accepts, rounding_ulp=inputs.ROUNDING_ULP)  # fmt: skip
def eagle_sample(engine: Any, case: Any) -> dict[str, Any]:
    """With the engine's own kernel. Its width is the depth of the tree."""
    needs_cuda(engine, "sampling verification")
    return sampled(engine, case)


def sampled(engine: Any, case: Any) -> dict[str, Any]:
    info = inputs.parameters(engine, len(case.token))
    predict, accepted, index = sample(engine, case, inputs.logits(engine, case), info)
    return observed(case, index, accepted, predict)
