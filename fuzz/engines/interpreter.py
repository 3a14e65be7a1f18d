"""Making published Triton code answer on a CPU as it does on a GPU.

Two kinds of change. *Repairs* of Triton's interpreter, where its numbers or its Python differ from the compiled
kernel's (checked against triton 3.7.1 and 3.8.0): a worker on a CPU makes those of numbers before the engine is
imported, an adapter asks for the others by name. *Openings* of wrappers that refuse CPU tensors before they reach the
kernel; those hold only inside a ``with``, because other code asks the same questions for other reasons. None of them
touches the kernel under test. Import this only in a worker.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
from collections.abc import Iterator
from types import ModuleType
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter, jit
from triton.runtime.autotuner import Autotuner

MATH_ALIASES = ("exp", "exp2", "log", "log2")

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
        return _bfloat16_bits(np.ascontiguousarray(data).view(np.float32)).reshape(np.shape(data))

    interpreter._convert_float = convert


def widen_bfloat16_dot() -> None:
    """``tl.dot`` on bfloat16 operands multiplies their values. The interpreter multiplies their bit patterns.

    Widening to float32 is exact, and so is each product; the sum is float32, as in the tensor core's accumulator.
    """
    if not _first("bfloat16 dot"):
        return
    original = interpreter.InterpreterBuilder.create_dot

    def create_dot(self, a, b, *rest):
        return original(self, _widened(a), _widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def compute_in_bfloat16() -> None:
    """Arithmetic and comparisons of two bfloat16 operands mean their values. The interpreter takes their bit patterns.

    A result is computed in float32 and rounded, as the GPU's bfloat16 instructions do.
    """
    if not _first("bfloat16 arithmetic"):
        return
    original = interpreter.InterpreterBuilder.binary_op

    def binary_op(self, lhs, rhs, op):
        if tl.bfloat16 not in (lhs.get_element_ty(), rhs.get_element_ty()):
            return original(self, lhs, rhs, op)
        made = original(self, _widened(lhs), _widened(rhs), op)
        data = _bfloat16_bits(made.data) if made.data.dtype == np.float32 else made.data
        return interpreter.TensorHandle(data, tl.bfloat16)

    interpreter.InterpreterBuilder.binary_op = binary_op


def convert_integers_to_bfloat16() -> None:
    """An integer that becomes bfloat16 keeps its value. The interpreter takes it for a bit pattern."""
    if not _first("integers to bfloat16"):
        return
    original = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self, src, dst_type):
        if dst_type.scalar == tl.bfloat16 and src.dtype.scalar.is_int():
            src = interpreter.TensorHandle(np.asarray(src.data).astype(np.float32), tl.float32)
        return original(self, src, dst_type)

    interpreter.InterpreterBuilder.cast_impl = cast_impl


def annotated_integers() -> None:
    """An integer argument annotated ``tl.int64`` is one. The interpreter goes by its value and makes it 32 bits wide,
    so that products with it wrap which on a GPU do not.
    """
    if not _first("annotated integers"):
        return
    original = interpreter.GridExecutor.__call__

    def call(self, *args, **kwargs):
        wide = {n for n, hint in self.fn.__annotations__.items() if jit._normalize_ty(hint) == "i64"}
        if not wide:
            return original(self, *args, **kwargs)
        bound = _arguments(self.fn, args, kwargs)
        return original(self, **{n: _int64(v) if n in wide and type(v) is int else v for n, v in bound.items()})

    interpreter.GridExecutor.__call__ = call


def rebind_aliases(module: ModuleType, names: tuple[str, ...] = MATH_ALIASES) -> None:
    """Names that `module` bound with ``exp = tl.exp`` look up ``tl`` when called.

    The interpreter swaps the functions of ``tl`` itself while a kernel runs and knows nothing of copies made earlier.
    """
    for name in names:
        if hasattr(module, name):
            setattr(module, name, _late(name))


def tensor_range(module: ModuleType) -> None:
    """``range`` in the kernels of `module` yields scalars of the interpreter, for kernels that call ``.to`` on them."""
    semantic = interpreter.interpreter_semantic

    def scalars(*bounds):
        for value in builtins.range(*(int(bound) for bound in bounds)):
            yield semantic.to_tensor(value, False)

    module.range = scalars


def single_configuration(module: ModuleType) -> None:
    """Every autotuned kernel of `module` keeps its first configuration: choosing one would benchmark on a driver.

    A result that depends on the configuration is then seen for the first one only.
    """
    for kernel in vars(module).values():
        # Decorators stack (heuristics over autotune over jit); each holds the next one in `fn`.
        while kernel is not None and type(kernel).__module__.startswith("triton."):
            if isinstance(kernel, Autotuner):
                kernel.configs = kernel.configs[:1]
            kernel = getattr(kernel, "fn", None)


def grid_of_host_arguments() -> None:
    """A grid function sees the arguments as the caller passed them, and what it replaces is used. The interpreter shows
    it pointers, of which a function that counts tokens or fills tables can make nothing.
    """
    if not _first("grid of host arguments"):
        return
    original = interpreter.GridExecutor.__call__

    def call(self, *args, **kwargs):
        if callable(self.grid):
            args, kwargs = (), _arguments(self.fn, args, kwargs)
            self.grid = self.grid(kwargs)
        return original(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = call


def null_device_context(module: ModuleType, name: str = "custom_device_ctx") -> None:
    """`module`'s helper that enters a CUDA device enters nothing; ``torch.cpu`` has no such context."""
    if not hasattr(module, name):
        raise AttributeError(f"{module.__name__} has no {name}: this version enters devices elsewhere")
    setattr(module, name, lambda *args, **kwargs: contextlib.nullcontext())


@contextlib.contextmanager
def cpu_device_context() -> Iterator[None]:
    """``torch.cpu.device(index)`` exists and enters nothing, for wrappers that build it from ``tensor.device``."""
    with mock.patch.object(torch.cpu, "device", lambda *args: contextlib.nullcontext(), create=True):
        yield


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


def _arguments(kernel, args, kwargs):
    """The arguments of a kernel by name, without the options of its launch."""
    names = inspect.getfullargspec(kernel).args
    return inspect.getcallargs(kernel, *args, **{k: v for k, v in kwargs.items() if k in names})


def _int64(value):
    """A scalar argument of a kernel, 64 bits wide."""
    return tl.tensor(interpreter.TensorHandle(np.array([value], np.int64), tl.int64), tl.int64)


def _widened(operand):
    """A bfloat16 operand as float32; others as they are."""
    if operand.get_element_ty() != tl.bfloat16:
        return operand
    bits = np.asarray(operand.data).view(np.uint16).astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)


def _bfloat16_bits(values):
    """float32 numbers rounded to nearest, as the interpreter stores bfloat16."""
    bits = torch.tensor(np.asarray(values, np.float32)).to(torch.bfloat16).view(torch.int16).numpy()
    return bits.view(np.uint16)


def _late(name: str):
    def call(*args, **kwargs):
        return getattr(tl, name)(*args, **kwargs)

    return call


def _first(repair: str) -> bool:
    if repair in _repaired:
        return False
    _repaired.add(repair)
    return True
