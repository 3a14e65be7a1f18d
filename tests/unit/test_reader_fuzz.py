"""10,000 damaged or hostile files: each gives a clear error that names it, or a right
report. No traceback, and nothing is written outside the folder of the report.

Seeds are fixed: a number in a failure finds the same file again.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from jsonschema import Draft4Validator

from fuzz import capture, frozen, known, support, triage
from fuzz.commands.report import WRITERS
from oracle import contracts
from oracle.contract import InvalidCase
from reports import markdown, sarif, tables
from reports.events import read
from reports.junit import junit, to_xml, unasked
from reports.model import view
from tests import mutate
from tests import sample_run as sample

DATA = Path(__file__).parents[1] / "data"
JUNIT = xmlschema.XMLSchema(DATA / "junit-10.xsd")
SARIF = Draft4Validator(json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8")))
CORPUS = Path(__file__).parents[2] / "fixtures"
BLOCKS, EVENTS, CASES, LISTS, SUPPORT, CAPTURES = range(10), 500, 200, 150, 50, 100  # 10 blocks: 10,000 files
PAGES = 40  # of the files with events, the slowest writer
SCHEMA_EVERY, TABLES_EVERY = 10, 4  # of the files that can be read
MAX_ERROR = 1000  # characters of a clear error

ONE_PATH, TWO_PATHS = ("os.mkdir", "os.remove", "os.rmdir"), ("os.rename", "os.symlink", "os.link")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_outside: list[str] | None = None  # paths written while watched
_inside = ""


def _audit(event: str, arguments: tuple) -> None:
    if _outside is None or event not in ("open", *ONE_PATH, *TWO_PATHS):
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
        return
    for path in arguments[: 2 if event in TWO_PATHS else 1]:
        if isinstance(path, str | Path) and not f"{os.path.realpath(path)}{os.sep}".startswith(_inside):
            _outside.append(f"{event} {path}")


sys.addaudithook(_audit)


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fail when anything outside ``folder`` is written."""
    global _outside, _inside
    _outside, _inside = [], os.path.realpath(folder) + os.sep
    try:
        yield
        assert not _outside, _outside
    finally:
        _outside = None


def clear(error: Exception, name: str) -> None:
    """An error is one printable line that names the file."""
    said = str(error)
    assert name in said and said.isprintable() and len(said) < MAX_ERROR, repr(said)


def mutant(raw: bytes, plain: list | dict | None, rng: random.Random) -> bytes:
    """A damaged or hostile version of a file: lines of JSON, one JSON document, or
    other text (``plain`` None)."""
    if plain is None or rng.random() < 0.4:
        return mutate.damaged(raw, rng)
    if isinstance(plain, dict):
        return mutate.hostile(plain, rng).encode("utf-8", "surrogatepass")
    lines = raw.split(b"\n")
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(plain))
        lines[at] = mutate.hostile(json.loads(lines[at]), rng).encode("utf-8", "surrogatepass")
        plain = plain if rng.random() < 0.9 else plain[:at] or plain
    return b"\n".join(lines)


def each(block: int, count: int, what: str) -> Iterator[tuple[int, random.Random]]:
    for number in range(block * count, (block + 1) * count):
        yield number, random.Random(f"{what}:{number}")


def _runs(tmp_path: Path, block: int, count: int, use: Callable[[Path, int], object]) -> None:
    out, readable = tmp_path / "run", 0
    runs = [sample.every_kind(), sample.several_engines()]
    use(sample.write(out, runs[0]), 0)  # imports are done before the watch
    with watched(out):
        for number, rng in each(block, count, "events"):
            events = runs[number % len(runs)]
            (out / "events.ndjson").write_bytes(mutant(sample.text(events), events, rng))
            try:
                read(out)
            except ValueError as error:
                clear(error, "events.ndjson")
                continue
            readable += 1
            use(out, number)
    assert readable > count // 10, "most of the files were refused: the writers were not tried"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("block", BLOCKS)
def test_events_and_every_writer(tmp_path, block):
    _runs(tmp_path, block, EVENTS, _reports)


@pytest.mark.parametrize("block", BLOCKS)
def test_events_and_the_pages(tmp_path, block):
    _runs(tmp_path, block, PAGES, lambda out, number: WRITERS["html"]([out], out, CORPUS))


