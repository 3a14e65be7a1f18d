"""The pages on writing a contract and an adapter work as printed: their code is put
where it says, and their commands are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(page: str) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


@pytest.fixture()
def shell(tmp_path):
    """Runs one printed command in a copy of the project; ``specoracle``, ``python`` and
    ``pip`` are those of the tests."""
    for name in ("fuzz", "oracle", "reports", "fixtures", "tests", "examples", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    binaries, site = tmp_path / "bin", tmp_path / "site"
    binaries.mkdir()
    scripts = {
        "python": f'exec "{sys.executable}" "$@"',
        "specoracle": f'exec "{sys.executable}" -c "from fuzz.cli import main; main()" "$@"',
        "pip": f'exec "{sys.executable}" -m pip --quiet --disable-pip-version-check "$1" --no-deps --no-index '
               f'--no-build-isolation --target "{site}" "$2"',
    }  # fmt: skip
    for name, line in scripts.items():
        (binaries / name).write_text(f"#!/bin/sh\n{line}\n")
        (binaries / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}:{site}",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )

    run.folder = tmp_path
    return run


def place(folder: Path, code: str) -> None:
    """Put a block under the path that its first line names."""
    first, rest = code.split("\n", 1)
    path = folder / first.removeprefix("# ")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(rest, encoding="utf-8")


def test_the_contract_of_the_page_is_built_and_tested_as_printed(shell):
    for code in blocks("writing-a-contract.md", "python"):
        if code.startswith("# add to MODULES"):
            listing = shell.folder / "oracle" / "contracts.py"
            text = listing.read_text(encoding="utf-8")
            line = code.split("\n", 1)[1].strip()
            listing.write_text(text.replace("MODULES = (\n", f"MODULES = (\n    {line}\n"), encoding="utf-8")
        else:
            place(shell.folder, code)
    outputs = []
    for command in commands("writing-a-contract.md"):
        done = shell(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        outputs.append(done.stdout)
    assert "verify.stop_cut              4 cases   4/4 behaviours   4/4 mutants killed" in outputs[3]
    assert re.search(r"\b1\d passed", outputs[4]), outputs[4]


@pytest.mark.engine
def test_the_adapter_page_works_as_printed(shell):
    for code in blocks("writing-an-adapter.md", "python"):
        place(shell.folder, code)
    own = shell.folder / "own"  # a repository of an engine's owner: its tests run beside the frozen cases
    own.mkdir()
    shutil.copy(shell.folder / "test_accept.py", own)
    plugin = "" if _plugin_installed() else "-p fuzz.pytest_plugin "
    outputs = {}
    for command in commands("writing-an-adapter.md"):
        there = f"cd own && {command.replace('-m pytest ', f'-m pytest {plugin}')}"
        done = shell(there if "--specoracle-engine" in command else command)
        red = "sglang==0.5.18" in command
        assert done.returncode == (1 if red else 0), f"{command}\n{done.stdout}{done.stderr}"
        outputs[command] = done.stdout
    last = outputs[commands("writing-an-adapter.md")[-1]]
    assert "commit.checkpoint_steps" in last and "must be 0, production has -1" in last


def _plugin_installed() -> bool:
    from importlib.metadata import entry_points

    return any(e.name == "specoracle" for e in entry_points(group="pytest11"))
