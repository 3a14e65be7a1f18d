"""From a tree mask back to links, and from a mask to packed bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.outputs import Outputs, by_row, needs_cuda
from fuzz.engines.sglang.tree_layout import full_cells, read_cells

CONTRACT = "verify.draft_tree"
LINKS = ("positions", "retrieve_index", "next_child", "next_sibling")
NOBODY = -977  # fills outputs: no position, no node


def _given_mask(case: Any) -> str | None:
    return None if case.given == "mask" and case.mask == "query" else "this target reads a mask over the nodes"


def _reconstruct(engine: Any, case: Any, symbol: str) -> dict[str, Any]:
    rows, nodes = case.parents.shape
    made = Outputs(engine)
    positions = made.buffer((rows * nodes,), "int64", NOBODY)
    links = [made.buffer((rows, nodes), "int64", NOBODY) for _ in range(3)]
    mask, pre = made.input(case.sees.reshape(-1), "bool"), made.input(case.pre, "int64")
    with engine.production():
        engine.symbol(symbol)(mask, pre, positions, *links, rows, nodes)
    index, child, sibling = (t.cpu() for t in links)
    return {
        "positions": positions.cpu().view(rows, nodes).tolist(),
        "retrieve_index": by_row(index.numpy(), nodes),
        "next_child": child.tolist(),
        "next_sibling": sibling.tolist(),
        "outside_writes": made.changed(),
    }


@adapter(contract=CONTRACT, module="reconstruct_tree", symbol="reconstruct_indices_from_tree_mask_triton",
         observes=(*LINKS, "outside_writes"), needs=("tree.links_triton",), execution="triton",
         accepts=_given_mask)  # fmt: skip
def links_triton(engine: Any, case: Any) -> dict[str, Any]:
    return _reconstruct(engine, case, "tree.links_triton")


@adapter(contract=CONTRACT, module="tree", symbol="reconstruct_indices_from_tree_mask",
         observes=(*LINKS, "outside_writes"), needs=("tree.links_jit",), execution="triton",
         accepts=_given_mask)  # fmt: skip
def links_jit(engine: Any, case: Any) -> dict[str, Any]:
    """The CUDA kernel that is compiled when it is first called."""
    needs_cuda(engine, "this kernel")
    return _reconstruct(engine, case, "tree.links_jit")


@adapter(contract=CONTRACT, module="sgl_kernel", symbol="reconstruct_indices_from_tree_mask",
         observes=(*LINKS, "outside_writes"), needs=("tree.links_wheel",), execution="triton",
         accepts=_given_mask)  # fmt: skip
def links_wheel(engine: Any, case: Any) -> dict[str, Any]:
    """The same kernel as the kernel wheel ships it."""
    needs_cuda(engine, "this kernel")
    return _reconstruct(engine, case, "tree.links_wheel")


@adapter(contract=CONTRACT, module="ngram", symbol="_derive_tree_links", observes=("next_child", "next_sibling"),
         needs=("tree.links_host",), execution="torch", accepts=_given_mask)  # fmt: skip
def links_host(engine: Any, case: Any) -> dict[str, Any]:
    """The links that the grammar needs before the device has them."""
    rows, nodes = case.parents.shape
    with engine.production():
        child, sibling = engine.symbol("tree.links_host")(case.sees.reshape(-1).astype(np.int64), rows, nodes)
    return {"next_child": child, "next_sibling": sibling}


def _full_bits(case: Any) -> str | None:
    return None if case.mask == "full_bits" else "this target packs a mask over the prefix"


@adapter(contract=CONTRACT, module="pack_verify_mask", symbol="pack_verify_mask_into",
         observes=("sees", "hidden_prefix", "outside_writes"), needs=("tree.pack",), execution="triton",
         accepts=_full_bits)  # fmt: skip
def pack(engine: Any, case: Any) -> dict[str, Any]:
    """Into a buffer for the packed bytes, each request at its own offset.

    ``max_kv_len`` is an upper bound that the planner knows; every second row count gets
    one with some tokens to spare. The bits behind a request's last cell are no part of it.
    """
    rows, nodes = case.parents.shape
    keys = case.pre + nodes
    sizes = (keys * nodes + 7) // 8
    starts = np.concatenate([[0], np.cumsum(sizes)])
    made = Outputs(engine)
    packed = made.buffer((int(starts[-1]),), "uint8", 0)
    with engine.production():
        engine.symbol("tree.pack")(
            made.input(full_cells(case), "bool"),
            made.input(np.concatenate([[0], np.cumsum(keys)]), "int32"),
            made.input(starts, "int32"),
            packed,
            batch_size=rows,
            query_width=nodes,
            max_kv_len=int(keys.max()) + 300 * (rows % 2),
        )
    data = packed.cpu().numpy()
    cells = [
        np.unpackbits(data[a:b], count=int(n), bitorder="little")
        for a, b, n in zip(starts, starts[1:], keys * nodes, strict=False)
    ]
    return read_cells(case, np.concatenate(cells).astype(bool), True) | {"outside_writes": made.changed()}
