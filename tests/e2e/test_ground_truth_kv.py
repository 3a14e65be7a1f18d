"""Real faults of published releases in the move of accepted KV entries and in the inputs
of the draft model, judged as in ``test_ground_truth``."""

from __future__ import annotations

import pytest

from fuzz.verdict import Kind
from tests.e2e.test_ground_truth import Row, assert_green, assert_red, each

pytestmark = pytest.mark.engine

MOVE = "commit.kv_move"
GRAPH = "draft.graph_rows"

ROWS = [
    # Targets that no committed token covers were never written.
    *(
        Row(
            "26335",
            f"sglang/spec_utils/{MOVE}/get_src_tgt_cache_loc+get_target_cache_loc",
            trigger,
            sibling,
            ("stray", "stray_move"),
            red="10 12",
            green="14 16 18 20 22",
        )
        for trigger, sibling in (
            ("uncovered-tail", "page-of-256-topk-5"),
            ("uncovered-tail-page-of-4", "path-skips-a-node"),
        )
    ),
    # The caller reads as many accepted nodes as there are draft tokens, not as the index has columns.
    Row(
        "26866",
        f"sglang/spec_utils/{MOVE}/move_accept_tokens_to_target_kvcache",
        "narrow-accept-index-two-rows",
        "full-width-two-rows",
        ("read_beyond", "reads_beyond"),
        red="10 12",
        green="14 16 18 20 22 23",
    ),
    # Slot numbers were taken for page numbers of the index keys: silent while they are smaller
    # than the number of pages, an error beyond.
    Row(
        "index keys by slot",
        f"sglang/kv_pools/{MOVE}/DSATokenToKVPool.move_kv_cache",
        "index-keys-of-a-pool-with-many-pages",
        "index-keys-of-a-chain",
        ("index", "not_moved"),
        red="14 16 18 20 22",
        green="23",
    ),
    Row(
        "index keys by slot",
        f"sglang/kv_pools/{MOVE}/DSATokenToKVPool.move_kv_cache",
        "index-keys-across-pages",
        "index-keys-of-a-chain",
        ("call", "raised:IndexError:move_kv_cache"),
        red="14 16",
        green="",
        verdict=Kind.CRASH,
    ),
    # A row's bytes are taken from the keys.
    Row(
        "values cut",
        f"sglang/kv_pools/{MOVE}/MHATokenToKVPool.move_kv_cache",
        "values-longer",
        "values-shorter",
        ("kv", "partly_moved"),
        red="10 16 23",
        green="",
    ),
    # The scales of 4-bit latent entries stay behind; those of keys and values move along.
    Row(
        "scales stay",
        f"sglang/kv_pools/{MOVE}/MLATokenToKVPoolFP4.move_kv_cache",
        "scales-of-latent-entries",
        "scales-of-a-latent-chain",
        ("kv", "layers_disagree"),
        red="14 23",
        green="",
    ),
    Row(
        "scales stay",
        f"sglang/kv_pools/{MOVE}/MHATokenToKVPool.move_kv_cache(4 bit)",
        "scales-move-along",
        "scales-of-a-chain",
        ("kv", "layers_disagree"),
        red="",
        green="16 23",
    ),
    # Padding rows keep a request of the batch before, and its committed count.
    Row(
        "22958",
        f"sglang/multi_layer_eagle_v2/{GRAPH}/init_replay_state",
        "three-in-a-graph-for-four-after-four",
        "three-in-a-graph-for-four-after-three",
        ("padding_rows", "stale_padding"),
        red="10 12 14",
        green="",
    ),
    Row(
        "22958",
        f"sglang/multi_layer_eagle_v2/{GRAPH}/MultiStepDraftExtendCudaGraphRunner.prepare",
        "three-in-a-graph-for-four-after-four",
        "three-in-a-graph-for-four-after-three",
        ("padding_rows", "stale_padding"),
        red="",
        green="16 18 20 22 23",
    ),
    # The native form leaves the locations behind the batch.
    Row(
        "stale locations",
        f"sglang/multi_layer_eagle/{GRAPH}/fill_draft_extend_prepare_buffers_native",
        "three-in-a-graph-for-four-after-four",
        "full-graph-after-nothing",
        ("padding_writes", "stale_padding"),
        red="18 23",
        green="",
    ),
    # The whole track buffer is handed out, the tail of the batch before with it.
    *(
        Row(
            "32555",
            f"sglang/hybrid_backend/{GRAPH}/_replay_metadata(track slots)",
            trigger,
            "all-of-a-buffer-for-eight",
            ("rows_handed_out", "stale_tail"),
            red="16",
            green="18 20 22 23",
        )
        for trigger in ("one-of-a-buffer-for-eight", "verify-of-one-in-a-buffer-for-eight")
    ),
    # Requests of the fill's length were counted as padding, and the last rows taken for it.
    *(
        Row(
            "short request",
            f"sglang/hybrid_backend/{GRAPH}/_replay_metadata",
            trigger,
            "no-short-request",
            ("state_slots", "request_taken_for_padding"),
            red="10 12",
            green="14 16 18 20 22 23",
        )
        for trigger in ("short-request-is-no-padding", "short-requests-only")
    ),
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)