def _reports(out: Path, number: int) -> None:
    """Every writer but that of the pages, on a run that can be read."""
    events = read(out)
    raw = to_xml(junit(events))
    root = ElementTree.fromstring(raw)
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    seen = view([out])
    log = json.loads(sarif.to_bytes(seen))
    fails = [r for run in log["runs"] for r in run["results"] if r["kind"] == "fail" and "suppressions" not in r]
    stale = [e for run in seen.runs for e in run.stale if e["strict"]]
    assert bool(fails or stale) == (root.find("testsuite/testcase/failure") is not None) or _sweeps(events)
    summary = markdown.markdown(seen)
    assert len(summary.splitlines()) < 60 and len(summary) < markdown.MAX_CHARACTERS
    if number % SCHEMA_EVERY == 0:
        JUNIT.validate(root)
        problem = next(SARIF.iter_errors(log), None)
        assert problem is None, problem.message[:300]
    if number % TABLES_EVERY == 0:
        frames = tables.frames([out])
        rows = sum(e["event"] in ("end", "swept") for e in events) + len(unasked(events))
        assert len(frames["verdicts"]) == rows or "engines" in events[0]
        tables.write([out], out, "csv")


def _sweeps(events: list[dict]) -> bool:
    """A sweep that stopped fails as a test and is no divergence."""
    return any(e["event"] == "swept" for e in events)


def _cases() -> list[bytes]:
    by_contract = {p.parent.name: p for p in sorted(CORPUS.glob("*.*/*.json")) if p.stat().st_size < 6000}
    return [p.read_bytes() for p in by_contract.values()]


@pytest.mark.parametrize("block", BLOCKS)
def test_frozen_cases(tmp_path, block):
    cases, path = _cases(), tmp_path / "case.json"
    with watched(tmp_path):
        for number, rng in each(block, CASES, "cases"):
            raw = cases[number % len(cases)]
            path.write_bytes(mutant(raw, json.loads(raw), rng))
            try:
                again = frozen.read(path)
            except frozen.CorpusError as error:
                clear(error, "case.json")
                continue
            raw = frozen.to_bytes(again, "x")
            assert frozen.to_bytes(frozen.parse(raw, "x"), "x") == raw
            contracts.get(again.contract).run(again.case)


def _lists(path: Path, text: bytes, files: Iterator[tuple[int, random.Random]], use: Callable[[], object]) -> None:
    path.parent.mkdir(exist_ok=True)
    with watched(path.parent):
        for _, rng in files:
            raw = mutant(text, None, rng)
            path.write_bytes(raw)
            try:
                use()
            except frozen.CorpusError as error:
                clear(error, path.name)
                assert path.read_bytes() == raw, "a file that is refused is left alone"


@pytest.mark.parametrize("block", BLOCKS)
def test_known_lists(tmp_path, block):
    text = (CORPUS / "known" / "sglang.toml").read_bytes()
    text += b'by = "Ada"\non = 2026-11-29\nexpires = 2027-01-31\nstate = "reopened"\nnotes = [\n    "a",  # b\n]\n'

    def use() -> None:
        listed = known.load(tmp_path, "sglang")
        for entry in listed:
            entry.covers(entry.identity, "0.5.23", "cpu")
        if listed:
            triage.note(tmp_path, "sglang", 0, "Ada", "a remark", date(2026, 11, 29))
            again = known.load(tmp_path, "sglang")
            assert again[1:] == listed[1:] and again[0].notes == (*listed[0].notes, "2026-11-29 Ada: a remark")

    _lists(tmp_path / "known" / "sglang.toml", text, each(block, LISTS, "known"), use)


@pytest.mark.parametrize("block", BLOCKS)
def test_support_tables(tmp_path, block):
    text = b'["sglang==0.5.23"]\ncpu = [\n    "a/b/c/d",\n]\n\n["sglang==0.5.22"]\ncuda = []\n'
    _lists(tmp_path / "support.toml", text, each(block, SUPPORT, "support"),
           lambda: support.expected(tmp_path, "sglang", "0.5.23", "cpu"))  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_captured_inputs(tmp_path, block):
    fields = {
        "grid": 256, "draft_tokens": 4, "path_width": 4, "form": "chain", "length_dtype": "int64",
        "committed_dtype": "int32", "situation": "verify", "tracking": True,
        "requests.pre": [255, 10], "requests.committed": [1, 2], "requests.track_slot": [0, 1],
        "requests.path": [[], []],
    }  # fmt: skip
    plain = {"capture": 1, "contract": "commit.checkpoint_steps", "fields": fields}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(plain))
    capture.read(path)
    with watched(tmp_path):
        for _, rng in each(block, CAPTURES, "captures"):
            path.write_bytes(mutant(json.dumps(plain).encode(), plain, rng))
            try:
                capture.read(path)
            except (frozen.CorpusError, InvalidCase) as error:
                clear(error, "dump.json")
