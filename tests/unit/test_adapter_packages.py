"""Adapters of installed packages: foreign code that fails at import, in whatever way, is
one clear line and never a run in which nothing ran."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTER = """
from fuzz.adapter import adapter

@adapter(contract={contract!r}, module="m", symbol="s", engine="acme", observes=(), needs=())
def run(engine, case):
    return {{}}
"""
LENGTHS = ADAPTER.format(contract="commit.lengths")


@pytest.fixture
def specoracle(tmp_path):
    """Run the command line beside an installed distribution ``acme-adapters`` with one
    entry point for ``engine`` and the given module."""

    def run(*arguments: str, value: str = "acme_adapters", engine: str = "acme", code: str | None = "") -> tuple:
        info = tmp_path / "acme_adapters-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-adapters\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[specoracle.adapters]\n{engine} = {value}\n")
        if code is not None:
            (tmp_path / "acme_adapters.py").write_text(code)
        done = subprocess.run(
            [sys.executable, "-c", "from fuzz.cli import main; main()", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


GATE = ("gate", "--engine", "acme==local", "--python", sys.executable)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"code": "import sys; sys.exit(0)"}, "importing acme_adapters raised SystemExit: 0"),
        ({"code": "raise RuntimeError('no\\x1b[3m\\nlicence')"}, r"acme_adapters raised RuntimeError: no\x1b"),
        ({"code": None}, "importing acme_adapters raised ModuleNotFoundError: No module named 'acme_adapters'"),
        ({"code": "def"}, "importing acme_adapters raised SyntaxError"),
        ({"value": "a b c::"}, "'a b c::' names no module"),
        ({"value": ".acme"}, "'.acme' names no module"),
        ({"code": ADAPTER.format(contract="verify.nothing")}, "unknown contract 'verify.nothing'; there are "),
        ({"code": LENGTHS + LENGTHS.replace("{}", "{1: 2}")}, "two adapters are called acme/m/commit.lengths/s"),
    ],
)  # fmt: skip
def test_a_package_that_cannot_be_used_is_one_line_that_names_it(specoracle, given, words):
    code, said = specoracle(*GATE, **given)
    assert code == 2 and said.count("\n") == 1, said
    assert said.startswith("error: adapters of acme-adapters (entry point acme = ") and words in said, said


def test_a_broken_package_for_a_built_in_engine_is_named(specoracle):
    code, said = specoracle("gate", "--engine", "sglang==0.5.23", engine="sglang", code="1 / 0")
    assert code == 2 and "adapters of acme-adapters" in said and "ZeroDivisionError" in said, said
    assert "Traceback" not in said and "uninstall acme-adapters" in said


@pytest.mark.parametrize(("end", "code"), [("sys.exit(0)", 4), ("sys.exit(3)", 4)])
def test_code_of_others_cannot_end_a_run_as_a_pass(end, code):
    program = f"import sys\nfrom fuzz import cli\n@cli.cli.command()\ndef foreign():\n    {end}\n"
    program += "sys.argv = ['specoracle', 'foreign']\ncli.main()"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == code and "not its own" in done.stderr, done.stderr


def test_a_command_ends_with_its_own_code(tmp_path):
    (tmp_path / "commit.lengths").mkdir()
    (tmp_path / "commit.lengths" / "broken-0123456789.json").write_text("{")
    command = [sys.executable, "-c", "from fuzz.cli import main; main()", "corpus", "lint", "--corpus", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2) and "not its own" not in done.stderr and "broken" in done.stdout + done.stderr
