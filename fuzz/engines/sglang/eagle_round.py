"""One round of a speculative worker, recorded from its own caller.

The worker's method runs as shipped; what it calls outside this project's subject
(drafting, the model, the tree kernel, the KV allocator) is a stand-in that answers
what the case says. Four moments are noted in the order in which they happen: the
batch gets its track slots, the target verifies, the hook is called, lengths leave
the worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import Unsupported
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.eagle_stubs import Hook, model_runner
from oracle.commit.call_order import COMMIT, PREPARE, PUBLISH, VERIFY

VOCABULARY = 4  # the tree kernel's stand-in decides what is accepted, not the logits
LONGEST = 2**16  # tokens; a KV table row of that many is all a round may need
POOL_ABSENT = ("mamba_pool", "req_to_c128_sidecar", "req_to_token_c4")  # asked of pools of other models
CACHE_ABSENT = ("clear_unaccepted_c128_draft_states",)


def short_enough(case: Any) -> str | None:
    """The round needs a KV table row for every request."""
    return None if all(pre < LONGEST for pre in case.pre) else "a KV table row of that length"


class Round:
    """The record of one round of ``case``, and the parts that make one.

    ``hidden_states``: whether the target's forward returns them.
    """

    def __init__(self, engine: Any, case: Any, *, hidden_states: bool = False):
        self.engine, self.case, self.hidden_states = engine, case, hidden_states
        self.order: list[str] = []
        self.published: list[int] = []
        self.hook = Hook(engine, on_call=lambda: self.order.append(COMMIT))
        if case.tracking and (case.track_slot < 0).any() and engine.fact("eagle.freed_request") == "raises":
            raise Unsupported("outside the target's domain: this version raises for a request without slot (see commit.track_slots)")

    def publish(self, lengths: Any) -> None:
        """Note lengths that leave the worker; an empty batch publishes none."""
        if len(lengths):
            self.order.append(PUBLISH)
        self.published = lengths.tolist()

    def outcome(self) -> dict[str, Any]:
        """The contract's fields."""
        self.hook.calls = self.hook.calls[:1]  # a second commit shows in the order
        handed = self.hook.observed(self.case.track_slot.tolist())
        return {
            "order": self.order,
            "current_step": handed["current_step"],
            "checkpoint_step": handed["checkpoint_step"],
            "published": self.published,
        }

    def verified(self, *_: Any, **__: Any) -> ClosedStub:
        """The target's forward: logits of the right shape."""
        self.order.append(VERIFY)
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
        for row, committed in enumerate(self.case.committed.tolist()):
            first = row * self.case.draft_tokens
            nodes = self.engine.torch.arange(first, first + committed, dtype=accept_index.dtype)
            accept_index[row, :committed] = nodes
            accept_token_num[row] = committed - 1
            predicts[nodes] = 1
        return predicts, accept_index, accept_token_num

    def target_worker(self, **kinds: Any) -> ClosedStub:
        """The target. ``kinds`` are the model runner's own words for recurrent
        state in releases that ask it one kind at a time."""
        backend = self.hook.in_backend(present=self.case.hook, verify_mask=None, init_forward_metadata=_nothing)
        runner = model_runner(
            backend, recurrent=self.case.recurrent, pool=self.pool(),
            spec_algorithm=ClosedStub("algorithm", is_standalone=_false),
            decode_cuda_graph_runner=None, graph_runner=None, watermark_state=None, **kinds,
        )  # fmt: skip
        return ClosedStub("target worker", model_runner=runner, forward_batch_generation=self.verified)

    def pool(self) -> ClosedStub:
        """Request pool: a KV table and the two track slots of every row. The slot
        that is not next, and both of a freed request, belong to somebody else."""
        torch, case = self.engine.torch, self.case
        rows = len(case.pre) + 1
        longest = int(max(case.pre, default=0)) + 2 * case.draft_tokens
        slots = torch.arange(1000, 1000 + 2 * rows, device=self.engine.device).view(rows, 2)
        for i, slot in enumerate(case.track_slot.tolist()):
            if slot >= 0:
                slots[self.row(i), i % 2] = slot
        return ClosedStub(
            "request pool", absent=POOL_ABSENT,
            req_to_token=torch.zeros(rows, longest, dtype=torch.int32, device=self.engine.device),
            req_index_to_mamba_ping_pong_track_buffer_mapping=slots,
        )  # fmt: skip

    def row(self, request: int) -> int:
        """Pool row of a request: the order of the batch turned round."""
        return len(self.case.pre) - request

    def batch(self, pool: ClosedStub, **attributes: Any) -> Batch:
        """The batch as the scheduler hands it over: no track slots yet."""
        torch, case, device = self.engine.torch, self.case, self.engine.device
        modes = self.engine.symbol("eagle.forward_mode")
        return Batch(
            self,
            device=device,
            forward_mode=modes.DECODE if len(case.pre) else modes.IDLE,
            is_extend_in_batch=False,
            reqs=[self.request(pool, i) for i in range(len(case.pre))],
            batch_size=lambda: len(case.pre),
            seq_lens=torch.tensor(case.pre, dtype=torch.int64, device=device),
            seq_lens_cpu=torch.tensor(case.pre, dtype=torch.int64),
            seq_lens_sum=int(case.pre.sum()),
            req_pool_indices=torch.tensor([self.row(i) for i in range(len(case.pre))], dtype=torch.int64, device=device),
            input_ids=torch.zeros(0, dtype=torch.int64, device=device),
            out_cache_loc=None,
            has_grammar=False,
            grammar_needs_sync=_false,
            return_logprob=False,
            sampling_info=Sampling(len(case.pre)),
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator(),
            tree_cache=ClosedStub("tree cache", page_size=1),
            model_config=ClosedStub(
                "model configuration", vocab_size=VOCABULARY, think_end_id=None, hidden_size=1, dtype=torch.float32
            ),
            hisparse_coordinator=None,
            **attributes,
        )

    def request(self, pool: ClosedStub, i: int) -> Request:
        """A running request; a freed one has no next track slot."""
        next_slot = i % 2 if self.case.track_slot[i] >= 0 else None
        slots = pool.req_index_to_mamba_ping_pong_track_buffer_mapping[self.row(i)]
        return Request(
            "request", rid=str(i), output_ids=[], origin_input_ids=[0], origin_input_ids_unpadded=[0],
            mamba_next_track_idx=next_slot, mamba_ping_pong_track_buffer=slots,
            kv=ClosedStub("request's KV", mamba_next_track_idx=next_slot),
        )  # fmt: skip


