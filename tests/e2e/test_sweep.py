"""The exhaustive sweep: on the release with the boundary fault exactly the
crossing rows diverge, on a fixed one none does."""

from __future__ import annotations

import pytest

from fuzz import adapter as adapters
from fuzz.sweep import SAMPLE_ROWS, blocks, sweep

pytestmark = pytest.mark.engine

DFLASH = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"


def test_exactly_the_crossing_rows_diverge_on_0_5_18(engine_session):
    domain = blocks()
    result = sweep(engine_session("0.5.18"), adapters.load("sglang")[DFLASH], domain)
    assert result.failure is None and result.rows == sum(b.rows for b in domain)
    assert result.diverging == result.crossing > 100_000
    assert result.wrong_not_crossing == 0


def test_every_checkpoint_target_of_the_newest_release_agrees_on_every_row(engine_session):
    domain = blocks()
    session = engine_session("0.5.23")
    swept = 0
    for adapter in adapters.select("sglang", contract="commit.checkpoint_steps"):
        if adapter.id in session.ready["unsupported"]:
            continue
        result = sweep(session, adapter, domain)
        assert result.failure is None, (adapter.id, result.failure)
        assert result.diverging == 0, (adapter.id, result.first)
        assert result.rows >= SAMPLE_ROWS
        swept += 1
    assert swept >= 5
