"""The known list names identities one by one, and says where it is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import pytest

from fuzz import support
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.frozen import CorpusError
from fuzz.known import load
from fuzz.verdict import Identity

ENTRY = {
    "contract": "commit.checkpoint_steps",
    "target": "sglang/dflash/commit.checkpoint_steps/x",
    "field": "checkpoint_step",
    "kind": "missing",
    "versions": ">=0.5.23",
    "line": "dflash.py:12",
    "reachable": "no: hostile input only",
    "reason": "a reason",
    "link": "none yet",
}


def write(tmp_path, entries):
    folder = tmp_path / "known"
    folder.mkdir(exist_ok=True)
    text = "".join("[[known]]\n" + "".join(f'{k} = "{v}"\n' for k, v in e.items()) for e in entries)
    (folder / "sglang.toml").write_text(text)
    return tmp_path


def test_an_entry_covers_exactly_its_identity_in_its_versions(tmp_path):
    (entry,) = load(write(tmp_path, [ENTRY]), "sglang")
    identity = Identity("commit.checkpoint_steps", ENTRY["target"], "checkpoint_step", "missing")
    assert entry.covers(identity, "0.5.23", "cpu") and entry.covers(identity, "0.5.24", "cuda:0")
    assert not entry.covers(identity, "0.5.22", "cpu")
    assert not entry.covers(identity, "checkout", "cpu")
    assert not entry.covers(replace(identity, kind="spurious"), "0.5.23", "cpu")


def test_no_file_means_nothing_is_known(tmp_path):
    assert load(tmp_path, "sglang") == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"line": None}, "line"),
        ({"target": "sglang/*"}, "no patterns"),
        ({"versions": "new ones"}, "versions"),
        ({"expires": "never"}, "expires"),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path, change, words):
    entry = {k: v for k, v in (ENTRY | change).items() if v is not None}
    with pytest.raises(CorpusError, match=words):
        load(write(tmp_path, [entry]), "sglang")


def test_broken_toml_names_the_file(tmp_path):
    write(tmp_path, [])
    (tmp_path / "known" / "sglang.toml").write_text("[[known")
    with pytest.raises(CorpusError, match="sglang.toml"):
        load(tmp_path, "sglang")


def test_the_shipped_list_is_readable():
    from fuzz.corpus import DEFAULT_CORPUS

    assert isinstance(load(DEFAULT_CORPUS, "sglang"), list)


def raw(tmp_path, text):
    (tmp_path / "known").mkdir(exist_ok=True)
    (tmp_path / "known" / "sglang.toml").write_text(text)
    return tmp_path


TABLE = "".join(f'{k} = "{v}"\n' for k, v in ENTRY.items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("known = 5", "known: holds"),
        ('known = ["x"]', "entry 1: must be a"),
        ("known = [[1]]", "entry 1: must be a"),
        ("[known]\n" + TABLE, "known: holds"),
        ("[[knwon]]\n" + TABLE, "known: holds"),
        ("[[known]]\n" + TABLE.replace('"missing"', "5"), "entry 1: kind"),
        ("[[known]]\n" + TABLE + 'device = ["cpu"]', "entry 1: device"),
        ("[[known]]\n" + TABLE + 'expires = "2027-01-31"', "entry 1: expires"),
        ("[[known]]\n" + TABLE + "expires = 2027-01-31T10:00:00", "entry 1: expires"),
        ("[[known]]\n" + TABLE + "on = 20270131", "entry 1: on"),
        ("[[known]]\n" + TABLE + "by = 5", "entry 1: by"),
        ("[[known]]\n" + TABLE + 'state = "closed"', "entry 1: state"),
        ("[[known]]\n" + TABLE + "state = []", "entry 1: state"),
        ("[[known]]\n" + TABLE + 'notes = "x"', "entry 1: notes"),
        ("[[known]]\n" + TABLE + "notes = [1]", "entry 1: notes"),
        ("[[known]]\n" + TABLE + "nots = []", "entry 1: 'nots'"),
        ("known = " + "[" * 5000, "not TOML"),
    ],
)
def test_a_list_of_another_shape_is_refused_and_named(tmp_path, text, words):
    with pytest.raises(CorpusError, match=f"sglang.toml: {words}"):
        load(raw(tmp_path, text), "sglang")


def test_an_entry_of_one_device_says_nothing_of_others(tmp_path):
    (entry,) = load(write(tmp_path, [ENTRY | {"device": "cuda"}]), "sglang")
    assert entry.covers(entry.identity, "0.5.23", "cuda:1") and not entry.covers(entry.identity, "0.5.23", "cpu")


def test_an_entry_expires_the_day_after_its_last(tmp_path):
    text = "[[known]]\n" + TABLE + 'by = "Ada"\non = 2026-11-29\nexpires = 2027-01-31\nnotes = ["a", "b"]\n'
    (entry,) = load(raw(tmp_path, text), "sglang")
    assert (entry.by, entry.on, entry.notes) == ("Ada", date(2026, 11, 29), ("a", "b"))
    assert not entry.expired(date(2027, 1, 31)) and entry.expired(date(2027, 2, 1))
    assert entry.covers(entry.identity, "0.5.23", "cpu"), "only --strict minds"


def test_a_reopened_entry_covers_nothing(tmp_path):
    (entry,) = load(raw(tmp_path, "[[known]]\n" + TABLE + 'state = "reopened"'), "sglang")
    assert not entry.covers(entry.identity, "0.5.23", "cpu")


def test_a_list_that_is_no_file_is_refused(tmp_path):
    (tmp_path / "known" / "sglang.toml").mkdir(parents=True)
    with pytest.raises(CorpusError, match="not a regular file"):
        load(tmp_path, "sglang")


def test_a_corpus_that_is_no_folder_lists_nothing_and_says_so(tmp_path):
    (tmp_path / "case.json").write_text("{}")
    for corpus in (tmp_path / "nowhere", tmp_path / "case.json"):
        with pytest.raises(CorpusError, match=corpus.name):
            load(corpus, "sglang")
        with pytest.raises(CorpusError, match=corpus.name):
            support.expected(corpus, "sglang", "0.5.23", "cpu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"sglang==0.5.23" = 5', "sglang==0.5.23"),
        ('"sglang==0.5.23" = ["a"]', "sglang==0.5.23"),
        ('["sglang==0.5.23"]\ncpu = "a"', "cpu"),
        ('["sglang==0.5.23"]\ncpu = ["a", 5]', "cpu"),
        ('["sglang==0.5.10"]\ncuda = {a = 1}', "sglang==0.5.10.*cuda"),
        ("[[", "not TOML"),
    ],
)
def test_a_support_table_of_another_shape_is_refused_and_named(tmp_path, text, words):
    (tmp_path / "support.toml").write_text(text)
    with pytest.raises(CorpusError, match=f"support.toml: .*{words}"):
        support.expected(tmp_path, "sglang", "0.5.23", "cpu")


def test_the_support_table_is_read_as_it_was_written(tmp_path):
    found = [support.Support(t, "c", t != "b", "") for t in ("b", "a", "c")]
    support.write(tmp_path, "sglang", "0.5.23", "cuda:0", found)
    assert support.expected(tmp_path, "sglang", "0.5.23", "cuda:1") == ["a", "c"]
    assert support.expected(tmp_path, "sglang", "0.5.23", "cpu") == []


@pytest.mark.parametrize("engine", ["fla", "flashinfer", "sglang", "vllm"])
def test_every_shipped_entry_names_its_production_line_and_stands_alone(engine):
    for entry in load(DEFAULT_CORPUS, engine):
        assert re.search(r"\.(py|cuh|cu|h):\d+", entry.line), entry.identity
        assert "as the entry" not in entry.reachable + entry.reason, entry.identity
