"""Real faults of published releases in verify's contracts, judged as in
``test_ground_truth``: red by identity where the fault is, green where it is right."""

from __future__ import annotations

import pytest

from fuzz.verdict import Kind
from tests.e2e.test_ground_truth import Row, assert_green, assert_red, each

pytestmark = pytest.mark.engine

SELECT = "verify.draft_select"

DISTRIBUTION = "verify.target_distribution"

ROWS = [
    # min-p reaches no release's verification; the request is taken all the same.
    *(
        Row("min-p", f"sglang/{target}", "min-p-cuts", "softmax-alone", ("kept", "min_p_not_applied"), red, green="")
        for target, red in (
            (f"eagle_utils/{DISTRIBUTION}/eagle_sample", "10 16 20 23"),
            (f"dflash/{DISTRIBUTION}/build_speculative_verify_target_probs", "16 20 23"),
        )
    ),
    # A row of NaN and the masked tail of the last tile. Red on 0.5.16, which only a GPU shows:
    # Triton's interpreter does not compare NaN as a GPU does.
    *(
        Row(
            "32396",
            f"sglang/topk1/{SELECT}/draft_topk1_postprocess",
            trigger,
            "nan-sibling-without-nan",
            ("tokens", "unsafe_token"),
            red="",
            green="18 20 22 23",
        )
        for trigger in ("nan-row-over-a-tile", "one-nan-over-a-tile")
    ),
    # A greedy row of NaN equals none of its scores.
    Row(
        "selector NaN",
        f"sglang/dflash/{SELECT}/selector_walk_triton",
        "greedy-all-nan-beside",
        "greedy-path",
        ("tokens", "unsafe_token"),
        red="20",
        green="22 23",
    ),
    # The fused argmax starts at the size of the row and never takes NaN.
    Row(
        "fused argmax NaN",
        f"sglang/row_argmax/{SELECT}/row_argmax",
        "nan-row-of-64-full-parts",
        "nan-row-of-64-full-parts-sibling",
        ("tokens", "unsafe_token"),
        red="22 23",
        green="",
    ),
    Row(
        "fused argmax NaN",
        f"sglang/spec_utils/{SELECT}/fast_sample",
        "nan-masses-of-64-full-parts",
        "masses-of-64-full-parts",
        ("call", "raised:RuntimeError:fast_sample"),
        red="22 23",
        green="16 18 20",
        verdict=Kind.CRASH,
    ),
    # The clamp to the last candidate draws one without mass.
    Row(
        "clamped draw",
        f"sglang/dflash/{SELECT}/selector_walk_triton",
        "last-coin-beyond-the-rounded-sum",
        "coin-just-below-the-rounded-sum",
        ("massless", "without_mass"),
        red="20 22 23",
        green="",
    ),
    # A child that ties with its node is kept without it.
    Row(
        "tie at the cut",
        f"sglang/eagle/{SELECT}/select_top_k_tokens+organize_draft_results",
        "equal-nodes-with-certain-children",
        "equal-nodes-with-likely-children",
        ("orphans", "not_a_tree"),
        red="10 16 20 23",
        green="",
    ),
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)
