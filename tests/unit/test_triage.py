"""Triage edits the known list and nothing else: every other line stays, a bad
decision changes nothing, and what cannot be believed cannot be accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date

import pytest
from click.testing import CliRunner

from fuzz import triage
from fuzz.candidates import Candidate, TriageError, choose
from fuzz.cli import cli
from fuzz.frozen import CorpusError
from fuzz.known import load
from fuzz.triage import Decision
from fuzz.verdict import Identity

TODAY = date(2026, 11, 29)
TARGET = "sglang/dflash/commit.checkpoint_steps/x"
IDENTITY = Identity("commit.checkpoint_steps", TARGET, "checkpoint_step", "missing")
SEEN = Candidate(IDENTITY, "DIVERGE", "sglang", "0.5.23", "cpu", 3, "it is missing")
DECISION = Decision(
    ">=0.5.22", "0.5.23 dflash.py:12", "hostile input only", "nobody can send this", "none filed", "Ada", TODAY
)
OLD = """# A comment at the top.

[[known]]  # and one here
contract = "commit.lengths"
target = 'sglang/a/commit.lengths/b'
field = "new_length"
kind = "wrong_length"
versions = ">=0.5.20"
line = "b.py:1"
reachable = "never"
reason = "a reason \\u2713"
link = "none filed"
# a comment at the end"""


@pytest.fixture()
def corpus(tmp_path):
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "sglang.toml").write_text(OLD)
    return tmp_path


def text(corpus) -> str:
    return (corpus / "known" / "sglang.toml").read_text()


def test_accepting_adds_one_entry_and_keeps_every_other_byte(corpus):
    triage.accept(corpus, SEEN, replace(DECISION, expires=date(2027, 1, 31), device="cpu"), TODAY)
    assert text(corpus).startswith(OLD)
    old, new = load(corpus, "sglang")
    assert old.identity.contract == "commit.lengths"
    assert new.covers(IDENTITY, "0.5.23", "cpu") and not new.covers(IDENTITY, "0.5.21", "cpu")
    assert (new.by, new.on, new.expires, new.device) == ("Ada", TODAY, date(2027, 1, 31), "cpu")
    assert (new.reason, new.line, new.reachable, new.link) == (
        DECISION.reason, DECISION.line, DECISION.reachable, DECISION.link,
    )  # fmt: skip


def test_the_first_entry_of_an_engine_makes_its_file(tmp_path):
    path = triage.accept(tmp_path, SEEN, DECISION, TODAY)
    assert path.read_text().startswith("# ") and load(tmp_path, "sglang")[0].covers(IDENTITY, "0.5.23", "cpu")


@pytest.mark.parametrize("words", ['say "no"', "back\\slash", "'''", "é ✓ 漢", "[[known]]", "# none", "a = 1 ]"])
def test_any_line_of_text_is_read_back_as_it_was_written(corpus, words):
    triage.accept(corpus, SEEN, replace(DECISION, reason=words + " and more", line=words, by=words), TODAY)
    new = load(corpus, "sglang")[1]
    assert (new.reason, new.line, new.by) == (words + " and more", words, words)


