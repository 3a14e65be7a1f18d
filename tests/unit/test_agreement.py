"""Several engines at once: who agrees, and when the reference stands alone."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fuzz import agreement, corpus
from fuzz.agreement import Answer, alone, cell
from fuzz.cli import cli
from fuzz.verdict import Identity, Kind, Verdict, worst_exit
from oracle.commit.checkpoint_steps import CONTRACT, Request
from reports.events import parts, read
from reports.junit import junit
from tests import fake_releases

CONTRACT_NAME = "commit.checkpoint_steps"
CASE = f"{CONTRACT_NAME}/a-0123456789"


def answer(engine: str, kind: Kind = Kind.AGREE, version: str = "1", **changes) -> Answer:
    """An answer of one target; a DIVERGE observes ``[-1]`` for ``checkpoint_step``."""
    target = f"{engine}/m/{CONTRACT_NAME}/s"
    identity, evidence = None, {}
    if kind in (Kind.DIVERGE, Kind.CRASH):
        identity = Identity(
            CONTRACT_NAME, target, changes.pop("field", "checkpoint_step"), changes.pop("how", "missing")
        )
        seen = changes.pop("seen", [-1])
        evidence = {"where": [0], "observed": seen[0], "all_observed": {identity.field: seen}}
    verdict = Verdict(kind, target, CONTRACT_NAME, identity, evidence)
    made = Answer(engine, version, CASE, verdict, ("current_step", "checkpoint_step"), False, 1)
    return replace(made, **changes)


DIFFERS = Kind.DIVERGE


@pytest.mark.parametrize(
    ("answers", "suspected"),
    [
        ([answer("a", DIFFERS), answer("b", DIFFERS)], 2),
        ([answer("a", DIFFERS), answer("a", DIFFERS, "2"), answer("b", DIFFERS)], 3),
        # one engine alone, in however many releases, is an engine with a fault
        ([answer("a", DIFFERS)], 0),
        ([answer("a", DIFFERS), answer("a", DIFFERS, "2")], 0),
        # somebody agrees with the reference
        ([answer("a", DIFFERS), answer("b")], 0),
        ([answer("a", DIFFERS), answer("b", DIFFERS), answer("b", version="2")], 0),
        # they contradict each other as well
        ([answer("a", DIFFERS), answer("b", DIFFERS, seen=[7])], 0),
        ([answer("a", DIFFERS), answer("b", DIFFERS, field="current_step")], 0),
        ([answer("a", DIFFERS), answer("b", Kind.CRASH, field="call")], 0),
        ([answer("a", DIFFERS), answer("b", Kind.CRASH)], 0),
        # who was not asked has no voice, for or against
        ([answer("a", DIFFERS), answer("b", Kind.UNSUPPORTED)], 0),
        ([answer("a", DIFFERS), answer("b", DIFFERS), answer("c", Kind.UNSUPPORTED)], 2),
        ([answer("a", DIFFERS), answer("b", DIFFERS), answer("c", observes=("current_step",))], 2),
        ([answer("a", DIFFERS), answer("b", DIFFERS), answer("c", Kind.OUT_OF_MEMORY)], 2),
        # a person has decided in the reference's favour
        ([answer("a", DIFFERS, listed=True), answer("b", DIFFERS)], 0),
    ],
)
def test_the_reference_is_doubted_only_when_it_stands_alone(answers, suspected):
    assert len(alone(answers)) == suspected


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([answer("a", Kind.UNSUPPORTED)], "UNSUPPORTED"),
        ([answer("a"), answer("a", Kind.UNSUPPORTED)], "AGREE"),
        ([answer("a"), answer("a", DIFFERS)], "DIVERGE 1 of 2"),
        ([answer("a"), answer("a", DIFFERS, listed=True)], "known 1 of 2"),
        ([answer("a", DIFFERS, listed=True), answer("a", DIFFERS)], "DIVERGE 1 of 2"),
        ([answer("a", Kind.HARNESS_ERROR), answer("a", Kind.CRASH)], "HARNESS_ERROR 1 of 2"),
    ],
)
def test_a_cell_names_the_worst_verdict_and_how_many_have_it(answers, text):
    assert cell(answers) == text


def test_the_table_has_a_row_for_every_case_and_a_column_for_every_engine():
    other = f"{CONTRACT_NAME}/b-0123456789"
    rows = agreement.table([answer("a"), answer("b", DIFFERS)], [CASE, other], ["a==1", "b==1"])
    assert rows[CASE] == {"a==1": "AGREE", "b==1": "DIVERGE"}
    assert rows[other] == {"a==1": "no target", "b==1": "no target"}
    assert agreement.csv_text(rows).splitlines() == [
        "contract,case,a==1,b==1",
        f"{CONTRACT_NAME},a-0123456789,AGREE,DIVERGE",
        f"{CONTRACT_NAME},b-0123456789,no target,no target",
    ]
    lines = agreement.short(rows)
    assert lines[1].split() == [CONTRACT_NAME, "1", "AGREE,", "1", "no", "target", "1", "DIVERGE,", "1", "no", "target"]
    assert f"engines differ on {CASE}: a==1 AGREE, b==1 DIVERGE" in lines


@pytest.mark.parametrize(("codes", "code"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 4], 4), ([2, 3], 2), ([], 3)])
def test_the_exit_code_over_all_is_the_worst(codes, code):
    assert worst_exit(codes) == code


@pytest.fixture
def gate(monkeypatch, tmp_path):
    """Run ``gate`` over engines on two cases: one on grid 256, one on grid 64."""
    fake_releases.put_in_place(monkeypatch.setattr)
    for slug, grid in (("on-256", 256), ("on-64", 64)):
        case = replace(CONTRACT.example, grid=grid, requests=(Request(grid - 1, 1, 0),))
        corpus.write(corpus.make(CONTRACT_NAME, case, slug=slug, reason="a boundary is crossed"), tmp_path / "corpus")

    def run(*engines: str):
        named = [word for engine in engines for word in ("--engine", engine)]
        out = tmp_path / "-".join(engines)
        arguments = ["gate", *named, "--target", "*/commit", "--corpus", str(tmp_path / "corpus"), "--out", str(out)]
        return CliRunner().invoke(cli, arguments, catch_exceptions=False), out

    return run


def table_of(out):
    with (out / agreement_file()).open() as lines:
        return {row["case"].rpartition("-")[0]: row for row in csv.DictReader(lines)}


def agreement_file():
    from fuzz.commands.gate import TABLE

    return TABLE


def test_engines_that_differ_from_each_other_leave_the_reference_in_peace(gate):
    done, out = gate("history==1.4", "other==2.0")
    assert done.exit_code == 1, done.output
    rows = table_of(out)
    assert (rows["on-256"]["history==1.4"], rows["on-256"]["other==2.0"]) == ("DIVERGE", "AGREE")
    assert (rows["on-64"]["history==1.4"], rows["on-64"]["other==2.0"]) == ("AGREE", "AGREE")
    assert "ORACLE_SUSPECT" not in done.output


def test_engines_that_contradict_the_reference_alike_make_it_the_suspect(gate):
    done, out = gate("history==1.4", "other==2.1")
    assert done.exit_code == 3, done.output
    rows = table_of(out)
    assert set(rows["on-256"].values()) >= {"ORACLE_SUSPECT"} and "DIVERGE" not in rows["on-256"].values()
    assert "every engine that was asked contradicts the reference" in done.output
    last = json.loads((out / "events.ndjson").read_text().splitlines()[-1])
    assert last["event"] == "run_finished" and last["exit"] == 3


def test_releases_of_one_engine_are_one_voice(gate):
    done, _ = gate("history==1.4", "history==1.3")
    assert done.exit_code == 1, done.output


def test_one_engine_keeps_its_stream_and_gets_the_table(gate):
    done, out = gate("history==1.0")
    assert done.exit_code == 0, done.output
    events = read(out)
    assert (events[0]["engine"], events[0]["version"]) == ("history", "1.0") and "engines" not in events[0]
    assert parts(events) == [events]
    assert table_of(out)["on-256"]["history==1.0"] == "AGREE"


def test_the_stream_of_several_engines_splits_into_one_run_each(gate):
    _, out = gate("history==1.4", "other==2.1")
    events = read(out)
    assert events[0]["engines"] == ["history==1.4", "other==2.1"]
    first, second = parts(events)
    assert (first[0]["engine"], first[0]["version"]) == ("history", "1.4")
    assert (second[0]["engine"], second[0]["version"]) == ("other", "2.1")
    for part in (first, second):
        assert part[0]["event"] == "run_started" and part[-1]["event"] == "run_finished"
        assert {e["engine"] for e in part if e["event"] in ("start", "end", "verdict")} == {part[0]["engine"]}
        assert sum(e["event"] == "end" for e in part) == 2
        (again,) = [e for e in part if e["event"] == "verdict"]
        assert again["verdict"] == "ORACLE_SUSPECT" and "case" in again
    suites = {s.get("name"): s for s in junit(events)}
    assert set(suites) == {f"history==1.4 {CONTRACT_NAME}", f"other==2.1 {CONTRACT_NAME}"}
    assert all((s.get("failures"), s.get("errors")) == ("0", "1") for s in suites.values())


def test_a_suspicion_is_about_its_case_and_not_about_the_identity():
    """Another engine confirms the reference on one of the two cases that show it."""
    found = [answer("a", DIFFERS, number=1), answer("a", DIFFERS, number=2, case=f"{CONTRACT_NAME}/b-0123456789")]
    voices = [answer("b", DIFFERS), answer("b", case=found[1].case)]
    suspects = [a for case in (CASE, found[1].case) for a in alone([x for x in [*found, *voices] if x.case == case])]
    assert {a.case for a in suspects} == {CASE}


def test_an_engine_that_cannot_be_started_is_inconclusive_and_the_other_is_judged(gate, monkeypatch):
    real = fake_releases.launch

    def launch_for(spec, **_):
        made = real(spec.name, spec.version)
        return replace(made, python="/nowhere/python") if spec.name == "other" else made

    monkeypatch.setattr("fuzz.commands.session.launch_for", launch_for)
    done, out = gate("history==1.0", "other==2.0")
    assert done.exit_code == 3, done.output
    assert "cannot start /nowhere/python" in done.output
    assert {tuple(row.values())[2:] for row in table_of(out).values()} == {("AGREE", "not run")}


def test_the_same_release_twice_is_refused(gate):
    done, out = gate("history==1.0", "history==1.0")
    assert done.exit_code == 2 and "named twice" in done.output and not out.exists()


def test_an_engine_without_a_fitting_target_is_inconclusive_and_the_other_is_judged(gate, tmp_path):
    arguments = ["--engine", "history==1.0", "--engine", "other==2.0", "--target", "history/*", "--corpus"]
    done = CliRunner().invoke(
        cli, ["gate", *arguments, str(tmp_path / "corpus"), "--out", str(tmp_path / "o")], catch_exceptions=False
    )
    assert done.exit_code == 3, done.output
    assert "other==2.0: no target matches" in done.output and "history==1.0: 2 frozen cases" in done.output
