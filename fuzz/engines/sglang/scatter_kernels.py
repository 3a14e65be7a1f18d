"""The kernels that copy verify states and convolution windows into the pool.

Each wrapper takes one pool with one set of rows, or for the last ones all layers
or all convolutions at once, so a case that also tracks is two calls. Wrappers
that ask for a GPU tensor are told that they have one; the kernels run as shipped.
"""

from __future__ import annotations

from math import prod
from typing import Any

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.memory import Memory
from fuzz.engines.sglang.scatter_state import CommitState
from oracle.commit.state_case import NONE

CONTRACT = "commit.state_scatter"
LAUNCH_CONVOLUTIONS = 8  # one launch describes at most these
COMMIT, TRACK = ("slot", "step"), ("track_slot", "track_step")


def verify_with_state(case: Any) -> str | None:
    if case.operation != "verify":
        return "copies from the verify scratch only"
    return None if prod(case.state_entry) else "its caller skips it without recurrent state"


def verify_with_windows(case: Any) -> str | None:
    if case.operation != "verify":
        return "copies from the verify scratch only"
    return None if case.window_channels else "there is no convolution"


def one_launch_for_all(case: Any) -> str | None:
    if case.window_dtype != "bfloat16" or len(case.window_channels) > LAUNCH_CONVOLUTIONS or case.indexed_source:
        return "its caller launches once per convolution"
    return verify_with_windows(case)


def pool_only(case: Any) -> str | None:
    return None if case.operation == "pool" else "copies within the pool only"


def _scatter(engine: Any, case: Any, field: str, key: str) -> dict[str, Any]:
    """Call a kernel wrapper per tensor, for the commit and for the track slots."""
    from fuzz.engines import interpreter

    with Memory(engine.torch, engine.device) as memory:
        state = CommitState(engine, memory, case, strided_pool=engine.fact("scatter.strided_pool"))
        pairs = list(zip(state.make_pools(field), state.make_scratch(field), strict=True))
        source = source_argument(engine, case, state)
        batches = [[state.index(n) for n in names] for names in ((COMMIT, TRACK) if case.tracking else (COMMIT,))]
        memory.seal()
        with interpreter.cuda_tensors(), engine.production():
            for slots, steps in batches:
                for pool, scratch in pairs:
                    engine.symbol(key)(pool, scratch, slots, steps, *source)
        return state.observe(field)


def source_argument(engine: Any, case: Any, state: CommitState) -> tuple[Any, ...]:
    """The scratch rows by index, where the case asks for it and the version can."""
    if not case.indexed_source:
        return ()
    if not engine.fact("scatter.source_rows"):
        raise Unsupported("rows cannot name their scratch row in this version")
    return (state.index("source"),)


@adapter(
    contract=CONTRACT, module="scatter", symbol="fused_mamba_state_scatter_with_mask",
    observes=("outside", "source_changed", "state"), needs=("scatter.state",), execution="triton",
    accepts=verify_with_state,
)  # fmt: skip
def recurrent_state(engine: Any, case: Any) -> dict[str, Any]:
    return _scatter(engine, case, "state", "scatter.state")


@adapter(
    contract=CONTRACT, module="scatter", symbol="fused_conv_window_scatter_with_mask",
    observes=("outside", "source_changed", "windows"), needs=("scatter.windows",), execution="triton",
    accepts=verify_with_windows,
)  # fmt: skip
def windows(engine: Any, case: Any) -> dict[str, Any]:
    return _scatter(engine, case, "windows", "scatter.windows")