@pytest.mark.parametrize(
    ("seen", "decision", "words"),
    [
        ({"verdict": "FLAKY"}, {}, "does not always repeat"),
        ({"verdict": "ORACLE_SUSPECT"}, {}, "nothing shows"),
        ({"verdict": "AGREE"}, {}, "only a divergence"),
        ({"version": "checkout"}, {}, "no release"),
        ({"identity": replace(IDENTITY, target="sglang/*")}, {}, "no patterns"),
        ({"engine": "../sglang"}, {}, "no engine"),
        ({"engine": ""}, {}, "no engine"),
        ({}, {"versions": ">=0.6"}, "does not hold 0.5.23"),
        ({}, {"versions": "new ones"}, "is not like"),
        ({}, {"versions": ""}, "--versions needs words"),
        ({}, {"versions": ","}, "limits nothing"),
        ({}, {"versions": " , ,"}, "limits nothing"),
        ({}, {"reason": "short"}, "--reason needs words, 10"),
        ({}, {"reason": " " * 40}, "--reason needs words"),
        ({}, {"reason": "two\nlines of it"}, "one line"),
        ({}, {"reason": "x" * 5000}, "longer than"),
        ({}, {"line": " "}, "--line needs words"),
        ({}, {"link": ""}, "--link needs words"),
        ({}, {"by": ""}, "--by needs words"),
        ({}, {"by": "\x1b[31m"}, "cannot be printed"),
        ({}, {"by": "\udc80"}, "cannot be printed"),
        ({}, {"reachable": ""}, "--reachable needs words"),
        ({}, {"device": "cuda"}, "saw it on cpu"),
        ({}, {"device": "tpu"}, "tpu"),
        ({}, {"expires": date(2026, 11, 28)}, "in the past"),
    ],
)
def test_a_decision_that_cannot_stand_changes_nothing(corpus, seen, decision, words):
    with pytest.raises(TriageError, match=words):
        triage.accept(corpus, replace(SEEN, **seen), replace(DECISION, **decision), TODAY)
    assert text(corpus) == OLD


def test_what_is_listed_already_is_not_listed_twice(corpus):
    triage.accept(corpus, SEEN, DECISION, TODAY)
    before = text(corpus)
    with pytest.raises(TriageError, match="entry 2 .*lists it already"):
        triage.accept(corpus, SEEN, replace(DECISION, versions="==0.5.23"), TODAY)
    assert text(corpus) == before


def test_a_reopened_entry_covers_nothing_and_stays_with_who_said_so(corpus):
    triage.accept(corpus, SEEN, replace(DECISION, expires=TODAY), TODAY)
    triage.note(corpus, "sglang", 1, "Bo", "asked upstream", TODAY)
    triage.reopen(corpus, "sglang", 1, "Cy", "users hit it now", TODAY)
    entry = load(corpus, "sglang")[1]
    assert not entry.covers(IDENTITY, "0.5.23", "cpu")
    assert entry.notes == ("2026-11-29 Bo: asked upstream", "2026-11-29 Cy: reopened: users hit it now")
    assert entry.reason == DECISION.reason and text(corpus).startswith(OLD)
    with pytest.raises(TriageError, match="reopened already"):
        triage.reopen(corpus, "sglang", 1, "Cy", "users hit it now", TODAY)


def test_accepting_again_takes_the_same_entry_up(corpus):
    triage.accept(corpus, SEEN, replace(DECISION, expires=TODAY), TODAY)
    triage.reopen(corpus, "sglang", 1, "Cy", "users hit it now", TODAY)
    triage.accept(corpus, SEEN, replace(DECISION, reason="the users went away", by="Di"), TODAY)
    (_, entry) = load(corpus, "sglang")
    assert entry.covers(IDENTITY, "0.5.23", "cpu") and entry.expires is None
    assert (entry.reason, entry.by, len(entry.notes)) == ("the users went away", "Di", 2)


def test_notes_may_be_hostile_text(corpus):
    triage.note(corpus, "sglang", 0, "Bo", "\"]\\ [[known]] '''", TODAY)
    assert load(corpus, "sglang")[0].notes == ("2026-11-29 Bo: \"]\\ [[known]] '''",)
    with pytest.raises(TriageError, match="cannot be printed"):
        triage.note(corpus, "sglang", 0, "Bo", "a\nb", TODAY)


def test_a_file_that_somebody_else_changed_meanwhile_is_left_alone(corpus, monkeypatch):
    def change(*_) -> None:
        (corpus / "known" / "sglang.toml").write_text(OLD + "\n# theirs\n")

    monkeypatch.setattr(triage, "_said", change)
    with pytest.raises(TriageError, match="somebody else"):
        triage.note(corpus, "sglang", 0, "Bo", "mine", TODAY)
    assert text(corpus).endswith("# theirs\n")


