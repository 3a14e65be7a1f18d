"""A worker may die, hang or talk nonsense; the case in flight gets the verdict
and the campaign goes on."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import adapter as adapters
from fuzz import supervisor
from fuzz.believe import believe
from fuzz.campaign import Campaign, Options
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle.commit.checkpoint_steps import CONTRACT, Request
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.fake_engine import FAULTS

MISBEHAVES = "fake/fake/commit.checkpoint_steps/misbehaves"


def case_with(pre: int):
    return replace(CONTRACT.example, requests=(Request(pre, 2, 0),))


def adapter(name: str = MISBEHAVES):
    return adapters.load("fake")[name]


EXPECTED = {
    "exit": (Kind.CRASH, "died:exit 7"),
    "segfault": (Kind.CRASH, "died:SIGSEGV"),
    "kill": (Kind.CRASH, "died:SIGKILL"),
    "garbage": (Kind.CRASH, "died:SIGKILL"),
    "flood": (Kind.AGREE, None),
    "harness": (Kind.HARNESS_ERROR, None),
    "stub": (Kind.HARNESS_ERROR, None),
    "swallowed_stub": (Kind.HARNESS_ERROR, None),
    "memory": (Kind.OUT_OF_MEMORY, None),
    "device": (Kind.CRASH, "device:device-side assert triggered"),
    "device_of_ours": (Kind.HARNESS_ERROR, None),
    "path": (Kind.UNSUPPORTED, None),
    "looks_for_its_import": (Kind.AGREE, None),
    "wrong": (Kind.DIVERGE, "wrong_step"),
}


@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_each_fault_has_its_verdict_and_the_next_case_agrees(fake_session, fault):
    code = next(k for k, v in FAULTS.items() if v == fault)
    verdict = execute(fake_session, adapter(), case_with(code))
    kind, difference = EXPECTED[fault]
    assert verdict.kind is kind, verdict
    assert (verdict.identity.kind if verdict.identity else None) == difference
    assert execute(fake_session, adapter(), case_with(5)).kind is Kind.AGREE


def test_a_hang_is_cut_at_the_deadline_and_says_where_it_was():
    with Session(fake_launch(), deadline_s=0.5) as session:
        verdict = execute(session, adapter(), case_with(1004))
        assert verdict.kind is Kind.HANG
        assert "misbehaves" in verdict.evidence["stack"]
        assert execute(session, adapter(), case_with(5)).kind is Kind.AGREE


def test_what_a_dying_worker_printed_is_evidence(fake_session):
    verdict = execute(fake_session, adapter(), case_with(1002))
    assert "Segmentation fault" in verdict.evidence["output"]


def test_workers_killed_at_random_moments_lose_no_case(tmp_path):
    """The sum of verdicts equals the cases sent, whoever dies when."""
    stop = threading.Event()
    rng = random.Random(1)
    with Session(fake_launch(), deadline_s=5.0) as session, Events(tmp_path) as events:

        def killer() -> None:
            while not stop.is_set():
                time.sleep(rng.random() * 0.02)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(session.worker_pid_if_any or 2**22, signal.SIGKILL)

        events.emit("run_started")
        thread = threading.Thread(target=killer)
        thread.start()
        try:
            seen: Counter[Kind] = Counter()
            for i in range(400):
                number = events.start(MISBEHAVES, choices=[])
                verdict = execute(session, adapter(), case_with(5 + i % 400))
                events.end(number, verdict)
                seen[verdict.kind] += 1
        finally:
            stop.set()
            thread.join()
    assert seen.total() == 400
    assert seen[Kind.CRASH] > 0 and seen[Kind.AGREE] > 0
    assert set(seen) == {Kind.CRASH, Kind.AGREE}
    written = event_reader.read(tmp_path)
    assert sum(e["event"] == "start" for e in written) == sum(e["event"] == "end" for e in written) == 400


def test_a_dead_zygote_costs_one_case_and_is_started_again(fake_session):
    assert execute(fake_session, adapter(), case_with(5)).kind is Kind.AGREE
    worker, first = fake_session.worker_pid_if_any, fake_session.zygote_pid
    os.kill(first, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    verdict = execute(fake_session, adapter(), case_with(5))
    assert verdict.kind is Kind.CRASH and verdict.identity.kind == "died:with its zygote"
    assert execute(fake_session, adapter(), case_with(5)).kind is Kind.AGREE
    assert fake_session.zygote_pid != first


def test_a_stopped_zygote_is_given_up(fake_session, monkeypatch):
    monkeypatch.setattr(supervisor, "REAP_DEADLINE_S", 0.3)
    execute(fake_session, adapter(), case_with(5))
    os.kill(fake_session.zygote_pid, signal.SIGSTOP)
    os.kill(fake_session.worker_pid_if_any, signal.SIGKILL)
    assert execute(fake_session, adapter(), case_with(5)).kind is Kind.CRASH
    assert execute(fake_session, adapter(), case_with(5)).kind is Kind.AGREE


def test_a_stopped_worker_does_not_outlive_its_session():
    with Session(fake_launch()) as session:
        execute(session, adapter(), case_with(5))
        worker = session.worker_pid_if_any
        os.kill(worker, signal.SIGSTOP)
        os.kill(session.zygote_pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]


@pytest.mark.parametrize(
    ("code", "words"), [(-11, "SIGSEGV"), (-40, "signal 40"), (3, "exit 3"), (None, "with its zygote")]
)
def test_how_a_worker_ended_has_a_name(code, words):
    assert supervisor.Died(code, "").signal_name == words


def test_two_distinct_bugs_are_found_in_one_run(fake_session, tmp_path):
    target = adapter("fake/fake/commit.checkpoint_steps/two_bugs")
    with Events(tmp_path) as events:
        campaign = Campaign(
            fake_session, [target], Options(max_seconds=20, max_examples=600, continue_on_failure=True), events
        )
        campaign.run()
    found = {(i.field, i.kind) for i in campaign.states[0].found}
    assert found == {("current_step", "wrong_step"), ("checkpoint_step", "missing")}
    small = {f.identity.field: f.belief.case for f in campaign.states[0].found.values()}
    assert [r.committed for r in small["current_step"].requests] == [17]
    assert small["checkpoint_step"].grid == 64 and len(small["checkpoint_step"].requests) == 1


def test_a_target_of_a_narrow_domain_is_looked_for_until_it_is_shown_something(fake_session, tmp_path):
    """One draw in 400 fits: the others are not sent and do not use up its turn."""
    draws = itertools.count(1)
    right = adapter("fake/fake/commit.checkpoint_steps/right")
    narrow = replace(right, accepts=lambda case: None if next(draws) % 400 == 0 else "too wide for it")
    with Events(tmp_path) as events:
        campaign = Campaign(fake_session, [narrow], Options(max_seconds=30, max_examples=450), events)
        campaign.run()
    (state,) = campaign.states
    assert state.sought == 399 and state.executed >= 1 and state.reason is None


def test_every_target_has_its_turn_in_a_budget_that_is_short_for_them(fake_session, tmp_path, monkeypatch):
    """Forty targets in four seconds of a clock that goes on 2 ms with every look at it: with
    slices of half a second the last ones had no turn, with short ones alone the narrow one."""
    ticks, draws = itertools.count(), itertools.count(1)
    monkeypatch.setattr("fuzz.campaign.time", SimpleNamespace(monotonic=lambda: next(ticks) * 2e-3))
    right = adapter("fake/fake/commit.checkpoint_steps/right")
    narrow = replace(right, accepts=lambda case: None if next(draws) % 50 == 0 else "too wide for it")
    many = [narrow, *(replace(right) for _ in range(39))]
    with Events(tmp_path) as events:
        campaign = Campaign(fake_session, many, Options(max_seconds=4), events)
        campaign.run()
    assert all(state.executed for state in campaign.states)


def test_the_same_seed_sends_the_same_cases(tmp_path):
    sent = []
    for run in range(2):
        with Session(fake_launch()) as session, Events(tmp_path / str(run)) as events:
            events.emit("run_started")
            target = adapter("fake/fake/commit.checkpoint_steps/right")
            Campaign(session, [target], Options(seed=7, max_seconds=30, max_examples=150), events).run()
        sent.append([e["choices"] for e in event_reader.read(tmp_path / str(run)) if e["event"] == "start"])
    assert len(sent[0]) > 50
    assert sent[0] == sent[1]


def test_a_fault_that_does_not_repeat_is_flaky(fake_session):
    """The fake fails in every other process; three fresh ones cannot all fail."""
    from fuzz.strategies.case import shown_case
    from fuzz.strategies.source import ReplaySource
    from fuzz.verdict import Identity

    identity = Identity(CONTRACT.name, MISBEHAVES, "current_step", "wrong_step")
    choices = _choices_for(1013)
    case, _ = shown_case(CONTRACT.name)(ReplaySource(choices))
    assert case.requests[0].pre == 1013
    belief = believe(fake_session, adapter(), choices, identity, lambda c, h: execute(fake_session, adapter(), c, h))
    assert belief.kind is Kind.FLAKY
    assert "of 3" in belief.rate


def _choices_for(pre: int, requests: int = 1) -> list[int]:
    """Choices of a chain of grid 256 each of whose requests has the length ``pre``."""
    batch = [0, 0, 4, 0, 0, 0, 0, 0]  # grid 256, 4 draft tokens, verify, chain, tracking, integer types
    request = [2, 1024 - pre, 0, 4, 0, 0]  # committed, distance to the boundary 4 * 256, slot
    return [*batch, requests, *request * requests, 0]


def test_whose_missing_import_it_was(tmp_path):
    """One that the engine makes late and cannot have is the environment's; one that
    an adapter makes is our own fault and must not look like a missing target."""
    from fuzz.worker.serve import classify

    def error_from(folder, statement="import no_such_module_anywhere"):
        folder.mkdir(exist_ok=True)
        code = compile(f"def late():\n    {statement}\n", str(folder / "module.py"), "exec")
        scope = {}
        exec(code, scope)  # noqa: S102
        try:
            scope["late"]()
        except ImportError as error:
            return error

    engine = tmp_path / "engine"
    assert classify(error_from(engine), f"{engine}/")["status"] == "unsupported"
    assert classify(error_from(engine, "from json import no_such_name"), f"{engine}/")["status"] == "unsupported"
    own = f"raise ImportError('cannot import name', name='{engine.name}.part')"
    assert classify(error_from(engine, own), f"{engine}/")["status"] == "raised"
    assert classify(error_from(tmp_path / "elsewhere"), f"{engine}/")["status"] == "harness"
