"""vLLM's copies of recurrent state to block boundaries, in both of its runners.

Runner 2 keeps counts and columns in tables by request state, whose number is not the row of the batch;
runner 1 keeps them by row. Where a release has both, the same kernel copies for the two. Rows that belong
to no request any more are handed over as -1 by runner 2 after a verify.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.memory import Memory
from fuzz.engines.vllm.aligned_memory import Blocks
from fuzz.engines.vllm.launches import counted
from fuzz.worker.layout import FILLER
from oracle.commit.aligned_case import NONE
from oracle.commit.aligned_states import UNTOUCHED

CONTRACT = "commit.aligned_states"
AFTER = ("outside", "accepted", "changed", "checkpoint", "continuing")
BEFORE = ("outside", "column", *AFTER[1:])
NEEDS = ("aligned.module", "aligned.copy_window", "aligned.copy_state", "aligned.spec", "aligned.group",
         "aligned.configuration", "aligned.buffer")  # fmt: skip
CONTEXT = (*NEEDS, "aligned.context")
LAUNCH_ROWS = 256  # requests that the caller of the kernel for columns gives one program


def after_verify(case: Any) -> str | None:
    return None if case.operation == "after_verify" else "copies after a verify only"


def before_step(case: Any) -> str | None:
    return None if case.operation == "before_step" else "copies before a step only"


def _scalar(case: Any) -> str | None:
    return None if case.window_first else "its convolution entries are (inputs, channels)"


def context(engine: Any, blocks: Blocks, tables: list[Any], requests: int) -> Any:
    """The engine's own context of its copies, bound to the blocks and to ``tables`` of ``requests`` rows."""
    if not blocks.case.window_first and not engine.fact("aligned.channels_first"):
        raise Unsupported("this version copies convolution entries of (inputs, channels) only")
    configuration, functions = blocks.configuration(), blocks.copy_functions()
    if engine.fact("aligned.functions_by_type"):
        kind = configuration.kv_cache_groups[0].kv_cache_spec.mamba_type
        functions, described = {kind: functions}, {"copy_funcs": {kind: functions}}
    else:
        described = {"num_state_types": len(functions)}
    made = engine.symbol("aligned.context").create(
        max_num_reqs=requests,
        kv_cache_config=configuration,
        device=engine.torch.device(engine.device),
        make_buffer=_buffer(engine),
        **described,
    )
    with blocks.layout():
        made.initialize_from_forward_context(configuration, blocks.layers(), functions, tables)
    return made


def _buffer(engine: Any) -> Any:
    def make(*size: int, dtype: Any) -> Any:
        return engine.symbol("aligned.buffer")(
            *size, dtype=dtype, device=engine.torch.device(engine.device), pin_memory=False
        )

    return make


class States:
    """Runner 2's tables by request state: states run backwards, and state 0 is nobody's."""

    def __init__(self, engine: Any, case: Any):
        self.engine, self.rows = engine, len(case.computed)
        self.of_row = np.arange(self.rows, 0, -1)
        self._tables: list[Any] = []

    def table(self, values: Any) -> Any:
        made = np.full(self.rows + 1, FILLER, np.int64)
        made[self.of_row] = values
        self._tables.append(self.engine.tensor(made, "int32", contiguous=True))
        return self._tables[-1]

    def of(self, table: Any) -> list[int]:
        return table.cpu().numpy()[self.of_row].tolist()

    def beside(self) -> str:
        touched = any(int(table[0]) != FILLER for table in self._tables)
        return "the tables of a state that is no request's" if touched else ""

    def block_tables(self, blocks: Blocks) -> list[Any]:
        by_state = self.engine.fact("aligned.tables_by_state")
        return blocks.tables(list(self.of_row if by_state else range(self.rows)), self.rows + 1)


@adapter(
    contract=CONTRACT, module="gpu_mamba", symbol="run_fused_postprocess_align", observes=AFTER,
    needs=(*CONTEXT, "aligned.postprocess_2"), execution="triton", accepts=after_verify, engine="vllm",
)  # fmt: skip
def runner_2_after_verify(engine: Any, case: Any) -> dict[str, Any]:
    """With a row of no request behind the batch."""
    with Memory(engine.torch, engine.device) as memory:
        blocks, states = Blocks(engine, memory, case), States(engine, case)
        made = context(engine, blocks, states.block_tables(blocks), states.rows + 1)
        accepted, running = states.table(case.committed), states.table(case.running)
        computed = states.table(case.computed + case.fed + case.committed - 1)
        mapping = engine.tensor([*states.of_row, NONE], "int32", contiguous=True)
        memory.seal()
        with blocks.layout(), engine.production():
            made.run_fused_postprocess_align(len(mapping), accepted, running, computed, mapping)
        return blocks.observe(states.of(accepted), case.running.tolist(), states.beside())


