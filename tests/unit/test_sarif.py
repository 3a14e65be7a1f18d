"""SARIF: valid against its schema, one result a divergence, the identity is the
fingerprint, and nothing that is listed or only suspected fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft4Validator

from reports import sarif
from reports.model import view
from tests import sample_run as sample

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
VALIDATOR = Draft4Validator(SCHEMA, format_checker=Draft4Validator.FORMAT_CHECKER)


def log(*folders: Path) -> dict:
    """The log of runs, as it stands in the file, valid."""
    plain = json.loads(sarif.to_bytes(view(folders)))
    problem = next(VALIDATOR.iter_errors(plain), None)
    assert problem is None, f"{list(problem.absolute_path)}: {problem.message[:300]}"
    return plain


def by_kind(run: dict) -> dict[str, dict]:
    return {r["properties"]["kind"]: r for r in run["results"]}


@pytest.fixture()
def run(tmp_path) -> dict:
    (made,) = log(sample.write(tmp_path / "run", sample.every_kind()))["runs"]
    return made


def test_a_rule_a_contract_and_a_result_a_divergence(run):
    assert [r["id"] for r in run["tool"]["driver"]["rules"]] == [sample.CONTRACT]
    kinds = sorted(by_kind(run))
    assert kinds == ["died:SIGSEGV", "diverging", "doubtful", "hang", "late", "missing", "spurious"]
    assert all(r["ruleId"] == sample.CONTRACT and r["ruleIndex"] == 0 for r in run["results"])
    assert sample.CLAIM in by_kind(run)["missing"]["message"]["text"]


def test_the_fingerprint_is_the_identity(run):
    expected = f"{sample.CONTRACT} | {sample.TARGET} | checkpoint_step | missing"
    assert by_kind(run)["missing"]["partialFingerprints"] == {sarif.FINGERPRINT: expected}


def test_the_fingerprint_stays_over_releases_and_runs(tmp_path):
    folders = [
        sample.write(tmp_path / v, [sample.started(version=v, seed=i), sample.red(i + 1)])
        for i, v in enumerate(("0.5.16", "0.5.18"))
    ]
    prints = [r["partialFingerprints"] for run in log(*folders)["runs"] for r in run["results"]]
    assert len(prints) == 2 and prints[0] == prints[1]


@pytest.mark.parametrize(
    ("kind", "level", "of"),
    [("missing", "error", "fail"), ("hang", "error", "fail"), ("late", "warning", "fail"), ("spurious", "note", "fail"),
     ("doubtful", "none", "review")],
)  # fmt: skip
def test_what_is_believed_is_an_error_and_what_is_doubted_is_not(run, kind, level, of):
    result = by_kind(run)[kind]
    assert (result["level"], result["kind"]) == (level, of)
    assert ("suppressions" in result) == (kind == "spurious")


def test_the_location_is_the_adapter_s_symbol_and_its_place(run):
    (location,) = by_kind(run)["missing"]["locations"]
    assert location["logicalLocations"] == [
        {"name": "_update", "fullyQualifiedName": sample.TARGET, "kind": "function"}
    ]
    path, _, line = sample.PLACE.partition(":")
    artifact = {"uri": path, "uriBaseId": "ENGINE"}
    assert location["physicalLocation"] == {"artifactLocation": artifact, "region": {"startLine": int(line)}}


@pytest.mark.parametrize(
    ("place", "uri"),
    [("/x y/a.py:3", "file:///x%20y/a.py"), ("a b/ü.py:3", "a%20b/%C3%BC.py"), ("../a.py:3", None), ("a.py:0", None),
     ("a.py", None), (["a.py:1"], None), (5, None), ("javascript:alert:1", None), ("", None)],
)  # fmt: skip
def test_a_place_is_a_file_and_a_line_or_nothing(tmp_path, place, uri):
    out = sample.write(tmp_path / "run", [sample.started(places={sample.TARGET: place}), sample.red(1)])
    location = log(out)["runs"][0]["results"][0]["locations"][0]
    assert location.get("physicalLocation", {}).get("artifactLocation", {}).get("uri") == uri


def test_a_fault_of_the_harness_is_no_result(run):
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"] and invocation["exitCode"] == 1
    said = [n["message"]["text"] for n in invocation["toolExecutionNotifications"]]
    assert len(said) == 1 and "HARNESS_ERROR: KeyError" in said[0]


def test_a_killed_run_says_so(tmp_path):
    out = sample.write(tmp_path / "run", [sample.started(), sample.red(1)])
    (invocation,) = log(out)["runs"][0]["invocations"]
    assert "killed" in invocation["toolExecutionNotifications"][0]["message"]["text"]


def test_an_agreeing_run_has_no_result(tmp_path):
    finished = {"event": "run_finished", "exit": 0, "stopped": None}
    out = sample.write(tmp_path / "run", [sample.started(), sample.start(1), sample.end(1, "AGREE"), finished])
    (run,) = log(out)["runs"]
    assert run["results"] == [] and run["invocations"] == [{"executionSuccessful": True, "exitCode": 0}]


def test_one_sarif_run_an_engine_and_device(tmp_path):
    several = sample.write(tmp_path / "a", sample.several_engines())
    same = sample.write(tmp_path / "b", [sample.started(command="fuzz"), sample.red(1), sample.red(2, "spurious")])
    gpu = sample.write(tmp_path / "c", [sample.started(device="cuda:0"), sample.red(1)])
    runs = log(several, same, gpu)["runs"]
    assert [r["automationDetails"]["id"] for r in runs] == [
        "specoracle/fuzz+gate/sglang==0.5.18/cpu/", "specoracle/gate/sglang==0.5.20/cpu/",
        "specoracle/gate/sglang==0.5.18/cuda:0/",
    ]  # fmt: skip
    assert [len(r["results"]) for r in runs] == [2, 0, 1]
    assert by_kind(runs[0])["missing"]["properties"]["cases"] == 2


def test_a_comparison_of_two_is_an_analysis_of_its_own(tmp_path):
    out = sample.write(tmp_path / "a", [sample.started(command="fuzz", against="sglang==0.5.16"), sample.red(1)])
    (run,) = log(out)["runs"]
    assert run["automationDetails"]["id"] == "specoracle/against/sglang==0.5.18/cpu/"
    assert run["properties"]["runs"][0]["against"] == "sglang==0.5.16"


@pytest.mark.parametrize("text", sample.HOSTILE)
def test_hostile_text_stays_text(tmp_path, text):
    event = sample.red(1, text, evidence={"claim": text}) | {"contract": text or "c"}
    out = sample.write(tmp_path / "run", [sample.started(engine=text, command=text), event])
    raw = sarif.to_bytes(view([out]))
    assert all(c == 10 or c >= 32 for c in raw) and len(raw) < 50_000
    log(out)