@pytest.mark.parametrize("broken", ["[[known", "known = 5", "[other]\na = 1", OLD.replace('"b.py:1"', "5"), "\x00"])
def test_a_list_that_is_wrong_already_is_refused_and_left_alone(corpus, broken):
    (corpus / "known" / "sglang.toml").write_text(broken)
    with pytest.raises(CorpusError, match="sglang.toml"):
        triage.accept(corpus, SEEN, DECISION, TODAY)
    assert text(corpus) == broken


def test_inline_entries_are_read_but_not_edited(corpus):
    entry = ", ".join(line for line in OLD.splitlines() if "=" in line)
    (corpus / "known" / "sglang.toml").write_text(f"known = [{{{entry}}}]\n")
    assert len(load(corpus, "sglang")) == 1
    with pytest.raises(TriageError, match=r"\[\[known\]\]"):
        triage.accept(corpus, SEEN, DECISION, TODAY)


NAMES = ["a | b", "a | bc", "d"]


@pytest.mark.parametrize(("which", "index"), [("1", 0), ("3", 2), ("d", 2), ("bc", 1), ("a | b", 0)])
def test_a_choice_is_a_number_or_a_text(which, index):
    assert choose(which, NAMES, "thing") == index


@pytest.mark.parametrize("which", ["0", "4", "9" * 30, "a", "x", "", "-1"])
def test_a_choice_that_means_none_or_several_is_refused(which):
    with pytest.raises(TriageError, match="no thing|of them|numbered"):
        choose(which, NAMES, "thing")


def run_folder(tmp_path, *events: dict):
    out = tmp_path / "run"
    out.mkdir()
    started = {"event": "run_started", "engine": "sglang", "version": "0.5.23", "device": "cpu"}
    lines = [json.dumps({"schema": 1, "time": 0.0, **e}) for e in (started, *events)]
    (out / "events.ndjson").write_text("\n".join(lines) + '\n{"schema": 1, "ev')
    return out


def end(case: int, verdict: str, **values) -> dict:
    return {
        "event": "end", "case": case, "target": TARGET, "contract": IDENTITY.contract, "verdict": verdict, **values,
    }  # fmt: skip


def red(case: int, kind: str = "missing") -> dict:
    return end(case, "DIVERGE", identity=vars(replace(IDENTITY, kind=kind)), evidence={"claim": f"it is {kind}"})


def again(verdict: str, kind: str = "missing", **values) -> dict:
    identity = vars(replace(IDENTITY, kind=kind))
    return {
        "event": "verdict", "target": TARGET, "contract": IDENTITY.contract, "verdict": verdict,
        "identity": identity, **values,
    }  # fmt: skip


