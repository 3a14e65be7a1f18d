"""The text of ``--engine`` and the data behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuzz.adapter import BUILT_IN
from fuzz.engines import imports
from fuzz.engines.spec import EngineError, EngineSpec, parse

SUPPORTED = ["0.5.10", "0.5.12", "0.5.14", "0.5.16", "0.5.18", "0.5.20", "0.5.22", "0.5.23"]


def test_a_bare_name_is_the_default_version_or_what_the_given_interpreter_has():
    assert parse("sglang") == EngineSpec("sglang", version="0.5.23")
    assert parse(" sglang ") == parse("sglang")
    assert parse("sglang", has_python=True) == EngineSpec("sglang", local=True)


def test_a_version_a_local_engine_and_a_checkout_are_told_apart(tmp_path):
    assert parse(" sglang == 0.5.18 ") == EngineSpec("sglang", version="0.5.18")
    assert parse("sglang==local") == EngineSpec("sglang", local=True)
    assert parse(f" sglang@{tmp_path} ") == EngineSpec("sglang", path=tmp_path.resolve())


def test_a_spec_prints_as_it_is_written(tmp_path):
    for text in ("sglang==0.5.18", "sglang==local", f"sglang@{tmp_path.resolve()}"):
        assert str(parse(text)) == text


@pytest.mark.parametrize("text", ["sglang==0.5.13", "sglang==0.5.12.post1", "sglang==0.5.10"])
def test_a_version_between_the_supported_ones_may_be_asked_for(text):
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", ["sglagn", "", "==0.5.18", "flashinfer-python==0.7.4", "sglang-0.5.18", "sglagn@/tmp"])
def test_an_unknown_engine_names_the_known_ones(text):
    with pytest.raises(EngineError, match="unknown engine.*flashinfer, .*sglang, .*vllm") as caught:
        parse(text)
    assert caught.value.exit_code == 2


def test_every_engine_has_data_adapters_and_a_default_that_is_supported():
    assert set(imports.ENGINES) >= {"fla", "flashinfer", "sglang", "vllm"}
    for name in imports.ENGINES:
        table = imports.load(name)
        assert name in BUILT_IN and table.default in table.supported
        assert parse(name) == EngineSpec(name, version=table.default)
        for version in table.supported:
            assert str(parse(f"{name}=={version}")) == f"{name}=={version}"
            assert (imports.LOCKS / f"{table.pins(version)}.txt").is_file()


def test_an_engine_is_called_as_it_is_imported_and_fetched_under_its_distribution():
    named = {name: imports.load(name).distribution for name in ("fla", "flashinfer", "sglang", "vllm")}
    assert named == {"fla": "fla-core", "flashinfer": "flashinfer-python", "sglang": "sglang", "vllm": "vllm"}


@pytest.mark.parametrize(("package", "engine"), [("fla-core", "fla"), ("flashinfer-python", "flashinfer")])
def test_who_writes_the_name_of_the_package_is_told_the_name_of_the_engine(package, engine):
    with pytest.raises(EngineError, match=f"the engine of the package {package} is called {engine};"):
        parse(f"{package}==0.6.0")


def test_a_table_without_stubs_or_unset_variables_has_none():
    table = imports.load("flashinfer")
    assert table.stubs("0.7.4") == {} and table.unset == ()


@pytest.mark.parametrize("version", ["0.5.9", "0.5.24", "1.0", "0.5.10rc0", "banana", "", "0.5.18; rm"])
def test_a_wrong_version_lists_the_supported_ones(version):
    with pytest.raises(EngineError) as caught:
        parse(f"sglang=={version}")
    assert caught.value.exit_code == 2
    assert ", ".join(SUPPORTED) in str(caught.value)


@pytest.mark.parametrize("path", ["", "/no/such/folder", "~nouser/x", "/" + "a" * 5000, "\0"])
def test_a_checkout_that_is_no_folder_is_refused(path):
    with pytest.raises(EngineError, match="no such folder"):
        parse(f"sglang@{path}")


def test_an_interpreter_goes_with_no_published_version():
    with pytest.raises(EngineError, match="--python goes with sglang, sglang==local or sglang@CHECKOUT") as caught:
        parse("sglang==0.5.23", has_python=True)
    assert caught.value.exit_code == 2
    assert parse("sglang==local", has_python=True) == EngineSpec("sglang", local=True)


def test_a_checkout_with_an_interpreter_is_local_and_prints_as_a_checkout(tmp_path):
    spec = parse(f"sglang@{tmp_path}", has_python=True)
    assert spec == EngineSpec("sglang", path=tmp_path.resolve(), local=True)
    assert str(spec) == f"sglang@{tmp_path.resolve()}"


def test_every_version_in_the_range_has_one_family_whose_lock_exists():
    table = imports.load("sglang")
    assert list(table.supported) == SUPPORTED
    for minor in range(10, 24):
        assert (imports.LOCKS / f"{table.pins(f'0.5.{minor}')}.txt").is_file()
    assert table.pins("0.5.20.post1") == table.pins("0.5.20") != table.pins("0.5.21")
    assert table.pins(None) == table.pins(table.newest)
    with pytest.raises(LookupError):
        table.pins("0.5.9")


def test_stubs_are_given_name_by_name_and_only_where_a_version_needs_them():
    table = imports.load("sglang")
    tree = {"sgl_kernel.speculative": ["reconstruct_indices_from_tree_mask"]}
    assert table.stubs("0.5.14") == table.stubs("0.5.18") == tree
    assert table.stubs("0.5.20") == table.stubs("0.5.23") == table.stubs(None) == {**tree, "flashinfer": ["top_k"]}
    assert table.stubs("0.5.13") == tree
    for version in ("0.5.10", "0.5.12.post1"):
        assert len(table.stubs(version).pop("sgl_kernel.kvcacheio")) == 13


def _requirements(lock: Path) -> list[str]:
    return [line for line in lock.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_locks_pin_every_package_exactly_and_name_no_place_to_get_it_from():
    used = {"core", "base"} | {f["pins"] for name in imports.ENGINES for f in imports.load(name).families}
    locks = sorted(imports.LOCKS.glob("*.txt"))
    assert {lock.stem for lock in locks} == used
    for lock in locks:
        for line in _requirements(lock):
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), f"{lock.name}: {line}"


def test_no_two_pieces_of_one_environment_hold_the_same_package():
    shared = _requirements(imports.LOCKS / "core.txt") + _requirements(imports.LOCKS / "base.txt")
    for family in [family for name in imports.ENGINES for family in imports.load(name).families]:
        lines = shared + _requirements(imports.LOCKS / f"{family['pins']}.txt")
        names = [line.split("==")[0].lower().replace("_", "-") for line in lines]
        assert len(names) == len(set(names))
