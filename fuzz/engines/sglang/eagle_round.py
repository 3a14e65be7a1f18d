"""One round of an EAGLE or NGRAM worker: its batch, its target, its tree kernel.

The worker's own method runs as shipped; what it calls outside this project's
subject (drafting, the model, the tree kernel, the KV allocator) is a stand-in that
answers what the case says. ``Round`` notes what the round does.
"""

from __future__ import annotations

from typing import Any

from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_stubs import Hook, model_runner
from fuzz.engines.sglang.round import Round

VOCABULARY = 4  # the tree kernel's stand-in decides what is accepted, not the logits
LONGEST = 2**16  # tokens; a KV table row of that many is all a round may need
FOREIGN_SLOT = 10_000  # first of the track slots that belong to nobody in the batch
POOL_ABSENT = ("mamba_pool", "req_to_c128_sidecar", "req_to_token_c4")  # asked of pools of other models
CACHE_ABSENT = ("clear_unaccepted_c128_draft_states",)


def short_enough(case: Any) -> str | None:
    """The round needs a KV table row for every request."""
    return None if all(pre < LONGEST for pre in case.pre) else "a KV table row of that length"


class EagleRound(Round):
    """The record of one round of ``case``, and the parts that the round needs.

    ``hidden_states``: whether the target's forward returns them.
    ``accept_width``: columns of the ``accept_index`` that the round made.
    """

    def __init__(self, engine: Any, case: Any, *, hidden_states: bool = False):
        super().__init__(case)
        self.engine, self.case, self.hidden_states = engine, case, hidden_states
        self.hook = Hook(engine, on_call=self._committed)
        self.accept_width = 0

    def forward(self, *_: Any, **__: Any) -> ClosedStub:
        """The target's forward: logits of the right shape."""
        self.verified()
        rows = len(self.case.pre) * self.case.draft_tokens
        logits = self.engine.torch.zeros(rows, VOCABULARY, device=self.engine.device)
        hidden = logits[:, :1] if self.hidden_states else None
        return ClosedStub(
            "target output",
            logits_output=ClosedStub("logits", next_token_logits=logits, hidden_states=hidden),
            routed_experts_output=None,
            indexer_topk_output=None,
            can_run_cuda_graph=False,
        )

    def verify_tree(self, predicts: Any, accept_index: Any, accept_token_num: Any, **_: Any) -> tuple[Any, Any, Any]:
        """The tree kernel: accept the first ``committed`` nodes of every chain."""
        self.accept_width = accept_index.shape[1]
        for row, committed in enumerate(self.case.committed.tolist()):
            first = row * self.case.draft_tokens
            nodes = self.engine.torch.arange(first, first + committed, dtype=accept_index.dtype)
            accept_index[row, :committed] = nodes
            accept_token_num[row] = committed - 1
            predicts[nodes] = 1
        return predicts, accept_index, accept_token_num

    def target_worker(self, **kinds: Any) -> ClosedStub:
        """The target. ``kinds`` are the model runner's own words for recurrent
        state in releases that ask it for one kind at a time."""
        backend = self.hook.in_backend(present=self.case.hook, verify_mask=None, init_forward_metadata=nothing)
        runner = model_runner(
            backend,
            recurrent=self.case.recurrent,
            pool=self.pool(),
            spec_algorithm=ClosedStub("algorithm", is_standalone=says_no),
            decode_cuda_graph_runner=None,
            graph_runner=None,
            watermark_state=None,
            **kinds,
        )
        return ClosedStub("target worker", model_runner=runner, forward_batch_generation=self.forward)

    def pool(self) -> ClosedStub:
        """Request pool: a KV table, and the two track slots of every row. The slot
        that is not next belongs to nobody here; a request without slot has -1."""
        torch, case = self.engine.torch, self.case
        rows = len(case.pre) + 1
        longest = int(max(case.pre, default=0)) + 2 * case.draft_tokens
        slots = torch.arange(FOREIGN_SLOT, FOREIGN_SLOT + 2 * rows, device=self.engine.device).view(rows, 2)
        for i, slot in enumerate(case.track_slot.tolist()):
            slots[self.row(i), i % 2] = slot
        return ClosedStub(
            "request pool",
            absent=POOL_ABSENT,
            req_to_token=torch.zeros(rows, longest, dtype=torch.int32, device=self.engine.device),
            req_index_to_mamba_ping_pong_track_buffer_mapping=slots,
        )

    def row(self, request: int) -> int:
        """Pool row of a request: the order of the batch turned round."""
        return len(self.case.pre) - request

    def request(self, pool: ClosedStub, i: int) -> Request:
        """A running request, whose state is where each release looks for it."""
        return Request(
            "request",
            rid=str(i),
            output_ids=[],
            origin_input_ids=[0],
            origin_input_ids_unpadded=[0],
            mamba_next_track_idx=i % 2,
            mamba_ping_pong_track_buffer=pool.req_index_to_mamba_ping_pong_track_buffer_mapping[self.row(i)],
            kv=ClosedStub("request.kv", mamba_next_track_idx=i % 2),
        )

    def open(self, pool: ClosedStub, spec_info: Any) -> ClosedStub:
        """The batch as the scheduler hands it over: no track slots yet."""
        torch, case, device = self.engine.torch, self.case, self.engine.device
        modes, count = self.engine.symbol("eagle.forward_mode"), len(case.pre)
        rows = [self.row(i) for i in range(count)]
        self.batch = ClosedStub(
            "batch",
            device=device,
            forward_mode=modes.DECODE if count else modes.IDLE,
            is_extend_in_batch=False,
            spec_info=spec_info,
            spec_algorithm=None,
            reqs=[self.request(pool, i) for i in range(count)],
            batch_size=lambda: count,
            seq_lens=torch.tensor(case.pre, dtype=torch.int64, device=device),
            seq_lens_cpu=torch.tensor(case.pre, dtype=torch.int64),
            seq_lens_sum=int(case.pre.sum()),
            req_pool_indices=torch.tensor(rows, dtype=torch.int64, device=device),
            input_ids=torch.zeros(0, dtype=torch.int64, device=device),
            out_cache_loc=None,
            mamba_track_indices=None,
            has_grammar=False,
            grammar_needs_sync=says_no,
            return_logprob=False,
            sampling_info=Sampling(count),
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator(),
            tree_cache=ClosedStub("tree cache", page_size=1),
            model_config=ClosedStub(
                "model configuration", vocab_size=VOCABULARY, think_end_id=None, hidden_size=1, dtype=torch.float32
            ),
            hisparse_coordinator=None,
        )
        return self.batch


