"""JUnit from events: also of a run that was killed, also with hostile text."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema

from fuzz.verdict import RED, Kind
from reports.events import FAILURES, VERDICTS, read
from reports.junit import junit, write_junit

SCHEMA = xmlschema.XMLSchema(Path(__file__).parents[1] / "data" / "junit-10.xsd")
TARGET = "sglang/dflash/commit.checkpoint_steps/x"


def line(event: str, **values) -> str:
    return json.dumps({"schema": 1, "event": event, "time": 0.0, **values})


def end(case: int, verdict: str, **values) -> str:
    return line(
        "end", case=case, target=TARGET, contract="commit.checkpoint_steps", verdict=verdict, production_s=0.5, **values
    )


def run(tmp_path, *lines: str) -> ElementTree.Element:
    """The file of a run; one that no ``run_started`` begins gets one."""
    if "run_started" not in lines[0]:
        lines = (line("run_started", engine="sglang"), *lines)
    (tmp_path / "events.ndjson").write_text("\n".join(lines))
    root = ElementTree.parse(write_junit(tmp_path)).getroot()
    SCHEMA.validate(root)
    return root


def test_an_agreeing_target_passes(tmp_path):
    root = run(
        tmp_path,
        line("run_started", engine="sglang", seed=3),
        line("start", case=1, target=TARGET),
        end(1, "AGREE", behaviours=["a"]),
    )
    suite = root.find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    properties = {p.get("name"): p.get("value") for p in root.iter("property")}
    assert properties["seed"] == "3" and properties["behaviours"] == "a"


def test_a_divergence_fails_and_names_its_identity(tmp_path):
    identity = {"field": "checkpoint_step", "kind": "missing"}
    root = run(
        tmp_path,
        line("start", case=1, target=TARGET),
        end(1, "DIVERGE", identity=identity, evidence={"expected": 0, "observed": -1}),
    )
    failure = next(root.iter("failure"))
    assert failure.get("message") == "checkpoint_step missing" and "'observed': -1" in failure.text


def test_a_case_in_flight_when_the_run_was_killed_is_an_error(tmp_path):
    root = run(
        tmp_path,
        line("start", case=1, target=TARGET),
        end(1, "AGREE"),
        line("start", case=2, target=TARGET),
        '{"schema": 1, "ev',
    )
    assert root.find("testsuite").get("errors") == "1"
    assert "case 2 UNFINISHED" in next(root.iter("error")).text


def test_a_target_that_ran_nothing_is_skipped_with_the_reason(tmp_path):
    root = run(
        tmp_path, line("start", case=1, target=TARGET), end(1, "UNSUPPORTED", evidence={"reason": "no such symbol"})
    )
    assert next(root.iter("skipped")).get("message") == "no such symbol"


def test_control_characters_do_not_break_the_file(tmp_path):
    root = run(
        tmp_path,
        line("start", case=1, target=TARGET),
        end(1, "CRASH", identity={"field": "a", "kind": "b"}, evidence={"message": "\x00\x1b]<x>&"}),
    )
    assert "\\x00" in next(root.iter("failure")).text or "\ufffd" in next(root.iter("failure")).text


STARTED = line("run_started", engine="sglang") + "\n"


@pytest.mark.parametrize(
    "text",
    [
        None, "", "\n", "[]\n{}\n", "nonsense\n{}\n", '{"schema": 99, "event": "x"}\n{}\n',
        line("start", case=1, target=TARGET) + "\n", '{"schema": 1, "ev', STARTED + "nonsense\n",
        STARTED + line("start", case=1, target=TARGET) + "\n\n",
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused_by_name(tmp_path, text):
    if text is not None:
        (tmp_path / "events.ndjson").write_text(text)
    with pytest.raises(ValueError, match=str(tmp_path)):
        read(tmp_path)


BAD_END = {"case": 2, "target": TARGET, "contract": "c", "verdict": "AGREE"}
IDENTITY = {"contract": "c", "target": TARGET, "field": "f", "kind": "k"}
AGAIN = {"target": TARGET, "contract": "c", "verdict": "FLAKY", "identity": IDENTITY}
STALE = {"identity": IDENTITY, "why": "silent", "strict": False}
SWEPT = {"case": 2, "target": TARGET, "rows": 3, "crossing": 1, "diverging": 0}


def without(event: dict, member: str) -> dict:
    return {k: v for k, v in event.items() if k != member}


def deep(levels: int):
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("event", "values", "words"),
    [
        ("end", without(BAD_END, "target"), "end without target"),
        ("end", without(BAD_END, "contract"), "end without contract"),
        ("end", without(BAD_END, "verdict"), "end without verdict"),
        ("end", BAD_END | {"target": 5}, "target"),
        ("end", BAD_END | {"case": [1]}, "case"),
        ("end", BAD_END | {"case": True}, "case"),
        ("end", BAD_END | {"verdict": "FINE"}, "verdict"),
        ("end", BAD_END | {"verdict": ["AGREE"]}, "verdict"),
        ("end", BAD_END | {"evidence": "text"}, "evidence"),
        ("end", BAD_END | {"evidence": {"claim": deep(100)}}, "nested deeper"),
        ("end", BAD_END | {"behaviours": "a"}, "behaviours"),
        ("end", BAD_END | {"behaviours": [1]}, "behaviours"),
        ("end", BAD_END | {"production_s": "1"}, "production_s"),
        ("end", BAD_END | {"production_s": float("nan")}, "production_s"),
        ("end", BAD_END | {"production_s": 10**400}, "production_s"),
        ("end", BAD_END | {"known": 1}, "known"),
        ("end", BAD_END | {"identity": []}, "identity"),
        ("end", BAD_END | {"identity": {"field": "f"}}, "identity"),
        ("end", BAD_END | {"verdict": "DIVERGE"}, "without identity"),
        ("end", BAD_END | {"flags": 5}, "flags"),
        ("end", BAD_END | {"flags": "near_tie"}, "flags"),
        ("found", without(AGAIN, "identity"), "found without identity"),
        ("found", AGAIN | {"frozen": 5}, "frozen"),
        ("stale", without(STALE, "why"), "stale without why"),
        ("stale", STALE | {"why": "old"}, "why"),
        ("stale", STALE | {"why": []}, "why"),
        ("stale", STALE | {"strict": 1}, "strict"),
        ("stale", STALE | {"identity": {}}, "identity"),
        ("start", {"target": TARGET}, "start without case"),
        ("start", {"case": {}, "target": TARGET}, "case"),
        ("start", {"case": 2, "target": None}, "target"),
        ("start", {"case": 2, "target": TARGET, "evidence": "x"}, "evidence"),
        ("swept", without(SWEPT, "rows"), "swept without rows"),
        ("swept", SWEPT | {"diverging": "0"}, "diverging"),
        ("swept", SWEPT | {"failure": 5}, "failure"),
        ("verdict", without(AGAIN, "identity"), "verdict without identity"),
        ("verdict", AGAIN | {"verdict": "AGREE"}, "verdict"),
        ("verdict", AGAIN | {"evidence": []}, "evidence"),
    ],
)
def test_a_malformed_event_names_file_and_line(tmp_path, event, values, words):
    lines = (line("run_started"), line("start", case=1, target=TARGET), line(event, **values))
    with pytest.raises(ValueError, match=f"events.ndjson: line 3.*{words}"):
        run(tmp_path, *lines)


def test_every_verdict_of_the_runs_is_known_to_the_reader():
    assert set(Kind) == VERDICTS and set(RED) == FAILURES


DIVERGE = {"identity": {"field": "checkpoint_step", "kind": "missing"}, "evidence": {"claim": "it is missing"}}


def properties(root: ElementTree.Element) -> dict[str, str]:
    return dict(line.split("=", 1) for line in root.find("testsuite/testcase/system-out").text.splitlines())


def counts(root: ElementTree.Element) -> tuple[str, ...]:
    return tuple(root.find("testsuite").get(n) for n in ("tests", "failures", "errors", "skipped"))


def test_a_known_divergence_passes_and_is_counted(tmp_path):
    root = run(tmp_path, end(1, "DIVERGE", known=True, **DIVERGE), end(2, "DIVERGE", known=True, **DIVERGE))
    assert counts(root) == ("1", "0", "0", "0") and properties(root)["known"] == "2"


def test_a_known_divergence_hides_no_other(tmp_path):
    other = {"identity": {"field": "checkpoint_step", "kind": "spurious"}}
    root = run(tmp_path, end(1, "DIVERGE", known=True, **DIVERGE), end(2, "DIVERGE", known=False, **other))
    assert counts(root) == ("1", "1", "0", "0") and properties(root)["known"] == "1"
    failure = next(root.iter("failure"))
    assert failure.get("message") == "checkpoint_step spurious" and "missing" not in failure.text


def test_known_excuses_no_fault_of_the_harness(tmp_path):
    assert counts(run(tmp_path, end(1, "HARNESS_ERROR", known=True))) == ("1", "0", "1", "0")


def again(verdict: str, **evidence) -> str:
    identity = {"contract": "commit.checkpoint_steps", "target": TARGET} | DIVERGE["identity"]
    return line(
        "verdict", target=TARGET, contract="commit.checkpoint_steps", verdict=verdict, identity=identity,
        evidence=evidence,
    )  # fmt: skip


def test_a_suspect_oracle_is_an_error_and_no_failure(tmp_path):
    lines = (end(1, "DIVERGE", **DIVERGE), end(2, "DIVERGE", **DIVERGE), again("ORACLE_SUSPECT", reason="no sibling"))
    root = run(tmp_path, *lines)
    assert counts(root) == ("1", "0", "1", "0")
    error = next(root.iter("error"))
    assert error.get("type") == "ORACLE_SUSPECT" and error.text.count("no sibling") == 2


def test_a_flaky_one_fails_as_flaky_with_its_rate(tmp_path):
    root = run(tmp_path, end(1, "DIVERGE", **DIVERGE), again("FLAKY", rate="1 of 3 fresh processes"))
    failure = next(root.iter("failure"))
    assert failure.get("type") == "FLAKY" and "1 of 3" in failure.text and "it is missing" in failure.text


def test_a_later_verdict_is_of_its_own_identity_only(tmp_path):
    other = {"identity": {"field": "checkpoint_step", "kind": "spurious"}}
    root = run(tmp_path, end(1, "DIVERGE", **other), end(2, "AGREE"), again("ORACLE_SUSPECT"))
    assert counts(root) == ("1", "1", "0", "0") and next(root.iter("failure")).get("type") == "DIVERGE"


def swept(**values) -> str:
    return line("swept", **{"case": 1, "target": TARGET, "rows": 9, "crossing": 4, "diverging": 0} | values)


@pytest.mark.parametrize(
    ("values", "expected", "words"),
    [
        ({}, ("1", "0", "0", "0"), None),
        ({"failure": None, "first": None}, ("1", "0", "0", "0"), None),
        ({"diverging": 2, "first": {"field": "checkpoint_step"}}, ("1", "1", "0", "0"), "2 of 9 rows"),
        ({"diverging": 2, "failure": "died"}, ("1", "1", "0", "0"), "2 of 9 rows"),
        ({"failure": "died"}, ("1", "0", "1", "0"), "stopped after 9 rows"),
        ({"failure": "died", "verdict": "CRASH"}, ("1", "1", "0", "0"), "stopped after 9 rows"),
        ({"failure": "outside the target's domain: x", "rows": 0}, ("1", "0", "0", "1"), "outside"),
        ({"rows": 0}, ("1", "0", "0", "1"), "no row"),
    ],
)
def test_a_swept_target_is_a_test(tmp_path, values, expected, words):
    root = run(tmp_path, line("start", case=1, target=TARGET, sweep=True), swept(**values))
    assert counts(root) == expected
    assert root.find("testsuite").get("name") == "commit.checkpoint_steps"
    assert {k: properties(root)[k] for k in ("rows", "crossing", "diverging")} == {
        "rows": str(values.get("rows", 9)), "crossing": "4", "diverging": str(values.get("diverging", 0)),
    }  # fmt: skip
    if words:
        found = [e for e in root.find("testsuite/testcase") if e.tag != "system-out"]
        assert words in found[0].get("message")


def test_a_sweep_that_was_killed_is_an_error(tmp_path):
    root = run(tmp_path, line("start", case=1, target=TARGET, sweep=True))
    assert counts(root) == ("1", "0", "1", "0")


def test_an_empty_run_gives_an_empty_file():
    assert list(junit([])) == []


def test_a_target_that_had_no_turn_is_skipped_and_says_so(tmp_path):
    said = {"contract": "commit.lengths", "executed": 0}
    root = run(
        tmp_path,
        end(1, "AGREE"),
        line("target", target=TARGET, contract="commit.checkpoint_steps", reason=None),
        line("target", target="a/b/commit.lengths/late", reason=None, **said),
        line("target", target="a/b/commit.lengths/odd", reason="no such symbol", **said),
    )
    suites = {s.get("name"): (s.get("tests"), s.get("skipped")) for s in root.findall("testsuite")}
    assert suites == {"commit.checkpoint_steps": ("1", "0"), "commit.lengths": ("2", "2")}
    messages = [e.get("message") for e in root.iter("skipped")]
    assert messages == ["not reached: the run ended before its turn", "no such symbol"]


def test_of_a_start_no_more_is_taken_than_case_and_target(tmp_path):
    odd = {"production_s": "x", "behaviours": 5, "identity": "x", "evidence": {"claim": "mine"}, "known": "x"}
    root = run(tmp_path, line("start", case=1, target=TARGET, **odd))
    assert counts(root) == ("1", "0", "1", "0") and next(root.iter("error")).get("message") == "1 case"
    assert "mine" not in next(root.iter("error")).text
