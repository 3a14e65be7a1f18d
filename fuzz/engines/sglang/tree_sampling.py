"""Target-only sampling of a draft tree: the CUDA kernel, from the engine's sources and
from its kernel wheel.

Both verify and draw in one launch; neither has a form for a CPU. ``draft_probs`` is
scratch of the caller: the kernel marks rejected tokens in it. All tensors of the
call are allocated contiguous by the callers, so none is shown strided.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.outputs import Outputs, by_row, needs_cuda

CONTRACT = "verify.tree_sampling"
PATH_FIELDS = ("path", "accepted", "accepted_tokens", "bonus_token")
NOBODY = -977  # fills outputs: no token, no count


def repeats(case: Any) -> str | None:
    """Drafts are the top-k of one row, or the keys of a trie node: siblings differ."""
    for token, child, sibling in zip(case.token, case.next_child, case.next_sibling, strict=True):
        for node in child[child >= 0].tolist():
            tokens = []
            while node >= 0:
                tokens.append(int(token[node]))
                node = int(sibling[node])
            if len(set(tokens)) < len(tokens):
                return "two siblings hold one token: no tree of the engine does"
    return None


def arguments(engine: Any, case: Any) -> tuple[Outputs, dict[str, Any], Any]:
    """Outputs and inputs of one call by the kernel's names, and the target as handed over.

    The target lies between guard zones too: a draft token outside the vocabulary
    makes a kernel read beside its row, and it must find the same there every time.
    """
    rows, nodes = case.token.shape
    made, shape = Outputs(engine), case.target.shape
    target = made.buffer(shape, "float32", 0)
    target.copy_(engine.torch.from_numpy(case.target))
    return made, {
        "predicts": made.buffer((rows * nodes,), "int32", NOBODY),
        "accept_index": made.buffer((rows, case.width), "int32", -1),
        "accept_token_num": made.buffer((rows,), "int32", NOBODY),
        "candidates": made.input(case.token, "int64"),
        "retrive_index": made.input(np.arange(rows * nodes).reshape(rows, nodes), "int64"),
        "retrive_next_token": made.input(case.next_child, "int64"),
        "retrive_next_sibling": made.input(case.next_sibling, "int64"),
        "uniform_samples": made.input(case.coin, "float32"),
        "uniform_samples_for_final_sampling": made.input(case.final_coin, "float32"),
        "target_probs": target,
        "draft_probs": made.buffer(shape, "float32", 0),
    }, target.clone()  # fmt: skip


def observed(case: Any, accept_index: Any, accepted: list[int], predicts: Any) -> dict[str, Any]:
    """The path that the count covers and the tokens along it; the last is the bonus."""
    rows, nodes = case.token.shape
    index = by_row(accept_index.cpu().numpy(), nodes)
    tokens = predicts.cpu().view(rows, nodes).tolist()
    paths = [row[: max(0, count) + 1] for row, count in zip(index, accepted, strict=True)]
    along = [[tokens[r][n] if 0 <= n < nodes else NOBODY for n in path] for r, path in enumerate(paths)]
    return {
        "path": paths,
        "accepted": accepted,
        "accepted_tokens": [found[:-1] for found in along],
        "bonus_token": [found[-1] for found in along],
    }


def _kernel(engine: Any, case: Any, symbol: str) -> dict[str, Any]:
    needs_cuda(engine, "tree_speculative_sampling_target_only")
    return call(engine, case, engine.symbol(symbol))


def call(engine: Any, case: Any, kernel: Any) -> dict[str, Any]:
    """One call of ``kernel`` and what it wrote."""
    made, handed, target = arguments(engine, case)
    with engine.production():
        kernel(
            **handed,
            threshold_single=case.threshold_single,
            threshold_acc=case.threshold_acc,
            deterministic=True,
        )
    # As bits: NaN of a hostile row equals itself.
    integer = engine.torch.int32
    overwritten = int((handed["target_probs"].view(integer) != target.view(integer)).sum())
    found = observed(case, handed["accept_index"], handed["accept_token_num"].cpu().tolist(), handed["predicts"])
    return found | {"outside_writes": made.changed() + overwritten}


@adapter(contract=CONTRACT, module="sampling", symbol="tree_speculative_sampling_target_only",
         observes=(*PATH_FIELDS, "outside_writes"), needs=("sampling.tree_jit", "sampling.headers"), execution="triton",
         accepts=repeats)  # fmt: skip
def kernel_jit(engine: Any, case: Any) -> dict[str, Any]:
    """The kernel that is compiled from the engine's sources when it is first called."""
    return _kernel(engine, case, "sampling.tree_jit")


@adapter(contract=CONTRACT, module="sgl_kernel", symbol="tree_speculative_sampling_target_only",
         observes=(*PATH_FIELDS, "outside_writes"), needs=("sampling.tree_wheel",), execution="triton",
         accepts=repeats)  # fmt: skip
def kernel_wheel(engine: Any, case: Any) -> dict[str, Any]:
    """The kernel of the wheel; what releases up to 0.5.20 call."""
    return _kernel(engine, case, "sampling.tree_wheel")
