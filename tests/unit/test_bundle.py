"""A bundle carries an engine to a machine without a network: what is packed comes out there, and what does not fit
is said before anything runs."""

from __future__ import annotations

import io
import json
import lzma
import os
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz.cli import cli
from fuzz.commands.options import read_engine
from fuzz.engines import bundle, layers, pack, provision, tools
from fuzz.engines.home import Home
from fuzz.engines.spec import EngineError, EngineSpec, parse
from fuzz.launch import from_install

HAVE = {"torch": "2.11.0+cu130", "torchvision": "0.26.0", "triton": "3.6.0", "numpy": "2.5.2"}
KERNELS = {
    "distribution": "kernels",
    "version": "1.0",
    "torch": "2.11",
    "keep": ["kernels/*.py", "kernels/{architecture}/*"],
}


def layer(path: Path, files: dict[str, str], lock: str | None = None) -> layers.Layer:
    """A provisioned piece that holds these files."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return layers.Layer(path.name, path, 0, lambda *_: {}, {"lock": lock} if lock else {})


@pytest.fixture
def place(tmp_path) -> Home:
    return Home.locate(tmp_path / "home")


@pytest.fixture
def pieces(tmp_path, monkeypatch) -> dict[EngineSpec, list[layers.Layer]]:
    """An engine with a package beside it and a wheel with kernels; nothing is downloaded."""

    def pip(place, python, arguments, title):
        into = Path(arguments[arguments.index("--dest" if arguments[0] == "download" else "--target") + 1])
        into.mkdir(parents=True, exist_ok=True)
        if arguments[0] == "download":
            wheel = into / "kernels-1.0.whl"
            with pack.zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("kernels/__init__.py", "")
                archive.writestr("kernels/sm90/ops.so", "compiled")
                archive.writestr("kernels/sm100/ops.so", "for another GPU")
        else:
            lock = Path(arguments[-1]).read_text()
            assert "einops" in lock and "torchvision" not in lock and "triton" not in lock
            (into / "einops.py").write_text(f"for Python {python}")

    monkeypatch.setattr(pack, "_pip", pip)
    engine = {
        "sglang/__init__.py": "engine",
        "sglang/__pycache__/a.pyc": "byte code",
        "sglang/a.a": "static",
        layers.MANIFEST: "{}",
    }
    parts = [layer(tmp_path / "engine", engine), layer(tmp_path / "base", {}, "base.txt")]
    monkeypatch.setattr(pack.imports.EngineImports, "kernels", lambda table, version: [KERNELS])
    return {parse("sglang==0.5.23"): parts}


@pytest.fixture
def made(pieces, place, tmp_path, monkeypatch) -> bundle.Bundle:
    monkeypatch.setattr(bundle, "_ask", lambda python: ("3.12", HAVE))
    return pack.make(pieces, "3.12", tmp_path / "bundle", place, kernels="sm90")


def unpacked(made: bundle.Bundle, place: Home, said: list | None = None) -> dict[str, Path]:
    heard = said if said is not None else []
    return bundle.install(made, made.spec("sglang"), Path("python"), place, lambda text, done: heard.append(text))


def files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != layers.MANIFEST
    }


def test_what_is_packed_comes_out_in_the_order_of_the_path(made, place):
    folders = unpacked(made, place)
    assert list(folders) == ["sglang-0.5.23", "kernels-1.0-sm90", "base"]
    contents = [files(folder) for folder in folders.values()]
    assert contents == [
        {"sglang/__init__.py": "engine"},
        {"kernels/sm90/ops.so": "compiled", "kernels/__init__.py": ""},
        {"einops.py": "for Python 3.12"},
    ]


def test_the_same_pieces_make_the_same_archives_and_unpack_once(made, pieces, place, tmp_path, monkeypatch):
    listed = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda *arguments: reversed(list(listed(*arguments))))
    again = pack.make(pieces, "3.12", tmp_path / "again", place, kernels="sm90")
    assert again.engines == made.engines
    assert unpacked(made, place) == unpacked(again, place)


def test_kernels_are_taken_only_when_asked_for(pieces, place, tmp_path):
    assert [p.name for p in pack.make(pieces, "3.12", tmp_path / "b", place).engines["sglang==0.5.23"]] == [
        "sglang-0.5.23", "base",
    ]  # fmt: skip


def test_kernels_that_are_not_there_or_do_not_fit_are_left_out_and_said(made, place, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(bundle, "_ask", lambda python: ("3.12", HAVE | {"torch": "2.14.1"}))
    assert list(unpacked(made, place, said)) == ["sglang-0.5.23", "base"]
    assert any("built for torch 2.11, not for 2.14.1" in text for text in said)
    monkeypatch.setattr(bundle, "_ask", lambda python: ("3.12", HAVE))
    (made.path / "kernels-1.0-sm90.tar.xz").unlink()
    assert list(unpacked(made, place, said)) == ["sglang-0.5.23", "base"]
    assert any("is not in the bundle" in text for text in said)


@pytest.mark.parametrize(
    ("answer", "words"),
    [(("3.13", HAVE), "for Python 3.12"), (("3.12", {"torch": "2.11.0", "numpy": "2.5.2"}), "no torchvision, triton")],
)
def test_an_interpreter_that_does_not_fit_is_refused(made, place, monkeypatch, answer, words):
    monkeypatch.setattr(bundle, "_ask", lambda python: answer)
    with pytest.raises(EngineError, match=words):
        unpacked(made, place)


def test_an_interpreter_says_what_it_has_and_another_program_is_refused():
    version, have = bundle._ask(Path(sys.executable))
    assert version == f"3.{sys.version_info.minor}" and "numpy" in have
    for wrong in ("/bin/true", "/bin/false", "/nowhere/python"):
        with pytest.raises(EngineError, match=wrong):
            bundle._ask(Path(wrong))


def test_a_changed_archive_is_refused_and_leaves_nothing(made, place):
    archive = made.path / "base.tar.xz"
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    with pytest.raises(EngineError, match=r"base\.tar\.xz is not what the manifest says"):
        unpacked(made, place)
    assert not list(place.layers.glob("*base*"))


def test_a_missing_archive_that_is_needed_is_named(made, place):
    (made.path / "base.tar.xz").unlink()
    with pytest.raises(EngineError, match=r"base\.tar\.xz cannot be read"):
        unpacked(made, place)


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_an_archive_cannot_write_outside_its_folder(tmp_path, name, kind):
    archive = tmp_path / "hostile.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        member = tarfile.TarInfo(name if kind == tarfile.REGTYPE else "inside")
        member.type, member.linkname = kind, name
        file.addfile(member, io.BytesIO())
    with pytest.raises(EngineError, match="no plain file of its own"):
        bundle._unpack(archive, tmp_path / "into")
    assert not (tmp_path / "into").exists() and not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"bundle_version": 2}, {"engines": {"nothing==1": ["base"]}}, {"engines": {"sglang==0.5.23": ["gone"]}},
        {"pieces": {"base": {"name": "base"}}}, {"pieces": []}, {"engines": None}, {"python": 3.12},
        {"engines": {"sglang==0.5.23": []}},
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_refused(made, damage):
    data = json.loads((made.path / bundle.FILE).read_text())
    (made.path / bundle.FILE).write_text(json.dumps(data | damage))
    with pytest.raises(EngineError):
        bundle.read(made.path)


@pytest.mark.parametrize(
    "damage",
    [{"name": "../base"}, {"file": "../base.tar.xz"}, {"sha256": "none"}, {"optional": "yes"}, {"torch": 2.11}],
)
def test_a_manifest_with_wrong_values_of_a_piece_is_refused(made, damage):
    data = json.loads((made.path / bundle.FILE).read_text())
    data["pieces"]["base"] |= damage
    (made.path / bundle.FILE).write_text(json.dumps(data))
    with pytest.raises(EngineError, match="is damaged"):
        bundle.read(made.path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(tmp_path, text):
    (tmp_path / bundle.FILE).write_text(text)
    with pytest.raises(EngineError, match="is damaged"):
        bundle.read(tmp_path)


def test_an_engine_is_named_with_or_without_its_version(made):
    assert made.spec("sglang") == made.spec("sglang==0.5.23") == parse("sglang==0.5.23")
    assert made.spec(" sglang == 0.5.23") == parse("sglang==0.5.23")
    for text in ("vllm", "sglang==0.5.22"):
        with pytest.raises(EngineError, match=r"^\S+ names none of what --bundle .* has: sglang==0\.5\.23"):
            made.spec(text)
    two = bundle.Bundle(made.path, "3.12", {"sglang==0.5.22": (), "sglang==0.5.23": ()})
    with pytest.raises(EngineError, match="names 2 of what"):
        two.spec("sglang")


def test_a_bundle_is_made_whole_or_not_at_all(pieces, place, tmp_path, monkeypatch):
    def broken(*_):
        raise EngineError("no network")

    monkeypatch.setattr(pack, "_pip", broken)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(EngineError, match="no network"):
        pack.make(pieces, "3.12", tmp_path / "b", place)
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "b").mkdir()
    with pytest.raises(EngineError, match="exists already"):
        pack.make(pieces, "3.12", tmp_path / "b", place)
    with pytest.raises(EngineError, match=r"write it like 3\.12"):
        pack.make(pieces, "312", tmp_path / "c", place)


def test_only_published_versions_are_bundled(tmp_path):
    with pytest.raises(EngineError, match=r"sglang==local cannot be bundled"):
        provision.make_bundle([parse("sglang==local")], "3.12", tmp_path / "b")


@pytest.mark.parametrize("kernels", ["", "sm9x", "sm90,sm100", "*", "sm 90", "../x", "sm90\n"])
def test_an_architecture_that_is_none_is_refused(pieces, place, tmp_path, kernels):
    with pytest.raises(EngineError, match="write the architecture like sm90"):
        pack.make(pieces, "3.12", tmp_path / "b", place, kernels=kernels)


def test_an_architecture_without_kernels_is_refused(pieces, place, tmp_path):
    with pytest.raises(EngineError, match=r"kernels==1\.0 has no kernels/sm42/\*"):
        pack.make(pieces, "3.12", tmp_path / "b", place, kernels="sm42")
    assert not (tmp_path / "b").exists()


def test_what_a_killed_maker_left_goes_and_another_s_stays(pieces, place, tmp_path):
    left, other = tmp_path / f"{pack.SCRATCH}{2**22 + 1}-x", tmp_path / f"{pack.SCRATCH}{os.getpid()}-x"
    left.mkdir()
    other.mkdir()
    pack.make(pieces, "3.12", tmp_path / "b", place)
    assert not left.exists() and other.exists()


def plain(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    """An archive with one empty file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:xz") as file:
        member = tarfile.TarInfo(name)
        member.type = kind
        file.addfile(member)
    return made.getvalue()


