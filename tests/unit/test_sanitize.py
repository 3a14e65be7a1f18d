"""Under a sanitizer each report is charged to its own case, whenever it comes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from fuzz import adapter as adapters
from fuzz import sanitize
from fuzz.adapter import load
from fuzz.cli import cli
from fuzz.commands import fuzz as fuzz_command
from fuzz.commands import gate as gate_command
from fuzz.commands import single
from fuzz.corpus import make, write
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.gate import GateResult, gate
from fuzz.known import Known
from fuzz.sanitize import NoSanitizer, Sanitized, program
from fuzz.supervisor import PROJECT_ROOT, Launch, SessionError
from fuzz.verdict import Identity, Kind
from reports import events as event_reader
from reports.junit import junit
from reports.model import view
from tests import fake_sanitizer as fake
from tests.unit.test_isolation import case_with

adapters.BUILT_IN["sanitized"] = "tests.fake_sanitizer"
TARGET = "sanitized/fake/commit.checkpoint_steps/kernels"
WRITE = "memcheck:invalid-global-write:store"


def launch(device: str = "cpu") -> Launch:
    env = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    targets = tuple(load("sanitized"))
    return Launch(
        "sanitized", "1.0", sys.executable, env, {}, ("tests.fake_sanitizer",), targets, device, torch=False
    )  # fmt: skip


@pytest.fixture(autouse=True)
def tool(tmp_path_factory, monkeypatch):
    """compute-sanitizer on PATH."""
    folder = tmp_path_factory.mktemp("bin")
    path = folder / sanitize.PROGRAM
    path.write_text(f'#!/bin/sh\n"{sys.executable}" "{fake.__file__}" "$@"\n')  # no exec: one process more between
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return path


class Direct(Sanitized):
    """As on a GPU: no zygote that forks."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.direct = True


def started(name: str = "memcheck", **options) -> Sanitized:
    return Direct(launch(), name, **options)


def shown(session: Sanitized, code: int):
    return execute(session, load("sanitized")[TARGET], case_with(code))


def kind(verdict) -> str | None:
    return verdict.identity and verdict.identity.kind


def test_a_report_is_charged_to_its_case_and_the_process_goes_on():
    with started() as session:
        first = shown(session, 5)
        found = shown(session, 3001)
        pid = session.worker_pid_if_any
        after = [shown(session, code) for code in (5, 6)]
        assert session.worker_pid_if_any == pid
    assert [v.kind for v in (first, *after)] == [Kind.AGREE] * 3 and not first.evidence
    assert found.kind is Kind.DIVERGE and found.identity.field == "sanitizer" and kind(found) == WRITE
    assert found.evidence["claim"].startswith("memcheck: Invalid __global__ write of size 4 bytes in store (fault_kern")
    assert "nearest allocation at 0x7f2a98000040" in found.evidence["sanitizer"]["text"]


def test_what_is_red_for_another_reason_keeps_it_and_has_the_words():
    with started() as session:
        seen = {code: shown(session, code) for code in (fake.WRONG, fake.LOST, fake.EXIT)}
        assert shown(session, 5).kind is Kind.AGREE
    kinds = {code: (v.kind, kind(v)) for code, v in seen.items()}
    assert kinds == {
        fake.WRONG: (Kind.DIVERGE, "wrong_step"),
        fake.LOST: (Kind.CRASH, "device:device-side assert triggered"),
        fake.EXIT: (Kind.CRASH, "died:exit 7"),
    }
    for verdict in seen.values():
        assert "in store (fault_kernels.py:10)" in sanitize.lines(verdict)[0]


def test_only_what_blames_the_engine_is_red():
    with started("initcheck") as session:
        verdict = shown(session, 3006)
        assert verdict.kind is Kind.AGREE and "elementwise_kernel" in verdict.evidence["sanitizer_notes"][0]
        assert sum(session.notes.values()) == 1
    with started("racecheck") as session:
        assert shown(session, 3008).kind is Kind.AGREE
        race = shown(session, 3007)
        assert race.kind is Kind.DIVERGE and kind(race).endswith("write-access-and-read-access:reverse")


def test_a_report_that_comes_between_two_cases_is_the_first_ones():
    with started() as session:
        assert shown(session, fake.SOON).kind is Kind.AGREE
        time.sleep(3 * fake.SOON_S)
        assert shown(session, 5).kind is Kind.AGREE
        ((before, after),) = session.late()
    assert before.kind is Kind.AGREE and kind(after) == WRITE
    assert sanitize.lines(after) == [f"sanitizer: {sanitize.LATE}"]


def test_once_reports_come_late_each_case_has_a_process_of_its_own():
    with started() as session:
        assert shown(session, fake.AT_END).kind is Kind.AGREE
        session.fresh()
        assert shown(session, 5).kind is Kind.AGREE
        assert session.alone and [kind(after) for _, after in session.late()] == [WRITE]
        assert kind(shown(session, fake.AT_END)) == WRITE
        assert shown(session, 5).kind is Kind.AGREE and session.late() == []


