"""An engine on a GPU whose buffers are plain tensors without a guard of their own, and whose one target goes beside
them on purpose: ``pre`` of the first request selects how."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from tests.fake_engine import functional_chain, right

WAYS = {
    2101: "write_behind", 2102: "write_before", 2103: "read_behind", 2104: "unwritten", 2105: "memory",
    2106: "graph", 2107: "graph_write_behind", 2108: "wide", 2109: "wide_write_behind", 2110: "filler",
    2111: "addresses", 2112: "freed_write_behind", 2113: "side_stream", 2114: "swallowed_memory",
}  # fmt: skip
COUNT = 64  # elements of a buffer
WIDE = 2**31 + COUNT  # elements, more than a 32-bit offset reaches


@adapter(
    contract="commit.checkpoint_steps", module="gpu", symbol="beside", engine="gpu_guards",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def beside(engine: Any, case: Any) -> dict[str, Any]:
    way = WAYS.get(int(case.pre[0])) if len(case.pre) else None
    answer = right(case)
    with engine.production():
        seen = commit(engine, way)
    if seen:  # shown as a wrong step
        answer["current_step"] = [step + 1 for step in answer["current_step"]]
    return answer


def commit(engine: Any, way: str | None) -> bool:
    """The call under test; whether it saw what it should not."""
    from tests.gpu import fault_kernels as kernels

    torch, device = engine.torch, engine.device
    buffer = torch.empty(COUNT, dtype=torch.int32, device=device)
    kernels.store[(1,)](buffer, 0)
    if way in ("write_behind", "write_before"):
        kernels.store[(1,)](buffer, COUNT if way == "write_behind" else -1)
    if way == "freed_write_behind":
        freed = torch.empty(COUNT, dtype=torch.int32, device=device)
        kernels.store[(1,)](freed, COUNT)
        del freed
        torch.empty(COUNT, dtype=torch.int32, device=device).fill_(1)
    if way == "read_behind":
        found = torch.zeros(1, dtype=torch.int32, device=device)
        kernels.load[(1,)](buffer, COUNT, found)
        return int(found) != 0
    if way == "unwritten":
        kinds = (torch.bfloat16, torch.float16, torch.float32)
        return all(bool(torch.empty(COUNT, dtype=kind, device=device).isnan().all()) for kind in kinds)
    if way in ("memory", "swallowed_memory"):
        try:
            torch.empty(2**44, dtype=torch.int8, device=device)
        except RuntimeError as error:
            raise (error if way == "memory" else ValueError("cannot run here")) from None
    if way in ("graph", "graph_write_behind"):
        return captured(engine, COUNT if way == "graph_write_behind" else 1)
    if way in ("wide", "wide_write_behind"):
        wide = torch.zeros(WIDE, dtype=torch.int32, device=device)
        kernels.store[(1,)](wide, WIDE if way == "wide_write_behind" else WIDE - 1)
        return way == "wide" and int(wide[-1]) != 77
    if way == "filler":
        kernels.store[(1,)](engine.tensor([1, 2, 3], "int32"), 1)  # as if it were contiguous
    if way == "addresses":
        sequence, before = engine.guards.sequence(), engine.__dict__.setdefault("_sequence", engine.guards.sequence())
        return sequence != before
    if way == "side_stream":
        aside = torch.cuda.Stream(device)
        with torch.cuda.stream(aside):
            kernels.store[(1,)](torch.empty(COUNT, dtype=torch.int32, device=device), COUNT)
    return False


def captured(engine: Any, offset: int) -> bool:
    """A kernel in a graph that is replayed three times; its output is allocated inside."""
    from tests.gpu import fault_kernels as kernels

    torch = engine.torch
    kernels.store[(1,)](torch.empty(2 * COUNT, dtype=torch.int32, device=engine.device), offset)  # compiled here
    graph, given = torch.cuda.CUDAGraph(), torch.zeros(COUNT, dtype=torch.int32, device=engine.device)
    with torch.cuda.graph(graph):
        out = torch.empty(COUNT, dtype=torch.int32, device=engine.device)
        kernels.store[(1,)](out, offset)
        total = out[:1] * 0 + given[:1]
    for number in range(3):
        given.fill_(number)
        graph.replay()
        if int(total) != number or (offset < COUNT and int(out[offset]) != 77):
            return True
    return False
