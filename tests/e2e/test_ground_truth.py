"""Real faults of published releases: red on the release that has one, for the
right reason, and green on the one that fixed it.

Each row names the upstream issue, the target, a case that triggers the fault and
a sibling that must not. A red is asserted by identity, never by an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.verdict import Kind
from oracle.commit import call_order, checkpoint_steps
from tests.e2e.wide_slots import WIDE_CASE, WIDE_SIBLING

pytestmark = pytest.mark.engine


def boundary(pre: int, committed: int, grid: int = 256) -> Any:
    case = replace(checkpoint_steps.CONTRACT.example, grid=grid, draft_tokens=16, path_width=16)
    return replace(case, requests=(checkpoint_steps.Request(pre, committed, 0),))


def round_of(pre: int, committed: int, **changes: Any) -> Any:
    requests = (call_order.Request(pre, committed, 0),)
    return replace(call_order.CONTRACT.example, requests=requests, **changes)


@dataclass(frozen=True)
class Row:
    """One fault. ``kind`` is (field, kind of difference)."""

    issue: str
    target: str
    trigger: Any
    sibling: Any
    kind: tuple[str, str]
    red: tuple[str, ...]
    green: tuple[str, ...]


DFLASH_STEPS = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"
DFLASH_ORDER = "sglang/dflash/commit.call_order/forward_batch_generation"
NGRAM_ORDER = "sglang/ngram/commit.call_order/forward_batch_generation"
DSPARK_ORDER = "sglang/dspark/commit.call_order/forward_batch_generation"
TRACK = "sglang/track/commit.state_scatter/track_mamba_states_if_needed"
STALE = {"red": ("0.5.14", "0.5.16", "0.5.18"), "green": ("0.5.12", "0.5.20", "0.5.22", "0.5.23")}

ROWS = [
    *(
        Row("37817", DFLASH_STEPS, boundary(pre, committed, grid), boundary(grid - 6, 3, grid), ("checkpoint_step", "missing"), **STALE)
        for pre, committed, grid in ((255, 1, 256), (254, 2, 256), (127, 1, 128), (126, 2, 128), (63, 1, 64), (62, 2, 64), (250, 10, 256))
    ),
    Row("37817 in the caller", DFLASH_ORDER, round_of(255, 1), round_of(10, 2), ("checkpoint_step", "missing"), ("0.5.18",), ("0.5.20", "0.5.22", "0.5.23")),
    Row("26351", NGRAM_ORDER, round_of(255, 1), round_of(255, 1, recurrent=False), ("order", "commit_missing"), ("0.5.10", "0.5.12"), ("0.5.14", "0.5.16", "0.5.23")),
    Row("32828", DSPARK_ORDER, round_of(255, 1), round_of(255, 1, recurrent=False), ("order", "commit_missing"), ("0.5.16",), ()),
    Row("32-bit slot offset", TRACK, WIDE_CASE, WIDE_SIBLING, ("state", "foreign_contents"), ("0.5.10", "0.5.12", "0.5.14"), ("0.5.16", "0.5.18", "0.5.23")),
]  # fmt: skip

RED = [(r, v) for r in ROWS for v in r.red]
GREEN = [(r, v) for r in ROWS for v in r.green]


def name(row: Row, version: str) -> str:
    return f"{row.issue.replace(' ', '-')}-{getattr(row.trigger, 'grid', '')}-{getattr(row.trigger.__class__, '__name__', '')}-{version}"


def verdict_of(engine_session, row: Row, version: str, case: Any):
    return execute(engine_session(version), adapters.load("sglang")[row.target], case)


@pytest.mark.parametrize(("row", "version"), RED, ids=[name(r, v) for r, v in RED])
def test_red_where_the_fault_is(engine_session, row, version):
    verdict = verdict_of(engine_session, row, version, row.trigger)
    assert verdict.kind is Kind.DIVERGE, verdict
    assert (verdict.identity.field, verdict.identity.kind) == row.kind
    sibling = verdict_of(engine_session, row, version, row.sibling)
    assert sibling.kind is Kind.AGREE, sibling


@pytest.mark.parametrize(("row", "version"), GREEN, ids=[name(r, v) for r, v in GREEN])
def test_green_where_it_is_fixed(engine_session, row, version):
    for case in (row.trigger, row.sibling):
        verdict = verdict_of(engine_session, row, version, case)
        assert verdict.kind is Kind.AGREE, verdict


def test_dspark_commits_after_32828(engine_session):
    """From 0.5.18 DSPARK commits; what is still told from the reference is only
    that it publishes first, which the known list explains."""
    for version in ("0.5.18", "0.5.23"):
        verdict = execute(engine_session(version), adapters.load("sglang")[DSPARK_ORDER], round_of(255, 1))
        assert (verdict.identity.field, verdict.identity.kind) == ("order", "wrong_order")
        assert verdict.evidence["all_observed"]["checkpoint_step"] == [0]


def test_the_reported_step_of_the_boundary_fault(engine_session):
    """#37817: from 255 to 256 the step must be 0 and is -1."""
    verdict = execute(engine_session("0.5.18"), adapters.load("sglang")[DFLASH_STEPS], boundary(255, 1))
    assert (verdict.evidence["expected"], verdict.evidence["observed"]) == (0, -1)