class Batch(ClosedStub):
    """A batch that notes when it gets its track slots."""

    def __init__(self, round_: Round, **attributes: Any):
        super().__init__("batch", mamba_track_indices=None, **attributes)
        self.__dict__["_round"] = round_

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "mamba_track_indices" and value is not None:
            self._round.order.append(PREPARE)
        self.__dict__[name] = value


class Request(ClosedStub):
    """A request that never finishes; the counters of older releases start at 0."""

    grammar = None
    require_reasoning = is_retracted = False
    kv_committed_len = kv_allocated_len = spec_verify_ct = 0
    spec_accepted_tokens = spec_num_correct_drafts = 0

    def check_finished(self) -> None: ...

    def finished(self) -> bool:
        return False

    def update_spec_acceptance_histogram(self, accepted: int) -> None: ...

    update_spec_correct_drafts_histogram = update_spec_acceptance_histogram


class Sampling(ClosedStub):
    """Greedy sampling without penalties for ``size`` requests."""

    def __init__(self, size: int):
        super().__init__(
            "sampling info", acc_additive_penalties=None, acc_scaling_penalties=None, logit_bias=None,
            has_watermark_candidates=False, is_all_greedy=True, has_custom_logit_processor=False,
            penalizer_orchestrator=ClosedStub("penalties", is_required=False),
        )  # fmt: skip
        self.size = size

    def __len__(self) -> int:
        return self.size


def allocator() -> ClosedStub:
    """A KV allocator that frees and hands out nothing."""
    return ClosedStub(
        "KV allocator", free=_nothing, get_kvcache=lambda: ClosedStub("KV cache", absent=CACHE_ABSENT),
    )  # fmt: skip


def chain_input(round_: Round) -> Any:
    """The shipped verify input for one chain a request (none when idle)."""
    engine, case, torch = round_.engine, round_.case, round_.engine.torch
    rows, width = len(case.pre), case.draft_tokens
    prefix = engine.fact("eagle.tree_fields")
    nodes = np.arange(rows * width).reshape(rows, width)
    following = np.where(np.arange(width) == width - 1, -1, np.arange(width) + 1)
    tree = {
        f"{prefix}_index": nodes,
        f"{prefix}_next_token": np.broadcast_to(following, (rows, width)),
        f"{prefix}_next_sibling": np.full((rows, width), -1),
    }
    return engine.symbol("eagle.verify_input")(
        draft_token=torch.zeros(rows * width, dtype=torch.int64, device=engine.device),
        custom_mask=torch.ones(1, dtype=torch.bool, device=engine.device),
        positions=torch.zeros(rows * width, dtype=torch.int64, device=engine.device),
        spec_steps=width - 1,
        topk=1,
        draft_token_num=width,
        capture_hidden_mode=engine.symbol("eagle.hidden_mode").FULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
        **{name: torch.tensor(value.copy(), device=engine.device) for name, value in tree.items()},
        **{f"{prefix}_cum_len": None},
    )


@contextmanager
def surroundings(engine: Any, round_: Round, module: Any) -> Iterator[None]:
    """What a round needs around it on a machine without its GPU and groups."""
    from fuzz.engines.interpreter import no_pinning

    torch = engine.torch
    with ExitStack() as stack:
        patch = lambda *args, **kw: stack.enter_context(mock.patch.object(*args, **kw))  # noqa: E731
        stack.enter_context(no_pinning())
        patch(torch.Tensor, "record_stream", _nothing)
        patch(torch.cpu, "Event", lambda: ClosedStub("event", record=_nothing), create=True)
        patch(engine.symbol("eagle.forward_batch"), "init_new", _forward_batch)
        patch(engine.symbol("eagle.cache_locs"), "_is_cuda", True)
        for name in engine.fact("eagle.tree_kernel_modules"):
            patch(engine.symbol(f"eagle.{name}"), "verify_tree_greedy_func", round_.verify_tree)
        for name in ("draft_tp_context", "speculative_moe_backend_context", "speculative_moe_a2a_backend_context"):
            if hasattr(module, name):  # process groups of the draft model
                patch(module, name, no_context)
        yield


def _forward_batch(*_: Any, **__: Any) -> ClosedStub:
    return ClosedStub("forward batch", mark_forward_metadata_ready=_nothing)


def no_context(*_: Any) -> Any:
    return nullcontext()


def _nothing(*_: Any, **__: Any) -> None: ...


def _false() -> bool:
    return False
