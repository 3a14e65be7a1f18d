"""Building draft trees: from the selected candidates of a beam search to mask and links.

Tokens are stamped with the row and node they belong to. The engine allocates every
tensor of these calls contiguous, so none is shown strided.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.sglang.beams import encode, refusal
from fuzz.engines.sglang.launches import counted
from fuzz.engines.sglang.outputs import Outputs, by_row, needs_cuda
from fuzz.engines.sglang.tree_layout import MODES, mask_cells, read_mask, word_bytes

CONTRACT = "verify.draft_tree"
LINKS = ("positions", "retrieve_index", "next_child", "next_sibling")
NOBODY = -977  # fills outputs: no position, no node
TOKEN = 100_000  # stamp of the first token
SPARE = 37  # cells of a preallocated mask behind those of the batch
# Turns of the kernel's innermost loops; Triton's interpreter takes some 50 us for each.
MOST_TURNS = 50_000


def _accepts(*masks: str) -> Any:
    def accepts(case: Any) -> str | None:
        return refusal(case) or (None if case.mask in masks else f"this target makes no {case.mask} mask")

    return accepts


def not_too_slow(engine: Any, case: Any) -> None:
    """Raise Unsupported where the interpreter would need many seconds for the kernel's loops."""
    rows, nodes = case.parents.shape
    turns = nodes * (2 * nodes * rows + int(case.depth.sum()))
    if engine.device == "cpu" and turns > MOST_TURNS:
        raise Unsupported("so large a tree takes too long in Triton's interpreter")


def arguments(engine: Any, case: Any) -> tuple[Outputs, list[Any], list[Any]]:
    """The buffers of one call, its inputs, and its outputs: mask, positions and links."""
    rows, nodes = case.parents.shape
    parent_list, selected = encode(case)
    made = Outputs(engine)
    inputs = [made.input(parent_list, "int64"), made.input(selected, "int64"), made.input(case.pre, "int64")]
    if case.mask == "bits":
        mask = made.buffer((rows * nodes * word_bytes(nodes),), "uint8", 0)
    else:
        mask = made.buffer((mask_cells(case),), "bool", 1)
    outputs = [mask, made.buffer((rows * nodes,), "int64", NOBODY)]
    outputs += [made.buffer((rows, nodes), "int64", -1) for _ in range(3)]
    return made, inputs, outputs


def observed(case: Any, outputs: list[Any]) -> dict[str, Any]:
    """Mask and links, as node numbers of each row."""
    rows, nodes = case.parents.shape
    mask, positions, index, child, sibling = (t.cpu() for t in outputs)
    return {
        **read_mask(case, mask),
        "positions": positions.view(rows, nodes).tolist(),
        "retrieve_index": by_row(index.numpy(), nodes),
        "next_child": child.tolist(),
        "next_sibling": sibling.tolist(),
    }


@adapter(contract=CONTRACT, module="spec_tree", symbol="sgl_build_tree_kernel_triton",
         observes=("sees", "hidden_prefix", *LINKS, "outside_writes"), needs=("tree.build_triton", "tree.mask_mode"),
         execution="triton", accepts=_accepts("full", "query"))  # fmt: skip
def build_triton(engine: Any, case: Any) -> dict[str, Any]:
    not_too_slow(engine, case)
    made, inputs, outputs = arguments(engine, case)
    mode = engine.symbol("tree.mask_mode")(MODES[case.mask])
    with engine.production():
        engine.symbol("tree.build_triton")(*inputs, *outputs, case.topk, case.steps, case.parents.shape[1], mode)
    return observed(case, outputs) | {"outside_writes": made.changed()}


def _cuda(engine: Any, case: Any, symbol: str) -> dict[str, Any]:
    needs_cuda(engine, "this kernel")
    made, inputs, outputs = arguments(engine, case)
    with engine.production():
        engine.symbol(symbol)(*inputs, *outputs, case.topk, case.steps, case.parents.shape[1], MODES[case.mask])
    return observed(case, outputs) | {"outside_writes": made.changed()}


@adapter(contract=CONTRACT, module="tree", symbol="build_tree_kernel_efficient",
         observes=("sees", "hidden_prefix", *LINKS, "outside_writes"), needs=("tree.build_jit",),
         execution="triton", accepts=_accepts("full", "query", "bits"))  # fmt: skip
def build_jit(engine: Any, case: Any) -> dict[str, Any]:
    """The CUDA kernel that is compiled when it is first called."""
    return _cuda(engine, case, "tree.build_jit")


@adapter(contract=CONTRACT, module="sgl_kernel", symbol="build_tree_kernel_efficient",
         observes=("sees", "hidden_prefix", *LINKS, "outside_writes"), needs=("tree.build_wheel",),
         execution="triton", accepts=_accepts("full", "query", "bits"))  # fmt: skip
