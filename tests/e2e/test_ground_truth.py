"""Real faults of published releases: red on the release that has one, for the
right reason, and green on the one that fixed it.

Each row names the upstream issue, the target, a frozen case that triggers the
fault and one that must not. A red is asserted by identity, never by an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from fuzz import adapter as adapters
from fuzz import corpus
from fuzz.executor import execute
from fuzz.verdict import Kind

pytestmark = pytest.mark.engine

CASES = {(f.contract, f.slug): f.case for _, f in corpus.load()}


@dataclass(frozen=True)
class Row:
    """One fault of one target. ``identity`` is (field, kind of difference)."""

    issue: str
    target: str
    trigger: str
    sibling: str
    identity: tuple[str, str]
    red: str
    green: str
    verdict: Kind = Kind.DIVERGE

    def case(self, slug: str) -> Any:
        return CASES[(self.target.split("/")[2], slug)]


STEPS = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"
ROUND = "commit.call_order/forward_batch_generation"
LANDS, FAR = "round-that-lands-on-256", "round-without-crossing"
NO_STATE = "model-without-recurrent-state"
MISSING = ("checkpoint_step", "missing")
NO_COMMIT = ("order", "commit_missing")
FIXED_20 = {"red": "14 16 18", "green": "20 22 23"}

ROWS = [
    # DFlash compares the length before verify with itself.
    *(
        Row("37817", STEPS, trigger, sibling, MISSING, red="14 16 18", green="12 20 22 23")
        for trigger, sibling in (
            ("lands-on-256", "stops-before-256"),
            ("lands-on-256-with-two", "stops-before-256"),
            ("lands-on-128", "stops-before-128"),
            ("lands-on-128-with-two", "stops-before-128"),
            ("lands-on-64", "stops-before-64"),
            ("lands-on-64-with-two", "stops-before-64"),
            ("crosses-in-the-middle", "starts-on-256"),
            ("beyond-32-bits", "boundary-just-ahead"),
        )
    ),
    # The same through the real callers, which decide what "post" is.
    Row("37817", f"sglang/dflash/{ROUND}.handed_steps", LANDS, FAR, MISSING, **FIXED_20),
    Row("37817", f"sglang/dflash_v1/{ROUND}.handed_steps", LANDS, FAR, MISSING, red="", green="12"),
    # DFlash never prepared the track slots.
    Row(
        "31850", f"sglang/dflash/{ROUND}", LANDS, NO_STATE, ("order", "tracks_not_prepared"), red="14 16", green="20 23"
    ),
    # NGRAM and DSPARK committed nothing.
    Row("26351", f"sglang/ngram/{ROUND}", LANDS, NO_STATE, NO_COMMIT, red="10 12", green="14 16 18 20 22 23"),
    Row("32828", f"sglang/dspark/{ROUND}", LANDS, NO_STATE, NO_COMMIT, red="16", green=""),
    Row(
        "32828",
        f"sglang/dspark/{ROUND}.handed_steps",
        LANDS,
        NO_STATE,
        ("current_step", "wrong_shape"),
        red="16",
        green="18 20 22 23",
    ),
    Row("31380", f"sglang/multi_layer_eagle_v2/{ROUND}", LANDS, NO_STATE, NO_COMMIT, red="10 12 14", green="16 18 23"),
    # EAGLE v2 asked for two kinds of recurrent state, not for the third.
    Row("27966", f"sglang/eagle_v2/{ROUND}(lightning)", LANDS, NO_STATE, NO_COMMIT, red="10 12", green=""),
    Row("27966", f"sglang/eagle_v1/{ROUND}(lightning)", LANDS, NO_STATE, NO_COMMIT, red="", green="10 12"),
    # The caller's row stride is N, not the width of accept_index.
    Row(
        "26866",
        "sglang/eagle_v2/commit.lengths/verify",
        "narrow-accept-index-two-rows",
        "narrow-accept-index-first-row",
        ("bonus_token", "wrong_token"),
        red="10 12",
        green="14 16 18 20 22 23",
    ),
    # 32-bit offsets wrap when the index tensor is int32.
    Row(
        "32-bit offset",
        "sglang/track/commit.state_scatter/track_mamba_states_if_needed",
        "pool-slot-beyond-32-bits",
        "pool-track-slot-just-below-32-bits",
        ("state", "foreign_contents"),
        red="10 12 14",
        green="16 18 20 22 23",
    ),
    # The host's crossing test left out the current token.
    Row(
        "22239",
        "sglang/scheduler/commit.checkpoint_steps/_mamba_prefix_cache_update",
        "lands-on-256",
        "lands-on-256-with-two",
        ("checkpoint_length", "missing"),
        red="10",
        green="12 14 16 18 20 22 23",
    ),
    # A run that the grammar cut files an old boundary again.
    Row(
        "cut run",
        "sglang/scheduler/commit.track_slots/_mamba_prefix_cache_update",
        "cut-behind-old-boundary",
        "cut-after-boundary",
        ("filed_length", "filed_again"),
        red="14 16 18 20",
        green="22 23",
    ),
    # A request without a position raised, later took a slot that may be another's.
    Row(
        "27325",
        "sglang/spec_utils/commit.track_slots/prepare_mamba_track_for_verify",
        "request-without-position",
        "all-have-positions",
        ("call", "raised:TypeError:set_mamba_track_indices_from_reqs"),
        red="14",
        green="",
        verdict=Kind.CRASH,
    ),
    Row(
        "29449",
        "sglang/spec_utils/commit.track_slots/prepare_mamba_track_for_verify",
        "request-without-position",
        "all-have-positions",
        ("track_slot", "slot_of_another"),
        red="16 18 20",
        green="22 23",
    ),
    # A backend without the hook was not asked for first.
    Row(
        "25883",
        "sglang/eagle_v2/commit.checkpoint_steps/_mamba_verify_update",
        "backend-without-hook",
        "lands-on-256",
        ("call", "raised:AttributeError:_mamba_verify_update"),
        red="10 12",
        green="",
        verdict=Kind.CRASH,
    ),
]


def each(which: str, rows: list[Row] = ROWS) -> pytest.MarkDecorator:
    """A test for each row and release that is ``which``: red or green."""
    found = [(row, f"0.5.{minor}") for row in rows for minor in getattr(row, which).split()]
    names = [f"{r.issue}-{r.target.split('/')[1]}-{r.trigger}-{v}".replace(" ", "-") for r, v in found]
    return pytest.mark.parametrize(("row", "version"), found, ids=names)


def ask(engine_session, row: Row, version: str, slug: str):
    return execute(engine_session(version), adapters.load("sglang")[row.target], row.case(slug))


def assert_red(engine_session, row: Row, version: str) -> None:
    """The trigger is red with the row's identity, its sibling agrees."""
    verdict = ask(engine_session, row, version, row.trigger)
    assert verdict.kind is row.verdict, verdict
    assert (verdict.identity.field, verdict.identity.kind) == row.identity
    assert ask(engine_session, row, version, row.sibling).kind is Kind.AGREE


def assert_green(engine_session, row: Row, version: str) -> None:
    """The trigger and its sibling agree."""
    for slug in (row.trigger, row.sibling):
        verdict = ask(engine_session, row, version, slug)
        assert verdict.kind is Kind.AGREE, verdict


@each("red")
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green")
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


def test_the_reported_step_of_the_boundary_fault(engine_session):
    """#37817: from 255 to 256 the step must be 0 and is -1."""
    row = ROWS[0]
    evidence = ask(engine_session, row, "0.5.18", "lands-on-256").evidence
    assert (evidence["expected"], evidence["observed"]) == (0, -1)
