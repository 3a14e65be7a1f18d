"""What a gate makes of the known list: entries cover, entries that expired or no longer
fire are reported, and ``--strict`` fails on those."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from fuzz.cli import cli
from fuzz.commands import gate as command
from fuzz.engines.spec import EngineSpec
from tests.conftest import fake_launch

CONTRACT = "commit.checkpoint_steps"
FIXTURES = Path(__file__).parents[2] / "fixtures"
ENTRY = {
    "contract": CONTRACT, "target": f"fake/fake/{CONTRACT}/two_bugs", "field": "checkpoint_step", "kind": "missing",
    "versions": ">=1.0", "line": "fake_engine.py:1", "reachable": "always", "reason": "on purpose", "link": "none",
}  # fmt: skip


@pytest.fixture()
def gate(tmp_path, monkeypatch):
    """Run a gate of the fake engine over two cases, one of which shows its bug; returns
    exit code, output and the run's folder."""
    monkeypatch.setattr(command, "read_engines", lambda *_: [EngineSpec("fake", version="1.0")])
    monkeypatch.setattr(command, "provisioned", lambda *_: fake_launch())
    corpus = tmp_path / "corpus"
    (corpus / CONTRACT).mkdir(parents=True)
    (corpus / "known").mkdir()
    for name in ("lands-on-64-f0a98aec29", "lands-on-256-51d279f73e"):
        shutil.copy(FIXTURES / CONTRACT / f"{name}.json", corpus / CONTRACT)

    def run(*entries: dict, strict: bool = False, corpus_of: str = "") -> tuple[int, str, Path]:
        text = "".join("[[known]]\n" + "".join(f"{k} = {v}\n" for k, v in e.items()) for e in entries)
        (corpus / "known" / "fake.toml").write_text(text)
        out = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        arguments = ["gate", "--target", "*two_bugs", "--corpus", str(corpus / corpus_of), "--out", str(out)]
        done = CliRunner().invoke(cli, arguments + ["--strict"] * strict)
        return done.exit_code, done.output, out

    return run


def entry(**more) -> dict:
    return {k: json.dumps(v) for k, v in (ENTRY | more).items() if k != "expires"} | {
        k: v for k, v in more.items() if k == "expires"
    }


SILENT = entry(kind="spurious")


def test_an_unlisted_divergence_fails(gate):
    code, said, _ = gate()
    assert code == 1 and f"DIVERGE: {CONTRACT}" in said


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("expires", [{}, {"expires": "2999-01-01"}])
def test_a_listed_one_is_reported_and_does_not(gate, strict, expires):
    code, said, out = gate(entry(**expires), strict=strict)
    assert code == 0 and f"known: {CONTRACT}" in said and "known but" not in said
    assert '"stale"' not in (out / "events.ndjson").read_text()


@pytest.mark.parametrize(
    ("entries", "words", "why"),
    [
        ([entry(expires="2020-01-01")], "known but expired since 2020-01-01: ", "expired"),
        ([entry(), SILENT], "known but no longer fires: ", "silent"),
    ],
)
def test_an_entry_that_needs_a_look_is_said_and_fails_only_a_strict_gate(gate, entries, words, why):
    for strict in (False, True):
        code, said, out = gate(*entries, strict=strict)
        assert code == int(strict) and words in said and f"known: {CONTRACT}" in said
        (stale,) = [e for e in map(json.loads, (out / "events.ndjson").open()) if e["event"] == "stale"]
        assert (stale["why"], stale["strict"]) == (why, strict)
        suites = ElementTree.parse(out / "junit.xml").getroot()
        assert [f.get("type") for f in suites.iter("failure")] == ["stale"] * strict


def test_a_reopened_entry_excuses_nothing(gate):
    code, said, _ = gate(entry(state="reopened"), strict=True)
    assert code == 1 and f"DIVERGE: {CONTRACT}" in said and "known" not in said


@pytest.mark.parametrize("other", [{"versions": ">=2"}, {"device": "cuda"}, {"target": f"fake/fake/{CONTRACT}/right"}])
def test_an_entry_about_something_else_is_not_missed(gate, other):
    code, said, _ = gate(entry(), entry(**other, kind="spurious"), strict=True)
    assert code == 0 and "known but" not in said


def test_one_case_says_nothing_about_entries_that_do_not_fire(gate, tmp_path, monkeypatch):
    monkeypatch.setattr(command.corpus_, "DEFAULT_CORPUS", tmp_path / "corpus")
    case = f"{CONTRACT}/lands-on-256-51d279f73e.json"
    code, said, _ = gate(entry(), SILENT, strict=True, corpus_of=case)
    assert code == 0 and "known but" not in said
    code, _, _ = gate(entry(), SILENT, strict=True)
    assert code == 1


def test_the_last_line_says_how_many_divergences_are_listed(gate):
    assert ": 2 frozen cases, 1 target: 1 AGREE, 1 DIVERGE\n" in gate()[1]
    code, said, _ = gate(entry())
    assert code == 0 and ": 1 AGREE, 1 DIVERGE (all listed)\n" in said
