"""What the documents show works: the adapter of CONTRIBUTING.md, word for word, runs,
agrees, and says so as a target; the commands of the pages listed here print what is
shown; the commands of the example workflow exist."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fuzz.cli import cli
from tests import documents

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


def test_the_adapter_in_contributing_runs_as_printed(tmp_path):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n# fuzz/engines/sglang/my_accept.py\n(.*?)```", text, re.DOTALL)
    (record,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    for package in ("fuzz", "oracle", "reports", "fixtures"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    engine = tmp_path / "fuzz" / "engines" / "sglang"
    (engine / "my_accept.py").write_text('"""As printed."""\n\n' + code, encoding="utf-8")
    (engine / "record" / "my_accept.toml").write_text(record, encoding="utf-8")
    listing = engine / "__init__.py"
    modules = listing.read_text(encoding="utf-8")
    listing.write_text(modules.replace("= (\n", '= (\n    "fuzz.engines.sglang.my_accept",\n', 1), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "from fuzz.cli import main; main()", "fuzz", "--engine", "sglang==0.5.23",
         "--target", "*my_accept*", "--max-examples", "100", "--out", str(tmp_path / "out")],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"sglang/my_accept/verify.greedy_chain/correct_drafts +\d\d+ cases", done.stdout)


@pytest.mark.parametrize("name", ["report.md", "triage.md", "ci.md"])
def test_the_commands_of_a_page_print_what_is_shown(tmp_path, name):
    shutil.copytree(ROOT / "fixtures", tmp_path / "fixtures", ignore=shutil.ignore_patterns("__pycache__"))
    documents.run((ROOT / "docs" / name).read_text(encoding="utf-8"), tmp_path, timeout_s=600)


@pytest.mark.parametrize(("file", "count"), [("specoracle.yml", 4), ("specoracle-gpu.yml", 6)])
def test_the_commands_of_the_example_workflows_exist(file, count):
    text = (ROOT / "examples" / "github-actions" / file).read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(r"^\s*(?:run: )?specoracle (.*)$", text, re.MULTILINE)
    assert len(lines) == count
    for line in lines:
        line = re.sub(r"\$\{\{.*?\}\}", "--strict", line).replace("$GITHUB_RUN_NUMBER", "1").removesuffix(" &")
        name, *arguments = shlex.split(line.replace("$PYTHON_VERSION", "3.12").replace("$PYTHON", sys.executable))
        group, name = (cli.commands[name], arguments.pop(0)) if name == "engines" else (cli, name)
        with contextlib.suppress(click.exceptions.Exit):
            group.commands[name].make_context(name, arguments, resilient_parsing=False)
