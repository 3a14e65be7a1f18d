"""Where Triton's interpreter departs from the hardware, each departure has a repair by
name. A repair stands as long as its departure does, and no longer."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from fuzz.engines.spec import parse
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).parent / "interpreter_probe.py"
REPAIRS = (
    "round_to_bfloat16",
    "widen_bfloat16_dot",
    "compute_in_bfloat16",
    "convert_integers_to_bfloat16",
    "annotated_integers",
    "rebind_aliases",
    "tensor_range",
    "grid_of_host_arguments",
    "single_configuration",
    "null_device_context",
    "cpu_device_context",
)


@cache
def probed():
    launch = launch_for(parse("sglang==0.5.23"))
    env = {**launch.env, "PYTHONPATH": f"{launch.env['PYTHONPATH']}:{PROJECT_ROOT}"}
    done = subprocess.run([launch.python, str(SCRIPT)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("repair", REPAIRS)
def test_the_departure_is_there_and_its_repair_mends_it(repair):
    before, after = probed()[repair]
    assert not before, "the interpreter changed: the repair may go"
    assert after


def test_every_departure_is_asked_for():
    assert set(probed()) == set(REPAIRS)
