"""commit.lifecycle through SGLang's pools, batches and prefix caches."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.bound import pinning_dropped
from fuzz.engines.sglang.lifecycle_pools import Pools
from fuzz.engines.sglang.lifecycle_world import SglangWorld
from fuzz.engines.sglang.settings import settings
from fuzz.lifecycle.driver import Driver

CONTRACT = "commit.lifecycle"
NEEDS = (
    "settings.config", "boundary.update", "lifecycle.request", "lifecycle.batch", "lifecycle.pool",
    "lifecycle.release", "lifecycle.key", "lifecycle.state_shapes",
)  # fmt: skip
KEPT_TRUE = ("violations", "slots", "states")  # whatever is filed, it is what it is filed under
ALL = (*KEPT_TRUE, "filed", "dropped", "resumed")


def _accepts(case: Any) -> str | None:
    if case.ring:
        return "states of this pool keep no ring of inputs"
    if "offload" in case.action:
        return "copies to the host are made for disaggregated decoding only"
    return None


def _plain(case: Any) -> str | None:
    return "lazy track slots are a target of their own" if case.lazy else _accepts(case)


def _lazy(case: Any) -> str | None:
    if not case.lazy:
        return "plain track slots are a target of their own"
    return _accepts(case) if case.overlap else "lazy track slots are refused without overlap scheduling"


def tell(engine: Any, case: Any, tree: str, **options: Any) -> dict[str, Any]:
    """Tell the story of ``case`` to a prefix cache and what stands around it."""
    grid = int(case.grid)
    fixed = engine.fact("settings.chunk") == "fixed"
    chunk = engine.fact("lifecycle.fixed_chunk") if fixed else grid
    if chunk != grid:
        raise Unsupported(f"the state chunk of this version is {chunk}, and prefill tracks on it")
    if case.lazy and not engine.fact("tracks.lazy"):
        raise Unsupported("the lazy form is refused together with speculation in this version")
    fields = {
        "attention_backend": "torch_native",
        "speculative_algorithm": "EAGLE",
        "speculative_num_draft_tokens": int(case.draft_tokens),
    }
    if case.lazy:
        fields[engine.fact("settings.strategy_field")] = "extra_buffer_lazy"
    chunk_setting = None if fixed else grid
    with (
        settings(engine, interval=grid, chunk=chunk_setting, extra_buffer=True, **fields),
        pinning_dropped(engine.torch),
    ):
        pools = Pools(engine, case, tree, chunk, **options)
        return Driver(case, SglangWorld(engine, case, pools)).run()


@adapter(contract=CONTRACT, module="mamba_radix_cache", symbol="MambaRadixCache", observes=ALL,
         needs=(*NEEDS, "lifecycle.mamba_radix"), execution="worker", accepts=_plain)  # fmt: skip
def mamba_radix(engine: Any, case: Any) -> dict[str, Any]:
    return tell(engine, case, "lifecycle.mamba_radix")


@adapter(contract=CONTRACT, module="unified_radix_cache", symbol="UnifiedRadixCache", observes=ALL,
         needs=(*NEEDS, "lifecycle.unified_radix", "lifecycle.components"), execution="worker",
         accepts=_plain)  # fmt: skip
def unified_radix(engine: Any, case: Any) -> dict[str, Any]:
    component = engine.symbol("lifecycle.components")
    return tell(engine, case, "lifecycle.unified_radix", tree_components=(component.FULL, component.MAMBA))


@adapter(contract=CONTRACT, module="unified_radix_cache", symbol="UnifiedRadixCache.python_core", observes=ALL,
         needs=(*NEEDS, "lifecycle.unified_radix", "lifecycle.components", "lifecycle.python_core"), execution="worker",
         accepts=_plain)  # fmt: skip
def unified_radix_python_core(engine: Any, case: Any) -> dict[str, Any]:
    """The same cache over the tree that is used where the compiled one cannot be."""
    component = engine.symbol("lifecycle.components")
    components = (component.FULL, component.MAMBA)
    return tell(engine, case, "lifecycle.unified_radix", tree_components=components, tree_core_backend="python")


@adapter(contract=CONTRACT, module="lazy_tracks", symbol="ScheduleBatch.mamba_lazy_spec_prepare", observes=KEPT_TRUE,
         needs=(*NEEDS, "lifecycle.unified_radix", "lifecycle.components", "lifecycle.lazy_plan"), execution="worker",
         accepts=_lazy)  # fmt: skip
def lazy_tracks(engine: Any, case: Any) -> dict[str, Any]:
    """Lazily a request that ends near a boundary may file less: its slot may still be
    written by the round in flight. So what is filed is judged only for being true."""
    component = engine.symbol("lifecycle.components")
    seen = tell(engine, case, "lifecycle.unified_radix", tree_components=(component.FULL, component.MAMBA))
    return {name: seen[name] for name in KEPT_TRUE}
