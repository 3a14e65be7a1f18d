"""An engine on a GPU whose one target misbehaves on purpose: ``pre`` of the first request selects the fault,
everything else is answered rightly."""

from __future__ import annotations

import os
import signal
from typing import Any

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.memory import Memory
from tests.fake_engine import functional_chain, right

FAULTS = {
    2001: "illegal_address", 2002: "device_assert", 2003: "endless_kernel", 2004: "misaligned", 2005: "memory",
    2006: "exit", 2007: "segfault", 2008: "kill", 2009: "write_after", 2010: "write_before", 2011: "read_past",
    2012: "uninitialised", 2013: "race", 2014: "divergent_barrier",
}  # fmt: skip
FAR = 2**44  # elements: no address there belongs to anybody


@adapter(
    contract="commit.checkpoint_steps", module="gpu", symbol="misbehaves", engine="gpu_faults",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def misbehaves(engine: Any, case: Any) -> dict[str, Any]:
    fault = FAULTS.get(int(case.pre[0])) if len(case.pre) else None
    answer = right(case)
    with Memory(engine.torch, engine.device) as memory:
        buffer = memory.zeros((64,), engine.torch.int32)
        memory.know("an output", buffer)
        memory.seal()
        with engine.production():
            found = commit(engine, buffer, fault)
        if memory.outside() or found:  # shown as a wrong step, so that it is a divergence
            answer["current_step"] = [step + 1 for step in answer["current_step"]]
    return answer


def commit(engine: Any, buffer: Any, fault: str | None) -> int:
    """The call under test; returns what it read of its neighbours."""
    from tests.gpu import fault_kernels as kernels

    torch = engine.torch
    if fault == "exit":
        os._exit(7)
    if fault in ("segfault", "kill"):
        os.kill(os.getpid(), signal.SIGSEGV if fault == "segfault" else signal.SIGKILL)
    if fault == "illegal_address":
        kernels.store[(1,)](buffer, FAR)
    if fault == "device_assert":
        buffer[torch.tensor([10**6], device=engine.device)] = 1
    if fault == "endless_kernel":
        kernels.spin[(1,)](buffer)
    if fault == "misaligned":
        kernels.store_askew[(1,)](buffer)
    if fault == "memory":
        torch.empty(2**44, dtype=torch.int8, device=engine.device)
    if fault in ("write_after", "write_before"):
        kernels.store[(1,)](buffer, 64 if fault == "write_after" else -1)
    if fault == "read_past":
        found = torch.zeros(1, dtype=torch.int32, device=engine.device)
        kernels.load[(1,)](buffer, 64, found)
        return int(found)
    if fault == "uninitialised":
        found = torch.zeros(1, dtype=torch.int32, device=engine.device)
        kernels.load[(1,)](torch.empty(64, dtype=torch.int32, device=engine.device), 5, found)
    if fault in ("race", "divergent_barrier"):
        if not hasattr(torch.cuda, "_compile_kernel"):
            raise Unsupported("this torch compiles no CUDA source")
        compiled = torch.cuda._compile_kernel(kernels.SOURCES[fault], fault, nvcc_options=["-lineinfo"])
        compiled(grid=(1, 1, 1), block=(64, 1, 1), args=[buffer])
    kernels.store[(1,)](buffer, 0)
    return 0
