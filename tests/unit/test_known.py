"""The known list names identities one by one, and says where it is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    assert entry.covers(identity, "0.5.23") and entry.covers(identity, "0.5.24")
    assert not entry.covers(identity, "0.5.22")
    assert not entry.covers(identity, "checkout")
    assert not entry.covers(replace(identity, kind="spurious"), "0.5.23")


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