NO_ARCHIVES = {
    "empty": b"",
    "garbage": b"garbage",
    "no tar": lzma.compress(b"no tar" * 1000),
    "nothing inside": lzma.compress(b""),
    "cut early": plain("a")[:60],
    "cut late": plain("a")[:72],
    "a folder's name": plain("."),
}


@pytest.mark.parametrize("content", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_an_archive_that_fits_its_hash_and_is_none_is_refused(made, place, content):
    data = json.loads((made.path / bundle.FILE).read_text())
    (made.path / "base.tar.xz").write_bytes(content)
    data["pieces"]["base"]["sha256"] = layers.sha256(made.path / "base.tar.xz")
    (made.path / bundle.FILE).write_text(json.dumps(data))
    with pytest.raises(EngineError, match=r"base\.tar\.xz cannot be unpacked"):
        unpacked(bundle.read(made.path), place)


@pytest.mark.parametrize("answer", ["null", "5", '["3.12", null]', '["3.12", 5]', "[" * 100_000, ""])
def test_an_interpreter_that_answers_something_else_is_refused(tmp_path, answer):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    (tmp_path / "answer").write_text(f"{tools.FACTS}{answer}\n")
    python.chmod(0o755)
    with pytest.raises(EngineError, match="does not answer as Python does"):
        bundle._ask(python)


def test_an_interpreter_that_is_silent_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "ASK_DEADLINE_S", 0.2)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 60\n")
    python.chmod(0o755)
    with pytest.raises(EngineError, match="is silent for 0.2 s"):
        bundle._ask(python)


def test_what_a_worker_starts_with_comes_out_of_the_bundle(made, place, monkeypatch):
    """As of an engine that the interpreter has installed, its own PYTHONPATH stays behind."""
    spec = read_engine("sglang", Path("python3"), made.path)
    install = provision.provision(spec, python=Path("python3"), device="cuda:0", home=place.root)
    assert install.record["version"] == "0.5.23" and install.env == {}
    path = [*map(str, unpacked(made, place).values()), "/opt/more"]
    assert install.environment({"PYTHONPATH": "/opt/more"})["PYTHONPATH"].split(":") == path
    assert not from_install(install, "cuda:0").shims and from_install(install).shims


def test_a_run_from_a_folder_that_is_no_bundle_is_a_usage_error(tmp_path):
    run = CliRunner().invoke(cli, ["gate", "--bundle", str(tmp_path)])
    assert isinstance(run.exception, EngineError) and run.exception.exit_code == 2
    assert "no manifest.json there" in str(run.exception)
