"""What only a GPU can show: how it is drawn, sent, frozen, gated, and dropped where it cannot be had."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from fuzz import adapter as adapters
from fuzz.campaign import MAX_BATCH, Campaign, Options
from fuzz.cli import cli
from fuzz.commands import gate as command
from fuzz.commands import gate_words
from fuzz.corpus import make
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events
from fuzz.executor import OUTSIDE_DOMAIN, execute
from fuzz.frozen import parse, to_bytes
from fuzz.gate import GateResult, gate
from fuzz.presentation import NoOtherBatch, Presentation, other_batch, present
from fuzz.strategies.case import IN_GRAPH, ON_STREAM, shown_case, without_device
from fuzz.strategies.source import RandomSource, ReplaySource
from fuzz.target_state import STOP_AFTER_UNCAPTURED
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import CONTRACT, Request
from tests.conftest import fake_launch
from tests.fake_engine import right

REQUESTS = tuple(Request(250 + i, 1 + i % 4, i) for i in range(3))
CASE = replace(CONTRACT.example, requests=REQUESTS)
GRAPH, STREAM = Presentation(graph=True), Presentation(stream=True)
NO_GRAPH = "path not taken: production cannot be captured: RuntimeError: it waits for the device"
TARGET = "fake/fake/commit.checkpoint_steps/right"
FIXTURES = Path(__file__).parents[2] / "fixtures"


class OnDevice:
    """A session on a GPU that is none: it answers rightly, but for a graph as ``graph`` says."""

    def __init__(self, graph: str | None = None):
        self.graph, self.requests = graph, []
        self.launch, self.ready = replace(fake_launch(), device="cuda:0"), {"places": {}}

    history = ()

    def late(self):
        return []

    def stream(self, requests):
        return map(self.call, requests)

    def call(self, request):
        self.requests.append(request)
        if "graph" in request and self.graph:
            return {"status": "unsupported", "reason": self.graph}
        return {"status": "ok", "observed": right(SimpleNamespace(**request["case"]))}


@pytest.fixture()
def target():
    return adapters.load("fake")[TARGET]


def test_a_graph_is_captured_with_each_record_in_another_row():
    assert other_batch(CONTRACT, CASE, GRAPH).requests == (REQUESTS[2], REQUESTS[0], REQUESTS[1])
    shown = present(CONTRACT, CASE, replace(GRAPH, order=2)).requests
    assert other_batch(CONTRACT, CASE, replace(GRAPH, order=2)).requests == (shown[2], shown[0], shown[1])


def test_rows_of_padding_were_those_of_live_requests():
    contract = replace(CONTRACT, padding=lambda case: Request(0, 1, -1))
    before = other_batch(contract, CASE, replace(GRAPH, padding=2)).requests
    assert before[2:] == REQUESTS and present(contract, CASE, replace(GRAPH, padding=2)).requests[:3] == REQUESTS
    one = replace(CASE, requests=REQUESTS[:1])
    assert other_batch(contract, one, replace(GRAPH, padding=1)).requests[1:] == REQUESTS[:1]


@pytest.mark.parametrize(
    ("contract", "requests"),
    [
        (CONTRACT, REQUESTS[:1]),
        (CONTRACT, ()),
        (CONTRACT, REQUESTS[:1] * 3),
        (replace(CONTRACT, ordered=True), REQUESTS),
    ],
)
def test_where_there_is_no_other_batch_there_is_no_graph(contract, requests):
    with pytest.raises(NoOtherBatch):
        other_batch(contract, replace(CASE, requests=requests), replace(GRAPH, padding=2))


def test_a_refused_graph_is_unsupported_and_nothing_is_sent(target):
    session = OnDevice()
    assert execute(session, target, replace(CASE, requests=REQUESTS[:1]), GRAPH).kind is Kind.UNSUPPORTED
    picky = replace(target, accepts=lambda c: "starts elsewhere" if int(c.pre[0]) == REQUESTS[2].pre else None)
    verdict = execute(session, picky, CASE, GRAPH)
    assert verdict.kind is Kind.UNSUPPORTED and not verdict.evidence["reason"].startswith(OUTSIDE_DOMAIN)
    assert not session.requests
    assert execute(session, target, CASE, GRAPH).kind is Kind.AGREE
    (request,) = session.requests
    assert request["graph"]["pre"].tolist() == [252, 250, 251] and request["case"]["pre"].tolist() == [250, 251, 252]


def test_on_a_cpu_the_choices_stay_and_a_gpu_adds_one_behind_them():
    ways = set()
    for seed in range(60):
        cpu, gpu = RandomSource(seed), RandomSource(seed)
        case, how = shown_case(CONTRACT.name)(cpu)
        again, shown = shown_case(CONTRACT.name, "cuda:0")(gpu)
        assert gpu.choices[:-1] == cpu.choices and again == case
        assert shown_case(CONTRACT.name, "cuda:0")(ReplaySource(gpu.choices)) == (again, shown)
        assert shown_case(CONTRACT.name, "cuda:0")(ReplaySource(without_device(gpu.choices))) == (case, how)
        way = gpu.choices[-1]
        ways.add(way)
        assert (shown.stream, shown.graph) == (way == ON_STREAM, way == IN_GRAPH)
        assert shown == how or not shown.repeat
    assert ways == set(range(6))


def test_a_frozen_case_says_it_only_where_it_is_so():
    frozen = make(CONTRACT.name, CASE, slug="a-case", reason="long enough to be one", presentation=GRAPH)
    raw = to_bytes(frozen, "here")
    assert json.loads(raw)["presentation"]["graph"] is True and "stream" not in json.loads(raw)["presentation"]
    assert parse(raw, "here") == frozen and parse(raw, "here").presentation.names() == ["graph"]
    plainly = to_bytes(replace(frozen, presentation=Presentation()), "here")
    assert sorted(json.loads(plainly)["presentation"]) == ["order", "padding", "repeat", "strided"]


@pytest.mark.parametrize(("reason", "graphs"), [(NO_GRAPH, STOP_AFTER_UNCAPTURED), (None, 20)])
def test_a_target_without_graphs_is_fuzzed_without(tmp_path, target, reason, graphs):
    session = OnDevice(reason)
    with Events(tmp_path / "run") as events:
        campaign = Campaign(session, [target], Options(max_examples=400, max_seconds=60), events)
        campaign.run()
    (state,) = campaign.states
    asked = [i for i, r in enumerate(session.requests) if "graph" in r]
    # Those that were drawn before the third had its answer are on their way.
    assert graphs <= len(asked) <= graphs + MAX_BATCH if reason else len(asked) > graphs
    shown = [(r["case"]["pre"].tolist(), "graph" in r) for r in session.requests]
    for i in asked if reason else ():  # and the case is asked without
        assert (shown[i][0], False) in shown[i + 1 :]
    assert state.reason is None and any("stream" in r for r in session.requests)
    (said,) = [e for e in map(json.loads, (tmp_path / "run" / "events.ndjson").open()) if e["event"] == "target"]
    assert said.get("no_graph") == ({reason: len(asked)} if reason else None)
    assert state.has_no_graph == bool(reason)


def test_a_target_that_has_a_graph_of_some_cases_is_asked_further(tmp_path, target):
    session = OnDevice(NO_GRAPH)
    call = session.call

    def moody(request):  # the second case in a graph has one
        session.graph = None if sum("graph" in r for r in session.requests) == 1 else NO_GRAPH
        return call(request)

    session.call = moody
    with Events(tmp_path / "run") as events:
        campaign = Campaign(session, [target], Options(max_examples=400, max_seconds=60), events)
        campaign.run()
    (state,) = campaign.states
    assert state.captured == 1 and state.uncaptured[NO_GRAPH] > STOP_AFTER_UNCAPTURED and not state.has_no_graph


def test_a_gate_in_more_presentations_counts_what_has_none_apart(tmp_path, target):
    frozen = make(CONTRACT.name, CASE, slug="a-case", reason="long enough to be one")
    session, result = OnDevice(NO_GRAPH), GateResult()
    with Events(tmp_path / "run") as events:
        gate(session, [target], [(Path("a"), frozen)], events, [], result, more=("graph", "stream", "repeat"))
    assert result.verdicts == {Kind.AGREE: 3} and result.not_shown == {("graph", NO_GRAPH): 1}
    assert [("graph" in r, "stream" in r, r["repeat"]) for r in session.requests] == [
        (False, False, False), (True, False, False), (False, True, False), (False, False, True),
    ]  # fmt: skip
    said = [e for e in map(json.loads, (tmp_path / "run" / "events.ndjson").open()) if e["event"] == "start"]
    assert [e.get("presentation") for e in said] == [None, ["graph"], ["side stream"], ["repeat"]]


def test_a_pair_that_does_not_run_is_asked_once(tmp_path, target):
    frozen = make(CONTRACT.name, CASE, slug="a-case", reason="long enough to be one")
    picky, session, result = replace(target, accepts=lambda case: "nothing is"), OnDevice(), GateResult()
    with Events(tmp_path / "run") as events:
        gate(session, [picky], [(Path("a"), frozen)], events, [], result, more=("graph", "stream"))
    assert result.verdicts == {Kind.UNSUPPORTED: 1} and not result.not_shown


def test_the_command_takes_presentations(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "read_engines", lambda *_: [EngineSpec("fake", version="1.0")])
    monkeypatch.setattr(command, "provisioned", lambda *_: fake_launch())
    corpus = tmp_path / "corpus"
    (corpus / CONTRACT.name).mkdir(parents=True)
    shutil.copy(FIXTURES / CONTRACT.name / "lands-on-64-f0a98aec29.json", corpus / CONTRACT.name)

    def run(*more, target="*/right"):
        arguments = [
            "gate",
            "--target",
            target,
            "--corpus",
            str(corpus),
            "--out",
            str(tmp_path / f"{target[2:]}{len(more)}"),
        ]
        return CliRunner().invoke(cli, [*arguments, *more])

    done = run("--present", "repeat")
    assert done.exit_code == 0 and "1 frozen case, 1 target: 2 AGREE" in done.output
    done = run("--present", "repeat", target="*two_bugs")
    assert done.exit_code == 1 and "frozen cases that show it: 1" in done.output
    for name in ("graph", "stream"):
        done = run("--present", name)
        assert done.exit_code == 2 and f"--present {name} is for a GPU; add --device cuda" in done.output


def test_a_hit_in_another_presentation_says_how_to_see_it_again():
    paths = {"c/a": Path("c/a.json")}
    assert gate_words._again("c/a", paths, "--engine e") == "specoracle replay c/a.json --engine e"
    assert gate_words._again("c/a graph", paths, "--engine e") == (
        "specoracle gate --corpus c/a.json --present graph --engine e"
    )
