"""Runs inside an engine's environment: whether Triton's interpreter does what a GPU
does, before and after each repair. Prints one JSON object, name -> [before, after].

Whatever a check raises counts as "not what a GPU does": it is the departure.
"""

import contextlib
import json
import sys

import torch
import triton
import triton.language as tl

from fuzz.engines import interpreter

WIDTH = 4096
SIDE = 16
HERE = sys.modules[__name__]
exp = tl.exp  # an alias made early, as engines make them


@triton.jit
def to_bfloat16(source, target, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(target + i, tl.load(source + i).to(tl.bfloat16))


def rounding():
    x, y = torch.randn(WIDTH), torch.empty(WIDTH, dtype=torch.bfloat16)
    x[:4] = torch.tensor([float("nan"), float("inf"), -0.0, 3.4e38])
    to_bfloat16[(1,)](x, y, WIDTH)
    return torch.equal(y.nan_to_num(7.0), x.to(torch.bfloat16).nan_to_num(7.0))


@triton.jit
def dot(a, b, c, n: tl.constexpr):
    i = tl.arange(0, n)
    offset = i[:, None] * n + i[None, :]
    tl.store(c + offset, tl.dot(tl.load(a + offset), tl.load(b + offset)))


def dot_product():
    """Products of bfloat16 are exact in float32; 16 sums lose at most 16 roundings of the largest."""
    a, b = (torch.randn(SIDE, SIDE).to(torch.bfloat16) for _ in range(2))
    c = torch.empty(SIDE, SIDE)
    dot[(1,)](a, b, c, SIDE)
    bound = SIDE * 2.0**-24 * (a.double().abs() @ b.double().abs())
    return bool(((c.double() - a.double() @ b.double()).abs() <= bound).all())


@triton.jit
def multiply(a, b, c, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(c + i, tl.load(a + i) * tl.load(b + i))


def arithmetic():
    a, b = (torch.randn(WIDTH).to(torch.bfloat16) for _ in range(2))
    c = torch.empty(WIDTH, dtype=torch.bfloat16)
    multiply[(1,)](a, b, c, WIDTH)
    return torch.equal(c, a * b)


@triton.jit
def square(target, n: tl.int64):
    tl.store(target, n * n)


def annotated():
    found = torch.zeros(1, dtype=torch.int64)
    square[(1,)](found, 70_000)
    return found.item() == 70_000**2


@triton.jit
def exponential(source, target, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(target + i, exp(tl.load(source + i)))


def aliases():
    x, y = torch.randn(SIDE), torch.empty(SIDE)
    exponential[(1,)](x, y, SIDE)
    return torch.allclose(y, x.exp())


@triton.jit
def count(target, n):
    total = 0
    for i in range(n):
        total += i.to(tl.int64)
    tl.store(target, total)


def loop_scalars():
    found = torch.zeros(1, dtype=torch.int64)
    count[(1,)](found, 5)
    return found.item() == 10


@triton.jit
def mark(target, n: tl.constexpr):
    tl.store(target + tl.program_id(0), 1)


def grid():
    found = torch.zeros(7)
    mark[lambda given: (given["target"].numel(),)](found, 7)
    return bool(found.all())


@triton.autotune(configs=[triton.Config({"n": 7}), triton.Config({"n": 8})], key=[])
@triton.jit
def tuned(target, n: tl.constexpr):
    tl.store(target + tl.program_id(0), n)


def configurations():
    found = torch.zeros(7)
    tuned[(7,)](found)
    return bool((found == 7).all())


def helper(index):
    return torch.cuda.device(index)


def device_helper():
    with HERE.helper(0):
        return True


def device_context():
    with torch.cpu.device(0):
        return True


@triton.jit
def from_integers(source, target, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(target + i, tl.load(source + i).to(tl.bfloat16))


def integers():
    x, y = torch.arange(WIDTH, dtype=torch.int32) - WIDTH // 2, torch.empty(WIDTH, dtype=torch.bfloat16)
    from_integers[(1,)](x, y, WIDTH)
    return torch.equal(y, x.to(torch.bfloat16))


def right(check):
    try:
        return bool(check())
    except Exception:
        return False


OPEN = contextlib.ExitStack()
CHECKS = {
    "round_to_bfloat16": (rounding, interpreter.round_to_bfloat16),
    "widen_bfloat16_dot": (dot_product, interpreter.widen_bfloat16_dot),
    "compute_in_bfloat16": (arithmetic, interpreter.compute_in_bfloat16),
    "convert_integers_to_bfloat16": (integers, interpreter.convert_integers_to_bfloat16),
    "annotated_integers": (annotated, interpreter.annotated_integers),
    "rebind_aliases": (aliases, lambda: interpreter.rebind_aliases(HERE)),
    "tensor_range": (loop_scalars, lambda: interpreter.tensor_range(HERE)),
    "grid_of_host_arguments": (grid, interpreter.grid_of_host_arguments),
    "single_configuration": (configurations, lambda: interpreter.single_configuration(HERE)),
    "null_device_context": (device_helper, lambda: interpreter.null_device_context(HERE, "helper")),
    "cpu_device_context": (device_context, lambda: OPEN.enter_context(interpreter.cpu_device_context())),
}
torch.manual_seed(0)
before = {name: right(check) for name, (check, _) in CHECKS.items()}
for _, repair in CHECKS.values():
    repair()
print(json.dumps({name: [before[name], right(check)] for name, (check, _) in CHECKS.items()}))
