"""Real faults of draft.mtp_chain in published releases: red on the release that has one, for
the right reason, and green on the one that fixed it."""

from __future__ import annotations

import pytest

from fuzz import adapter as adapters
from fuzz.verdict import Kind
from tests.e2e.test_ground_truth import Row, ask, assert_green, assert_red, each

pytestmark = pytest.mark.engine

EXTEND = "sglang/multi_layer_eagle_v2/draft.mtp_chain/_draft_extend_for_decode"
AGAIN = ("hidden", "target_state_again")
LATER = "12 14 16 18 20 22 23"

ROWS = [
    # The eager path feeds every step the target's state.
    Row("21424", EXTEND, "eager-chain", "eager-not-chained", AGAIN, red="10", green=LATER),
    Row("21424", EXTEND, "eager-chain-of-three", "eager-not-chained", AGAIN, red="10", green=LATER),
    Row("21424", EXTEND, "larger-than-any-graph", "eager-not-chained", AGAIN, red="10", green=LATER),
    # The graph's path refreshes a buffer that no graph reads.
    Row("22041", EXTEND, "graph-chain", "graph-not-chained", AGAIN, red="10", green=LATER),
    Row("22041", EXTEND, "graph-padded", "graph-not-chained", AGAIN, red="10", green=LATER),
    Row("22041", f"{EXTEND}(one_graph)", "graph-chain", "graph-not-chained", AGAIN, red="", green="16 18 20 22 23"),
    # States are kept from a graph that was not replayed; releases from 0.5.16 on keep none.
    *(
        Row(
            "22832",
            f"{EXTEND}(stash)",
            trigger,
            "graph-not-chained",
            ("stash_owner", "not_this_round"),
            red="10",
            green="12 14",
        )
        for trigger in ("larger-than-any-graph-not-chained", "falls-back-after-a-replay")
    ),
    # A window that grows beyond eight rows loses its last ones.
    Row(
        "rows of a grown window",
        EXTEND,
        "five-steps-in-a-graph",
        "graph-not-chained",
        ("positions", "wrong_position"),
        red="10 12 14",
        green="16 18 20 22 23",
    ),
    # The first draft is fed one position too late.
    *(
        Row(
            "25015",
            f"sglang/{worker}/draft.mtp_chain/draft_forward(positions)",
            trigger,
            "chain-given",
            ("positions", "wrong_position"),
            red="10",
            green=green,
        )
        for worker, green in (("eagle_v2", LATER), ("eagle_v1", "12"))
        for trigger in ("chain-of-three", "four-rows")
    ),
]


@each("red", ROWS)
def test_red_where_the_fault_is(engine_session, row, version):
    assert_red(engine_session, row, version)


@each("green", ROWS)
def test_green_where_it_is_right(engine_session, row, version):
    assert_green(engine_session, row, version)


@pytest.mark.parametrize("version", ["0.5.10"])
def test_hand_over_and_locations_were_right_where_positions_were_not(engine_session, version):
    """#25015 by itself: what the same rows are fed besides."""
    for worker in ("eagle_v1", "eagle_v2"):
        target = adapters.load("sglang")[f"sglang/{worker}/draft.mtp_chain/draft_forward"]
        row = Row("25015", target.id, "four-rows", "chain-of-three", ("", ""), red=version, green="")
        for slug in (row.trigger, row.sibling):
            assert ask(engine_session, row, version, slug).kind is Kind.AGREE
