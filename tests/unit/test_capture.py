"""Inputs dumped by a running engine become cases, and bad dumps are refused by name."""

import json
import random
import zipfile

import numpy as np
import pytest

from fuzz import capture, corpus
from fuzz.frozen import CorpusError
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from oracle import contracts
from oracle.contract import InvalidCase
from oracle.verify.greedy_chain import GreedyChainCase

GREEDY = {
    "vocabulary": 100,
    "requests": {
        "pre": np.array([10, 255], dtype=np.int32),
        "block": np.array([[5, 1, 2], [7, 8, 9]]),
        "predicted": np.array([[1, 2, 40], [8, 1, 1]]),
    },
}


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_a_dump_becomes_the_case(tmp_path, ending):
    name, case = capture.read(capture.dump(tmp_path / f"x.{ending}", "verify.greedy_chain", **GREEDY))
    assert name == "verify.greedy_chain" and isinstance(case, GreedyChainCase)
    assert case.vocabulary == 100 and [r.pre for r in case.requests] == [10, 255]
    assert case.requests[1].block == (7, 8, 9) and case.requests[0].predicted == (1, 2, 40)
    made = corpus.make(name, case, slug="captured", reason="captured from a run")
    assert made.kills and made.legal["accepted"] == [2, 1]


def test_every_contract_has_this_form(tmp_path):
    """Fields by name, records transposed: what ``dump`` takes gives the case back."""
    for name, contract in contracts.all_contracts().items():
        case = structure_of(name)(RandomSource(name))
        records = getattr(case, contract.records)
        fields = {f: getattr(case, f) for f in case.__dataclass_fields__ if f != contract.records}
        if records and all(not _nested(r) for r in records):
            fields[contract.records] = {f: [getattr(r, f) for r in records] for f in records[0].__dataclass_fields__}
            assert capture.read(capture.dump(tmp_path / "x.json", name, **fields)) == (name, case), name


def _nested(record):
    return any(hasattr(v, "__dataclass_fields__") or (isinstance(v, tuple) and v and not isinstance(v[0], int))
               for v in (getattr(record, f) for f in record.__dataclass_fields__))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"vocabulary": None}, InvalidCase, "vocabulary: expected integer"),
        ({"vocabulary": 1}, InvalidCase, "vocabulary: must be 2"),
        ({"requests": {**GREEDY["requests"], "pre": [1]}}, InvalidCase, "one entry a record"),
        ({"requests": {**GREEDY["requests"], "pre": 1}}, InvalidCase, "requests.pre: must hold one entry a record"),
        ({"requests": {"pre": [1], "block": [[1]]}}, InvalidCase, "predicted: missing"),
        ({"more": 1}, InvalidCase, "more: unknown field"),
    ],
)
def test_a_wrong_field_is_named(tmp_path, change, error, words):
    path = capture.dump(tmp_path / "x.json", "verify.greedy_chain", **{**GREEDY, **change})
    with pytest.raises(error, match=words):
        capture.read(path)


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"capture": 2, "fields": {}}', "[" * 100_000, "\x00"])
def test_a_file_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CorpusError, match="x.json"):
        capture.read(tmp_path / "x.json")


def test_an_unknown_contract_and_ending_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="contract: 'nothing'"):
        capture.read(capture.dump(tmp_path / "x.json", "nothing", a=1))
    with pytest.raises(ValueError, match=".json or .npz"):
        capture.dump(tmp_path / "x.pkl", "verify.greedy_chain", **GREEDY)


def test_pickled_arrays_are_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", capture=np.array(1), contract=np.array("verify.greedy_chain"),
             requests=np.array([{"a": 1}], dtype=object))  # fmt: skip
    with pytest.raises(CorpusError, match="no .npz of plain arrays"):
        capture.read(tmp_path / "x.npz")


def test_mutated_dumps_give_a_case_or_an_error(tmp_path):
    rng, path = random.Random(0), tmp_path / "x"
    for ending in ("json", "npz"):
        good = capture.dump(tmp_path / f"good.{ending}", "verify.greedy_chain", **GREEDY).read_bytes()
        file = path.with_suffix(f".{ending}")
        for _ in range(500):
            bad = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            file.write_bytes(bad[: rng.randint(0, len(bad))] if rng.random() < 0.3 else bad)
            try:
                capture.read(file)
            except (CorpusError, InvalidCase) as error:
                assert str(file) in str(error)


def test_json_holds_numbers_that_are_none(tmp_path):
    path = capture.dump(tmp_path / "x.json", "verify.greedy_chain", **{**GREEDY, "vocabulary": float("nan")})
    assert "NaN" in path.read_text() and json.loads(path.read_text())
    with pytest.raises(InvalidCase, match="vocabulary"):
        capture.read(path)


def test_small_files_that_ask_for_everything_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", capture=np.array(1), contract=np.array("verify.greedy_chain"))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, archive.open("grid.npy", "w") as file:
        header = {"descr": "<U0", "fortran_order": False, "shape": (300_000_000,)}  # elements without a byte
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(CorpusError, match="no .npz of plain arrays"):
        capture.read(tmp_path / "x.npz")
    many = {f"f{i}": np.zeros(20_000_000, dtype=np.int8) for i in range(4)}
    np.savez_compressed(tmp_path / "y.npz", capture=np.array(1), contract=np.array("verify.greedy_chain"), **many)
    with pytest.raises(CorpusError, match="unpacks to more than 64 MiB"):
        capture.read(tmp_path / "y.npz")


def test_a_name_nested_without_end_and_a_huge_number_are_named(tmp_path):
    path = tmp_path / "x.json"
    for fields, words in (
        ({"requests" + ".a" * 3000: [1]}, "nested deeper than 8"),
        ({"threshold_single": 10**400}, "too large"),
    ):
        path.write_text(json.dumps({"capture": 1, "contract": "verify.tree_sampling", "fields": fields}))
        with pytest.raises(InvalidCase, match=words):
            capture.read(path)
