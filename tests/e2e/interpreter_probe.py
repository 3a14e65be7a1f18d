"""Runs inside an engine's environment: what Triton's interpreter does with
bfloat16 before and after the repairs. Prints two lines of two booleans."""

import torch
import triton
import triton.language as tl

from fuzz.engines import interpreter

WIDTH = 4096
SIDE = 16


@triton.jit
def to_bfloat16(source, target, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(target + i, tl.load(source + i).to(tl.bfloat16))


@triton.jit
def dot(a, b, c, n: tl.constexpr):
    i = tl.arange(0, n)
    offset = i[:, None] * n + i[None, :]
    tl.store(c + offset, tl.dot(tl.load(a + offset), tl.load(b + offset)))


def right() -> tuple[bool, bool]:
    """Whether rounding, and the dot product, are what a GPU gives."""
    torch.manual_seed(0)
    x, y = torch.randn(WIDTH), torch.empty(WIDTH, dtype=torch.bfloat16)
    x[:4] = torch.tensor([float("nan"), float("inf"), -0.0, 3.4e38])
    to_bfloat16[(1,)](x, y, WIDTH)
    a, b = (torch.randn(SIDE, SIDE).to(torch.bfloat16) for _ in range(2))
    c = torch.empty(SIDE, SIDE)
    dot[(1,)](a, b, c, SIDE)
    rounded = torch.equal(y.nan_to_num(7.0), x.to(torch.bfloat16).nan_to_num(7.0))
    # Products of bfloat16 are exact in float32; 16 sums lose at most 16 roundings of the largest.
    exact = a.double() @ b.double()
    bound = SIDE * 2.0**-24 * (a.double().abs() @ b.double().abs())
    return rounded, bool(((c.double() - exact).abs() <= bound).all())


print(*right())
interpreter.round_to_bfloat16()
interpreter.widen_bfloat16_dot()
print(*right())
