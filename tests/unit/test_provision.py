"""Provisioning: whole or not at all, once, and safe when two run at once. `Tools` plays pip and Python."""

# ruff: noqa: F811 - a test's argument names the fixture that is imported here
from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from fuzz.engines import home, imports, layers, tools
from fuzz.engines.provision import installed, provision, remove
from fuzz.engines.spec import parse
from tests.fake_tools import COLD, FACTS, SPEC, Tools, fake, left_over, place, write  # noqa: F401 - fixtures


def test_a_cold_start_builds_each_piece_once_and_a_warm_one_runs_nothing(fake, place):
    first = provision(SPEC)
    assert fake.steps == COLD
    assert provision(SPEC) == first
    assert fake.steps == COLD
    assert left_over(place) == []


def test_only_torch_brings_its_dependencies(fake):
    provision(SPEC)
    with_dependencies = [step for step, words in zip(fake.steps, fake.commands) if "--no-deps" not in words]
    assert with_dependencies == ["venv", "install:core", "import"]


def test_the_environment_is_the_overlay_before_the_pins_before_the_base(fake, place):
    install = provision(SPEC)
    assert [path.name.split("-")[0] for path in install.pythonpath] == ["sglang", "sglang", "base"]
    assert install.pythonpath[0] == place.engines / "sglang-0.5.18"
    assert install.python.is_relative_to(place.layers) and install.env["TRITON_INTERPRET"] == "1"
    assert install.record["version"] == "0.5.18" and install.record["supported"]
    assert install.record["layers"]["overlay"]["torch"] == FACTS["torch"]
    assert provision(SPEC, device="cuda:0").env == {}


def test_a_childs_environment_has_nothing_of_another_one(fake):
    parent = {"PATH": "/bin", "PYTHONPATH": "/elsewhere", "PYTHONHOME": "/x", "SGLANG_USE_CPU_ENGINE": "1"}
    child = provision(SPEC).environment(parent)
    assert child["PATH"] == "/bin" and child["CUDA_VISIBLE_DEVICES"] == ""
    assert "/elsewhere" not in child["PYTHONPATH"]
    assert not {"PYTHONHOME", "SGLANG_USE_CPU_ENGINE"} & set(child)


def test_an_overlay_leaves_out_what_verification_never_imports(fake, place):
    root = provision(SPEC).pythonpath[0]
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert files == ["sglang/__init__.py", "sglang/srt/spec.py", layers.MANIFEST]


def test_a_warm_start_does_not_wait_for_a_writer(fake, place, monkeypatch):
    provision(SPEC)
    monkeypatch.setattr(home, "LOCK_DEADLINE_S", 0)
    with place.writing(lambda text, fraction: None):
        assert provision(SPEC).spec == SPEC


def test_a_second_version_of_a_family_adds_an_overlay_only(fake):
    provision(SPEC)
    fake.steps.clear()
    provision(parse("sglang==0.5.12"))
    assert fake.steps == ["download:sglang==0.5.12", "import"]


def test_another_engine_adds_its_pins_and_an_overlay_under_its_own_name(fake, place):
    provision(SPEC)
    fake.steps.clear()
    install = provision(parse("flashinfer==0.7.4"))
    assert fake.steps == ["install:flashinfer", "download:flashinfer-python==0.7.4", "import"]
    assert install.pythonpath[0] == place.engines / "flashinfer-0.7.4"
    assert (install.pythonpath[0] / "flashinfer" / "__init__.py").is_file()
    assert [str(each.spec) for each in installed()] == ["flashinfer==0.7.4", "sglang==0.5.18"]
    remove(parse("flashinfer==0.7.4"))
    assert [str(each.spec) for each in installed()] == ["sglang==0.5.18"]
    assert not list(place.layers.glob("flashinfer-*"))


def test_the_room_for_a_wheel_is_the_engines_own(fake, monkeypatch):
    asked = {}
    monkeypatch.setattr(home.Home, "need", lambda self, size_bytes, what: asked.update({what: size_bytes}))
    for text in ("sglang==0.5.18", "vllm==0.33.0"):
        provision(parse(text))
    assert asked["vllm 0.33.0"] > asked["sglang 0.5.18"] == imports.OVERLAY_BYTES


MANIFESTS = {
    "a list": [],
    "null": None,
    "text": "whole",
    "another layout": {"manifest_version": 2},
    "no layout": {"manifest_version": None},
    "files as text": {"files": "x"},
    "files as truth": {"files": True},
    "no files": {"files": None},
    "no engine": {"engine": None},
    "another engine": {"engine": "vllm"},
    "no such version": {"version": "zz"},
    "another version": {"version": "0.5.12"},
    "another name": {"name": "sglang-0.5.12"},
}


def damaged(path: Path, change) -> None:
    """Write `change` for a manifest: a table changes single values, None in it takes one away."""
    if isinstance(change, dict):
        data = {**json.loads(path.read_text()), **change}
        change = {key: value for key, value in data.items() if value is not None}
    path.write_text(json.dumps(change))


