"""A draft loop's surroundings: its models, one a run, and what the loop is given."""

from __future__ import annotations

from typing import Any

from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.mtp_model import DraftModel, logits_of, states
from fuzz.engines.sglang.mtp_stand_ins import nothing
from oracle.draft.mtp_chain_case import BEAM, MAX_REQUESTS, ROUND
from oracle.draft.proposer import VOCABULARY, stamp


class Loop:
    """The models of a draft loop, one a run, and what the loop is given."""

    def __init__(self, engine: Any, case: Any):
        torch, device, steps, width = engine.torch, engine.device, case.steps, case.width
        self.engine, self.case, self.ran = engine, case, 0
        first = 1 if case.form == BEAM else 0
        count = len(case.pre)
        self.models = [
            DraftModel(engine, run + first, count * width, produces=run + 1, width=width)
            for run in range(steps - first)
        ]
        self.post = engine.tensor(case.pre + case.committed, "int64", contiguous=True)
        self.bonus = engine.tensor(case.bonus, "int64", contiguous=True)
        rows = case.pool_row.tolist()
        self.hidden = states(
            engine, [stamp(ROUND, row, 0, at - 1) for row, at in zip(rows, self.post.tolist(), strict=True)]
        )
        probabilities = torch.softmax(logits_of(torch, device)[(37 * self.bonus) % VOCABULARY], dim=-1)
        self.first_p, self.first_index = torch.topk(probabilities, width, dim=-1)

    def forward(self, batch: Any, **_: Any) -> ClosedStub:
        model = self.models[self.ran]
        self.ran += 1
        return ClosedStub("model output", logits_output=model.forward(batch.input_ids, batch.positions, batch))

    def runner(self) -> ClosedStub:
        published = ClosedStub("published model", architectures=["LlamaForCausalLMEagle"])
        config = ClosedStub("model configuration", hf_config=published, model_is_mrope=False)
        return ClosedStub("draft runner", forward=self.forward, model_config=config, canary_manager=None)

    def worker(self, key: str) -> ClosedStub:
        """A draft worker with the attributes that its loop reads, in any release."""
        torch, case, device = self.engine.torch, self.case, self.engine.device
        runner, steps = self.runner(), case.steps
        attention = ClosedStub(
            "draft attention",
            attn_backends=[ClosedStub("attention of a step")] * max(steps - 1, 1),
            token_to_kv_pool=None,
            init_forward_metadata=nothing,
        )
        return bound(
            self.engine.symbol(key),
            "draft worker",
            topk=case.width,
            speculative_num_steps=steps,
            speculative_num_draft_tokens=steps + 1,
            hot_token_id=None,
            draft_runner=runner,
            draft_model_runner=runner,
            model_config=runner.model_config,
            draft_attn_backend=attention,
            server_args=ClosedStub(
                "server arguments", speculative_algorithm="EAGLE", speculative_use_rejection_sampling=False
            ),
            index_share_for_mtp_iteration=False,
            seed_dsa_topk_from_draft_extend=False,
            kv_context=ClosedStub("target KV", target_token_to_kv_pool=None),
            _topk1_parents_prealloc=torch.arange(-1, steps - 1, device=device).expand(MAX_REQUESTS, -1),
            _topk1_score_indices_prealloc=torch.arange(steps, device=device).expand(MAX_REQUESTS, -1),
        )

    def batch(self, spec_info: Any, **given: Any) -> ClosedStub:
        count = len(self.case.pre)
        return ClosedStub(
            "forward batch",
            batch_size=count,
            forward_mode=self.engine.symbol("mtp.forward_mode").DECODE,
            spec_info=spec_info,
            seq_lens=self.post,
            seq_lens_cpu=self.post.cpu(),
            sampling_info=ClosedStub("sampling info", is_all_greedy=True),
            moe_num_token_non_padded=None,
            needs_forward_metadata_init=lambda: True,
            mark_forward_metadata_ready=nothing,
            **given,
        )

    def observed(self, drafts: Any, names: tuple[str, ...]) -> dict[str, Any]:
        """Fields of the rows of every run. For several rows a step, which drafts are kept is
        a question of ``verify.draft_select``."""
        width, fed = self.case.width, [model.fed() for model in self.models]
        found: dict[str, Any] = {
            name: [[getattr(run, name)[i * width : (i + 1) * width] for run in fed] for i in range(len(self.case.pre))]
            for name in names
            if name != "drafts"
        }
        if "drafts" in names:
            found["drafts"] = drafts.tolist() if width == 1 else [[] for _ in self.case.pre]
        return found