def test_so_has_each_case_where_the_log_is_written_at_the_end(monkeypatch):
    monkeypatch.setenv("FAKE_SANITIZER", "buffered")
    with started() as session:
        assert [kind(shown(session, code)) for code in (5, 3001, 6)] == [None, WRITE, None]


def test_a_process_that_said_much_is_replaced_before_it_may_say_no_more():
    with started() as session:
        assert kind(shown(session, 3010)) == WRITE
        assert session.worker_pid_if_any is None
        assert shown(session, 5).kind is Kind.AGREE and session.late() == []


def test_a_tool_that_did_not_look_ends_the_run():
    with started() as session, pytest.raises(SessionError, match="did not do its work: Error: No attachable process"):
        shown(session, 3009)


def test_a_worker_that_hangs_says_where_it_was_and_leaves_nobody(monkeypatch):
    monkeypatch.setattr(Sanitized, "reap_deadline_s", 5.0)
    with started(deadline_s=2.0) as session:
        shown(session, 5)
        worker = session.worker_pid_if_any
        verdict = shown(session, fake.HANG)
        assert verdict.kind is Kind.HANG and "in kernels" in verdict.evidence["stack"]
        assert not Path(f"/proc/{worker}").exists()
        assert shown(session, 5).kind is Kind.AGREE


@pytest.mark.parametrize(
    ("writes", "says"),
    [
        (":", "does not begin with COMPUTE-SANITIZER"),
        ("echo garbage >$log", "does not begin with COMPUTE-SANITIZER"),
        ("echo ========= COMPUTE-SANITIZER >$log; head -c 2000000 /dev/zero >>$log", "more than 1 MiB"),
    ],
)
def test_a_tool_whose_log_is_none_did_not_look_and_nothing_passes(tool, monkeypatch, writes, says):
    monkeypatch.setattr(sanitize, "MAX_LOG_BYTES", 1 << 20)
    options = 'while [ "${1#--}" != "$1" ]; do [ "$1" = --log-file ] && log=$2; shift 2; done'
    tool.write_text(f'#!/bin/sh\n{options}\n{writes}\nexec env {fake.LOG}=/dev/null "$@"\n')
    with started() as session, pytest.raises(SessionError, match=says):
        shown(session, 5)


def test_a_tool_that_ends_at_once_is_quoted(tool):
    tool.write_text("#!/bin/sh\necho unknown option --padding; exit 3\n")
    with pytest.raises(SessionError, match="compute-sanitizer ended with 3 .*\nunknown option --padding"):
        started().start()


def test_the_worker_knows_its_tool_and_caches_no_memory(tool):
    with started() as session:
        environment = Path(f"/proc/{session._own_pid}/environ").read_bytes().split(b"\0")
        assert {b"PYTORCH_NO_CUDA_MEMORY_CACHING=1", b"SPECORACLE_SANITIZER=memcheck"} <= set(environment)
        command = Path(f"/proc/{session.zygote_pid}/cmdline").read_text()
        assert "--destroy-on-device-error\0kernel" in command and "zygote\0control-1" in command


