"""The pytest plugin and the entry-point group, with the example package installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which the example package was installed."""
    folder = tmp_path_factory.mktemp("acme")
    shutil.copytree(ROOT / "examples" / "acme_engine", folder / "source")  # building writes beside the sources
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
         "--target", str(folder / "site"), str(folder / "source")],
        check=True, timeout=120,
    )  # fmt: skip
    return folder / "site"


def run(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120
    )


def plugin(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    installed = ["-p", "fuzz.pytest_plugin"] if "specoracle" not in _plugins() else []
    return run(site, cwd, "-m", "pytest", *installed, "-p", "no:cacheprovider", "--rootdir", str(cwd), *arguments)


def _plugins() -> set[str]:
    from importlib.metadata import entry_points

    return {e.name for e in entry_points(group="pytest11")}


def acme(*arguments: str) -> list[str]:
    return ["--specoracle-engine", "acme", "--specoracle-python", sys.executable, *arguments]


def test_an_installed_package_brings_an_engine(site, tmp_path):
    done = run(site, tmp_path, "-c", "from fuzz.cli import main; main()", "fuzz", "--engine", "acme",
               "--python", sys.executable, "--max-examples", "50", "--out", "out")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acme==1.2.0 on cpu" in done.stdout and "acme/accept/verify.greedy_chain/accept" in done.stdout


def test_it_cannot_be_provisioned_and_says_so(site, tmp_path):
    done = run(site, tmp_path, "-c", "from fuzz.cli import main; main()", "fuzz", "--engine", "acme")
    assert done.returncode == 2 and "acme cannot be provisioned: say with --python PATH" in done.stderr


def test_frozen_cases_are_items_with_readable_ids(site, tmp_path):
    done = plugin(site, tmp_path, *acme("-rA"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED specoracle::verify.greedy_chain/all-accepted-" in done.stdout
    assert "[acme/accept/verify.greedy_chain/accept]" in done.stdout
    assert "collected 0" not in done.stdout


def test_a_failure_is_the_explanation(site, tmp_path):
    wrong = tmp_path / "site"
    shutil.copytree(site, wrong)
    code = (wrong / "acme" / "__init__.py").read_text(encoding="utf-8")
    (wrong / "acme" / "__init__.py").write_text(code.replace("return accepted,", "return accepted + 1,"))
    done = plugin(wrong, tmp_path, *acme("-k", "none-accepted"))
    assert done.returncode == 1
    assert "DIVERGE acme/accept/verify.greedy_chain/accept at acme==local" in done.stdout
    assert "accepted (matched draft tokens) must be 0, production has 1" in done.stdout
    assert "Traceback" not in done.stdout


def test_other_tests_and_runs_without_the_option_are_left_alone(site, tmp_path):
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    assert "1 passed" in plugin(site, tmp_path).stdout
    both = plugin(site, tmp_path, *acme("-k", "none-accepted or test_own"))
    assert both.returncode == 0 and "2 passed" in both.stdout


def test_wrong_options_are_usage_errors(site, tmp_path):
    for arguments, words in (
        (["--specoracle-engine", "nothing"], "unknown engine 'nothing'"),
        (acme("--specoracle-contract", "nothing*"), "no target of acme matches"),
        (acme("--specoracle-corpus", "nowhere"), "no such folder"),
        (acme("--specoracle-device", "bogus"), "'bogus' is none of cpu"),
        (["--specoracle-engine", ""], "unknown engine ''"),
    ):
        done = plugin(site, tmp_path, *arguments)
        assert done.returncode == 4 and words in done.stderr, done.stdout + done.stderr


def test_nothing_executed_is_no_pass(site, tmp_path):
    """No case that fits is a usage error; only skips end like a run without tests."""
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n")
    corpus = tmp_path / "corpus"
    shutil.copytree(ROOT / "fixtures" / "commit.lengths", corpus / "commit.lengths")
    done = plugin(site, tmp_path, *acme("--specoracle-corpus", str(corpus)))
    assert done.returncode == 4 and "nothing was tested" in done.stdout + done.stderr
    gone = tmp_path / "site"
    shutil.copytree(site, gone)
    module = gone / "acme_specoracle" / "__init__.py"
    code = module.read_text(encoding="utf-8")
    never = "    from fuzz.adapter import Unsupported\n\n    raise Unsupported('never here')\n"
    module.write_text(code.replace("    import acme\n", never), encoding="utf-8")
    record = plugin(gone, tmp_path, *acme("-k", "none-accepted or test_own"))
    assert record.returncode == 5 and "1 passed, 1 skipped" in record.stdout, record.stdout
