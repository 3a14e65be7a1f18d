"""The multi-layer EAGLE worker and its graph runners, as far as a draft extension reads them.

The composite runner is the engine's own, buffers and captures included; the runner of one
step has the engine's methods over stated attributes. Models, attention and pools are
stand-ins (``mtp_stand_ins``). What the engine asks about its machine (memory, whether graphs are wanted) is
answered here, under the names that the version record lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from functools import partial
from typing import Any
from unittest import mock

from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.mtp_graphs import Graph, Keeper
from fuzz.engines.sglang.mtp_model import UNTOUCHED, DraftModel
from fuzz.engines.sglang.mtp_stand_ins import attention, draft_runner, nothing, says_no
from oracle.commit.token_table import POOL_ROWS, table
from oracle.draft.mtp_chain_case import TABLE_WIDTH
from oracle.draft.proposer import HIDDEN

GUARD = 64  # elements behind a guarded buffer


class Machine:
    """One worker with its draft models, and its graph runner when sizes were captured.

    models      the draft model of every step
    replayed    batch sizes of the graphs that were replayed, in order
    worker      the draft worker, for a call of its method
    """

    def __init__(self, engine: Any, case: Any, composite: str = "mtp.composite"):
        self.engine, self.case = engine, case
        self.sizes = [int(size) for size in case.captured]
        self.replayed: list[int] = []
        self._wide: dict[int, tuple[Any, Any]] = {}
        torch, device = engine.torch, engine.device
        self.tokens = torch.tensor(table(TABLE_WIDTH), device=device)
        most = max([*self.sizes, len(case.pre), len(case.earlier_pre)]) * (2 * case.steps + 1)
        most = max(most, int(case.committed.sum()))
        self.models = [DraftModel(engine, k, most, produces=k + 1) for k in range(case.steps)]
        self.attention = [attention() for _ in range(case.steps)]
        parts = zip(self.models, self.attention, strict=True)
        self.runners = [draft_runner(engine, model, part, bool(case.chained), self.tokens) for model, part in parts]
        kept = max(case.steps - 1, 0)
        self.stash = torch.full((POOL_ROWS, kept, HIDDEN), float(UNTOUCHED), device=device)
        self.worker = self._worker()
        self._step_runner_class = engine.symbol("mtp.step_runner")  # before its name is answered below
        with self.surroundings():
            if self.sizes:
                self.worker.cuda_graph_runner_for_draft_extend = engine.symbol(composite)(self.worker)

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """What the engine's two modules find around them."""
        engine, answers = self.engine, self._answers()
        with ExitStack() as patches:
            for key in ("mtp.worker_module", "mtp.runner_module"):
                module = engine.symbol(key)
                for name in engine.fact(f"{key}_names"):
                    patches.enter_context(mock.patch.object(module, name, answers[name]))
            yield

    def _answers(self) -> dict[str, Any]:
        return {
            "MultiLayerEagleDraftExtendCudaGraphRunner": lambda worker, step: self._step_runner(step),
            "get_available_gpu_memory": lambda *_: 0.0,
            "check_cuda_graph_backend": says_no,
            "resolve_decode_backend": lambda runner: Keeper(self.engine, self.replayed),
            "maybe_flashinfer_autotune_speculative_draft": nothing,
            "get_global_graph_memory_pool": nothing,
            "set_global_graph_memory_pool": nothing,
            "get_req_to_token_pool": lambda: self.runners[0].req_to_token_pool,
            "require_gathered_buffer": says_no,
            "profile_range": lambda *_: nullcontext(),
            "build_step_span_name": lambda *_: "",
            "replace": copy,  # of a batch, which is a stand-in and no dataclass
        }

    def _worker(self) -> ClosedStub:
        engine, case, runners = self.engine, self.case, self.runners
        return bound(
            engine.symbol("mtp.worker"),
            "draft worker",
            device=engine.device,
            gpu_id=0,
            topk=1,
            speculative_num_steps=case.steps,
            speculative_num_draft_tokens=case.steps + 1,
            speculative_algorithm=runners[0].spec_algorithm,
            model_config=runners[0].model_config,
            server_args=ClosedStub("server arguments", disable_cuda_graph=False),
            target_worker=ClosedStub("target worker", model_runner=runners[0]),
            draft_runner=runners[0],
            draft_runner_list=runners,
            draft_extend_attn_backend_list=self.attention,
            mtp_model_runner=lambda step: runners[step],
            cuda_graph_runner_for_draft_extend=None,
            chain_mtp_hidden_states=bool(case.chained),
            use_rejection_sampling=False,
            req_to_hidden_states_pool=self.stash,
            req_to_token_pool=runners[0].req_to_token_pool,
            draft_extend_num_front_tokens=0,
            plan_stream=None,
            plan_stream_ctx=nullcontext(),
            prepare_for_draft_extend=self.prepared,
        )

    def _step_runner(self, step: int) -> ClosedStub:
        """The runner of one step: its methods, and the attributes that its constructor
        would have read from settings."""
        engine, case, runner = self.engine, self.case, self.runners[step]
        width = case.steps + 1 + (step if engine.fact("mtp.window") == "grows" else 0)
        most = max(self.sizes)
        # A buffer that no graph reads; a release that refreshes it shows in what is fed.
        decoy = engine.torch.full((most * width, HIDDEN), float(UNTOUCHED), device=engine.device)
        made = bound(
            self._step_runner_class,
            "graph runner",
            step=step,
            eagle_worker=self.worker,
            model_runner=runner,
            device=engine.device,
            forward_mode=engine.symbol("mtp.forward_mode").DRAFT_EXTEND_V2,
            graphs={},
            output_buffers={},
            enable_torch_compile=False,
            disable_padding=False,
            require_gathered_buffer=False,
            require_mlp_tp_gather=False,
            require_mlp_sync=False,
            require_attn_tp_gather=False,
            speculative_num_steps=case.steps,
            speculative_num_draft_tokens=case.steps + 1,
            topk=1,
            attn_backend=self.attention[step],
            metadata_captured_in_graph=False,
            prune_draft_extend_logits=True,
            padded_static_len=-1,
            deepep_adapter=ClosedStub("expert dispatch", capture=nothing, replay=nothing),
            capture_bs=self.sizes,
            num_tokens_per_bs=width,
            captured_req_width=width,
            num_front_tokens=0,
            max_bs=most,
            max_num_token=most * width,
            extend_seq_lens_cpu=[width] * most,
            seq_len_fill_value=1,
            stream=None,
            hidden_states=decoy,
            model_context=lambda: nullcontext(),
        )
        made.capture = partial(self._capture, made)
        made._capture_init = nothing
        made._capture_graph = lambda graph, pool, stream, run: graph.capture(run)
        return made

    def _guard(self, buffers: Any) -> None:
        """Lay buffers that a launch for the whole batch indexes, too large for any graph or
        not, before rows of their own kind: a read behind them is then wrong in every run."""
        torch = self.engine.torch
        for name in self.engine.fact("mtp.guarded"):
            narrow = getattr(buffers, name)
            if id(narrow) not in self._wide:
                wide = torch.zeros(len(narrow) + GUARD, dtype=narrow.dtype, device=narrow.device)
                wide[: len(narrow)] = narrow
                self._wide[id(narrow)] = (narrow, wide[: len(narrow)])
            setattr(buffers, name, self._wide[id(narrow)][1])

    def _capture(self, runner: ClosedStub) -> None:
        """Capture every size, largest first. Releases that hand a graph back also keep it."""
        self._guard(runner.buffers)
        capture = getattr(runner, self.engine.fact("mtp.capture"))
        for size in reversed(self.sizes):
            runner._create_graph = lambda size=size: Graph(self.engine, size, self.replayed)
            kept = capture(size, None)
            if kept is not None:
                runner.graphs[size], runner.output_buffers[size] = kept

    def prepared(self, draft_input: Any, batch: Any, predicted: Any, width: int, *_: Any, **__: Any) -> ClosedStub:
        """The engine's preparation of a draft extension, which other contracts judge."""
        torch, device, count = self.engine.torch, self.engine.device, len(batch.seq_lens)
        positions = (batch.seq_lens[:, None] + torch.arange(width, device=device)).flatten()
        rows = batch.req_pool_indices.repeat_interleave(width)
        return ClosedStub(
            "forward batch",
            forward_mode=self.engine.symbol("mtp.forward_mode").DRAFT_EXTEND_V2,
            batch_size=count,
            spec_info=draft_input,
            input_ids=predicted,
            positions=positions,
            out_cache_loc=self.tokens[rows, positions].long(),
            seq_lens=batch.seq_lens + width,
            seq_lens_cpu=batch.seq_lens.cpu() + width,
            seq_lens_sum=int(batch.seq_lens.sum()) + count * width,
            extend_seq_lens=torch.full((count,), width, dtype=torch.int32, device=device),
            extend_seq_lens_cpu=[width] * count,
            extend_start_loc=torch.arange(count, dtype=torch.int32, device=device) * width,
            req_pool_indices=batch.req_pool_indices,
            sampling_info=None,
            mamba_track_indices=None,
            out_cache_loc_virtual=None,
            kv_loc_plan=None,
            kv_loc_cols=None,
            mark_forward_metadata_ready=nothing,
        )
