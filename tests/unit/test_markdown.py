"""The summary of a run is short whatever the run was, and nothing in it is markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from reports.markdown import MAX_CHARACTERS, MAX_NEW, code, markdown
from reports.model import view
from tests import sample_run as sample

MARKUP = {  # of the summary itself
    "heading", "inline", "text", "code", "paragraph", "table", "thead", "tbody", "tr", "th", "td", "bullet_list",
    "list_item", "strong", "softbreak", "fence",
}  # fmt: skip
FINISHED = {"event": "run_finished", "exit": 0, "stopped": None}


def summary(tmp_path, *events: dict) -> str:
    text = markdown(view([sample.write(tmp_path / "run", list(events))]))
    assert len(text.splitlines()) < 60 and len(text) <= MAX_CHARACTERS
    return text


def test_every_kind_of_event_has_its_place(tmp_path):
    text = summary(tmp_path, *sample.every_kind())
    assert text.startswith("## specoracle: 5 new divergences\n")
    for words in (
        "| `sglang==0.5.18` | `cpu` | `gate seed 7, exit 1` |", "silent wrong state (flaky)", "| crash |",
        f"`checkpoint_step missing: {sample.CLAIM}`", "**Known, listed, not failing** (1)", "**Suspect: ",
        "has expired: ", "**Near ties, which agree** (1)", "the least margin 0.25 ULP", "`HARNESS_ERROR` `KeyError`",
    ):  # fmt: skip
        assert words in text, words
    assert "specoracle replay " not in text, "the folder of this run is a path of this machine"


def test_the_command_to_see_it_again_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sample.write(tmp_path / "out" / "run", [sample.started(), sample.red(1), sample.found("missing")])
    text = markdown(view([Path("out/run")]))
    path, target = "out/run/found/commit.checkpoint_steps/a-0123456789.json", sample.TARGET
    assert f"specoracle replay {path} --engine sglang==0.5.18 --target '{target}'\n" in text


def test_a_gate_names_the_frozen_case(tmp_path):
    text = summary(tmp_path, sample.started(), sample.start(1, file="commit.lengths/a-0"), sample.red(1), FINISHED)
    path = "fixtures/commit.lengths/a-0.json"
    assert f"specoracle replay {path} --engine sglang==0.5.18 --target '{sample.TARGET}'\n" in text


@pytest.mark.parametrize("text", ["x; rm -rf /", "$(id)", "a b", "`id`", "-rf", "/somewhere/x", "a\nb"])
def test_a_command_that_is_not_safe_to_paste_is_not_given(tmp_path, text):
    events = [sample.started(), sample.start(1, file=text), sample.red(1), sample.found("missing", frozen=text)]
    assert "specoracle replay" not in summary(tmp_path, *events)


def test_an_engine_that_is_not_safe_to_paste_is_not_given(tmp_path):
    version = "1; rm -rf /"
    made = summary(tmp_path, sample.started(version=version), sample.start(1, file="a"), sample.red(1))
    assert "specoracle replay" not in made
    made = summary(tmp_path, sample.started(), sample.start(1, file="a"), sample.red(1, target="a' ; rm -rf / '"))
    assert "specoracle replay" not in made


@pytest.mark.parametrize(
    ("events", "headline"),
    [
        ([sample.end(1, "AGREE"), FINISHED], "agreed"),
        ([sample.end(1, "AGREE"), FINISHED | {"exit": 3}], "inconclusive"),
        ([sample.end(1, "AGREE"), FINISHED | {"exit": 1}], "failed"),
        ([sample.end(1, "AGREE")], "incomplete"),
        ([sample.red(1)], "1 new divergence"),
        ([sample.red(1, known=True), FINISHED], "agreed"),
        ([sample.red(1), sample.again("missing", "ORACLE_SUSPECT"), FINISHED | {"exit": 3}], "inconclusive"),
    ],
)
def test_the_headline_is_the_verdict(tmp_path, events, headline):
    assert summary(tmp_path, sample.started(), *events).startswith(f"## specoracle: {headline}")


def test_one_line_an_engine(tmp_path):
    text = summary(tmp_path, *sample.several_engines())
    assert "| `sglang==0.5.18` | `cpu` | `gate, exit 1` | 1 | 1 | 0 | 1 | 0 | 0 |" in text
    assert "| `sglang==0.5.20` | `cpu` | `gate, exit 1` | 1 | 1 | 1 | 0 | 0 | 0 |" in text


def test_a_comparison_says_with_what(tmp_path):
    text = summary(tmp_path, sample.started(command="fuzz", against="sglang==0.5.16"), sample.red(1), FINISHED)
    assert "`fuzz against sglang==0.5.16 seed 7, exit 0`" in text


def test_a_huge_run_stays_a_comment(tmp_path):
    events = [sample.started()]
    for i in range(2000):
        target = f"sglang/m{i}/commit.checkpoint_steps/" + "s" * 300
        events.append(sample.red(3 * i, f"kind{i}" * 50, target=target, evidence={"claim": "|`" * 5000}))
        events.append(sample.red(3 * i + 1, f"known{i}" * 50, target=target, known=True))
        events.append(sample.end(3 * i + 2, "HARNESS_ERROR", target, evidence={"message": "m" * 9000}))
    text = summary(tmp_path, *events)
    assert f"and {2000 - MAX_NEW} more" in text and "(2000)" in text


@pytest.mark.parametrize("text", sample.HOSTILE)
def test_hostile_text_is_never_markup(tmp_path, text):
    event = sample.red(1, text or "k", target=text, evidence={"claim": text, "message": text})
    trouble = sample.end(2, "HARNESS_ERROR", text, evidence={"message": text})
    stale = {"event": "stale", "identity": sample.identity(text), "why": "silent", "strict": False}
    made = summary(tmp_path, sample.started(engine=text, device=text, command=text), event, trouble, stale)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(made)
    inner = [t for token in tokens for t in (token, *(token.children or ()))]
    assert {t.type.rpartition("_")[0] or t.type for t in inner} <= MARKUP
    words = " ".join(t.content for t in inner if t.type == "text")
    assert not re.search(r"[<>@`\[\]]|http|alert", words), words
    columns = [line.count("|") for line in made.splitlines() if line.startswith("|")]
    assert set(columns) <= {5, 10}


@pytest.mark.parametrize(
    ("text", "shown"), [("a|b", "`a¦b`"), ("`", "`'`"), ("", "`-`"), ("\n", "`\\n`"), ("\\|", "`\\¦`")]
)
def test_a_code_span_cannot_be_left(text, shown):
    assert code(text) == shown


def test_targets_that_had_no_turn_have_no_verdict_and_are_not_unsupported(tmp_path):
    late = [sample.untold(f"sglang/m/{sample.CONTRACT}/late{i}") for i in range(5)]
    refused = sample.untold(reason="no such symbol")
    text = summary(tmp_path, sample.started(), sample.start(1), sample.end(1, "AGREE"), *late, refused)
    assert "| 1 | 1 | 1 | 0 | 0 | 1 |" in text
    assert "**No verdict** (1)" in text
    assert "5 targets not reached: the run ended before its turn: `sglang/m/" in text and "and 2 more" in text
