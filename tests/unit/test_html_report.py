"""The HTML report from disk: what pages say, and what a stranger's run cannot do."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from oracle import contracts
from reports import html
from reports.events import read
from reports.history import Past
from reports.html import cases, pages
from tests import mutant_run
from tests.unit.test_html_model import IDENTITY, RED, TARGET, case, run

STEPS = "commit.checkpoint_steps"
ATTACK = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e"


@pytest.fixture(scope="module")
def finds(tmp_path_factory) -> Path:
    return mutant_run.write(tmp_path_factory.mktemp("finds") / "run", STEPS, "verify.greedy_tree")


def page_of(report: Path, identity: str) -> str:
    """The page whose identity ends so."""
    pages = [p.read_text() for p in sorted((report / "divergences").iterdir())]
    return next(p for p in pages if re.search(rf"{re.escape(identity)}[^<]*</dd>", p))


def write(tmp_path, *runs, corpus=None) -> Path:
    return html.write(runs, tmp_path / "report", corpus).parent


def test_the_folder_is_self_contained(finds, tmp_path):
    report = write(tmp_path, finds)
    for page in report.rglob("*.html"):
        text = page.read_text()
        for name in re.findall(r'(?:href|src)="([^"#]+)"', text):
            assert not re.match(r"[a-z]+:|/", name), (page, name)
            assert (page.parent / name).resolve().is_file(), (page, name)
            assert (page.parent / name).resolve().is_relative_to(report.resolve())
        assert "default-src 'none'" in text
        assert not re.search(r"<script(?![^>]*src=)|<style| style=| on[a-z]+=", text), page


def test_a_page_says_what_must_happen_and_what_did(finds, tmp_path):
    page = page_of(write(tmp_path, finds), "checkpoint_step | missing")
    assert "must be saved as the checkpoint" in page
    assert "Production saves nothing" in page
    assert "<svg" in page
    assert re.search(r"specoracle replay cases/\w+\.json --engine sglang==0\.5\.18 --target", page)
    assert "✗ -1" in page


def test_the_case_travels_with_the_report(finds, tmp_path):
    report = write(tmp_path, finds)
    files = list((report / "cases").iterdir())
    assert len(files) == len(list((report / "divergences").iterdir()))
    assert json.loads(files[0].read_text())["contract"] in contracts.all_contracts()


def test_history_names_first_seen_and_fixed_in(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "known").mkdir(parents=True)
    fault = {k: IDENTITY[k] for k in ("target", "field", "kind")}
    words = "".join(f'{k} = "{v}"\n' for k, v in fault.items())
    why = "The rule is wrong. Reachable: every round."
    (corpus / "faults.toml").write_text(
        f'[[fault]]\n{words}versions = ["0.5.10", "0.5.9"]\nissue = "7"\nwhy = "{why}"\n'
    )
    (corpus / "support.toml").write_text("".join(f'["sglang==0.5.{n}"]\ncpu = []\n' for n in (8, 9, 10, 12)))
    page = page_of(write(tmp_path, run(tmp_path / "r", *case(1, **RED)), corpus=corpus), "checkpoint_step | missing")
    assert re.search(r"<dt>first seen in</dt><dd>0\.5\.9", page)
    assert re.search(r"<dt>fixed in</dt><dd>0\.5\.12", page)
    assert "<dt>production reaches it</dt><dd>Every round.</dd>" in page


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Reachable: every round.", "Every round."), ("Reachable under overlap; loud.", "Under overlap; loud."),
        ("every round", "every round"), ("Reachable", "Reachable"), ("not Reachable: no", "not Reachable: no"),
    ],
)  # fmt: skip
def test_the_answer_does_not_say_the_question_again(said, shown):
    assert pages.reachable(Past(known=({"reachable": said},)), None) == shown


def test_a_known_entry_is_shown_and_only_a_web_address_becomes_a_link(tmp_path):
    corpus = tmp_path / "corpus"
    (corpus / "known").mkdir(parents=True)
    entry = IDENTITY | {
        "versions": ">=0.5",
        "line": "a.py:1",
        "reachable": "hostile input only",
        "reason": "bounded later",
    }
    for link, shown in (("javascript:alert(1)", False), ("https://example.org/1", True)):
        words = "".join(f"{k} = {json.dumps(v)}\n" for k, v in (entry | {"link": link}).items())
        (corpus / "known" / "sglang.toml").write_text(f"[[known]]\n{words}")
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        report = write(tmp_path, run(tmp_path / "r", *case(1, known=True, **RED)), corpus=corpus)
        page = page_of(report, "checkpoint_step | missing")
        assert (f'href="{link}"' in page) == shown
        assert "hostile input only" in page
        assert "No divergence that is not listed" in (report / "index.html").read_text()


def test_a_gates_case_is_found_in_the_corpus_by_its_name(tmp_path):
    name = sorted((mutant_run.FIXTURES / STEPS).glob("*.json"))[0].stem
    folder = run(tmp_path / "r", *case(1, file=f"{STEPS}/{name}", **RED))
    page = page_of(write(tmp_path, folder, corpus=mutant_run.FIXTURES), "checkpoint_step | missing")
    assert "cases/" in page
    assert "No case was frozen" not in page


@pytest.mark.parametrize(("takes", "wrong"), [("right", "left"), ("left", "right"), ("neither", "left")])
def test_of_two_compared_targets_the_wrong_one_is_shown(finds, tmp_path, takes, wrong):
    """A comparison says what each side did; the page shows the side that the reference
    does not take, and replays it."""
    folder = tmp_path / "r"
    shutil.copytree(finds, folder)
    event = next(e for e in read(finds) if e["event"] == "found" and e["identity"]["kind"] == "missing")
    evidence = event["evidence"]
    evidence |= {"takes": takes, wrong: evidence.pop("observed"), f"all_{wrong}": evidence.pop("all_observed")}
    evidence["blamed"] = {"engine": "sglang==0.5.16", "target": "sglang/a/b/c"}
    (folder / "events.ndjson").write_text(json.dumps(read(finds)[0]) + "\n" + json.dumps(event) + "\n")
    page = page_of(write(tmp_path, folder), "checkpoint_step | missing")
    assert "Production saves nothing" in page
    assert "--engine sglang==0.5.16 --target sglang/a/b/c" in page
    assert f"<dt>the reference takes</dt><dd>{takes}</dd>" in page


def hostile_run(folder: Path) -> Path:
    """A run in which every text is an attack."""
    target = f"sglang/{ATTACK}/{STEPS}/x"
    identity = IDENTITY | {"target": target, "field": ATTACK, "kind": ATTACK}
    evidence = {k: ATTACK for k in ("claim", "message", "reason", "expected", "observed", "traceback", "output")}
    red = {"verdict": "DIVERGE", "identity": identity, "evidence": evidence | {"all_observed": {ATTACK: ATTACK}}}
    odd = {"verdict": "UNSUPPORTED", "evidence": {"reason": ATTACK}}
    bad = {"verdict": "HARNESS_ERROR", "evidence": {"message": ATTACK}}
    end = {"event": "run_finished", "exit": ATTACK, "stopped": ATTACK}
    return run(
        folder, *case(1, target=target, **red), *case(2, target=target, **odd), *case(3, target=target, **bad), end,
        engine=ATTACK, version=ATTACK, device=ATTACK, command=ATTACK, seed=ATTACK, time=ATTACK,
        environment={ATTACK: ATTACK}, worker={"versions": {ATTACK: ATTACK}}, places={target: ATTACK},
    )  # fmt: skip


def test_hostile_text_is_shown_and_stays_text(tmp_path):
    report = write(tmp_path, hostile_run(tmp_path / "r"))
    for page in report.rglob("*.html"):
        text = page.read_text()
        assert "<script>document" not in text, page
        assert "<img" not in text, page
        assert "\u202e" not in text, page
        assert "&lt;script&gt;" in text, page


@pytest.mark.parametrize(
    "frozen",
    [
        "found/../../secret.json", "../secret.json", "/etc/hostname.json", "found/commit.checkpoint_steps/../x.json",
        "found/commit.checkpoint_steps/link.json", "found/linked/secret.json",
        "found/commit.checkpoint_steps/pipe.json",
        "found/commit.checkpoint_steps/folder.json", "found/\x00/x.json", "found", "", "found/a/b/c.json",
        "found/../inside.json",
    ],
)  # fmt: skip
def test_no_file_outside_the_finds_is_read(tmp_path, frozen):
    secret = tmp_path / "secret.json"
    shutil.copy(sorted((mutant_run.FIXTURES / STEPS).glob("*.json"))[0], secret)
    found = tmp_path / "r" / "found" / STEPS
    event = {"event": "found", "target": TARGET, "contract": STEPS, "frozen": frozen, **RED}
    folder = run(tmp_path / "r", *case(1, **RED), event)
    found.mkdir(parents=True)
    (found / "link.json").symlink_to(secret)
    shutil.copy(secret, tmp_path / "r" / "inside.json")
    (tmp_path / "r" / "found" / "linked").symlink_to(tmp_path)
    os.mkfifo(found / "pipe.json")
    (found / "folder.json").mkdir()
    report = write(tmp_path, folder)
    assert not list((report / "cases").iterdir())
    assert "See it again" not in page_of(report, "checkpoint_step | missing")


def test_a_report_does_not_follow_a_link_out_of_its_folder(finds, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "divergences").symlink_to(outside)
    with pytest.raises(ValueError, match="divergences"):
        write(tmp_path, finds)
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "not JSON"), (b"[" * 40 + b"]" * 40, "nested deeper"), (b"{}", "no case of"),
        (json.dumps({"contract": STEPS, "case": {"grid": 0}}).encode(), "no valid case"),
        (json.dumps({"contract": STEPS, "case": None}).encode(), "no valid case"), (b"\xff", "not JSON"),
    ],
)  # fmt: skip
def test_a_bad_case_file_is_said(raw, words):
    with pytest.raises(ValueError, match=words):
        cases.parse(raw, STEPS)


def test_a_case_file_that_cannot_be_shown_leaves_a_page_that_says_so(tmp_path):
    event = {"event": "found", "target": TARGET, "contract": STEPS, "frozen": f"found/{STEPS}/x.json", **RED}
    folder = run(tmp_path / "r", *case(1, **RED), event)
    (folder / "found" / STEPS).mkdir(parents=True)
    (folder / "found" / STEPS / "x.json").write_text("{}")
    assert "holds no case of" in page_of(write(tmp_path, folder), "checkpoint_step | missing")


def test_a_long_claim_is_cut_on_its_page_and_in_the_table(tmp_path):
    red = RED | {"evidence": {"claim": "x" * 100_000, "traceback": "y" * 100_000}}
    report = write(tmp_path, run(tmp_path / "r", *case(1, **red)))
    for page in (report / "index.html", *(report / "divergences").iterdir()):
        assert page.stat().st_size < 40_000


def test_a_report_made_again_has_no_page_of_the_old_one(finds, tmp_path):
    old = write(tmp_path, finds)
    (old / "divergences" / "mine.html").write_text("kept")
    write(tmp_path, run(tmp_path / "r", *case(1, **RED)))
    assert len(list((old / "divergences").iterdir())) == 2
    assert not list((old / "cases").iterdir())


def test_a_run_without_a_verdict_is_never_called_clean(tmp_path):
    odd = {"verdict": "UNSUPPORTED", "evidence": {"reason": "no such symbol"}}
    report = write(tmp_path, run(tmp_path / "r", *case(1, **odd)))
    text = (report / "index.html").read_text()
    assert "<h1>Nothing was executed" in text
    assert "no such symbol" in text
    assert "killed before its end" in text


def test_the_overview_lists_behaviours_that_no_target_reached(tmp_path):
    report = write(tmp_path, run(tmp_path / "r", *case(1, behaviours=["no_boundary"])))
    missed = re.search(r'<ul class="missed">(.*?)</ul>', (report / "index.html").read_text(), re.S).group(1)
    assert "crossed_several" in missed
    assert "no_boundary" not in missed


def table(page: str, section: str) -> list[dict[str, str]]:
    """The first table of a section, a dictionary a row."""
    part = re.search(rf'<section id="{section}">.*?<table.*?</table>', page, re.S).group()
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr.*?</tr>", part, re.S)]
    plain = [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in rows]
    return [dict(zip(plain[0], row, strict=True)) for row in plain[1:]]


def test_a_target_that_had_no_turn_has_no_verdict(tmp_path):
    said = {"event": "target", "target": f"sglang/a/{STEPS}/late", "contract": STEPS, "executed": 0, "reason": None}
    red = run(tmp_path / "old", *case(1, target=f"sglang/a/{STEPS}/late", **RED), version="0.5.16")
    report = write(tmp_path, run(tmp_path / "r", *case(1), said), red)
    page = (report / "index.html").read_text()
    row = {"Target": f"sglang/a/{STEPS}/late", "Run": "sglang==0.5.18"}
    assert table(page, "troubles") == [row | {"Why": "not reached: the run ended before its turn"}]
    cells = {row["Target"]: row["sglang==0.5.18"] for row in table(page, "agreement")}
    assert cells[row["Target"]] == "NOT_REACHED"
    assert 'id="unsupported"' not in page
    assert "<td>not reached: the run ended before its turn</td>" in page_of(report, "checkpoint_step | missing")


def test_what_is_unsupported_stands_under_its_titles(tmp_path):
    odd = {"verdict": "UNSUPPORTED", "evidence": {"reason": "no such symbol"}}
    page = (write(tmp_path, run(tmp_path / "r", *case(1, **odd))) / "index.html").read_text()
    row = {"Target": TARGET, "Reason": "no such symbol", "Runs": "sglang==0.5.18", "Cases": "1"}
    assert table(page, "unsupported") == [row]


def test_a_listed_find_without_a_file_says_why_it_has_no_picture(tmp_path):
    found = {"event": "found", "target": TARGET, "contract": STEPS, "known": True, **RED}
    page = page_of(
        write(tmp_path, run(tmp_path / "r", *case(1, known=True, **RED), found)), "checkpoint_step | missing"
    )
    assert "No case was frozen for it: it is listed" in page and "must be 0, production has -1" in page


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"), ([0, 1], "[0, 1]"), ("text", "text"), ({"one_of": [[0]], "margin_ulp": None}, "[0]"),
        ({"one_of": [3, 5], "margin_ulp": 0.25}, "one of 3, 5 (0.25 ULP from an edge)"),
        ({"between": [0, 7]}, "any from 0 to 7"), ({"real": [0.5, 0.75], "nan": True}, "0.5 to 0.75 or NaN"),
        ({"each": [{"one_of": [1, 2]}, 3], "distinct": True}, "[one of 1, 2; 3], all different"),
        ({"branches": [1, 2, 1], "margins_ulp": [0, 0.5, 0.1]}, "1 or 2 (0.5 ULP from an edge)"),
        ({"one_of": [1, 2], "margin_ulp": 10**400}, "one of 1, 2"),
        ({"one_of": []}, "one_of: []"), ({"one_of": 5}, "one_of: 5"), ({"between": [1]}, "between: [1]"),
        ({"branches": [1], "margins_ulp": []}, "branches: [1], margins_ulp: []"), ([{"one_of": [4]}, 2], "[4; 2]"),
    ],
)  # fmt: skip
def test_what_must_be_is_said_in_words(tmp_path, value, words):
    red = RED | {"evidence": RED["evidence"] | {"expected": value}}
    page = page_of(write(tmp_path, run(tmp_path / "r", *case(1, **red))), "checkpoint_step | missing")
    assert f"<dt>expected</dt><dd>{words}</dd>" in page


def test_one_of_a_thing_is_not_said_in_the_plural(tmp_path):
    folder = run(tmp_path / "r", *case(1, **RED), max_examples=1, cases=1, rows=1)
    report = write(tmp_path, folder)
    page = (report / "index.html").read_text() + page_of(report, "checkpoint_step | missing")
    assert "<title>specoracle report: 1 divergence</title>" in page and "1 case on sglang" in page
    assert "1 case a target, 1 frozen case, 1 row a target" in page and "DIVERGE, 1 case</td>" in page
    assert not re.search(r"\b1 (divergences|cases|frozen cases|targets|rows)\b", page)