@adapter(
    contract=CONTRACT, module="scatter", symbol="fused_conv_window_scatter_multi",
    observes=("outside", "source_changed", "windows"), needs=("scatter.multi", "scatter.multi_eligible"),
    execution="triton", accepts=one_launch_for_all,
)  # fmt: skip
def windows_in_one_launch(engine: Any, case: Any) -> dict[str, Any]:
    """Its caller asks first whether the tensors suit it; so does this. The
    descriptors that it keeps by address are kept between cases, too."""
    with Memory(engine.torch, engine.device) as memory:
        state = CommitState(engine, memory, case, strided_pool=engine.fact("scatter.strided_pool_in_one_launch"))
        pairs = list(zip(state.make_pools("windows"), state.make_scratch("windows"), strict=True))
        engine.require_path(engine.symbol("scatter.multi_eligible")(pairs), "one launch for all convolutions")
        names = (*COMMIT, *TRACK) if case.tracking else COMMIT
        rows = [state.index(name) for name in names]
        memory.seal()
        with engine.production():
            engine.symbol("scatter.multi")(pairs, *rows)
        return state.observe("windows")


@adapter(
    contract=CONTRACT, module="scatter", symbol="scatter_mamba_states_after_mtp_verify",
    observes=("outside", "source_changed", "state", "windows"), needs=("scatter.caches",), execution="triton",
    accepts=lambda case: None if case.operation == "verify" else "copies from the verify scratch only",
)  # fmt: skip
def all_caches(engine: Any, case: Any) -> dict[str, Any]:
    """What backends call: it chooses the launches for state and windows."""
    from fuzz.engines import interpreter

    with Memory(engine.torch, engine.device) as memory:
        state = CommitState(engine, memory, case, strided_pool=engine.fact("scatter.strided_pool"))
        nothing = engine.torch.zeros((case.layers, case.slots, *case.state_entry), dtype=state.dtype("state"))
        caches = ClosedStub(
            "mamba_caches",
            temporal=(state.make_pools("state") or [nothing])[0],
            intermediate_ssm=(state.make_scratch("state") or [nothing])[0],
            conv=state.make_pools("windows"),
            intermediate_conv_window=state.make_scratch("windows"),
        )
        track = [state.index(n) for n in TRACK] if case.tracking else [None, None]
        arguments = [state.index(n) for n in COMMIT] + track + list(source_argument(engine, case, state))
        memory.seal()
        with interpreter.cuda_tensors(), engine.production():
            engine.symbol("scatter.caches")(caches, *arguments)
        return state.observe("state", "windows")


@adapter(
    contract=CONTRACT, module="track", symbol="track_mamba_states_if_needed",
    observes=("outside", "state", "windows"), needs=("track.one_layer",), execution="triton", accepts=pool_only,
)  # fmt: skip
def track_layer_by_layer(engine: Any, case: Any) -> dict[str, Any]:
    """One call a layer, as a backend's decode makes them."""
    return _track(engine, case, "track.one_layer", lambda pool: list(pool))


@adapter(
    contract=CONTRACT, module="track", symbol="track_mamba_states_all_layers",
    observes=("outside", "state", "windows"), needs=("track.all_layers",), execution="triton", accepts=pool_only,
)  # fmt: skip
def track_all_layers(engine: Any, case: Any) -> dict[str, Any]:
    return _track(engine, case, "track.all_layers", lambda pool: [pool])


def _track(engine: Any, case: Any, key: str, split: Any) -> dict[str, Any]:
    """Index tensors are contiguous, as every caller's are: the kernels read them
    by pointer."""
    with Memory(engine.torch, engine.device) as memory:
        state = CommitState(engine, memory, case, strided_pool=engine.fact("scatter.strided_pool"))
        (recurrent,), (window,) = state.make_pools("state"), state.make_pools("windows")
        slots, track_slots = (state.index(n, contiguous=True) for n in ("slot", "track_slot"))
        mask = engine.tensor(case.track_step != NONE, "bool", contiguous=True)
        freed = (case.track_step != NONE) & ((case.slot == NONE) | (case.track_slot == NONE))
        if freed.any() and not engine.fact("track.freed_slots"):
            raise Unsupported("this version does not expect freed slots")
        more = (True,) if freed.any() else ()
        memory.seal()
        with engine.production():
            for windows_, states in zip(split(window), split(recurrent), strict=True):
                engine.symbol(key)(windows_, states, slots, mask, track_slots, len(case.slot), *more)
        return state.observe("state", "windows")
