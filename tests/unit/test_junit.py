"""JUnit from events: also of a run that was killed, also with hostile text."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from reports.events import read
from reports.junit import junit, write_junit

TARGET = "sglang/dflash/commit.checkpoint_steps/x"


def line(event: str, **values) -> str:
    return json.dumps({"schema": 1, "event": event, "time": 0.0, **values})


def end(case: int, verdict: str, **values) -> str:
    return line(
        "end", case=case, target=TARGET, contract="commit.checkpoint_steps", verdict=verdict, production_s=0.5, **values
    )


def run(tmp_path, *lines: str) -> ElementTree.Element:
    (tmp_path / "events.ndjson").write_text("\n".join(lines))
    return ElementTree.parse(write_junit(tmp_path)).getroot()


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


@pytest.mark.parametrize("text", ["", "[]\n{}\n", "nonsense\n{}\n", '{"schema": 99, "event": "x"}\n{}\n'])
def test_what_is_no_run_is_refused_by_name(tmp_path, text):
    if text:
        (tmp_path / "events.ndjson").write_text(text)
    with pytest.raises(ValueError, match=str(tmp_path)):
        read(tmp_path)


def test_an_empty_run_gives_an_empty_file():
    assert list(junit([])) == []