@pytest.mark.parametrize("change", MANIFESTS.values(), ids=MANIFESTS)
def test_a_damaged_manifest_of_an_overlay_counts_as_none(fake, change):
    path = provision(SPEC).pythonpath[0] / layers.MANIFEST
    damaged(path, change)
    fake.steps.clear()
    assert installed() == []
    assert provision(SPEC).record["layers"]["overlay"]["version"] == "0.5.18"
    assert fake.steps == ["download:sglang==0.5.18", "import"]
    damaged(path, change)
    remove(SPEC)
    assert not path.exists()


@pytest.mark.parametrize("change", [[], {"lock": None}, {"lock": "core.txt"}])
def test_a_damaged_manifest_of_a_shared_piece_counts_as_none(fake, change):
    damaged(provision(SPEC).pythonpath[2] / layers.MANIFEST, change)
    fake.steps.clear()
    assert installed() == []
    provision(SPEC)
    assert fake.steps == ["install:base"]


def test_a_file_or_a_link_where_a_piece_belongs_is_replaced(fake, place):
    root, pins, base = provision(SPEC).pythonpath
    for path in (root, pins, base):
        shutil.rmtree(path)
    root.write_text("")
    pins.symlink_to("nowhere")
    base.symlink_to(place.root)
    provision(SPEC)
    assert [each.spec for each in installed()] == [SPEC] and place.root.is_dir() and left_over(place) == []


@pytest.mark.parametrize("damage", ["no manifest", "torn manifest", "file lost"])
def test_a_half_written_overlay_is_rebuilt_and_only_that(fake, place, damage):
    root = provision(SPEC).pythonpath[0]
    if damage == "file lost":
        (root / "sglang" / "srt" / "spec.py").unlink()
    elif damage == "torn manifest":
        (root / layers.MANIFEST).write_text('{"manifest_version": 1')
    else:
        (root / layers.MANIFEST).unlink()
        (root / "stale.py").write_text("")
    fake.steps.clear()
    assert installed() == []
    provision(SPEC)
    assert fake.steps == ["download:sglang==0.5.18", "import"]
    assert not (root / "stale.py").exists() and (root / "sglang" / "srt" / "spec.py").exists()
    assert left_over(place) == []


def test_byte_code_that_comes_or_goes_and_files_an_engine_adds_are_no_damage(fake):
    root, pins, _ = provision(SPEC).pythonpath
    shutil.rmtree(pins / "package" / "__pycache__")
    write(root / "sglang" / "__pycache__" / "spec.pyc")
    write(root / "sglang" / "built.so")
    fake.steps.clear()
    provision(SPEC)
    assert fake.steps == []


def test_a_core_whose_interpreter_is_gone_is_rebuilt(fake):
    python = provision(SPEC).python
    python.unlink()
    python.symlink_to("/no/such/python")
    fake.steps.clear()
    provision(SPEC)
    assert fake.steps == ["venv", "install:core"]


@pytest.mark.parametrize("step", COLD)
def test_an_interruption_leaves_nothing_half_installed_and_only_the_missing_piece_is_repeated(fake, place, step):
    fake.fail[step] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        provision(SPEC)
    assert left_over(place) == [] and installed() == []
    fake.fail.clear()
    fake.steps.clear()
    provision(SPEC)
    start = {"install:core": "venv", "import": "download:sglang==0.5.18"}.get(step, step)
    assert fake.steps == COLD[COLD.index(start) :]


def test_what_a_killed_process_left_is_swept_away_by_the_next_one(fake, place):
    write(place.layers / ".scrap-core-1-2" / "lib" / "half.py")
    write(place.engines / ".scrap-sglang-0.5.18-1-2" / "half.py")
    provision(SPEC)
    assert left_over(place) == []


def test_progress_tells_each_stage_and_never_goes_back(fake):
    told = []
    provision(SPEC, progress=lambda text, fraction: told.append((text, fraction)))
    fractions = [fraction for _, fraction in told if fraction is not None]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert {"Python environment with torch", "sglang 0.5.18: importing once"} <= {text for text, _ in told}


def _provision_in_a_process(root: str, log: str, said: str) -> None:
    os.environ["SPECORACLE_HOME"] = root
    tools.run = Tools(Path(log), pause_s=0.2)
    with Path(said).open("w") as stream:
        provision(SPEC, progress=lambda text, fraction: print(text, file=stream, flush=True))


def test_two_at_once_build_everything_once_and_the_second_says_that_it_waits(fake, place, tmp_path):
    context = multiprocessing.get_context("spawn")
    log, said = tmp_path / "log", [tmp_path / "said0", tmp_path / "said1"]
    both = [
        context.Process(target=_provision_in_a_process, args=(str(place.root), str(log), str(each))) for each in said
    ]
    for each in both:
        each.start()
    for each in both:
        each.join(timeout=60)
    assert [each.exitcode for each in both] == [0, 0]
    assert log.read_text().split("\n")[:-1] == COLD
    assert sum("waiting: another process" in each.read_text() for each in said) == 1
    assert left_over(place) == []


