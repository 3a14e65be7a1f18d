"""Graphs, side streams and repetitions on a real GPU: what is right agrees, and each fault shows where it should."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fuzz import adapter as adapters
from fuzz.executor import execute
from fuzz.presentation import PLAIN, Presentation
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import CONTRACT, Request
from tests.gpu.launches import launch_of

adapters.BUILT_IN["gpu_presentations"] = "tests.gpu.presentation_modules"
pytestmark = pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="UNSUPPORTED: no GPU here")

CASE = replace(CONTRACT.example, requests=(Request(250, 2, 0), Request(300, 3, 1), Request(17, 4, 2)))
SHOWN = {
    "plain": PLAIN,
    "strided": Presentation(strided=True),
    "graph": Presentation(graph=True),
    "strided graph": Presentation(graph=True, strided=True),
    "stream": Presentation(stream=True),
    "repeat": Presentation(repeat=True),
}
RIGHT = dict.fromkeys(SHOWN, Kind.AGREE)
IN_A_GRAPH = ("graph", "strided graph")
EXPECTED = {
    "kernel": RIGHT,
    "torch_operators": RIGHT,
    "bakes": RIGHT | dict.fromkeys(IN_A_GRAPH, Kind.DIVERGE),
    "strays": RIGHT | dict.fromkeys(IN_A_GRAPH) | {"stream": Kind.DIVERGE},  # in a graph it may do anything
    "sums": {"repeat": Kind.DIVERGE},
    "waits": RIGHT | dict.fromkeys(IN_A_GRAPH, Kind.UNSUPPORTED),
    "host_only": RIGHT | dict.fromkeys(IN_A_GRAPH, Kind.UNSUPPORTED),
}


@pytest.fixture(scope="module")
def session():
    launch = launch_of("gpu_presentations", "tests.gpu.presentation_engine", torch=True)
    with Session(launch, deadline_s=120.0) as made:  # a kernel is compiled in the first call
        yield made


def target(name: str):
    return adapters.load("gpu_presentations")[f"gpu_presentations/gpu/{CONTRACT.name}/{name}"]


@pytest.mark.parametrize(("name", "shown"), [(n, s) for n, kinds in EXPECTED.items() for s in kinds])
def test_each_fault_shows_in_its_presentation_and_the_next_case_agrees(session, name, shown):
    verdict = execute(session, target(name), CASE, SHOWN[shown])
    expected = EXPECTED[name][shown]
    assert expected is None or verdict.kind is expected, verdict
    assert execute(session, target("kernel"), CASE).kind is Kind.AGREE


def test_a_graph_is_captured_again_for_every_case(session):
    for shift in range(5):
        case = replace(CASE, requests=tuple(replace(r, pre=r.pre + shift) for r in CASE.requests))
        assert execute(session, target("kernel"), case, SHOWN["graph"]).kind is Kind.AGREE
        assert execute(session, target("bakes"), case, SHOWN["graph"]).kind is Kind.DIVERGE


def test_why_there_is_no_graph_is_said_and_no_process_is_lost_over_it(session):
    before = session.worker_pid_if_any
    said = execute(session, target("waits"), CASE, SHOWN["graph"]).evidence["reason"]
    assert said.startswith("path not taken: production cannot be captured: ")
    said = execute(session, target("host_only"), CASE, SHOWN["graph"]).evidence["reason"]
    assert said == "path not taken: production launches nothing that a graph could hold"
    assert execute(session, target("sums"), CASE, SHOWN["repeat"]).identity.kind == "two_runs_differ"
    assert before is None or session.worker_pid_if_any == before