@adapter(
    contract=CONTRACT, module="mamba", symbol="run_fused_postprocess", observes=AFTER,
    needs=(*CONTEXT, "aligned.postprocess_1"), execution="triton", accepts=after_verify, engine="vllm",
)  # fmt: skip
def runner_1_after_verify(engine: Any, case: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        blocks, rows = Blocks(engine, memory, case), len(case.computed)
        made = context(engine, blocks, blocks.tables(list(range(rows)), rows), rows)

        def int32(values: Any) -> Any:
            return engine.tensor(values, "int32", contiguous=True)

        given = {
            "num_accepted_tokens_gpu": int32(case.committed),
            "mamba_state_idx_gpu": int32(case.running),
            "num_scheduled_tokens_gpu": int32(case.fed + case.request_drafts),
            "num_computed_tokens_gpu": int32(case.computed),
            "num_draft_tokens_gpu": int32(case.request_drafts),
        }
        memory.seal()
        with blocks.layout(), engine.production():
            made.run_fused_postprocess(num_reqs=rows, **given)
        return blocks.observe(made.num_accepted_tokens_out.cpu().tolist(), case.running.tolist())


@adapter(
    contract=CONTRACT, module="gpu_mamba", symbol="preprocess_mamba_align_fused_kernel+run_fused_precopy",
    observes=BEFORE, needs=(*CONTEXT, "aligned.columns_kernel", "aligned.precopy"), execution="triton",
    accepts=before_step, engine="vllm",
)  # fmt: skip
def runner_2_before_step(engine: Any, case: Any) -> dict[str, Any]:
    """As the runner's hook calls the two, with columns and counts left in its tables."""
    with Memory(engine.torch, engine.device) as memory:
        blocks, states = Blocks(engine, memory, case), States(engine, case)
        made = context(engine, blocks, states.block_tables(blocks), states.rows + 1)
        column, accepted = states.table(case.column), states.table(case.committed)
        source, offset = states.table(NONE), states.table(0)
        computed = states.table(case.computed)
        starts = np.concatenate([[0], np.cumsum(case.fed + case.request_drafts)])
        mapping = engine.tensor(states.of_row, "int32", contiguous=True)
        memory.seal()
        with blocks.layout(), engine.production():
            engine.symbol("aligned.columns_kernel")[(-(-states.rows // LAUNCH_ROWS),)](
                mapping, column, computed, engine.tensor(starts, "int32", contiguous=True), accepted, source, offset,
                states.rows, BLOCK_SIZE=LAUNCH_ROWS, MAMBA_BLOCK_SIZE=case.block,
            )  # fmt: skip
            made.run_fused_precopy(states.rows, column, source, offset, mapping)
        return blocks.observe(states.of(accepted), states.of(column), states.beside())


@adapter(
    contract=CONTRACT, module="gpu_mamba", symbol="compute_aligned_state_indices", observes=("outside", "written"),
    needs=(*CONTEXT, "aligned.indices"), execution="triton", engine="vllm",
)  # fmt: skip
def runner_2_indices(engine: Any, case: Any) -> dict[str, Any]:
    """The blocks that a pass is told to write to, as columns again; tables are by row of the batch here."""
    with Memory(engine.torch, engine.device) as memory:
        blocks, rows = Blocks(engine, memory, case), len(case.computed)
        made = context(engine, blocks, blocks.tables(list(range(rows)), rows), rows)
        lengths = engine.tensor(case.computed + case.fed + case.request_drafts, "int32", contiguous=True)
        made.aligned_state_indices.fill_(FILLER)
        memory.seal()
        with _cuda_tensors(engine), engine.production():
            found = made.compute_aligned_state_indices(lengths, rows).cpu()
        groups = range(len(blocks.groups))
        written = [[blocks.columns_of(i, g, found[g, i].tolist()) for g in groups] for i in range(rows)]
        differing = any(row != each[0] for each in written for row in each)
        outside = memory.outside() or ("groups write to different columns" if differing else UNTOUCHED)
        return {"outside": outside, "written": [each[0] for each in written]}


def _cuda_tensors(engine: Any) -> AbstractContextManager[None]:
    """Where there is no GPU its tensors must say that they are on one."""
    if engine.device != "cpu":
        return nullcontext()
    from fuzz.engines import interpreter

    return interpreter.cuda_tensors()


class Scheduled:
    """What runner 1's host side reads: the scheduler's output, its batch and its requests."""

    def __init__(self, case: Any, blocks: Blocks, tables: list[Any]):
        rows = range(len(case.computed))
        self.names = [f"request {i}" for i in rows]
        self.accepted = case.committed.astype(np.int32)
        self.output = ClosedStub(
            "scheduler output",
            finished_req_ids=set(),
            preempted_req_ids=set(),
            scheduled_cached_reqs=ClosedStub("cached requests", resumed_req_ids=set()),
            num_scheduled_tokens={self.names[i]: int(case.fed[i] + case.request_drafts[i]) for i in rows},
            scheduled_spec_decode_tokens={self.names[i]: [0] * int(case.request_drafts[i]) for i in rows},
        )
        self.batch = ClosedStub(
            "input batch",
            req_ids=self.names,
            num_accepted_tokens_cpu=self.accepted,
            block_table=[ClosedStub("block table", get_device_tensor=lambda count, t=t: t) for t in tables],
        )
        groups = range(len(blocks.groups))
        self.requests = {
            self.names[i]: ClosedStub(
                "request",
                num_computed_tokens=int(case.computed[i]),
                block_ids=[blocks.block_ids(i, g) for g in groups],
            )
            for i in rows
        }

    def columns(self, values: Any) -> dict[str, int]:
        """The running column of every request that has one."""
        return {n: int(v) for n, v in zip(self.names, values, strict=True) if v != NONE}


def _pinning(engine: Any) -> AbstractContextManager[None]:
    """Where there is no GPU no memory can be pinned for it."""
    if engine.device != "cpu":
        return nullcontext()
    from fuzz.engines import interpreter

    return interpreter.no_pinning()


def _host(engine: Any, case: Any, key: str, *, fused: bool = False) -> dict[str, Any]:
    """Call ``preprocess_mamba`` or ``postprocess_mamba``, which work out the copies on the host; ``fused``
    leaves the copies to the kernel."""
    with Memory(engine.torch, engine.device) as memory:
        blocks, rows = Blocks(engine, memory, case), len(case.computed)
        tables = blocks.tables(list(range(rows)), rows)
        scheduled, functions, configuration = (
            Scheduled(case, blocks, tables), blocks.copy_functions(), blocks.configuration(),
        )  # fmt: skip
        if engine.fact("aligned.functions_by_type"):
            functions = {configuration.kv_cache_groups[0].kv_cache_spec.mamba_type: functions}
        copies = engine.symbol("aligned.copies").create(rows, configuration, functions, _buffer(engine))
        before = case.operation == "before_step"
        columns = scheduled.columns(case.column if before else case.running)
        given: dict[str, Any] = {"align_ctx": context(engine, blocks, tables, rows)} if fused else {}
        if before:
            given["cache_config"] = ClosedStub("cache configuration", enable_prefix_caching=True)
        kernel = engine.symbol("aligned.copy_kernel" if not fused else "aligned.precopy_kernel")
        memory.seal()
        with counted(kernel) as runs, blocks.layout(), _pinning(engine), engine.production():
            engine.symbol(key)(
                scheduler_output=scheduled.output,
                kv_cache_config=configuration,
                mamba_state_idx=columns,
                input_batch=scheduled.batch,
                requests=scheduled.requests,
                forward_context=blocks.layers(),
                mamba_state_copy_funcs=functions,
                copy_bufs=copies,
                **given,
            )
        engine.require_path(runs.count == 1 or not (fused or copies.offset), "copy kernel")
        return blocks.observe(scheduled.accepted.tolist(), [columns[name] for name in scheduled.names])


@adapter(
    contract=CONTRACT, module="mamba", symbol="preprocess_mamba", observes=BEFORE,
    needs=(*NEEDS, "aligned.copies", "aligned.preprocess", "aligned.copy_kernel"), execution="worker",
    accepts=lambda case: before_step(case) or _scalar(case), engine="vllm",
)  # fmt: skip
def runner_1_before_step(engine: Any, case: Any) -> dict[str, Any]:
    return _host(engine, case, "aligned.preprocess")


@adapter(
    contract=CONTRACT, module="mamba", symbol="preprocess_mamba(fused)", observes=BEFORE,
    needs=(*CONTEXT, "aligned.copies", "aligned.preprocess", "aligned.precopy_kernel", "aligned.fused_preprocess"),
    execution="worker", accepts=before_step, engine="vllm",
)  # fmt: skip
def runner_1_before_step_fused(engine: Any, case: Any) -> dict[str, Any]:
    return _host(engine, case, "aligned.preprocess", fused=True)


@adapter(
    contract=CONTRACT, module="mamba", symbol="postprocess_mamba", observes=AFTER,
    needs=(*NEEDS, "aligned.copies", "aligned.postprocess", "aligned.copy_kernel"), execution="worker",
    accepts=lambda case: after_verify(case) or _scalar(case), engine="vllm",
)  # fmt: skip
def runner_1_after_verify_on_the_host(engine: Any, case: Any) -> dict[str, Any]:
    return _host(engine, case, "aligned.postprocess")
