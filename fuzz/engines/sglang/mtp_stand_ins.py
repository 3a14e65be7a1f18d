"""Stand-ins for the parts around a draft model: attention, pools, configuration."""

from __future__ import annotations

from typing import Any

from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.mtp_model import DraftModel
from oracle.commit.token_table import POOL_ROWS
from oracle.draft.proposer import HIDDEN, VOCABULARY

NOT_CHAINED, CHAINED = "MiMoV2MTP", "Step3p5MTP"  # an architecture of either kind
PUBLISHED_ABSENT = ("draft_vocab_size", "hot_vocab_size", "eagle_config")


def nothing(*_: Any, **__: Any) -> None: ...


def says_no(*_: Any, **__: Any) -> bool:
    return False


def attention() -> ClosedStub:
    """An attention backend that plans nothing."""
    return ClosedStub(
        "draft attention",
        init_forward_metadata=nothing,
        init_forward_metadata_capture_cuda_graph=nothing,
        init_forward_metadata_replay_cuda_graph=nothing,
        init_forward_metadata_in_graph=nothing,
        init_forward_metadata_out_graph=nothing,
        draft_extend_metadata_captured_in_graph=says_no,
        supports_draft_extend_metadata_staging=False,
        on_after_cuda_graph_warmup=None,
    )


def draft_runner(engine: Any, model: DraftModel, backend: ClosedStub, chained: bool, tokens: Any) -> ClosedStub:
    """The model runner of one step. ``tokens`` is the token table."""
    torch = engine.torch
    architecture = CHAINED if chained else NOT_CHAINED
    published = ClosedStub("published model", absent=PUBLISHED_ABSENT, architectures=[architecture])
    config = ClosedStub(
        "model configuration",
        hf_config=published,
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        spec_hidden_size=HIDDEN,
        dtype=torch.float32,
    )

    def forward(batch: Any, **_: Any) -> ClosedStub:
        return ClosedStub("model output", logits_output=model.forward(batch.input_ids, batch.positions, batch))

    return ClosedStub(
        "draft runner",
        forward=forward,
        model=ClosedStub("draft model", forward=model.forward),
        model_config=config,
        device=engine.device,
        dtype=torch.float32,
        attn_backend=backend,
        spec_algorithm=ClosedStub("algorithm", is_standalone=says_no, is_eagle=lambda: True, is_eagle3=says_no),
        req_to_token_pool=ClosedStub("request pool", req_to_token=tokens, size=POOL_ROWS),
        token_to_kv_pool=ClosedStub("KV pool", translate_loc_from_full_to_swa=lambda places: places),
        kv_index_translator=ClosedStub("KV translator", bind_runner_slots=nothing),
        device_timer=None,
    )
