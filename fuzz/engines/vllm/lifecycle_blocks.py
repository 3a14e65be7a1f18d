"""commit.lifecycle through vLLM's block manager and prefill split, in align mode."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.vllm.lifecycle_world import VllmWorld
from fuzz.lifecycle.driver import Driver

# It caches the state of every full block that a step leaves behind, and gives up the block
# that a running request resumed from: what is filed and found again is its own affair.
SEEN = ("violations", "slots", "states")


def _accepts(case: Any) -> str | None:
    if case.ring:
        return "states of this manager keep no ring of inputs"
    if case.lazy:
        return "there are no track slots, and so no lazy ones"
    if case.overlap:
        return "the steps of a story are scheduled one after the other"
    if case.chunk:
        return "the length of a pass depends on what is found in the cache"
    if "offload" in case.action:
        return "a preempted request is computed again"
    return None


@adapter(contract="commit.lifecycle", module="block_manager", symbol="MambaManager", observes=SEEN,
         needs=("lifecycle.manager", "lifecycle.state_manager", "lifecycle.split", "lifecycle.request",
                "lifecycle.hashes", "lifecycle.hash_function"),
         execution="worker", accepts=_accepts, engine="vllm")  # fmt: skip
def block_manager(engine: Any, case: Any) -> dict[str, Any]:
    seen = Driver(case, VllmWorld(engine, case)).run()
    return {name: seen[name] for name in SEEN}