def triaged(*arguments, code: int = 0) -> str:
    done = CliRunner().invoke(cli, ["triage", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit | CorpusError):
        raise done.exception
    said = done.output + (str(done.exception) if isinstance(done.exception, CorpusError) else "")
    assert (2 if isinstance(done.exception, CorpusError) else done.exit_code) == code, said
    return said


ACCEPT = (
    "--versions", ">=0.5.22", "--reason", "nobody can send this", "--link", "none filed", "--line", "x.py:1",
    "--reachable", "never", "--by", "Ada",
)  # fmt: skip


def test_from_a_killed_run_to_a_listed_entry_and_back(corpus, tmp_path):
    out = run_folder(tmp_path, red(1, "spurious"), red(2), red(3), end(4, "AGREE"))
    listed = triaged("list", out, "--corpus", corpus)
    assert "2  DIVERGE    new" in listed and "2 divergences" in listed
    assert "it is missing" in triaged("show", "2", "--run", out, "--corpus", corpus)
    assert f"accepted {IDENTITY}" in triaged("accept", out, "--identity", "2", *ACCEPT, "--corpus", corpus)
    assert "2  DIVERGE    entry 2" in triaged("list", out, "--corpus", corpus)
    assert "Ada" in triaged("show", "missing", "--corpus", corpus)
    assert "noted at" in triaged("note", "missing", "--by", "Bo", "--text", "seen", "--corpus", corpus)
    assert "reopened " in triaged("reopen", "2", "--by", "Bo", "--reason", "we were wrong", "--corpus", corpus)
    assert "2  DIVERGE    new" in triaged("list", out, "--corpus", corpus)
    assert "reopened" in triaged("list", "--corpus", corpus)
    assert text(corpus).startswith(OLD)


def test_one_of_a_thing_is_said_in_the_singular(corpus, tmp_path):
    assert "1 divergence in" in triaged("list", run_folder(tmp_path, red(1)), "--corpus", corpus)
    assert "1 entry in" in triaged("list", "--corpus", corpus)


def test_a_near_tie_cannot_be_accepted(corpus, tmp_path):
    tie = end(1, "AGREE", flags=["near_tie"], evidence={"margin_ulp": 0.25})
    out = run_folder(tmp_path, tie)
    assert "never listed: 1" in triaged("list", out, "--corpus", corpus)
    for which in ("1", TARGET, "dflash"):
        triaged("accept", out, "--identity", which, *ACCEPT, "--corpus", corpus, code=2)
    assert "near tie is AGREE" in triaged("accept", out, "--identity", TARGET, *ACCEPT, "--corpus", corpus, code=2)
    assert text(corpus) == OLD


def test_a_difference_between_two_implementations_is_no_divergence(corpus, tmp_path):
    out = run_folder(tmp_path, red(1))
    events = out / "events.ndjson"
    events.write_text(events.read_text().replace('"device"', '"against": "sglang==0.5.22", "device"', 1))
    assert "compared two" in triaged("accept", out, "--identity", "1", *ACCEPT, "--corpus", corpus, code=2)
    assert text(corpus) == OLD


@pytest.mark.parametrize("verdict", ["FLAKY", "ORACLE_SUSPECT"])
@pytest.mark.parametrize("later", [(), (red(3),)])
def test_what_was_judged_again_counts_with_its_last_verdict(corpus, tmp_path, verdict, later):
    out = run_folder(tmp_path, red(1), again(verdict), *later)
    assert verdict in triaged("list", out, "--corpus", corpus)
    assert verdict in triaged("accept", out, "--identity", "1", *ACCEPT, "--corpus", corpus, code=2)


def test_one_suspect_case_does_not_speak_for_the_others(corpus, tmp_path):
    out = run_folder(tmp_path, red(1), red(2), again("ORACLE_SUSPECT", case=1))
    assert "DIVERGE" in triaged("list", out, "--corpus", corpus)
    out.rename(tmp_path / "other")
    out = run_folder(tmp_path, red(1), again("ORACLE_SUSPECT", case=1))
    assert "ORACLE_SUSPECT" in triaged("list", out, "--corpus", corpus)


def test_hostile_text_of_a_run_is_printed_harmlessly(corpus, tmp_path):
    out = run_folder(tmp_path, red(1, "\x1b]0;owned\x07\nfake line"))
    listed = triaged("list", out, "--corpus", corpus)
    assert "\x1b" not in listed and listed.count("\n") == 2 and r"\x1b]0;owned" in listed


@pytest.mark.parametrize("arguments", [("list", "nowhere"), ("accept", "nowhere", "--identity", "1", *ACCEPT)])
def test_what_is_no_run_is_said(corpus, arguments):
    assert "no events.ndjson" in triaged(*arguments, "--corpus", corpus, code=2)


def test_an_expired_entry_is_shown_as_such(corpus):
    triage.accept(corpus, SEEN, replace(DECISION, expires=date(2020, 1, 1)), date(2020, 1, 1))
    assert "2  expired" in triaged("list", "--corpus", corpus)


def test_an_edit_that_the_gate_could_not_read_is_not_written(corpus):
    with pytest.raises(CorpusError, match="entry 1: kind"):
        triage._edit(corpus, "sglang", lambda known: known[0].update({"kind": 5}))
    assert text(corpus) == OLD


NOTES = """
import sys
from datetime import date
from pathlib import Path
from fuzz import triage
for number in range(10):
    triage.note(Path(sys.argv[1]), "sglang", 0, "Bo", f"{sys.argv[2]}{number}", date(2026, 11, 29))
"""


def test_edits_at_once_are_all_kept(corpus):
    writers = [subprocess.Popen([sys.executable, "-c", NOTES, str(corpus), name]) for name in "abc"]
    assert [w.wait(timeout=120) for w in writers] == [0, 0, 0]
    said = {note.rpartition(" ")[2] for note in load(corpus, "sglang")[0].notes}
    assert said == {f"{name}{number}" for name in "abc" for number in range(10)}


def test_an_edit_waits_for_another_and_gives_up_in_the_end(corpus, monkeypatch):
    monkeypatch.setattr(triage, "LOCK_DEADLINE_S", 0.1)
    with triage._locked(corpus, "sglang"), pytest.raises(TriageError, match="somebody else has been editing"):
        triage.accept(corpus, SEEN, DECISION, TODAY)
    assert text(corpus) == OLD


def test_a_lock_that_is_a_link_is_refused_and_not_followed(corpus, tmp_path):
    (tmp_path / "precious").write_text("kept")
    (corpus / "known" / ".sglang.toml.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(TriageError, match="a link where the lock"):
        triage.note(corpus, "sglang", 0, "Bo", "mine", TODAY)
    assert (tmp_path / "precious").read_text() == "kept" and text(corpus) == OLD


def test_a_list_that_is_a_link_stays_one(corpus, tmp_path):
    listed, team = corpus / "known" / "sglang.toml", tmp_path / "team.toml"
    listed.rename(team)
    listed.symlink_to(os.path.relpath(team, listed.parent))
    assert triage.note(corpus, "sglang", 0, "Bo", "mine", TODAY) == listed
    assert listed.is_symlink() and "Bo: mine" in team.read_text()


@pytest.mark.parametrize("aim", ["nowhere.toml", "sglang.toml"])
def test_a_link_to_nothing_is_refused(corpus, aim):
    listed = corpus / "known" / "sglang.toml"
    listed.unlink()
    listed.symlink_to(aim)
    with pytest.raises(CorpusError, match="a link to nothing"):
        triage.accept(corpus, SEEN, DECISION, TODAY)
    assert listed.is_symlink() and not (corpus / "known" / "nowhere.toml").exists()


def test_the_mode_of_a_list_is_kept_and_a_read_only_one_is_refused(corpus):
    listed = corpus / "known" / "sglang.toml"
    listed.chmod(0o640)
    triage.note(corpus, "sglang", 0, "Bo", "mine", TODAY)
    assert listed.stat().st_mode & 0o777 == 0o640
    listed.chmod(0o444)
    before = text(corpus)
    with pytest.raises(TriageError, match="not writable"):
        triage.note(corpus, "sglang", 0, "Bo", "more", TODAY)
    assert text(corpus) == before


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_line_ending_of_a_list_is_kept(corpus, end):
    listed = corpus / "known" / "sglang.toml"
    listed.write_bytes(OLD.encode().replace(b"\n", end))
    triage.accept(corpus, SEEN, DECISION, TODAY)
    triage.note(corpus, "sglang", 1, "Bo", "mine", TODAY)
    raw = listed.read_bytes()
    assert raw.count(b"\n") == raw.count(end) > 20 and raw.startswith(OLD.encode().replace(b"\n", end))