class Request(ClosedStub):
    """A request that never finishes; the counters of older releases start at 0."""

    grammar = None
    require_reasoning = is_retracted = False
    kv_committed_len = kv_allocated_len = spec_verify_ct = 0
    spec_accepted_tokens = spec_num_correct_drafts = 0

    def check_finished(self) -> None: ...

    update_finish_state = check_finished  # its name from 0.5.13 on

    def finished(self) -> bool:
        return False

    def update_spec_acceptance_histogram(self, accepted: int) -> None: ...

    update_spec_correct_drafts_histogram = update_spec_acceptance_histogram


class Sampling(ClosedStub):
    """Greedy sampling without penalties for ``size`` requests."""

    def __init__(self, size: int):
        super().__init__(
            "sampling info",
            acc_additive_penalties=None,
            acc_scaling_penalties=None,
            logit_bias=None,
            has_watermark_candidates=False,
            is_all_greedy=True,
            has_custom_logit_processor=False,
            penalizer_orchestrator=ClosedStub("penalties", is_required=False),
        )
        self.size = size

    def __len__(self) -> int:
        return self.size


def allocator() -> ClosedStub:
    """A KV allocator that frees and hands out nothing."""
    cache = ClosedStub("KV cache", absent=CACHE_ABSENT)
    return ClosedStub("KV allocator", free=nothing, get_kvcache=lambda: cache)


def nothing(*_: Any, **__: Any) -> None: ...


def says_no() -> bool:
    return False
