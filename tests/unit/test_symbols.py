"""What a release lacks concerns the target that needs it, whatever way its absence shows."""

from __future__ import annotations

import sys
import types

import pytest

from fuzz.adapter import Unsupported
from fuzz.worker.engine import location, resolve


def late(name: str):
    """As a package that imports its parts when they are asked for."""
    if name == "part":
        raise ModuleNotFoundError("No module named 'flashinfer'")
    raise AttributeError(name)


@pytest.fixture
def package(monkeypatch) -> types.ModuleType:
    made = types.ModuleType("late_package")
    made.__getattr__ = late
    monkeypatch.setitem(sys.modules, "late_package", made)
    return made


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("late_package:part", "late_package:part: ModuleNotFoundError: No module named 'flashinfer'"),
        ("late_package:gone", "late_package:gone is missing"),
        ("no_such_package:part", "import no_such_package: ModuleNotFoundError"),
    ],
)
def test_a_symbol_that_cannot_be_had_is_unsupported_with_the_reason(package, path, words):
    with pytest.raises(Unsupported, match=words):
        resolve(path)


def test_a_module_is_a_symbol_that_has_no_line(package):
    def refuse(name: str):
        raise ImportError("a closed stub")

    package.__getattr__ = refuse
    assert resolve("late_package:") is package and location(package) is None


def test_a_stand_in_that_imports_only_when_it_is_looked_at_is_unsupported():
    class StandIn:
        def __getattr__(self, name: str):
            raise ModuleNotFoundError("No module named 'flashinfer'")

    with pytest.raises(Unsupported, match="ModuleNotFoundError: No module named 'flashinfer'"):
        location(StandIn())
