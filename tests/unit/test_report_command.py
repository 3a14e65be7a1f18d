"""``specoracle report``: everything from the events of one run or several, also of one
that was killed, and nothing outside its folder."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from fuzz.cli import cli
from tests import sample_run as sample


def report(*arguments: object, code: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["report", *map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture()
def run(tmp_path) -> Path:
    return sample.write(tmp_path / "run", sample.every_kind())


def test_without_a_choice_everything_is_written_beside_the_events(run):
    said = report(run).output
    files = ["junit.xml", "results.sarif", "summary.md", "targets.md", "html/index.html"]
    files += [f"tables/{name}.csv" for name in ("verdicts", "targets", "divergences", "behaviours")]
    assert [run / name for name in files] == [Path(line.removeprefix("wrote ")) for line in said.splitlines()]
    assert all((run / name).stat().st_size for name in files)


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ("--junit", "junit.xml"),
        ("--sarif", "results.sarif"),
        ("--markdown", "summary.md"),
        ("--targets", "targets.md"),
        ("--html", "html"),
    ],  # fmt: skip
)
def test_a_choice_writes_that_alone(run, option, file):
    report(run, option)
    assert sorted(p.name for p in run.iterdir()) == sorted(["events.ndjson", file])


def test_choices_add_up(run, tmp_path):
    report(run, "--junit", "--table", "csv", "--table", "parquet", "--out", tmp_path / "a" / "b")
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == ["junit.xml", "tables"]
    assert len(list((tmp_path / "a" / "b" / "tables").iterdir())) == 8
    assert [p.name for p in run.iterdir()] == ["events.ndjson"]


def test_a_killed_run_has_every_report(run):
    path = run / "events.ndjson"
    path.write_bytes(path.read_bytes()[:-9])
    report(run)


def test_several_runs_are_merged_into_a_folder_of_their_own(run, tmp_path):
    other = sample.write(tmp_path / "other", sample.several_engines())
    assert "--out" in report(run, other, code=2).output
    report(run, other, "--out", tmp_path / "both")
    suites = ElementTree.parse(tmp_path / "both" / "junit.xml").getroot().findall("testsuite")
    assert [s.get("name") for s in suites] == [
        "sglang==0.5.18 known list", f"sglang==0.5.18 {sample.CONTRACT}", f"sglang==0.5.18 {sample.CONTRACT}",
        f"sglang==0.5.20 {sample.CONTRACT}",
    ]  # fmt: skip
    assert not (run / "junit.xml").exists()


def test_what_is_no_run_is_refused_before_anything_is_written(run, tmp_path):
    assert "no events.ndjson" in report(run, tmp_path, "--out", tmp_path / "new", code=2).output
    assert not (tmp_path / "new").exists()


def test_one_report_that_cannot_be_written_keeps_no_other_from_it(run):
    (run / "tables").write_text("in the way")
    said = report(run, code=2).output
    assert f"error: {run / 'tables'}" in said and "summary.md" in said
    assert (run / "html" / "index.html").is_file()


def test_links_in_a_run_s_folder_lead_nothing_out_of_it(run, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    for name in ("junit.xml", "results.sarif", "summary.md", "junit.xml.new"):
        (run / name).symlink_to(theirs)
    report(run)
    assert theirs.read_text() == "theirs" and sorted(p.name for p in tmp_path.iterdir()) == ["run", "theirs"]
    (run / "html").rename(tmp_path / "elsewhere")
    (run / "html").symlink_to(tmp_path / "elsewhere")
    report(run, code=2)


def test_evidence_of_a_start_that_is_none_is_refused_by_name(tmp_path):
    run = sample.write(tmp_path / "run", [sample.started(), sample.start(1, evidence="x")])
    assert "line 2: start: evidence" in report(run, code=2).output


@pytest.mark.parametrize("kind", ["--html", "--junit"])
def test_a_corpus_that_was_named_and_is_none_is_a_usage_error(run, tmp_path, kind):
    (tmp_path / "file").write_text("")
    for corpus in (tmp_path / "nothing", tmp_path / "file"):
        assert f"--corpus {corpus} is no folder" in report(run, kind, "--corpus", corpus, code=2).output
    assert [p.name for p in run.iterdir()] == ["events.ndjson"]


def test_a_run_named_twice_counts_once(run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    (tmp_path / "x").mkdir()
    several = (run, tmp_path / "link", tmp_path / "x" / ".." / "run")
    said = report(*several, "--table", "csv", "--out", tmp_path / "o").output
    assert said.count("is named twice; it counts once") == 2
    once = report(run, "--table", "csv").output
    assert "named twice" not in once
    made = [(folder / "tables" / "verdicts.csv").read_bytes() for folder in (tmp_path / "o", run)]
    assert made[0] == made[1]
