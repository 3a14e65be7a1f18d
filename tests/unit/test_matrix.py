"""The matrix: cells and histories from events, jobs that resume, a run that is killed."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz import corpus, fleet, matrix_page
from fuzz.cli import cli
from fuzz.commands.matrix import _alone, _folder_name, _key
from fuzz.engines.spec import EngineSpec
from fuzz.fleet import Job
from fuzz.frozen import CorpusError
from fuzz.matrix import BAD, FAULT, GAP, GOOD, KNOWN, NEW, Fault, History, histories, load_faults, order, read_release
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import CONTRACT, Request
from tests import fake_releases
from tests.left_behind import alive_with

NAME = "commit.checkpoint_steps"
TARGET = f"sglang/m/{NAME}/s"
MISSING = (TARGET, "checkpoint_step", "missing")


def run(version: str, *answers: tuple, target: str = TARGET) -> list[dict]:
    """Events of a gate; an answer is (case, verdict, field and kind or None, listed)."""
    events = [{"event": "run_started", "engine": "sglang", "version": version}]
    for number, (case, verdict, identity, listed) in enumerate(answers, 1):
        events.append({"event": "start", "case": number, "target": target, "file": case})
        end = {"event": "end", "case": number, "target": target, "contract": NAME, "verdict": verdict, "evidence": {}}
        if identity:
            end["identity"] = {"contract": NAME, "target": target, "field": identity[0], "kind": identity[1]}
        if listed:
            end["known"] = True
        events.append(end)
    return events


def red(case: str, identity: tuple = MISSING[1:], listed: bool = False) -> tuple:
    return (case, "DIVERGE", identity, listed)


def agrees(case: str) -> tuple:
    return (case, "AGREE", None, False)


def unsupported(case: str) -> tuple:
    return (case, "UNSUPPORTED", None, False)


FAULTS = [Fault(MISSING, ("0.5.14", "0.5.18"), "37817")]


@pytest.mark.parametrize(
    ("version", "answers", "verdict", "note"),
    [
        ("0.5.12", [agrees("a"), unsupported("b")], Kind.AGREE, ""),
        ("0.5.12", [unsupported("a")], Kind.UNSUPPORTED, ""),
        ("0.5.14", [agrees("a"), red("b")], Kind.DIVERGE, FAULT),
        ("0.5.16", [red("b")], Kind.DIVERGE, FAULT),  # between two that are listed
        ("0.5.20", [red("b")], Kind.DIVERGE, NEW),
        ("checkout", [red("b")], Kind.DIVERGE, NEW),
        ("0.5.16", [red("b", listed=True)], Kind.DIVERGE, KNOWN),
        ("0.5.16", [red("b", ("current_step", "wrong_step"))], Kind.DIVERGE, NEW),
        ("0.5.16", [red("a", listed=True), red("b"), red("c", ("x", "y"))], Kind.DIVERGE, NEW),
        ("0.5.16", [agrees("a"), ("b", "HARNESS_ERROR", None, False)], Kind.HARNESS_ERROR, ""),
    ],
)
def test_a_cell_says_the_worst_verdict_and_whose_divergence_it_is(version, answers, verdict, note):
    (cell,) = read_release(run(version, *answers), FAULTS).cells
    assert (cell.verdict, cell.note) == (verdict, note)


def test_a_red_that_was_judged_again_is_no_divergence_any_more():
    events = run("0.5.16", red("a"))
    events.append(events[-1] | {"event": "verdict", "verdict": "ORACLE_SUSPECT"})
    del events[-1]["case"]
    release = read_release(events, FAULTS)
    assert (release.cells[0].verdict, release.cells[0].red) == (Kind.ORACLE_SUSPECT, {})
    assert histories([release], FAULTS) == []


def history(*columns: tuple[str, list[tuple]]) -> History:
    (found,) = histories([read_release(run(v, *answers), FAULTS) for v, answers in columns], FAULTS)
    return found


def test_the_ends_of_a_fault_are_the_neighbouring_good_releases():
    found = history(
        ("0.5.20", [agrees("a")]), ("0.5.18", [red("a")]), ("0.5.14", [red("a")]), ("0.5.13.post1", [agrees("a")]),
        ("0.5.9", [agrees("a")]), ("0.5.13", [agrees("a")]),
    )  # fmt: skip
    assert found.identity == MISSING and found.issue == "37817"
    assert [v for v, _ in found.states] == ["0.5.9", "0.5.13", "0.5.13.post1", "0.5.14", "0.5.18", "0.5.20"]
    assert (found.last_good_before, found.first_bad, found.last_bad, found.first_good) == (
        "0.5.13.post1", "0.5.14", "0.5.18", "0.5.20",
    )  # fmt: skip
    assert found.monotone and found.gaps == []


def test_a_gap_is_neither_good_nor_bad():
    found = history(
        ("0.5.10", [agrees("a")]), ("0.5.11", [unsupported("a")]), ("0.5.12", [red("a")]), ("0.5.13", [agrees("b")]),
        ("0.5.14", [("a", "HARNESS_ERROR", None, False)]), ("0.5.15", [agrees("a")]),
    )  # fmt: skip
    assert [s for _, s in found.states] == [GOOD, GAP, BAD, GAP, GAP, GOOD]
    assert (found.last_good_before, found.first_good) == ("0.5.10", "0.5.15")
    assert found.gaps == ["0.5.11", "0.5.13", "0.5.14"]


def test_another_divergence_on_the_same_case_is_not_good():
    releases = [
        read_release(run("0.5.1", red("a")), []),
        read_release(run("0.5.2", red("a", ("order", "commit_missing"))), []),
        read_release(run("0.5.3", agrees("a")), []),
    ]
    states = {h.identity[1]: [s for _, s in h.states] for h in histories(releases, [])}
    assert states == {"checkpoint_step": [BAD, GAP, GOOD], "order": [GAP, BAD, GOOD]}


def test_a_fault_that_comes_back_is_noticed():
    found = history(("0.5.1", [red("a")]), ("0.5.2", [agrees("a")]), ("0.5.3", [red("a")]))
    assert not found.monotone and found.first_good is None and found.last_good_before is None
    assert "not monotone: 0.5.1 bad, 0.5.2 good, 0.5.3 bad" in matrix_page.page("c", [], [], {}, []) + "\n".join(
        matrix_page._faults([found])
    )


def test_a_checkout_stands_behind_all_releases():
    assert sorted(["checkout", "0.5.9", "0.5.10", "0.5.10.post1"], key=order) == [
        "0.5.9", "0.5.10", "0.5.10.post1", "checkout",
    ]  # fmt: skip


def test_the_page_says_how_it_is_made_and_keeps_its_cells():
    releases = [
        read_release(run("0.5.18", red("a"), target="sglang/m|x/c/<b>"), []),
        read_release(run("0.5.20", agrees("a"), target="sglang/m|x/c/<b>"), []),
    ]
    text = matrix_page.page("specoracle matrix", releases, histories(releases, []), {"sglang==0.5.19": "a\n| b"}, [])
    assert "$ specoracle matrix\n" in text and "- sglang==0.5.19 has no result: a \\| b" in text
    assert "| m\\|x &lt;b> | **✗** | · |" in text
    assert "| checkpoint_step missing | 0.5.18 (oldest here) | 0.5.20 |" in text


def test_the_shipped_faults_are_readable_and_others_are_named(tmp_path):
    assert load_faults(corpus.DEFAULT_CORPUS)
    assert load_faults(tmp_path) == []
    (tmp_path / "faults.toml").write_text('[[fault]]\ntarget = "t"\n')
    with pytest.raises(CorpusError, match="faults.toml"):
        load_faults(tmp_path)


def job(folder: Path, code: str) -> Job:
    """A job that runs ``code``, with its folder in ``folder``."""
    made = Job(
        folder.name, folder, (sys.executable, "-c", f"import pathlib, sys; folder = pathlib.Path(sys.argv[1])\n{code}")
    )
    return replace(made, command=(*made.command, str(made.part)))


WRITES = "folder.mkdir(parents=True); (folder / 'done').write_text('x')"


def whole(folder: Path) -> bool:
    return (folder / "done").exists()


def ended(jobs: list[Job], key: str = "k", at_once: int = 2) -> dict[str, int | None]:
    codes = {}
    fleet.run(jobs, key, at_once, whole, lambda one, code: codes.__setitem__(one.name, code))
    return codes


def test_a_finished_job_stands_under_its_name_and_its_key(tmp_path):
    jobs = [job(tmp_path / name, WRITES) for name in ("a", "b", "c")]
    assert ended(jobs) == {"a": 0, "b": 0, "c": 0}
    for one in jobs:
        assert fleet.finished(one, "k") and not fleet.finished(one, "another") and not one.part.exists()


def test_a_job_that_did_not_reach_its_end_is_not_finished_and_keeps_what_it_wrote(tmp_path):
    broken = job(
        tmp_path / "a", "folder.mkdir(parents=True); (folder / 'half').write_text('x'); print('why'); sys.exit(4)"
    )
    assert ended([broken]) == {"a": 4}
    assert not fleet.finished(broken, "k") and (broken.part / "half").exists() and broken.log.read_text() == "why\n"
    again = job(tmp_path / "a", "assert not folder.exists()\n" + WRITES)
    assert ended([again]) == {"a": 0} and fleet.finished(again, "k")


def test_a_job_past_its_deadline_is_ended_with_what_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "JOB_DEADLINE_S", 1.0)
    code = "import subprocess, time; subprocess.Popen(['sleep', '77']); time.sleep(77)"
    monkeypatch.setenv("SPECORACLE_TEST_RUN", str(tmp_path))
    assert ended([job(tmp_path / "a", code)]) == {"a": None}
    assert alive_with(tmp_path) <= {os.getpid()}


def test_jobs_run_as_many_at_once_as_asked(tmp_path):
    seen = []
    jobs = [job(tmp_path / name, "import time; time.sleep(0.4)\n" + WRITES) for name in "abcd"]
    fleet.run(jobs, "k", 2, whole, lambda one, code: None, lambda running: seen.append(len(running)))
    assert max(seen) == 2
    assert fleet.places(5) <= 5 and fleet.places(0) == 1 and fleet.free_bytes() > 0


@pytest.fixture
def matrix(monkeypatch, tmp_path):
    """``matrix`` over releases of the fake engine on one case that lands on 256."""
    fake_releases.put_in_place(monkeypatch.setattr)
    monkeypatch.setattr("fuzz.commands.matrix.CODE", ())  # whoever edits a module meanwhile changes no result
    case = replace(CONTRACT.example, grid=256, requests=(Request(255, 1, 0),))
    corpus.write(corpus.make(NAME, case, slug="lands", reason="lands on 256"), tmp_path / "corpus")

    def invoke(*engines: str, out: str = "out", more: tuple = ()):
        named = [word for engine in engines for word in ("--engine", engine)]
        arguments = ["matrix", *named, "--target", fake_releases.TARGET, "--corpus", str(tmp_path / "corpus")]
        return CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path / out), *more], catch_exceptions=False)

    return invoke


def cells(folder: Path) -> dict[str, tuple[str, str]]:
    with (folder / "matrix.csv").open() as lines:
        return {row["version"]: (row["verdict"], row["note"]) for row in csv.DictReader(lines)}


def test_the_command_writes_the_table_the_ends_of_the_fault_and_the_page(matrix, tmp_path):
    done = matrix("history==1.2..1.8", more=("--page", str(tmp_path / "page.md")))
    assert done.exit_code == 1, done.output
    new, agree = ("DIVERGE", "new"), ("AGREE", "")
    assert cells(tmp_path / "out") == {
        "1.2": agree, "1.3": new, "1.4": new, "1.5": ("UNSUPPORTED", ""), "1.6": new, "1.7": agree, "1.8": agree,
    }  # fmt: skip
    with (tmp_path / "out" / "faults.csv").open() as lines:
        (row,) = csv.DictReader(lines)
    assert (row["last_good_before"], row["first_bad"], row["last_bad"], row["first_good"], row["says_nothing"]) == (
        "1.2", "1.3", "1.6", "1.7", "1.5",
    )  # fmt: skip
    page = (tmp_path / "page.md").read_text()
    assert page == (tmp_path / "out" / "matrix.md").read_text()
    assert "| worker commit | · | **✗** | **✗** | – | **✗** | · | · |" in page
    assert "specoracle matrix --engine history==1.2..1.8 --target " in page
    # the same OUT again runs nothing, one more release runs that one alone
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "runs").glob("*/events.ndjson")}
    again = matrix("history==1.2..1.8", "history==1.9")
    assert "8 releases, 7 of them done before" in again.output
    assert {p: p.stat().st_mtime_ns for p in before} == before and cells(tmp_path / "out")["1.9"] == agree


def test_recorded_faults_do_not_fail_the_matrix(matrix, tmp_path):
    entry = f'target = "{fake_releases.TARGET}"\nfield = "checkpoint_step"\nkind = "missing"\nissue = "1"\nwhy = "w"\n'
    (tmp_path / "corpus" / "faults.toml").write_text(f'[[fault]]\n{entry}versions = ["1.3", "1.6"]\n')
    done = matrix("history==1.2", "history==1.4")
    assert done.exit_code == 0, done.output
    assert cells(tmp_path / "out")["1.4"] == ("DIVERGE", "fault")


def test_another_corpus_makes_an_older_result_stale(matrix, tmp_path):
    assert matrix("history==1.2").exit_code == 0
    case = replace(CONTRACT.example, grid=64, requests=(Request(63, 1, 0),))
    corpus.write(corpus.make(NAME, case, slug="lands-on-64", reason="lands on 64"), tmp_path / "corpus")
    assert "1 release, 0 of them done before" in matrix("history==1.2").output


def test_another_code_or_selection_makes_an_older_result_stale(monkeypatch, tmp_path):
    (tmp_path / "fuzz").mkdir()
    (tmp_path / "corpus").mkdir()
    code = tmp_path / "fuzz" / "judge.py"
    code.write_text("x = 1")
    monkeypatch.setattr("fuzz.commands.matrix.PROJECT_ROOT", tmp_path)
    keys = [_key(tmp_path / "corpus", []), _key(tmp_path / "corpus", ["--target", "*x"])]
    assert _key(tmp_path / "corpus", []) == keys[0]
    code.write_text("x = 2")
    assert len({*keys, _key(tmp_path / "corpus", [])}) == 3


def test_a_release_that_cannot_be_had_is_said_and_the_others_stand(matrix, tmp_path, monkeypatch):
    code = "import sys; from tests.fake_releases import main\n"
    code += "sys.exit('error: no wheel') if 'history==1.3' in sys.argv else main()"
    monkeypatch.setattr("fuzz.commands.matrix.SPECORACLE", ("-c", code))
    done = matrix("history==1.2", "history==1.3")
    assert done.exit_code == 1, done.output
    assert "history==1.3: no result: error: no wheel" in done.output
    assert "- history==1.3 has no result: error: no wheel" in (tmp_path / "out" / "matrix.md").read_text()
    assert cells(tmp_path / "out") == {"1.2": ("AGREE", "")}


def test_a_matrix_that_is_stopped_keeps_the_old_page_and_writes_its_own_files(matrix, tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("old")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fuzz.commands.matrix._show", stop)
    done = matrix("history==1.2", "history==1.3", more=("--page", str(tmp_path / "page.md")))
    assert done.exit_code == 130, done.output
    assert (tmp_path / "page.md").read_text() == "old"
    assert "history==1.2 has no result: not run yet" in (tmp_path / "out" / "matrix.md").read_text()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_matrix_leaves_what_is_done_readable_and_nobody_behind(matrix, tmp_path, how):
    """The corpus is made large enough for a release to take a while."""
    for pre in range(300):
        case = replace(CONTRACT.example, grid=64, requests=(Request(pre, 1, 0),))
        corpus.write(corpus.make(NAME, case, slug=f"pre-{pre}", reason="one of many"), tmp_path / "corpus")
    arguments = ["matrix", "--engine", "history==1.0..1.9", "--target", fake_releases.TARGET, "--jobs", "1"]
    arguments += ["--corpus", str(tmp_path / "corpus"), "--out", str(tmp_path / "out")]
    child = subprocess.Popen(
        [sys.executable, "-c", "from tests.fake_releases import main; main()", *arguments],
        env={**os.environ, "SPECORACLE_TEST_RUN": str(tmp_path)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    in_flight = tmp_path / "out" / "runs" / "history-1.1.part" / "events.ndjson"
    while not in_flight.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(how)
    child.wait(timeout=60)
    while alive_with(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive_with(tmp_path) == set()
    done = cells(tmp_path / "out")
    assert 1 <= len(done) < 10 and done["1.0"] == ("AGREE", "")
    assert '"stopped":null' not in in_flight.read_text(), "the release in flight ended with the matrix"
    assert "has no result: not run yet" in (tmp_path / "out" / "matrix.md").read_text()


BOUNDARY = "sglang/dflash/commit.checkpoint_steps/_update_target_mamba_state_after_verify"
WRONG = ["0.5.14", "0.5.15", "0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19"]
RIGHT = ["0.5.12", "0.5.12.post1", "0.5.13", "0.5.13.post1", "0.5.20", "0.5.21", "0.5.22", "0.5.23"]


def boundary_fault(page: str) -> tuple[list[str], dict[str, str]]:
    """Of a page: where the boundary fault begins and ends, and its mark a release."""
    row = "| dflash _update_target_mamba_state_after_verify | "
    tables = page.split("\n### ")
    (line,) = [t for t in tables[0].splitlines() if t.startswith(f"{row}checkpoint_step missing |")]
    (steps,) = [t for t in tables if t.startswith("commit.checkpoint_steps\n")]
    (heads,) = [t for t in steps.splitlines() if t.startswith("| target | ")]
    (marks,) = [t for t in steps.splitlines() if t.startswith(row)]
    by_release = dict(zip(heads.strip("| ").split(" | ")[1:], marks.strip("| ").split(" | ")[1:], strict=True))
    return line.split(" | ")[2:4], by_release


def test_a_page_is_read_as_it_was_written():
    answers = {v: red("a") for v in WRONG} | {v: agrees("a") for v in RIGHT}
    releases = [read_release(run(v, a, target=BOUNDARY), []) for v, a in answers.items()]
    ends, marks = boundary_fault(matrix_page.page("c", releases, histories(releases, []), {}, []))
    assert ends == ["0.5.14 (good in 0.5.13.post1)", "0.5.20"]
    assert marks == {v: "**✗**" if v in WRONG else "·" for v in answers}


def test_the_published_page_shows_where_the_boundary_fault_begins_and_ends():
    """The page covers every release from 0.5.10 to 0.5.23."""
    text = (Path(__file__).parents[2] / "docs" / "matrix.md").read_text(encoding="utf-8")
    assert "$ specoracle matrix --engine sglang==0.5.10..0.5.23 " in text
    ends, marks = boundary_fault(text)
    assert ends == ["0.5.14 (good in 0.5.13.post1)", "0.5.20"]
    assert {v: marks[v] for v in [*WRONG, *RIGHT]} == {v: "✗" for v in WRONG} | {v: "·" for v in RIGHT}


def test_a_job_writes_through_no_link(tmp_path):
    precious, elsewhere = tmp_path / "precious", tmp_path / "elsewhere"
    precious.write_text("kept")
    elsewhere.mkdir()
    one = job(tmp_path / "a", WRITES)
    one.log.symlink_to(precious)
    one.part.symlink_to(elsewhere)
    one.folder.symlink_to(elsewhere)
    (elsewhere / fleet.KEY).write_text("k")
    assert not fleet.finished(one, "k")
    assert ended([one]) == {"a": 0} and fleet.finished(one, "k")
    assert precious.read_text() == "kept" and [p.name for p in elsewhere.iterdir()] == [fleet.KEY]
    assert not one.log.is_symlink() and not one.folder.is_symlink()


@pytest.mark.parametrize("name", ["runs", "matrix.lock"])
def test_a_link_inside_the_folder_of_a_matrix_is_refused(matrix, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    done = matrix("history==1.2")
    assert done.exit_code == 2 and f"{name} in it is a link" in done.output
    assert not (tmp_path / "elsewhere").exists()


def test_checkouts_whose_paths_read_alike_have_folders_of_their_own():
    paths = ["/t/a/b", "/t/a_b", "/u/b", "/t/" + "x" * 250]
    names = [_folder_name(EngineSpec("sglang", path=Path(p))) for p in paths]
    assert len(set(names)) == len(paths) and max(map(len, names)) < 100 and not any("/" in n for n in names)
    assert _folder_name(EngineSpec("sglang", version="0.5.23")) == "sglang-0.5.23"


def damaged(events: Path, how: str) -> None:
    lines = events.read_text().splitlines(keepends=True)
    kept = {
        "emptied": [], "no end": lines[:-1], "garbage": ["{\n"], "no start": lines[1:],
        "only the end": lines[-1:], "no engine": [lines[0].replace('"engine"', '"other"'), *lines[1:]],
    }  # fmt: skip
    if how == "removed":
        events.unlink()
    else:
        events.write_text("".join(kept[how]))


@pytest.mark.parametrize("how", ["emptied", "removed", "no end", "garbage", "no start", "only the end", "no engine"])
def test_a_damaged_result_is_made_again(matrix, tmp_path, how):
    assert matrix("history==1.2").exit_code == 0
    damaged(tmp_path / "out" / "runs" / "history-1.2" / "events.ndjson", how)
    again = matrix("history==1.2")
    assert again.exit_code == 0 and "1 release, 0 of them done before" in again.output, again.output
    assert cells(tmp_path / "out") == {"1.2": ("AGREE", "")}


def test_a_second_matrix_on_the_same_folder_is_refused(matrix, tmp_path):
    with _alone(tmp_path / "out"):
        done = matrix("history==1.2")
    assert done.exit_code == 2 and "another matrix writes there" in done.output
    assert not (tmp_path / "out" / "runs").exists()
    assert matrix("history==1.2").exit_code == 0


def test_a_single_divergence_is_said_in_the_singular(matrix):
    said = matrix("history==1.3").output
    assert "1 divergence new" in said and "1 release, 0 of them" in said