def test_a_worker_whose_supervisor_is_gone_ends_also_in_a_kernel_that_never_does():
    program = """
import socket, time
from fuzz.worker import zygote
zygote.END_ALONE_S = 0.1
worker, supervisor = socket.socketpair()
zygote.die_with_peer(worker)
supervisor.send(b"a case")
time.sleep(0.5)
print("still there", flush=True)
supervisor.close()
time.sleep(30)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("still there\n", -signal.SIGKILL)


def test_where_the_tool_is_looked_for(tmp_path, tool):
    assert program() == str(tool)
    (tmp_path / "bin").mkdir()
    shutil.copy(tool, tmp_path / "bin")
    assert program({"PATH": "", "CUDA_HOME": str(tmp_path)}) == str(tmp_path / "bin" / sanitize.PROGRAM)


def test_a_gate_journals_what_came_late_as_a_case_of_its_own_and_doubts_it(tmp_path):
    """The report comes with the end of the first process; in processes of its own the case shows it again."""
    corpus = [(Path(f"{code}.json"), frozen(code)) for code in (5, fake.AT_END)]
    entry = Known(Identity("commit.checkpoint_steps", TARGET, "sanitizer", "racecheck:race:f"), ">=1", "", "", "", "")
    with started() as session, Events(tmp_path / "run") as events:
        events.emit("run_started", engine="sanitized", version="1.0", device="cuda:0", sanitize="memcheck")
        result = gate(session, [load("sanitized")[TARGET]], corpus, events, [entry], GateResult())
        events.emit("run_finished", exit=1)
    assert [(i.kind, v[0][1].kind) for i, v in result.red.items()] == [(WRITE, Kind.DIVERGE)]
    assert result.silent_known == [], "another tool's entry is not asked"
    ends = [e for e in event_reader.read(tmp_path / "run") if e["event"] == "end"]
    assert [e["verdict"] for e in ends] == ["AGREE", "AGREE", "DIVERGE"] and ends[2]["evidence"]["late"]
    assert view([tmp_path / "run"]).divergences[0].claim.startswith("memcheck: Invalid")
    assert junit(event_reader.read(tmp_path / "run")).find("testsuite").get("failures") == "1"


def frozen(code: int):
    return make(
        "commit.checkpoint_steps", case_with(code), slug=f"case-{code}", reason="a case of this test", provenance={}
    )


@pytest.fixture()
def commands(monkeypatch):
    """The command line on the fake engine, as if on a GPU."""
    import fuzz.commands.session as session

    spec = EngineSpec("sanitized", version="1.0")
    monkeypatch.setattr(gate_command, "read_engines", lambda *_: [spec])
    monkeypatch.setattr(fuzz_command, "read_engine", lambda *_: spec)
    monkeypatch.setattr(single, "read_engine", lambda *_: spec)
    monkeypatch.setattr(gate_command, "provisioned", lambda *_: launch())
    monkeypatch.setattr(session, "provisioned", lambda *_: launch())
    monkeypatch.setattr(session, "Sanitized", Direct)
    return lambda *arguments: CliRunner().invoke(cli, [*arguments, "--device", "cuda", "--sanitize", "memcheck"])


@pytest.fixture()
def corpus(tmp_path):
    (tmp_path / "corpus" / "known").mkdir(parents=True)
    for code in (5, 3001, fake.WRONG):
        write(frozen(code), tmp_path / "corpus")
    return tmp_path / "corpus"


def test_gate_says_it_and_fails(commands, corpus, tmp_path):
    arguments = ("--target", "*kernels", "--corpus", str(corpus), "--out", str(tmp_path / "run"))
    done = commands("gate", *arguments)
    assert done.exit_code == 1, done.output
    assert (
        "DIVERGE: commit.checkpoint_steps | " + TARGET + f" | sanitizer | {WRITE}\n  memcheck: Invalid" in done.output
    )
    assert "wrong_step\n" in done.output and "\n  sanitizer: memcheck: Invalid __global__ write" in done.output
    assert "--device cuda:0 --sanitize memcheck --target" in done.output
    events = event_reader.read(tmp_path / "run")
    assert events[0]["sanitize"] == "memcheck" and not [e for e in events if e["event"] == "verdict"]
    assert "pid" not in events[0]["worker"]


def test_replay_shows_the_block(commands, corpus):
    (path,) = corpus.rglob("case-3001-*.json")
    done = commands("replay", str(path), "--target", "*kernels")
    assert done.exit_code == 1, done.output
    assert f"FAILED {TARGET}" in done.output and "\n  by thread (0,0,0) in block (0,0,0)\n" in done.output


def test_fuzz_runs_its_finds_again_and_says_what_is_said_of_them(commands, corpus, tmp_path):
    out = tmp_path / "run"
    arguments = ("--target", "*on_grid_64", "--max-examples", "200", "--corpus", str(corpus), "--out", str(out))
    done = commands("fuzz", *arguments)
    assert done.exit_code == 1, done.output
    assert "\n  sanitizer: memcheck: Invalid __global__ write of size 4 bytes in store" in done.output
    events = event_reader.read(out)
    (found,) = [e for e in events if e["event"] == "found"]
    (event,) = [e for e in events if e["event"] == "sanitized"]
    assert event["tool"] == "memcheck" and event["verdict"] == "DIVERGE" and event["identity"] == found["identity"]
    assert event["text"].startswith("Invalid __global__ write") and event["said"][0] in done.output


@pytest.mark.parametrize("command", [["gate"], ["fuzz"], ["replay", "nowhere.json"]])
def test_without_a_gpu_or_the_tool_it_is_a_usage_error(command, monkeypatch):
    done = CliRunner().invoke(cli, [*command, "--sanitize", "memcheck"])
    assert done.exit_code == 2 and "add --device cuda" in done.output
    monkeypatch.setattr("fuzz.commands.options.program", missing)
    done = CliRunner().invoke(cli, [*command, "--sanitize", "memcheck", "--device", "cuda"])
    assert done.exit_code == 2 and "install cuda-sanitizer" in done.output


def missing() -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sanitize, "TOOLKITS", ())
        with pytest.raises(NoSanitizer) as error:
            program({"PATH": ""})
    raise error.value


def test_two_sides_are_not_compared_under_it():
    done = CliRunner().invoke(
        cli, ["fuzz", "--against", "*", "--device", "cuda", "--sanitize", "memcheck"]
    )  # fmt: skip
    assert done.exit_code == 2 and "goes with one engine" in done.output
