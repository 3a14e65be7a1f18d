"""Compilation is clocked apart from production, is no hang, and is done once a machine."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import supervisor
from fuzz.campaign import Campaign, Options
from fuzz.commands.runs import compiled_words
from fuzz.engines.kernel_caches import CACHES, with_caches
from fuzz.engines.spec import parse
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.gate import GateResult, gate
from fuzz.launch import from_install
from fuzz.presentation import PLAIN
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from fuzz.worker import serve
from fuzz.worker.compiling import Compiling, is_compiler
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.unit.test_isolation import adapter, case_with

RIGHT = "fake/fake/commit.checkpoint_steps/right"


@pytest.fixture()
def programs(monkeypatch):
    """What ``subprocess`` had before is put back."""
    for name in ("run", "call"):
        monkeypatch.setattr(subprocess, name, getattr(subprocess, name))


@pytest.mark.parametrize("direct", [False, True])
def test_a_compiler_that_takes_longer_than_the_deadline_is_no_hang_and_no_time_of_production(direct):
    session = Session(fake_launch(), deadline_s=0.6)
    session.direct = direct
    with session:
        verdict = execute(session, adapter(), case_with(1019))
        assert verdict.kind is Kind.AGREE, verdict
        assert verdict.compile_s >= 0.8 and verdict.production_s < 0.3
        after = execute(session, adapter(), case_with(5))
        assert after.kind is Kind.AGREE and after.compile_s == 0, "the next case compiled nothing"


def test_what_hangs_after_its_compilation_is_cut_at_the_deadline_of_a_call():
    with Session(fake_launch(), deadline_s=0.6) as session:
        verdict = execute(session, adapter(), case_with(1020))
        assert verdict.kind is Kind.HANG and verdict.evidence["deadline_s"] == 0.6
        assert execute(session, adapter(), case_with(5)).kind is Kind.AGREE


def test_a_compiler_that_never_ends_is_cut_as_well(monkeypatch):
    monkeypatch.setattr(supervisor, "COMPILE_DEADLINE_S", 0.1)
    with Session(fake_launch()) as session:
        verdict = execute(session, adapter(), case_with(1019))
        assert verdict.kind is Kind.HANG and verdict.evidence["deadline_s"] == 0.1


@pytest.mark.parametrize(
    ("command", "compiles"),
    [
        (["ninja", "-v"], True), ("/usr/local/cuda/bin/nvcc -c x.cu", True), (["x86_64-linux-gnu-gcc-12", "a.c"], True),
        ([Path("/opt/ptxas"), "x"], True), ("c++", True), (["which", "nvcc"], False), (["gccx"], False), ([], False),
        (None, False), ([b"ninja"], False), (["sleep", "1"], False),
    ],
)  # fmt: skip
def test_what_counts_as_a_compiler(command, compiles):
    assert is_compiler(command) is compiles and is_compiler(args=command) is compiles


def test_compilers_beside_each_other_and_within_count_once():
    told, clock = [], Compiling()
    clock.tell = told.append

    def compile_something() -> None:
        with clock.running(), clock.running():
            time.sleep(0.2)

    began = time.perf_counter()
    threads = [threading.Thread(target=compile_something) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end = time.perf_counter()
    assert 0.2 <= clock.seconds <= end - began and told == [True, False]
    assert clock.within(began, end) == pytest.approx(clock.seconds) and clock.within(end, end + 1) == 0
    assert clock.within(began + 0.1, began + 0.15) == pytest.approx(0.05)
    clock.reset()
    assert clock.seconds == 0


def test_triton_is_clocked_where_its_kernels_look_compile_up(programs, monkeypatch):
    compiler = SimpleNamespace(compile=lambda source, **options: (source, options))
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(compiler=compiler))
    monkeypatch.setitem(sys.modules, "triton.compiler", compiler)
    clock = Compiling()
    clock.install(on_gpu=True)
    assert compiler.compile("kernel", target=1) == ("kernel", {"target": 1}) and clock.seconds > 0


@pytest.mark.parametrize("absent", ["triton", "triton.compiler"])
def test_without_triton_the_programs_are_clocked_all_the_same(programs, monkeypatch, absent):
    monkeypatch.setitem(sys.modules, absent, None)
    before = subprocess.run
    Compiling().install(on_gpu=True)
    assert subprocess.run is not before
    assert subprocess.check_output(["echo", "said"], text=True) == "said\n"


def test_a_compiler_that_fails_inside_the_engine_is_the_engine_s(programs, tmp_path):
    Compiling().install(on_gpu=False)
    (tmp_path / "builds.py").write_text("import subprocess\ndef build():\n    subprocess.run(['nvcc'], cwd='/nowhere')")
    spec = importlib.util.spec_from_file_location("builds", tmp_path / "builds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(OSError) as caught:
        module.build()
    found = serve.classify(caught.value, f"{tmp_path}/")
    assert (found["status"], found["function"]) == ("raised", "build")


class Compiles(Session):
    """A session each of whose answers took half a second of compilation."""

    def stream(self, requests, deadline_s=None):
        return (answer | {"compile_s": 0.5} for answer in super().stream(requests, deadline_s))


def test_a_campaign_and_its_events_say_how_long_was_compiled(tmp_path):
    with Compiles(fake_launch()) as session, Events(tmp_path) as events:
        events.emit("run_started")
        campaign = Campaign(session, [adapter(RIGHT)], Options(max_examples=4), events)
        campaign.run()
    written = event_reader.read(tmp_path)
    ends = [e for e in written if e["event"] == "end" and e["verdict"] == "AGREE"]
    (target,) = [e for e in written if e["event"] == "target"]
    assert ends and {e["compile_s"] for e in ends} == {0.5}
    assert target["compile_s"] == campaign.states[0].compile_s == 0.5 * len(ends)


def test_a_gate_says_how_long_was_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.gate.drifted", lambda frozen: False)
    shared = {"contract": "commit.checkpoint_steps", "case": case_with(5), "presentation": PLAIN}
    frozen = [(tmp_path, SimpleNamespace(name=name, **shared)) for name in "xyz"]
    with Compiles(fake_launch()) as session, Events(tmp_path) as events:
        result = gate(session, [adapter(RIGHT)], frozen, events, [], GateResult())
    assert result.compile_s == 1.5


@pytest.mark.parametrize(("seconds", "words"), [(0.0, ""), (0.9, ""), (41.2, ", compiled 41 s")])
def test_less_than_a_second_is_not_told(seconds, words):
    assert compiled_words(seconds) == words


def test_kernels_are_kept_in_one_folder_an_interpreter_and_a_user_s_own_setting_stands(tmp_path):
    env = with_caches({"TRITON_CACHE_DIR": "/mine", "PATH": "/bin"}, Path("/a/bin/python3"), tmp_path)
    assert env["TRITON_CACHE_DIR"] == "/mine" and env["PATH"] == "/bin"
    others = {env[name] for name in CACHES if name != "TRITON_CACHE_DIR"}
    assert len(others) == len(CACHES) - 1
    (folder,) = {os.path.dirname(place) for place in others}
    assert Path(folder).parent == tmp_path / "kernels" and os.path.isdir(folder)
    again, other = (
        with_caches({}, Path(p), tmp_path)["TRITON_CACHE_DIR"] for p in ("/a/bin/python3", "/b/bin/python3")
    )
    assert os.path.dirname(again) == folder != os.path.dirname(other)


def test_a_home_that_cannot_be_written_leaves_the_toolchains_their_own_places(tmp_path):
    (tmp_path / "kernels").write_text("in the way")
    assert with_caches({"PATH": "/bin"}, Path("/a/python"), tmp_path) == {"PATH": "/bin"}


@pytest.mark.parametrize(("device", "kept"), [("cpu", False), ("cuda:0", True)])
def test_only_a_worker_with_a_gpu_gets_them(tmp_path, monkeypatch, device, kept):
    monkeypatch.setenv("SPECORACLE_HOME", str(tmp_path))
    install = SimpleNamespace(
        spec=parse("sglang==local", has_python=True), python=Path("/a/python"), environment=lambda: {"PATH": "/bin"},
        record={"version": "0.5.23", "stubs": {}},
    )  # fmt: skip
    env = from_install(install, device).env
    assert (env.get("TRITON_CACHE_DIR", "").startswith(str(tmp_path))) is kept
    assert env["PATH"] == "/bin"


def test_waiting_for_what_another_process_builds_is_compilation(monkeypatch, tmp_path):
    """Two runs on one machine: the second waits at the build's lock file, which is no hang and no production."""
    import filelock

    monkeypatch.setattr(filelock.BaseFileLock, "acquire", filelock.BaseFileLock.acquire)
    compiling, told = Compiling(), []
    compiling.tell = told.append
    compiling.install(on_gpu=True)
    held = threading.Thread(target=_hold, args=(tmp_path / "lock", ready := threading.Event()))
    held.start()
    ready.wait(10)
    with filelock.FileLock(tmp_path / "lock"):
        assert compiling.seconds >= 0.2
    held.join()
    assert told[:2] == [True, False]


def _hold(path, ready):
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ready.set()
        time.sleep(0.5)
