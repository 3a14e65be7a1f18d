"""Frozen cases: the shipped corpus is sound, and a bad file is refused by name
with nothing executed from it."""

from __future__ import annotations

import json
import random
from functools import cache

import pytest

from fuzz import corpus
from fuzz.frozen import MAX_FILE_BYTES, CorpusError, parse, read, schema, to_text
from fuzz.mutants.mutant import mutants_of
from oracle import contracts
from oracle.commit.checkpoint_steps import CONTRACT

ALL = list(corpus.load())


def text_of(**changes) -> bytes:
    """A healthy file with some of its members replaced."""
    frozen = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="a reason in words")
    return json.dumps(json.loads(to_text(frozen)) | changes).encode()


def test_the_shipped_corpus_has_no_problem():
    assert corpus.lint() == []


def test_the_shipped_corpus_is_large_enough():
    assert len(ALL) >= 56


statistics = cache(corpus.statistics)  # of the whole corpus, once a process


@pytest.mark.parametrize("name", list(contracts.all_contracts()))
def test_every_behaviour_and_every_mutant_has_a_frozen_case(name):
    row = statistics()[name]
    assert row["behaviours_missing"] == []
    assert row["mutants_alive"] == []


def test_there_are_mutants_enough():
    assert sum(len(mutants_of(n)) for n in contracts.all_contracts()) >= 25


@pytest.mark.parametrize("name", list(contracts.all_contracts()))
def test_the_shipped_schemas_are_the_generated_ones(name):
    path = corpus.DEFAULT_CORPUS / "schema" / f"{name}.json"
    assert json.loads(path.read_text()) == schema(contracts.get(name))


def test_a_case_survives_the_round_trip(tmp_path):
    frozen = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="a reason in words")
    assert read(corpus.write(frozen, tmp_path)) == frozen


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "contract"),
        (b'{"contract": 5}', "contract"),
        (b'{"contract": "no.such"}', "no such contract"),
        (text_of(case={}), "case"),
        (text_of(format=99), "format"),
        (text_of(contract_version=99), "contract_version"),
        (text_of(slug="../../etc/passwd"), "slug"),
        (text_of(reason=""), "reason"),
        (text_of(extra=1), "extra"),
        (text_of(presentation={"strided": True}), "presentation"),
    ],
)
def test_a_bad_file_is_refused_and_named(raw, words, tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(raw)
    with pytest.raises(CorpusError, match=words) as error:
        read(path)
    assert str(path) in str(error.value)


def test_a_value_outside_the_domain_names_its_field():
    case = json.loads(text_of())["case"]
    case["requests"][0]["pre"] = -5
    with pytest.raises(CorpusError, match=r"requests\[0\].pre"):
        parse(text_of(case=case), "x.json")


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(CorpusError, match="larger than"):
        read(path)


def test_mutated_files_give_a_clear_error_or_a_case():
    """Bytes flipped, cut and doubled: CorpusError or a valid case, nothing else."""
    rng = random.Random(3)
    texts = [to_text(frozen).encode() for _, frozen in ALL]
    refused = 0
    for _ in range(2000):
        raw = bytearray(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            how, at = rng.randrange(3), rng.randrange(len(raw))
            if how == 0:
                raw[at] = rng.randrange(256)
            elif how == 1:
                del raw[at : at + rng.randint(1, 40)]
            else:
                raw[at:at] = raw[at : at + rng.randint(1, 40)]
        try:
            parse(bytes(raw), "mutated.json")
        except CorpusError as error:
            refused += 1
            assert str(error).startswith("mutated.json: ")
    assert refused > 1000


def test_lint_finds_each_kind_of_problem(tmp_path):
    frozen = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="a reason in words")
    path = corpus.write(frozen, tmp_path)
    assert corpus.lint(tmp_path) == []

    def problems_with(change) -> str:
        path.write_text(change(to_text(frozen)), encoding="utf-8")
        return " ".join(p.message for p in corpus.lint(tmp_path))

    assert "not canonical" in problems_with(lambda t: t.replace("  ", "   ", 1))
    assert "legal" in problems_with(lambda t: t.replace('"commits": true', '"commits": false'))
    assert "kills" in problems_with(lambda t: t.replace('"never_commits"', '"no_such_mutant"'))
    assert "name" in problems_with(lambda t: t.replace('"slug": "a-case"', '"slug": "b-case"'))
    path.write_text(to_text(frozen), encoding="utf-8")
    twin = tmp_path / CONTRACT.name / "other-0000000000.json"
    twin.write_text(to_text(frozen), encoding="utf-8")
    assert "twin" in " ".join(p.message for p in corpus.lint(tmp_path))


def test_an_empty_or_missing_corpus_is_an_error(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CorpusError):
            corpus.files(folder)