def build_wheel(engine: Any, case: Any) -> dict[str, Any]:
    """The same kernel as the kernel wheel ships it."""
    return _cuda(engine, case, "tree.build_wheel")


def _tokens(made: Outputs, case: Any) -> tuple[Any, Any]:
    rows, nodes = case.parents.shape
    stamps = TOKEN + np.arange(rows * nodes).reshape(rows, nodes)
    return made.input(stamps[:, 0], "int64"), made.input(stamps[:, 1:], "int64")


def _build(engine: Any, case: Any, buffered: bool) -> dict[str, Any]:
    """Call the function that allocates and picks a kernel. On a CPU it is told that it runs
    on an XPU, where it takes the Triton kernel."""
    on_cpu = engine.device == "cpu"
    if on_cpu and case.mask == "bits":
        raise Unsupported("the Triton kernel packs no bits")
    not_too_slow(engine, case)
    rows, nodes = case.parents.shape
    made = Outputs(engine)
    parent_list, selected = encode(case)
    root, drafts = _tokens(made, case)
    module = engine.symbol("tree.build_module")
    told = mock.patch.multiple(module, _is_xpu=True, _is_cpu=False) if on_cpu else nullcontext()
    spare = made.buffer((mask_cells(case) + SPARE,), "bool", 0) if buffered else None
    handed = {"tree_mask_buf": spare} if buffered else {}
    kernels = engine.symbol("tree.build_kernel_module")
    with told, counted(kernels, "sgl_build_tree_kernel_efficient_triton") as launches, engine.production():
        *outputs, tokens = engine.symbol("tree.build")(
            root,
            made.input(parent_list, "int64"),
            made.input(selected, "int64"),
            drafts,
            made.input(case.pre, "int64"),
            int(case.pre.sum()),
            case.topk,
            case.steps,
            nodes,
            tree_mask_mode=engine.symbol("tree.mask_mode")(MODES[case.mask]),
            **handed,
        )
    engine.require_path(launches.count == (1 if on_cpu else 0), "the Triton kernel on a CPU, the CUDA kernel on a GPU")
    seen = observed(case, outputs)
    seen["token_nodes"] = by_row((tokens.cpu() - TOKEN).view(rows, nodes).numpy(), nodes)
    behind = int((~spare[-SPARE:]).sum()) if buffered else 0  # the whole buffer is filled first
    return seen | {"outside_writes": made.changed() + behind}


@adapter(contract=CONTRACT, module="eagle_utils", symbol="build_tree_kernel_efficient",
         observes=("sees", "hidden_prefix", *LINKS, "token_nodes", "outside_writes"),
         needs=("tree.build", "tree.build_module", "tree.build_kernel_module", "tree.mask_mode"),
         execution="triton", accepts=_accepts("full", "query", "bits"))  # fmt: skip
def build(engine: Any, case: Any) -> dict[str, Any]:
    """The mask and the links are the engine's own allocations; only inputs lie between guards."""
    return _build(engine, case, buffered=False)


@adapter(contract=CONTRACT, module="eagle_utils", symbol="build_tree_kernel_efficient(preallocated mask)",
         observes=("sees", "hidden_prefix", *LINKS, "token_nodes", "outside_writes"),
         needs=("tree.build", "tree.build_module", "tree.build_kernel_module", "tree.mask_mode"),
         execution="triton", accepts=_accepts("full", "query"))  # fmt: skip
def build_into(engine: Any, case: Any) -> dict[str, Any]:
    """Into a mask that an attention backend owns, made for a larger batch."""
    return _build(engine, case, buffered=True)


def _chains(case: Any) -> str | None:
    rows, nodes = case.parents.shape
    chain = (case.parents == np.arange(-1, nodes - 1)).all()
    if case.given != "parents" or case.mask != "query" or not chain or nodes == 1:
        return "this target builds chains with a mask over the nodes"
    return None if case.topk == 1 and case.steps == nodes - 1 else "one candidate a step, and a node each"


@adapter(contract=CONTRACT, module="eagle_kernels", symbol="build_chain_tree",
         observes=("sees", "hidden_prefix", *LINKS, "token_nodes", "outside_writes"), needs=("tree.build_chain",),
         execution="triton", accepts=_chains)  # fmt: skip
def build_chain(engine: Any, case: Any) -> dict[str, Any]:
    rows, nodes = case.parents.shape
    made = Outputs(engine)
    root, drafts = _tokens(made, case)
    mask = made.buffer((mask_cells(case) + SPARE,), "bool", 0)
    with engine.production():
        *outputs, tokens, _, _ = engine.symbol("tree.build_chain")(root, drafts, made.input(case.pre, "int64"), mask)
    seen = observed(case, outputs)
    seen["token_nodes"] = by_row((tokens.cpu() - TOKEN).view(rows, nodes).numpy(), nodes)
    return seen | {"outside_writes": made.changed() + int(mask[-SPARE:].sum())}
