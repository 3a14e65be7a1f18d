"""The command line by its real output, in reviewed snapshot files.

``SPECORACLE_UPDATE_SNAPSHOTS=1 pytest tests/snapshot`` rewrites them; the diff is
what a reviewer reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UPDATE = os.environ.get("SPECORACLE_UPDATE_SNAPSHOTS") == "1"

RUNS = {
    "help": ["--help"],
    "help-fuzz": ["fuzz", "--help"],
    "help-gate": ["gate", "--help"],
    "help-matrix": ["matrix", "--help"],
    "help-bisect": ["bisect", "--help"],
    "help-replay": ["replay", "--help"],
    "help-sweep": ["sweep", "--help"],
    "help-corpus": ["corpus", "--help"],
    "help-report": ["report", "--help"],
    "help-triage": ["triage", "--help"],
    "help-triage-accept": ["triage", "accept", "--help"],
    "no-such-command": ["frobnicate"],
    "no-such-engine": ["fuzz", "--engine", "sglangg"],
    "no-such-version": ["gate", "--engine", "sglang==9.9.9"],
    "not-a-version": ["gate", "--engine", "sglang==latest"],
    "no-such-checkout": ["gate", "--engine", "sglang@nowhere"],
    "python-with-version": ["gate", "--engine", "sglang==0.5.23", "--python", "/bin/false"],
    "python-without-engine": ["gate", "--python", "/bin/true"],
    "no-such-target": ["fuzz", "--target", "nothing*"],
    "no-such-device": ["fuzz", "--device", "tpu"],
    "bad-time": ["fuzz", "--max-time", "soon"],
    "bad-seed": ["fuzz", "--seed", "-1"],
    "zero-examples": ["fuzz", "--max-examples", "0"],
    "sweep-of-another-contract": ["sweep", "--contract", "verify.*"],
    "no-such-corpus": ["corpus", "lint", "--corpus", "nowhere"],
    "no-such-case": ["replay", "nowhere.json"],
    "no-such-run": ["report", "nowhere"],
    "two-runs-without-a-folder": ["report", "one", "two"],
    "triage-of-no-run": ["triage", "list", "nowhere"],
    "triage-of-no-corpus": ["triage", "show", "1", "--corpus", "nowhere"],
    "triage-of-a-version": ["triage", "list", "--engine", "sglang==0.5.23"],
    "bad-date": [
        "triage", "accept", "out", "--identity", "1", "--versions", ">=1", "--reason", "a reason", "--link", "none",
        "--line", "a.py:1", "--reachable", "never", "--by", "Ada", "--expires", "soon",
    ],
    "offline": ["gate", "--offline"],
    "engine-twice": ["gate", "--engine", "sglang==0.5.23", "--engine", "sglang==0.5.23"],
    "matrix-of-nothing": ["matrix"],
    "matrix-backwards": ["matrix", "--engine", "sglang==0.5.20..0.5.12", "--offline"],
    "matrix-offline": ["matrix", "--engine", "sglang==0.5.12..0.5.20", "--offline"],
    "matrix-local": ["matrix", "--engine", "sglang==local"],
    "bisect-without-ends": ["bisect", "nowhere.json"],
    "bisect-no-such-case": ["bisect", "nowhere.json", "--good", "0.5.12", "--bad", "0.5.18"],
    "against-itself": ["fuzz", "--engine", "sglang==0.5.22", "--against", "sglang==0.5.22"],
    "against-nothing": ["fuzz", "--against", "nothing*"],
    "not-provisioned": ["engines", "remove", "sglang==0.5.11"],
    "nothing-provisioned": ["engines", "list"],
}  # fmt: skip


def run(arguments: list[str], home: Path, cwd: Path) -> str:
    env = {**os.environ, "COLUMNS": "100", "SPECORACLE_HOME": str(home), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", "from fuzz.cli import main; main()", *arguments],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    text = f"$ specoracle {' '.join(arguments)}\n{done.stdout}{done.stderr}[exit {done.returncode}]\n"
    return (
        text.replace(str(home), "HOME")
        .replace("-c [OPTIONS]", "specoracle [OPTIONS]")
        .replace("Usage: -c", "Usage: specoracle")
        .replace("'-c ", "'specoracle ")
        .replace("Try '-c", "Try 'specoracle")
    )


@pytest.mark.parametrize("name", sorted(RUNS))
def test_output(name, tmp_path):
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    cwd.mkdir()
    text = run(RUNS[name], home, cwd)
    assert "Traceback" not in text
    assert list(cwd.iterdir()) == [], "a refused command leaves nothing behind"
    path = HERE / f"{name}.txt"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
