"""A thousand faults in a row, and the same faults where each worker is a process of its own, as with a GPU: every
case has one verdict, it is the culprit's, and the next case is answered."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from fuzz import supervisor
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.supervisor import Session, SessionError
from fuzz.verdict import Kind
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.fake_engine import FAULTS
from tests.unit.test_isolation import EXPECTED, MISBEHAVES, adapter, case_with
from tests.unit.test_runs import MARK, ROOT, alive

HANGING = ("hang", "stopped", "deaf", "busy")
VERDICTS = {fault: kind for fault, (kind, _) in EXPECTED.items()} | dict.fromkeys(HANGING, Kind.HANG)
CODES = {fault: code for code, fault in FAULTS.items()}
LETHAL = ("exit", "segfault", "kill", "device", "stopped", "deaf")


@contextlib.contextmanager
def started(direct: bool) -> Iterator[Session]:
    """``direct``: no zygote that forks, a spare process instead."""
    session = Session(fake_launch())
    session.direct = direct
    with session:
        yield session


def shown(session: Session, fault: str | None):
    """The verdict of a case with this fault; a hanging one is not waited for."""
    session.deadline_s = 0.1 if fault in HANGING else 30.0
    return execute(session, adapter(), case_with(CODES.get(fault, 5)))


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(supervisor, "STACK_WAIT_S", 0.01)


def test_a_thousand_faults_have_a_verdict_each_and_the_campaign_goes_on(tmp_path):
    rng, sent = random.Random(0), Counter()
    weights = [0.25 if fault in HANGING else 1.0 for fault in VERDICTS]
    with started(direct=False) as session, Events(tmp_path) as events:
        events.emit("run_started")
        for fault in rng.choices(list(VERDICTS), weights, k=1000):
            number = events.start(MISBEHAVES, choices=[])
            verdict = shown(session, fault)
            events.end(number, verdict)
            assert verdict.kind is VERDICTS[fault], (fault, verdict)
            sent[VERDICTS[fault]] += 1
            if rng.random() < 0.2:
                assert shown(session, None).kind is Kind.AGREE, f"after {fault}"
    written = event_reader.read(tmp_path)
    assert sum(e["event"] == "start" for e in written) == sum(e["event"] == "end" for e in written) == 1000
    assert Counter(e["verdict"] for e in written if e["event"] == "end") == sent


def test_the_same_faults_where_nothing_is_forked():
    with started(direct=True) as session:
        for fault in [*VERDICTS, *LETHAL, *LETHAL]:
            assert shown(session, fault).kind is VERDICTS[fault], fault
            assert shown(session, None).kind is Kind.AGREE, f"after {fault}"


def test_after_a_death_the_spare_answers_and_another_is_made():
    with started(direct=True) as session:
        assert shown(session, None).kind is Kind.AGREE
        spare = session._spare.process.pid
        assert shown(session, "kill").kind is Kind.CRASH
        assert shown(session, None).kind is Kind.AGREE
        assert session.worker_pid_if_any == spare and session._spare.process.pid != spare


def test_a_spare_that_died_meanwhile_costs_its_time_and_no_verdict():
    with started(direct=True) as session:
        assert shown(session, None).kind is Kind.AGREE
        os.kill(session._spare.process.pid, signal.SIGKILL)
        assert shown(session, "exit").kind is Kind.CRASH
        assert shown(session, None).kind is Kind.AGREE


def test_a_spare_that_is_stopped_does_not_outlive_its_session():
    with started(direct=True) as session:
        spare = session._spare.process
        os.kill(spare.pid, signal.SIGSTOP)
    assert spare.returncode == -signal.SIGKILL


def test_a_process_that_cannot_be_killed_puts_its_device_in_quarantine(monkeypatch):
    """As one does that sits in a driver call: nothing more is started there, and nothing is waited for."""
    monkeypatch.setattr(supervisor, "REAP_DEADLINE_S", 0.1)
    monkeypatch.setattr(supervisor, "END_DEADLINE_S", 0.1)
    kill = os.killpg
    with started(direct=True) as session:
        assert shown(session, None).kind is Kind.AGREE
        monkeypatch.setattr(os, "kill", lambda *_: None)
        monkeypatch.setattr(os, "killpg", lambda *_: None)
        stuck = session.zygote_pid
        assert shown(session, "deaf").kind is Kind.HANG
        with pytest.raises(SessionError, match=rf"hangs: process {stuck} was killed and has not ended"):
            shown(session, None)
        monkeypatch.setattr(os, "killpg", kill)
        kill(stuck, signal.SIGKILL)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("fault", ["deaf", "stopped", "busy"])
def test_a_supervisor_that_is_killed_leaves_nobody_behind(tmp_path, direct, fault):
    program = f"""
import os, select, signal
from tests.unit.test_fault_battery import started, shown, CODES, execute, adapter, case_with
with started({direct}) as session:
    shown(session, None)
    if session._spare:  # a stopped one does not see its socket close either
        select.select([session._spare.control], [], [], 30)
        os.kill(session._spare.process.pid, signal.SIGSTOP)
    print("ready", flush=True)
    execute(session, adapter(), case_with(CODES[{fault!r}]))
"""
    marked = {**os.environ, MARK: str(tmp_path)}
    run = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=marked, stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.3)  # for the case to be under way
    assert len(alive(tmp_path)) == 3, "supervisor, worker, and a zygote or a spare"
    run.kill()
    run.communicate()
    deadline = time.monotonic() + 20
    while alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(tmp_path) == []
