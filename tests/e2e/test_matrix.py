"""Several published releases at once: bisection, matrix, gate and comparison agree on
where DFlash's boundary fault begins and ends."""

from __future__ import annotations

import csv
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz import adapter as adapters
from fuzz import corpus
from fuzz.against import Sides, pairs
from fuzz.campaign import Campaign, Options
from fuzz.cli import cli
from fuzz.events import Events
from fuzz.verdict import Kind
from tests.e2e.test_gate import VERSIONS

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
TARGET = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"


def case(contract: str, slug: str) -> str:
    """Path of a shipped case."""
    (path,) = (corpus.DEFAULT_CORPUS / contract).glob(f"{slug}-??????????.json")
    return str(path)


@pytest.fixture
def command(engine_session, monkeypatch):
    """The command line over the releases that the suite uses anyway, in its sessions."""

    @contextmanager
    def open_session(spec, device, python, offline):
        yield engine_session(spec.version)

    @contextmanager
    def started(launch, sanitize=None):
        yield engine_session(launch.version)

    monkeypatch.setattr("fuzz.commands.bisect.open_session", open_session)
    monkeypatch.setattr("fuzz.commands.gate.started", started)
    for name in ("published", "provisioned"):
        monkeypatch.setattr(f"fuzz.commands.bisect.{name}", lambda engine, **_: VERSIONS)
    return lambda *arguments: CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def test_bisection_finds_where_the_boundary_fault_begins(command):
    lands = case("commit.checkpoint_steps", "lands-on-256")
    done = command("bisect", lands, "--good", "0.5.12", "--bad", "0.5.18", "--target", TARGET)
    assert done.exit_code == 0, done.output
    assert "first bad release: 0.5.14 (last good: 0.5.12)" in done.output
    assert f"{TARGET} | checkpoint_step | missing" in done.output and "not monotone" not in done.output


def test_bisection_finds_where_the_boundary_fault_is_fixed(command):
    lands = case("commit.checkpoint_steps", "lands-on-256")
    done = command("bisect", lands, "--good", "0.5.23", "--bad", "0.5.14", "--target", TARGET)
    assert done.exit_code == 0, done.output
    assert "first fixed release: 0.5.20 (last bad: 0.5.18)" in done.output


def test_a_release_without_the_target_is_no_good_end(command):
    """The backend without a hook made EAGLE v2 raise until its method was replaced."""
    lacks = case("commit.checkpoint_steps", "backend-without-hook")
    target = "sglang/eagle_v2/commit.checkpoint_steps/*"
    done = command("bisect", lacks, "--good", "0.5.14", "--bad", "0.5.10", "--target", target)
    assert done.exit_code == 3, done.output
    assert "0.5.14 was named as the good end, but says nothing: UNSUPPORTED" in done.output


def test_a_gate_over_releases_tells_them_apart(command, tmp_path):
    releases = [word for v in ("0.5.18", "0.5.20") for word in ("--engine", f"sglang=={v}")]
    done = command("gate", *releases, "--target", TARGET, "--out", str(tmp_path / "run"))
    assert done.exit_code == 1, done.output
    with (tmp_path / "run" / "agreement.csv").open() as lines:
        rows = {row["case"].rpartition("-")[0]: row for row in csv.DictReader(lines)}
    lands = rows["lands-on-256"]
    assert (lands["sglang==0.5.18"], lands["sglang==0.5.20"]) == ("DIVERGE", "AGREE")
    stops = rows["stops-before-256"]
    assert stops["sglang==0.5.18"] == stops["sglang==0.5.20"] == "AGREE"


@pytest.mark.parametrize(("left", "right", "takes"), [("0.5.20", "0.5.18", "left"), ("0.5.23", "0.5.22", None)])
def test_a_comparison_finds_the_fault_and_nothing_where_nothing_changed(engine_session, tmp_path, left, right, takes):
    chosen = adapters.select("sglang", TARGET)
    both = pairs(chosen, chosen, same_engine=True)
    sides = Sides(engine_session(left), engine_session(right), both)
    with Events(tmp_path) as events:
        options = Options(0, 60.0, max_examples=None if takes else 150)
        campaign = Campaign(sides, [p.adapter for p in both], options, events)
        campaign.run()
    (state,) = campaign.states
    if takes is None:
        assert not state.found and state.executed > 50 and set(state.verdicts) <= {Kind.AGREE, Kind.UNSUPPORTED}
        return
    ((identity, found),) = state.found.items()
    assert (identity.field, identity.kind) == ("checkpoint_step", f"missing:reference_takes_{takes}")
    assert (found.verdict.evidence["left"], found.verdict.evidence["right"]) == (0, -1)
    assert found.belief.sibling is not None and found.frozen.is_file()


def test_the_matrix_shows_first_bad_and_first_good_release(tmp_path):
    engines = [word for v in ("0.5.12", "0.5.14", "0.5.18", "0.5.20") for word in ("--engine", f"sglang=={v}")]
    done = subprocess.run(
        [sys.executable, "-c", "from fuzz.cli import main; main()", "matrix", *engines, "--target", TARGET,
         "--out", str(tmp_path / "out")],
        cwd=ROOT, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "out" / "faults.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    assert (row["target"], row["field"], row["kind"]) == (TARGET, "checkpoint_step", "missing")
    assert (row["last_good_before"], row["first_bad"], row["last_bad"], row["first_good"]) == (
        "0.5.12", "0.5.14", "0.5.18", "0.5.20",
    )  # fmt: skip
