"""Layout of ragged verify blocks: both forms of the padding and of the offsets, and the caller.

The tensors are the engine's own allocations or copies, always contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from fuzz.adapter import adapter

CONTRACT = "verify.ragged_layout"
FIELDS = ("lengths", "offsets", "starts")


def _each(case: Any, one: Callable[[list[int], int, int, int], tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Lay out every batch with ``one(lengths, slots, tokens, cap)``."""
    rows = zip(case.lengths, case.slots.tolist(), case.tokens.tolist(), case.cap.tolist(), strict=True)
    answers = [one(*row) for row in rows]
    return {name: list(values) for name, values in zip(FIELDS, zip(*answers, strict=True), strict=True)}


def _kernels(engine: Any, case: Any, form: str) -> dict[str, Any]:
    """Padding and offsets in one form; the cut to a cap is the caller's."""
    padding, offsets = engine.symbol("ragged.padding"), engine.symbol("ragged.offsets")

    def one(lengths: list[int], slots: int, tokens: int, cap: int) -> tuple[Any, Any, Any]:
        verify_lens = engine.tensor(lengths, "int32", contiguous=True)
        with engine.production():
            padded = getattr(padding, form)(
                verify_lens=verify_lens, graph_num_tokens=tokens, bs=len(lengths), padded_bs=slots
            )
            found = getattr(offsets, form)(verify_lens=padded)
        return padded, found.qo_indptr, found.extend_start_loc

    return _each(case, one)


def _uncapped(case: Any) -> str | None:
    return "the cap is the caller's" if case.cap.any() else None


@adapter(contract=CONTRACT, module="ragged_verify_kernels", symbol="PaddedToBucket.triton", observes=FIELDS,
         needs=("ragged.padding", "ragged.offsets"), execution="triton", accepts=_uncapped)  # fmt: skip
def triton_form(engine: Any, case: Any) -> dict[str, Any]:
    return _kernels(engine, case, "triton")


@adapter(contract=CONTRACT, module="ragged_verify_kernels", symbol="PaddedToBucket.torch", observes=FIELDS,
         needs=("ragged.padding", "ragged.offsets"), execution="torch", accepts=_uncapped)  # fmt: skip
def torch_form(engine: Any, case: Any) -> dict[str, Any]:
    return _kernels(engine, case, "torch")


@adapter(contract=CONTRACT, module="ragged_verify", symbol="RaggedVerifyLayout.padded_to_bucket", observes=FIELDS,
         needs=("ragged.layout", "ragged.padding"), execution="triton")  # fmt: skip
def layout(engine: Any, case: Any) -> dict[str, Any]:
    """The caller, with and without a cap; it takes the Triton form for CUDA tensors."""
    padding = engine.symbol("ragged.padding")
    if case.cap.any():
        engine.fact("ragged.cap")

    def one(lengths: list[int], slots: int, tokens: int, cap: int) -> tuple[Any, Any, Any]:
        verify_lens = engine.tensor(lengths, "int32", contiguous=True)
        form = "torch" if engine.device == "cpu" else "triton"
        spy = mock.patch.object(padding, form, side_effect=getattr(padding, form))
        with spy as taken, engine.production():
            packed = engine.symbol("ragged.layout").from_verify_lens_device(
                verify_lens=verify_lens, graph_num_tokens=tokens
            )
            found = packed.padded_to_bucket(padded_bs=slots, **({"cap": cap} if cap else {}))
        engine.require_path(taken.called, f"the {form} form")
        return found.verify_lens, found.qo_indptr_device, found.extend_start_loc

    return _each(case, one)
