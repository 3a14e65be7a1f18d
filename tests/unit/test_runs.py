"""A run keeps what is written: one run a folder, and a run that stops early says
so, is never a pass, and still leaves its events readable."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fuzz import interrupt
from fuzz.commands.runs import ending
from fuzz.events import Events, EventsError
from fuzz.supervisor import SessionError

ROOT = Path(__file__).parents[2]
FAKE_RUN = """
import sys
from tests.conftest import fake_launch
import fuzz.commands.session as session
session.launch_for = lambda spec, **_: fake_launch()
import fuzz.commands.options as options
from fuzz.engines.spec import EngineSpec
from fuzz import adapter
import fuzz.commands.fuzz as command
command.read_engine = lambda *_: EngineSpec("fake", version="1.0")
from fuzz.cli import main
main()
"""


MARK = "SPECORACLE_TEST_RUN"


def alive(mark: Path) -> list[int]:
    """Processes that inherited the mark of one test's run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def fake(*arguments: str, **popen) -> subprocess.Popen:
    """The command line with the fake engine in place of a published one."""
    return subprocess.Popen(
        [sys.executable, "-c", FAKE_RUN, *arguments],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **popen,
    )


def test_the_second_of_two_runs_in_one_folder_is_refused(tmp_path):
    with Events(tmp_path) as first:
        first.emit("run_started")
        with pytest.raises(EventsError, match="already holds a run"):
            Events(tmp_path)


@pytest.mark.parametrize("folder", ["/proc/nothing", "/dev/full/x"])
def test_a_folder_that_cannot_be_written_is_named(folder):
    with pytest.raises(EventsError, match=folder):
        Events(Path(folder))


def test_a_full_disk_is_said_and_names_the_folder(tmp_path):
    with Events(tmp_path) as events:
        os.close(events._file)
        events._file = os.open("/dev/full", os.O_WRONLY)
        with pytest.raises(EventsError, match=str(tmp_path)):
            events.emit("anything")


@pytest.mark.parametrize(
    ("error", "code_of_pass", "code_of_red"),
    [(KeyboardInterrupt(), 130, 130), (SessionError("gone"), 3, 1), (EventsError("full"), 3, 1)],
)
def test_a_run_that_stops_early_is_never_a_pass(error, code_of_pass, code_of_red):
    with ending() as end:
        raise error
    assert end.reason
    assert end.exit_code(0) == code_of_pass and end.exit_code(1) == code_of_red


def ran(program: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """A Python program that has ended."""
    command = [*before, sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


INTERRUPTED = "import os, signal, sys, gc\nimport fuzz.cli\nfrom fuzz import interrupt\n"
INTERRUPTED += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
INTERRUPTED += "def kill(*_): os.kill(os.getpid(), signal.SIGINT); sum(range(10))\n"
ASSERTION = "  try: kill()\n  finally: raise AssertionError\n"
CALLBACK = "  gc.callbacks.append(kill); gc.collect(); gc.callbacks.remove(kill)\n  interrupt.look()\n  sys.exit(0)\n"


TWICE = "  try: kill()\n  finally: kill()\n"


@pytest.mark.parametrize("body", [ASSERTION, CALLBACK, TWICE], ids=["hidden", "swallowed", "twice"])
def test_an_interruption_that_other_code_swallows_or_hides_is_one_still(body):
    """As when Hypothesis is interrupted while it collects garbage or before its engine is set up."""
    program = INTERRUPTED + "def command(**_):\n"
    program += body + "fuzz.cli.cli.main = command\nfuzz.cli.main()"
    done = ran(program)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interruption_while_one_is_said_changes_nothing():
    program = INTERRUPTED + "fuzz.cli.click.echo = lambda *_, **__: kill()\n"
    program += "def command(**_): kill()\nfuzz.cli.cli.main = command\nfuzz.cli.main()"
    done = ran(program)
    assert (done.returncode, done.stderr) == (130, "")


def test_once_the_exit_code_stands_no_signal_replaces_it():
    """Python gives signals their defaults back before it ends, but not those that are ignored."""
    program = "import atexit, signal, fuzz.cli\nfrom fuzz.interrupt import SIGNALS\n"
    program += "atexit.register(lambda: print(*[signal.getsignal(s) is signal.SIG_IGN for s in SIGNALS]))\n"
    program += "fuzz.cli.cli.main = lambda **_: 3\nfuzz.cli.main()"
    done = ran(program)
    assert (done.returncode, done.stdout) == (3, "True True True\n")


def test_an_unexpected_end_of_file_is_no_interruption():
    """click makes Abort of both."""
    program = "import click, fuzz.cli\n"
    program += "def command():\n  raise EOFError('Compressed file ended')\n"
    program += "fuzz.cli.cli.add_command(click.command()(command), 'command')\nfuzz.cli.main()"
    done = ran(program, "command")
    assert done.returncode == 4 and "EOFError: Compressed file ended" in done.stderr


def test_once_an_interruption_was_heard_no_request_is_sent_and_no_other_reason_counts(fake_session, monkeypatch):
    monkeypatch.setattr(interrupt, "_heard", True)
    with pytest.raises(KeyboardInterrupt):
        fake_session.call({})
    with ending() as end:
        raise SessionError("the worker is gone")
    assert end.exit_code(0) == 130


def test_a_signal_that_whoever_started_us_had_ignored_stays_ignored():
    program = "from fuzz import interrupt; import signal; interrupt.listen()\n"
    program += "print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, signal.getsignal(signal.SIGTERM))"
    done = ran(program, before=("nohup",))
    assert done.stdout.startswith("True <function"), done


def test_a_closed_standard_output_does_not_change_the_exit_code(tmp_path):
    run = fake("fuzz", "--target", "*right", "--max-examples", "30", "--out", str(tmp_path / "run"))
    run.stdout.close()
    error = run.stderr.read()
    assert run.wait(60) == 0, error
    assert "Traceback" not in error


@pytest.mark.parametrize("sink", ["2>&1 | true", "2>/dev/full", ">/dev/full 2>&1", "2>&-"])
def test_unwritable_output_does_not_change_the_exit_code(tmp_path, sink):
    command = f"{sys.executable} -c 'from fuzz.cli import main; main()' replay {tmp_path}/nowhere.json {sink}"
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_everything_written_and_nobody_behind(tmp_path, number):
    marked = {**os.environ, MARK: str(tmp_path)}
    out = str(tmp_path / "run")
    run = fake("fuzz", "--target", "*right", "--max-time", "60s", "--out", out, start_new_session=True, env=marked)
    events = tmp_path / "run" / "events.ndjson"
    deadline = time.monotonic() + 30
    while not (events.exists() and events.stat().st_size > 20_000) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(alive(tmp_path)) >= 3, "supervisor, zygote and worker are there to be left behind"
    os.kill(run.pid, number)
    output, error = run.communicate(timeout=30)
    assert run.returncode == 130, error
    assert "interrupted" in error and "Traceback" not in error
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert lines[-1]["event"] == "run_finished" and lines[-1]["exit"] == 130
    assert (tmp_path / "run" / "junit.xml").is_file()
    assert alive(tmp_path) == []
