"""Faults of the replay kernels: red on the release that has one, for the right reason, green on the others.

Four of them. The fused KDA verify kernel stored its new history while other programs still read the old one. The fold
of a compact ring multiplies what lies outside the history by 0, which NaN survives. Committed tokens that the ring has
no place for are lost. The fold that is said to give the verify kernel's own bits did so until that kernel normalised
keys in another way.
"""

from __future__ import annotations

import pytest

from tests.e2e.test_ground_truth import Row, ask, assert_green, assert_red, each

pytestmark = pytest.mark.engine

KDA = "sglang/kda/recurrence.kda_convolution_verify/fused_kda_conv_gating_verify"
COMPACT = "sglang/replay/recurrence.replay/commit_gdn_replayssm_circular"
SHORT = f"{COMPACT}.short_ring"
EXACT = "sglang/replay/recurrence.replay/gdn_replayssm_spec_decode"
BITS = "sglang/replay/recurrence.replay/fused_sigmoid_gating_delta_rule_update.same_bits"
SIBLING = "history-carried-between-rounds"

ROWS = [
    *(
        Row("history race", KDA, trigger, "one-tile-three-steps", ("output", "wrong_value"), red="20", green="22 23")
        for trigger in ("two-tiles-read-one-history", "last-tile-is-partly-filled")
    ),
    *(
        Row("NaN in the ring", COMPACT, trigger, SIBLING, (field, "not_finite"), red="20 23", green="")
        for trigger, field in (
            ("nan-left-in-the-ring-then-verified", "output"),
            ("nan-left-in-the-ring", "tracks"),
            ("nan-left-in-the-ring-last-state", "state"),
        )
    ),
    # A ring that the engine makes too short for its own window, without a word.
    *(
        Row("short ring", SHORT, trigger, "window-longer-than-the-ring-few-committed", (field, "wrong_value"),
            red="20 23", green="")
        for trigger, field in (
            ("window-longer-than-the-ring", "output"),
            ("window-longer-than-the-ring-saved-state", "tracks"),
            ("window-longer-than-the-ring-last-state", "state"),
        )
    ),
    # The other way to fold reads the history alone.
    Row("NaN in the ring", EXACT, "nan-left-in-the-ring-then-verified", SIBLING, ("", ""), red="", green="16 18 20 23"),
    Row(
        "fold's bits", BITS, "next-round-starts-from-the-fold", "keys-that-are-not-normalised",
        ("outside", "other_bits"), red="22 23", green="18 20",
    ),
]  # fmt: skip


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


def test_a_fold_is_within_its_bound_although_its_bits_differ(engine_session):
    """Other bits are no wrong state: the same case agrees where numbers are judged."""
    row = Row("", BITS.replace("same_bits", "cache_ring"), ROWS[-1].trigger, "", ("", ""), red="", green="")
    verdict = ask(engine_session, row, "0.5.23", row.trigger)
    assert verdict.kind == "AGREE" and 0 < verdict.evidence["error_of_bound"] < 1
