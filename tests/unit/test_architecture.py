"""The dependency rule: who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"oracle", "fuzz", "reports"}
WORKER_ONLY = {"torch", "triton", "sglang", "vllm", "fla", "flashinfer"}
MAY_IMPORT = {"oracle": {"oracle"}, "fuzz": {"oracle", "fuzz"}, "reports": {"oracle", "reports"}}
COMPOSITION_ROOT = "commands"  # the command line wires writers to runs


def imports(path: Path) -> set[str]:
    """Top-level packages imported anywhere in a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {a.name.partition(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", sorted(OURS))
def test_packages_import_only_what_they_may(package):
    for path in files(package):
        allowed = MAY_IMPORT[package] | ({"reports"} if COMPOSITION_ROOT in path.parts else set())
        assert imports(path) & OURS <= allowed, path


def test_the_oracle_needs_numpy_and_the_standard_library_only():
    for path in files("oracle"):
        outside = imports(path) - set(sys.stdlib_module_names) - {"oracle", "numpy", "__future__"}
        assert not outside, (path, outside)


def test_no_pickle_anywhere():
    for package in OURS:
        for path in files(package):
            assert not imports(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path


def test_the_supervisor_side_imports_no_torch():
    """Loading the whole command line and every adapter leaves torch and the
    engines alone."""
    code = (
        "import sys; from fuzz.cli import cli; from fuzz.adapter import load; load('sglang');"
        f"print([m for m in {sorted(WORKER_ONLY)!r} if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.strip() == "[]"


def test_every_module_says_what_it_is():
    for package in OURS:
        for path in files(package):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert ast.get_docstring(tree), path
