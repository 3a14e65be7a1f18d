"""Greedy tree verify: the Triton kernel, the function that picks a kernel, the CUDA kernels.

The engine itself allocates every tensor of this call contiguous, so none is shown
strided. ``predicts`` starts as a token that nobody predicts, ``accept_index`` as -1,
as the callers fill it, and the counts as a number that no row can have.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.launches import counted
from fuzz.engines.sglang.outputs import Outputs, by_row, needs_cuda

CONTRACT = "verify.greedy_tree"
OBSERVES = ("path", "accepted", "accept_index", "predicts", "emitted", "outside_writes")
NOBODY = -977  # fills outputs: no token, no count
TREE_LINKS = ("retrieve_index", "retrieve_next_token", "retrieve_next_sibling")


def arguments(engine: Any, case: Any) -> tuple[Outputs, dict[str, Any]]:
    """Outputs and inputs of one call, by the names of the Triton wrapper."""
    rows, nodes = case.token.shape
    made = Outputs(engine)
    return made, {
        "predicts": made.buffer((rows * nodes,), "int32", NOBODY),
        "accept_index": made.buffer((rows, case.width), "int32", -1),
        "accept_token_num": made.buffer((rows,), "int32", NOBODY),
        "candidates": made.input(case.token, "int64"),
        "retrieve_index": made.input(np.arange(rows * nodes).reshape(rows, nodes), "int64"),
        "retrieve_next_token": made.input(case.next_child, "int64"),
        "retrieve_next_sibling": made.input(case.next_sibling, "int64"),
        "target_predict": made.input(case.predicted, "int64"),
    }


def observed(made: Outputs, case: Any, handed: dict[str, Any]) -> dict[str, Any]:
    """What was written, as node numbers of each row. The path is the part of accept_index
    that the count covers; tokens are gathered along it, as the callers do."""
    rows, nodes = case.token.shape
    index = by_row(handed["accept_index"].cpu().numpy(), nodes)
    accepted = handed["accept_token_num"].cpu().tolist()
    tokens = handed["predicts"].cpu().view(rows, nodes).tolist()
    paths = [row[: max(0, count) + 1] for row, count in zip(index, accepted, strict=True)]
    predicts = [[tokens[r][n] if 0 <= n < nodes else NOBODY for n in path] for r, path in enumerate(paths)]
    return {
        "path": paths,
        "accepted": accepted,
        "accept_index": index,
        "predicts": predicts,
        "emitted": predicts,
        "outside_writes": made.changed(),
    }


def older_names(handed: dict[str, Any]) -> dict[str, Any]:
    """The kernels' own spelling of the links."""
    return {name.replace("retrieve", "retrive") if name in TREE_LINKS else name: t for name, t in handed.items()}


@adapter(contract=CONTRACT, module="spec_tree", symbol="verify_tree_greedy_triton", observes=OBSERVES,
         needs=("tree.verify_triton",), execution="triton")  # fmt: skip
def verify_triton(engine: Any, case: Any) -> dict[str, Any]:
    made, handed = arguments(engine, case)
    with engine.production():
        engine.symbol("tree.verify_triton")(**handed)
    return observed(made, case, handed)


@adapter(contract=CONTRACT, module="spec_tree", symbol="verify_tree_greedy_func", observes=OBSERVES,
         needs=("tree.verify_func", "tree.verify_module", "tree.verify_kernel_module"), execution="triton")  # fmt: skip
def verify_func(engine: Any, case: Any) -> dict[str, Any]:
    """On a CPU the function is told that it runs on an XPU, where it takes the Triton kernel."""
    made, handed = arguments(engine, case)
    module = engine.symbol("tree.verify_module")
    on_cpu = engine.device == "cpu"
    told = mock.patch.multiple(module, _is_xpu=True, _is_cpu=False) if on_cpu else nullcontext()
    kernel = "verify_tree_greedy_kernel_triton"
    with told, counted(engine.symbol("tree.verify_kernel_module"), kernel) as launches, engine.production():
        engine.symbol("tree.verify_func")(**handed, topk=-1)
    engine.require_path(launches.count == (1 if on_cpu else 0), "the Triton kernel on a CPU, the CUDA kernel on a GPU")
    return observed(made, case, handed)


def _cuda(engine: Any, case: Any, symbol: str) -> dict[str, Any]:
    needs_cuda(engine, "this kernel")
    made, handed = arguments(engine, case)
    with engine.production():
        engine.symbol(symbol)(**older_names(handed))
    return observed(made, case, handed)


@adapter(contract=CONTRACT, module="tree", symbol="verify_tree_greedy", observes=OBSERVES,
         needs=("tree.verify_jit",), execution="triton")  # fmt: skip
def verify_jit(engine: Any, case: Any) -> dict[str, Any]:
    """The CUDA kernel that is compiled when it is first called."""
    return _cuda(engine, case, "tree.verify_jit")


@adapter(contract=CONTRACT, module="sgl_kernel", symbol="verify_tree_greedy", observes=OBSERVES,
         needs=("tree.verify_wheel",), execution="triton")  # fmt: skip
def verify_wheel(engine: Any, case: Any) -> dict[str, Any]:
    """The same kernel as the kernel wheel ships it."""
    return _cuda(engine, case, "tree.verify_wheel")
