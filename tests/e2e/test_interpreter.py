"""Triton's interpreter truncates float32 to bfloat16 and multiplies bit patterns
in a bfloat16 dot product. The repairs stand as long as it does, and no longer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fuzz.engines.spec import parse
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT

pytestmark = pytest.mark.engine


def test_both_departures_are_there_and_both_repairs_mend_them():
    launch = launch_for(parse("sglang==0.5.23"))
    env = {**launch.env, "PYTHONPATH": f"{launch.env['PYTHONPATH']}:{PROJECT_ROOT}"}
    script = Path(__file__).parent / "interpreter_probe.py"
    done = subprocess.run([launch.python, str(script)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.splitlines()
    assert before == "False False", "the interpreter changed: the repairs may go"
    assert after == "True True"
