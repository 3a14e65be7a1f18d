"""Making published Triton code answer on a CPU as it does on a GPU.

Two kinds of change. *Repairs* of Triton's interpreter, where its numbers differ from the compiled kernel's (checked
against triton 3.7.1 and 3.8.0); a worker on a CPU makes them before the engine is imported. *Openings* of wrappers that
refuse CPU tensors before they reach the kernel; those hold only inside a ``with``, because other code asks the same
questions for other reasons. None of them touches the kernel under test. Import this only in a worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

_repaired: set[str] = set()


def round_to_bfloat16() -> None:
    """float32 -> bfloat16 rounds to nearest, ties to even, as GPUs do. The interpreter cuts the low half off.

    NaN stays NaN and infinities keep their sign, because torch converts.
    """
    if not _first("bfloat16 rounding"):
        return
    original = interpreter._convert_float

    def convert(data, source, target, rounding_mode):
        if source != tl.float32 or target != tl.bfloat16:
            return original(data, source, target, rounding_mode)
        values = np.ascontiguousarray(data).view(np.float32)
        bits = torch.tensor(values).to(torch.bfloat16).view(torch.int16).numpy()
        return bits.view(np.uint16).reshape(np.shape(data))

    interpreter._convert_float = convert


def widen_bfloat16_dot() -> None:
    """``tl.dot`` on bfloat16 operands multiplies their values. The interpreter multiplies their bit patterns.

    Widening to float32 is exact, and so is each product; the sum is float32, as in the tensor core's accumulator.
    """
    if not _first("bfloat16 dot"):
        return
    original = interpreter.InterpreterBuilder.create_dot

    def widen(operand):
        if operand.get_element_ty() != tl.bfloat16:
            return operand
        bits = np.asarray(operand.data).view(np.uint16).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self, a, b, *rest):
        return original(self, widen(a), widen(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


@contextlib.contextmanager
def cuda_tensors() -> Iterator[None]:
    """CPU tensors answer ``is_cuda`` with true. Only checks written in Python see it; dispatch does not."""
    with mock.patch.object(torch.Tensor, "is_cuda", property(lambda tensor: True), create=True):
        yield


@contextlib.contextmanager
def no_pinning() -> Iterator[None]:
    """``pin_memory=True`` and ``Tensor.pin_memory()`` do nothing: a CPU torch raises there on healthy input.

    Covers the factory functions through which engines build the host tensors that they copy to a device.
    """
    names = ("tensor", "empty", "zeros", "ones", "full", "arange")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(torch, name, _unpinned(getattr(torch, name))))
        stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", lambda tensor, *args: tensor))
        yield


def _unpinned(factory):
    def build(*args, pin_memory=False, **kwargs):
        return factory(*args, **kwargs)

    return build


def _first(repair: str) -> bool:
    if repair in _repaired:
        return False
    _repaired.add(repair)
    return True
