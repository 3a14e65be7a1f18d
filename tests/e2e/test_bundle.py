"""A published engine, packed and run from its bundle by an interpreter that only has torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fuzz.engines import layers, pack, provision
from fuzz.engines.home import Home
from fuzz.engines.spec import parse

pytestmark = pytest.mark.engine

ENGINE = "fla==0.6.0"
CONTRACT = "recurrence.kda"
ROOT = Path(__file__).parents[2]


def gate(out: Path, *arguments: str, **more: str) -> Counter[tuple[str, str]]:
    """Targets with their verdicts, of a gate over one contract."""
    command = [sys.executable, "-c", "from fuzz.cli import main; main()", "gate", "--contract", CONTRACT]
    command += ["--corpus", str(ROOT / "fixtures"), "--out", str(out), *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *more.values()])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in (out / "events.ndjson").read_text().splitlines()]
    return Counter((e["target"], e["verdict"]) for e in events if e["event"] == "end")


def test_what_runs_from_a_bundle_is_what_runs_without(tmp_path):
    """The packages beside the engine are left out here: fetching them again would cost a minute. The
    interpreter's own are those of the environment that the engine was provisioned in."""
    install = provision.provision(parse(ENGINE))
    place = Home.locate()
    pieces = provision._pieces(place, parse(ENGINE))
    made = pack.make({parse(ENGINE): [pieces["overlay"]]}, f"3.{sys.version_info.minor}", tmp_path / "bundle", place)
    assert [piece.name for piece in made.engines[ENGINE]] == ["fla-0.6.0"]
    python = str(layers.interpreter(pieces["core"].path))
    from_bundle = gate(
        tmp_path / "a", "--engine", "fla", "--bundle", str(made.path), "--python", python,
        beside=str(install.pythonpath[-1]),
    )  # fmt: skip
    assert from_bundle == gate(tmp_path / "b", "--engine", ENGINE)
    assert sum(number for (_, verdict), number in from_bundle.items() if verdict == "AGREE") > 10