def test_installed_lists_whole_versions_in_order_and_writes_nothing(fake, place):
    assert installed() == [] and not place.root.exists()
    for version in ("0.5.18", "0.5.10", "0.5.23"):
        provision(parse(f"sglang=={version}"))
    assert [each.spec.version for each in installed()] == ["0.5.10", "0.5.18", "0.5.23"]
    shutil.rmtree(provision(parse("sglang==0.5.23")).pythonpath[1])
    assert [each.spec.version for each in installed()] == ["0.5.10", "0.5.18"]


def test_remove_takes_the_overlay_and_the_shared_pieces_that_nobody_needs(fake, place):
    for version in ("0.5.18", "0.5.12", "0.5.23"):
        provision(parse(f"sglang=={version}"))
    remove(SPEC)
    assert [each.spec.version for each in installed()] == ["0.5.12", "0.5.23"]
    remove(parse("sglang==0.5.12"))
    assert not list(place.layers.glob("sglang-to-0.5.20-*")) and list(place.layers.glob("sglang-from-*"))
    remove(parse("sglang==0.5.23"))
    assert list(place.layers.iterdir()) == [] and left_over(place) == []


STRAY = ["foo-bar", "sglang-zz", "sglang-9.9.9", "sglang-0.5.18.0-x", "noversion"]


def test_stray_folders_disturb_neither_the_list_nor_a_removal(fake, place):
    for version in ("0.5.18", "0.5.12"):
        provision(parse(f"sglang=={version}"))
    for name in STRAY:
        write(place.engines / name / "file")
    write(place.engines / "sglang-0.5.14")
    assert [each.spec.version for each in installed()] == ["0.5.12", "0.5.18"]
    remove(SPEC)
    assert [each.spec.version for each in installed()] == ["0.5.12"]
    assert all((place.engines / name / "file").exists() for name in STRAY)


def test_a_version_whose_manifest_is_damaged_still_needs_its_shared_pieces(fake, place):
    pins = provision(SPEC).pythonpath[1]
    (provision(parse("sglang==0.5.12")).pythonpath[0] / layers.MANIFEST).write_text("[]")
    remove(SPEC)
    assert pins.is_dir()


def test_a_checkout_is_used_where_its_package_lies_with_the_newest_pins(fake, tmp_path):
    write(tmp_path / "repo" / "python" / "sglang" / "__init__.py")
    install = provision(parse(f"sglang@{tmp_path / 'repo'}"))
    assert install.pythonpath[0] == (tmp_path / "repo" / "python").resolve()
    assert install.pythonpath[1].name.startswith(imports.load("sglang").families[-1]["pins"])
    assert install.record["version"] is None and install.record["stubs"]
    assert not any(step.startswith("download") for step in fake.steps)


def test_a_checkout_may_run_in_an_interpreter_of_the_users_own(monkeypatch, tmp_path):
    write(tmp_path / "python" / "sglang" / "__init__.py")
    asked = []
    monkeypatch.setattr(tools, "run", lambda command, **options: asked.append(command) or [tools.FACTS + "2.13.0"])
    spec = parse(f"sglang@{tmp_path}", has_python=True)
    install = provision(spec, python=Path("python-of-mine"), device="cuda:0", home=tmp_path / "home")
    root = (tmp_path / "python").resolve()
    assert install.pythonpath == (root,) and install.python == Path("python-of-mine").absolute()
    assert install.env == {} and install.record["version"] is None and install.record["layers"] == {}
    assert install.environment({"PYTHONPATH": "/mine"})["PYTHONPATH"] == os.pathsep.join([str(root), "/mine"])
    assert install.environment({})["PYTHONPATH"] == str(root)
    assert "PYTHONNOUSERSITE" not in install.environment({})
    assert asked[0][0] == install.python and asked[0][-1] == "torch"
    assert not (tmp_path / "home").exists()


def test_a_local_engine_is_used_as_it_is(monkeypatch):
    monkeypatch.setattr(tools, "run", lambda command, **options: ["warning", tools.FACTS + "0.5.18"])
    install = provision(parse("sglang==local"), python=Path("python-of-mine"), device="cuda")
    assert install.pythonpath == () and install.env == {} and install.record["version"] == "0.5.18"
    assert install.environment({"PYTHONPATH": "/mine"})["PYTHONPATH"] == "/mine"


@pytest.mark.parametrize(("name", "distribution"), [("flashinfer", "flashinfer-python"), ("vllm", "vllm")])
def test_a_local_engine_is_asked_for_under_its_distribution(monkeypatch, name, distribution):
    asked = []
    monkeypatch.setattr(tools, "run", lambda command, **options: asked.append(command) or [tools.FACTS + "0.7.4"])
    install = provision(parse(name, has_python=True), python=Path("python-of-mine"), device="cuda:0")
    assert asked[0][-1] == distribution and install.record["version"] == "0.7.4"
