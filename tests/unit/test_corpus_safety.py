"""A case file may come from a stranger, and a corpus is never left half written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz import corpus, frozen
from fuzz.commands.corpus import corpus as command
from fuzz.frozen import CorpusError, parse, read, to_text
from oracle.commit.checkpoint_steps import CONTRACT


def made(slug="a-case"):
    return corpus.make(CONTRACT.name, CONTRACT.example, slug=slug, reason="a reason in words")


def text_of(**changes) -> bytes:
    return json.dumps(json.loads(to_text(made())) | changes).encode()


def run(*arguments) -> tuple[int, BaseException | None]:
    result = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)
    return result.exit_code, result.exception


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# Only regular files are read.


def in_time(code: str) -> str:
    """Run ``code`` in a process that may block, for a while."""
    root = Path(__file__).parents[2]
    found = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=30)
    return found.stdout + found.stderr


READ = """
from pathlib import Path
from fuzz.frozen import CorpusError, read
try:
    read(Path({!r}))
except CorpusError as error:
    print("refused", error)
"""


def test_a_fifo_is_refused_and_does_not_block(tmp_path):
    path = tmp_path / "case.json"
    os.mkfifo(path)
    assert f"refused {path}: not a regular file" in in_time(READ.format(str(path)))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/"])
def test_a_device_or_folder_is_refused_by_name(path):
    with pytest.raises(CorpusError, match=f"{path}: not a regular file"):
        read(Path(path))


def test_a_file_that_grows_after_a_look_at_its_size_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "case.json"
    path.write_bytes(text_of() + b" " * 4096)
    monkeypatch.setattr(frozen, "MAX_FILE_BYTES", 4096)
    monkeypatch.setattr(Path, "stat", lambda self, **_: os.stat_result((0o100644,) + (0,) * 9))
    with pytest.raises(CorpusError, match="larger than"):
        read(path)


def test_a_path_that_cannot_be_one_is_refused():
    with pytest.raises(CorpusError, match="cannot be read"):
        read(Path("a\0b.json"))


# What a file may say.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"provenance": {"engine": "sglang@/tmp/evil"}}, "provenance/engine"),
        ({"provenance": {"engine": "sglang==local"}}, "provenance/engine"),
        ({"provenance": {"engine": "sglang==0.5.18\n"}}, "provenance/engine"),
        ({"provenance": {"engine": ["sglang==0.5.18"]}}, "provenance/engine"),
        ({"provenance": {"target": 5}}, "provenance/target"),
        ({"provenance": {"seed": 1.5}}, "provenance/seed"),
        ({"provenance": {"seed": True}}, "provenance/seed"),
        ({"provenance": {"more": {"a": 1}}}, "provenance/more"),
        ({"slug": "a-case\n"}, "slug"),
        ({"format": 1.0}, "format"),
        ({"format": True}, "format"),
        ({"contract_version": 1.0}, "contract_version"),
        ({"presentation": {"strided": False, "order": 2.0, "padding": 0, "repeat": False}}, "presentation/order"),
        ({"presentation": {"strided": False, "order": 1e300, "padding": 0, "repeat": False}}, "presentation/order"),
        ({"presentation": {"strided": False, "order": 2**63, "padding": 0, "repeat": False}}, "presentation/order"),
        ({"presentation": {"strided": False, "order": 0, "padding": 2.0, "repeat": False}}, "presentation/padding"),
        ({"reason": "a reason with \ud800 in it"}, "lone surrogate"),
        ({"links": ["\udcff"]}, "lone surrogate"),
        ({"provenance": {"\ud800": "x"}}, "lone surrogate"),
        ({"legal": {"checkpoint_step": float("nan")}}, "NaN"),
    ],
)
def test_a_file_that_says_what_it_may_not_is_refused(changes, words):
    with pytest.raises(CorpusError, match=words) as error:
        parse(text_of(**changes), "x.json")
    assert str(error.value).startswith("x.json: ")
    str(error.value).encode("utf-8")


@pytest.mark.parametrize("engine", ["sglang", "sglang==0.5.18", "sglang==0.5.24.post1", "sglang==0.6.0rc1+cu128"])
def test_a_released_engine_may_be_named(engine):
    assert parse(text_of(provenance={"engine": engine, "seed": 3, "device": "cpu"}), "x.json").provenance


@pytest.mark.parametrize("key", ["reason", "contract"])
def test_a_key_that_stands_twice_is_refused(key):
    raw = text_of().replace(b"{", f'{{"{key}": "another value of it", '.encode(), 1)
    with pytest.raises(CorpusError, match=f"x.json: .*{key}.* stands twice"):
        parse(raw, "x.json")


def test_deep_nesting_is_refused_where_it_is_free_form():
    deep: list = []
    for _ in range(200):
        deep = [deep]
    legal = json.loads(text_of())["legal"] | {"more": deep}
    with pytest.raises(CorpusError, match="nested deeper"):
        parse(text_of(legal=legal), "x.json")


def test_an_integer_outside_int64_names_its_field():
    case = json.loads(text_of())["case"]
    case["requests"][0]["pre"] = 2**63
    with pytest.raises(CorpusError, match=r"requests\[0\].pre: must be -2\^63 to 2\^63 - 1"):
        parse(text_of(case=case), "x.json")


def test_an_outcome_of_another_type_is_drift():
    """In Python 1 == 1.0 == True; in the file they are three outcomes."""
    case = made()
    assert not frozen.drifted(case)
    legal = case.legal | {"current_step": [float(s) for s in case.legal["current_step"]]}
    assert frozen.drifted(frozen.dataclasses.replace(case, legal=legal))


# Nothing is lost by a rewrite.


def test_fmt_that_cannot_write_loses_nothing(tmp_path, monkeypatch):
    path = corpus.write(made(), tmp_path)
    wrong = path.with_name("wrong-name.json")
    path.rename(wrong)
    before = contents(tmp_path)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CorpusError, match="No space left"):
        corpus.format_all(tmp_path)
    assert contents(tmp_path) == before


def test_fmt_renames_and_rewrites(tmp_path):
    path = corpus.write(made(), tmp_path)
    wrong = path.with_name("wrong-name.json")
    wrong.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    path.unlink()
    assert corpus.lint(tmp_path)
    assert corpus.format_all(tmp_path) == [path]
    assert not wrong.exists() and corpus.lint(tmp_path) == []
    assert corpus.format_all(tmp_path) == []


def test_fmt_does_not_write_over_another_file(tmp_path):
    path = corpus.write(made(), tmp_path)
    twin = path.with_name("wrong-name.json")
    twin.write_text(path.read_text().replace("a reason in words", "another reason"))
    before = contents(tmp_path)
    with pytest.raises(CorpusError) as error:
        corpus.format_all(tmp_path)
    assert path.name in str(error.value) and twin.name in str(error.value)
    assert contents(tmp_path) == before


def test_fmt_does_not_write_over_a_file_that_is_no_case(tmp_path):
    path = corpus.write(made(), tmp_path)
    wrong = path.with_name("0-wrong-name.json")
    path.rename(wrong)
    path.mkdir()
    before = contents(tmp_path)
    with pytest.raises(CorpusError):
        corpus.format_all(tmp_path)
    assert contents(tmp_path) == before


def test_fmt_of_one_file_is_refused(tmp_path):
    path = corpus.write(made(), tmp_path)
    before = contents(tmp_path)
    code, error = run("fmt", "--corpus", path)
    assert code and isinstance(error, CorpusError) and "not a folder" in str(error)
    assert contents(tmp_path) == before


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = corpus.write(made(), tmp_path)
    before = contents(tmp_path)
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(CorpusError, match=path.name):
        corpus.write(made(), tmp_path)
    monkeypatch.setattr(os, "fsync", real)
    assert contents(tmp_path) == before


def test_a_case_with_a_text_that_cannot_be_written_is_refused(tmp_path):
    case = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="from a worker: \udc80")
    with pytest.raises(CorpusError, match="no character"):
        corpus.write(case, tmp_path)
    assert contents(tmp_path) == {}


# Adding is all or nothing.


@pytest.fixture
def loose(tmp_path):
    """A case file outside the corpus, as a run leaves it."""
    return corpus.write(made(), tmp_path / "found")


def other(tmp_path) -> Path:
    case = frozen.dataclasses.replace(CONTRACT.example, grid=128)
    return corpus.write(corpus.make(CONTRACT.name, case, slug="other", reason="a reason in words"), tmp_path / "found")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slug", "../../x"), "slug"),
        (("--slug", ""), "slug"),
        (("--reason", "short"), "reason"),
        (("--reason", ""), "reason"),
        (("--reason", "a reason with \udcff"), "no character"),
    ],
)
def test_add_refuses_what_could_not_be_read_again(loose, tmp_path, arguments, words):
    code, error = run("add", loose, *arguments, "--corpus", tmp_path / "corpus" / "inner")
    assert code and isinstance(error, CorpusError) and words in str(error) and str(loose) in str(error)
    assert set(contents(tmp_path)) == {str(loose.relative_to(tmp_path))}


def test_add_refuses_the_same_file_twice(loose, tmp_path):
    code, error = run("add", loose, loose, "--corpus", tmp_path / "corpus")
    assert code and isinstance(error, CorpusError) and "twin" in str(error)
    assert not (tmp_path / "corpus").exists()


def test_add_writes_nothing_when_a_later_file_is_bad(loose, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    code, error = run("add", loose, bad, "--corpus", tmp_path / "corpus")
    assert code and isinstance(error, CorpusError) and "bad.json" in str(error)
    assert not (tmp_path / "corpus").exists()


def test_add_names_the_path_it_cannot_write(loose, tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / CONTRACT.name).write_text("in the way")
    code, error = run("add", loose, "--corpus", tmp_path / "corpus")
    assert code and isinstance(error, CorpusError) and str(tmp_path / "corpus" / made().name) in str(error)


def test_add_into_a_file_is_refused(loose, tmp_path):
    code, error = run("add", loose, "--corpus", loose)
    assert code and isinstance(error, CorpusError) and "not a folder" in str(error)


def test_add_takes_several_files_into_an_empty_folder(loose, tmp_path):
    (tmp_path / "corpus").mkdir()
    code, _ = run("add", loose, other(tmp_path), "--corpus", tmp_path / "corpus")
    assert code == 0 and len(corpus.files(tmp_path / "corpus")) == 2
    code, error = run("add", loose, "--corpus", tmp_path / "corpus")
    assert code and "twin" in str(error)


def test_fmt_moves_a_case_into_the_folder_of_its_contract(tmp_path):
    case = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="a reason in words")
    path = corpus.write(case, tmp_path)
    wrong = tmp_path / "verify.greedy_chain" / path.name
    wrong.parent.mkdir()
    path.rename(wrong)
    assert corpus.format_all(tmp_path) == [path]
    assert path.is_file() and not wrong.exists() and corpus.lint(tmp_path) == []
