"""The find this project exists for, by the whole campaign, ten seeds in a row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import adapter as adapters
from fuzz.campaign import Campaign, Options
from fuzz.events import Events
from fuzz.verdict import Kind

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
GLOB = "*dflash/commit.checkpoint*"
MOST_CALLS = 300  # production calls that one find may take, shrinking included


@pytest.mark.parametrize("seed", range(10))
def test_each_seed_finds_the_boundary_fault_and_shrinks_it(engine_session, tmp_path, seed):
    with Events(tmp_path) as events:
        campaign = Campaign(engine_session("0.5.18"), adapters.select("sglang", GLOB), Options(seed, 60.0), events)
        campaign.run()
    (state,) = campaign.states
    ((identity, found),) = state.found.items()
    assert (identity.field, identity.kind) == ("checkpoint_step", "missing")
    (request,) = found.belief.case.requests
    assert request.committed == 1 and (request.pre + 1) % found.belief.case.grid == 0
    assert (found.verdict.evidence["expected"], found.verdict.evidence["observed"]) == (0, -1)
    assert found.belief.sibling is not None and found.frozen.is_file()
    assert state.executed <= MOST_CALLS


@pytest.mark.parametrize("version", ["0.5.12", "0.5.20", "0.5.23"])
def test_no_false_alarm_on_that_target(engine_session, tmp_path, version):
    for seed in range(10):
        with Events(tmp_path / str(seed)) as events:
            options = Options(seed, 60.0, max_examples=150)
            campaign = Campaign(engine_session(version), adapters.select("sglang", GLOB), options, events)
            campaign.run()
        (state,) = campaign.states
        assert not state.found
        assert state.executed > 50 and set(state.verdicts) <= {Kind.AGREE, Kind.UNSUPPORTED}


def test_the_command_line_finds_freezes_replays_and_gates(tmp_path):
    """fuzz exits 1 with one identity; replay says FAILED there and FIXED on a
    later release; the find passes into a corpus."""

    def specoracle(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", "from fuzz.cli import main; main()", *arguments],
            cwd=ROOT, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    out = tmp_path / "run"
    done = specoracle("fuzz", "--engine", "sglang==0.5.18", "--target", GLOB, "--max-time", "60s", "--out", str(out))
    assert done.returncode == 1, done.stdout + done.stderr
    frozen = list((out / "found").rglob("*.json"))
    assert len(frozen) == 1
    assert (out / "junit.xml").is_file()
    events = [json.loads(line) for line in (out / "events.ndjson").read_text().splitlines()]
    assert sum(e["event"] == "start" for e in events) == sum(e["event"] == "end" for e in events)
    failed = specoracle("replay", str(frozen[0]), "--engine", "sglang==0.5.18")
    assert failed.returncode == 1 and "FAILED" in failed.stdout and "✗" in failed.stdout
    fixed = specoracle("replay", str(frozen[0]), "--engine", "sglang==0.5.20")
    assert fixed.returncode == 0 and "FIXED" in fixed.stdout, fixed.stdout + fixed.stderr
    added = specoracle("corpus", "add", str(frozen[0]), "--corpus", str(tmp_path / "corpus"))
    assert added.returncode == 0, added.stderr
    gated = specoracle(
        "gate",
        "--engine",
        "sglang==0.5.18",
        "--corpus",
        str(tmp_path / "corpus"),
        "--target",
        GLOB,
        "--out",
        str(tmp_path / "gate"),
    )
    assert gated.returncode == 1 and "missing" in gated.stdout
