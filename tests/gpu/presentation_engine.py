"""An engine on a GPU whose targets are right in the plain presentation, and some of them in no other.

Each copies the right steps on the device; what is the matter with it is its name.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from tests.fake_engine import functional_chain, right

BLOCK = 64
ADDENDS = 1 << 18  # floats that are added in whatever order the device likes


def target(function: Any) -> Any:
    return adapter(
        contract="commit.checkpoint_steps", module="gpu", symbol=function.__name__, engine="gpu_presentations",
        observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
    )(function)  # fmt: skip


class Call:
    """The buffers of one call; ``base`` is what the first request had before, on the device and on the host."""

    def __init__(self, engine: Any, case: Any):
        self.engine, self.torch, self.answer = engine, engine.torch, right(case)
        self.count, self.host = len(case.pre), int(case.pre[0]) if len(case.pre) else 0
        self.given = engine.tensor(self.answer["current_step"], "int32", contiguous=True)
        self.base = engine.tensor([self.host], "int32", contiguous=True)
        self.zero = engine.tensor([0], "int32", contiguous=True)
        self.out = engine.torch.zeros(self.count, dtype=engine.torch.int32, device=engine.device)

    def shift(self, base: Any, host: int) -> None:
        from tests.gpu import presentation_kernels as kernels

        if self.count:
            kernels.shift[(1,)](self.given, base, host, self.out, self.count, BLOCK=BLOCK)

    def observed(self) -> dict[str, Any]:
        return self.answer | {"current_step": self.out.tolist()}


@target
def kernel(engine: Any, case: Any) -> dict[str, Any]:
    """Right in every presentation."""
    call = Call(engine, case)
    with engine.production():
        call.shift(call.zero, 0)
    return call.observed()


@target
def torch_operators(engine: Any, case: Any) -> dict[str, Any]:
    """Right in every presentation, with buffers of its own, in two calls, on a tensor made inside the first."""
    call = Call(engine, case)
    with engine.production():
        moved = engine.tensor(call.answer["current_step"], "int32") + call.base
    with engine.production():
        call.out = (moved - call.base).clone()
    return call.observed()


@target
def bakes(engine: Any, case: Any) -> dict[str, Any]:
    """Hands over as an argument what it read on the host."""
    call = Call(engine, case)
    with engine.production():
        call.shift(call.base, call.host)
    return call.observed()


@target
def strays(engine: Any, case: Any) -> dict[str, Any]:
    """Launches on the default stream, whichever is the current one."""
    call = Call(engine, case)
    with engine.production(), call.torch.cuda.stream(call.torch.cuda.default_stream(engine.device)):
        call.shift(call.zero, 0)
    return call.observed()


@target
def sums(engine: Any, case: Any) -> dict[str, Any]:
    """Adds floats in no order, and shows the last bits of the sum as steps."""
    call, torch = Call(engine, case), engine.torch
    values = torch.linspace(-1.0, 3.0, ADDENDS, device=engine.device) ** 7
    places = torch.zeros(ADDENDS, dtype=torch.int64, device=engine.device)
    total = torch.zeros(1, dtype=torch.float32, device=engine.device)
    with engine.production():
        total.index_add_(0, places, values)
    bits = int(total.view(torch.int32)) & 0xFFFF
    return call.answer | {"current_step": [bits] * call.count}


@target
def waits(engine: Any, case: Any) -> dict[str, Any]:
    """Asks the device for a number before it goes on."""
    call = Call(engine, case)
    with engine.production():
        call.shift(call.zero, int(call.zero.item()))
    return call.observed()


@target
def host_only(engine: Any, case: Any) -> dict[str, Any]:
    """Launches nothing."""
    answer = right(case)
    with engine.production():
        pass
    return answer
