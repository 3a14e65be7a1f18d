"""What a person is told when an engine cannot be had, and that nothing half-installed stays in the way."""

# ruff: noqa: F811 - a test's argument names the fixture that is imported here
from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from fuzz.engines import home, overlay, tools
from fuzz.engines.overlay import PROJECT
from fuzz.engines.provision import installed, provision, remove
from fuzz.engines.spec import EngineError, EngineSpec, parse
from tests.fake_tools import NO_NETWORK, SPEC, error_of, failing, fake, left_over, place  # noqa: F401 - fixtures


def test_offline_and_missing_is_inconclusive_and_touches_nothing(fake, place):
    error = error_of(offline=True)
    assert error.exit_code == 3 and "--offline" in str(error) and "sglang 0.5.18" in str(error)
    assert fake.steps == [] and not place.root.exists()


def test_offline_and_present_needs_nothing(fake):
    first = provision(SPEC)
    assert provision(SPEC, offline=True) == first


def test_offline_names_the_piece_that_is_missing(fake):
    shutil.rmtree(provision(SPEC).pythonpath[1])
    assert "pinned for sglang-to-0.5.20" in str(error_of(offline=True))


def test_no_network_is_one_clear_error(fake, place):
    fake.fail["install:core"] = failing(NO_NETWORK)
    error = error_of()
    assert error.exit_code == 2
    assert str(error).startswith("no network:") and "run the command again" in str(error)
    assert left_over(place) == [] and list(place.layers.iterdir()) == []


def test_a_version_that_is_not_published_lists_those_that_are(fake):
    said = (
        "ERROR: Could not find a version that satisfies the requirement sglang==0.5.18 (from versions: 0.5.17, 0.5.19)"
    )
    fake.fail["download:sglang==0.5.18"] = failing([said, "ERROR: No matching distribution found for sglang==0.5.18"])
    error = error_of()
    assert error.exit_code == 2 and "available: 0.5.17, 0.5.19" in str(error)


def test_another_failure_of_pip_is_shown_as_its_last_meaningful_lines(fake):
    noise = ["Collecting torch", "Traceback (most recent call last):", '  File "x.py", line 1', "", "[notice] new pip"]
    fake.fail["install:base"] = failing([*noise, "ERROR: the wheel is torn"])
    message = str(error_of())
    assert message.endswith("(exit status 1):\n  ERROR: the wheel is torn")


def test_a_step_past_its_deadline_says_so(fake):
    fake.fail["install:core"] = failing(["Collecting torch"], returncode=None)
    assert "passed its deadline" in str(error_of())


@pytest.mark.parametrize("step", ["install:core", "install:base", "import"])
def test_a_disk_that_fills_up_is_told_and_cleaned(fake, place, step):
    fake.fail[step] = failing(["ERROR: Could not install packages: [Errno 28] No space left on device"])
    error = error_of()
    assert error.exit_code == 2 and "is full" in str(error) and "SPECORACLE_HOME" in str(error)
    assert left_over(place) == []


def test_a_disk_that_fills_up_while_unpacking_is_told_and_cleaned(fake, place, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(overlay, "unpack", full)
    assert "is full" in str(error_of())
    assert left_over(place) == [] and list(place.engines.iterdir()) == []


def test_too_little_room_is_told_before_anything_runs(fake, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9e9, 8e9, 1e9))
    message = str(error_of())
    assert "needs 2.0 GB, 1.0 GB are free" in message and fake.steps == []


def test_a_cache_folder_that_cannot_be_written_is_named(fake, tmp_path):
    (tmp_path / "file").write_text("")
    error = error_of(home=tmp_path / "file" / "home")
    assert error.exit_code == 2 and "cannot write the cache folder" in str(error) and "SPECORACLE_HOME" in str(error)


NO_HOME = {
    "no such user": "~nouser/x",
    "too long a name": "/tmp/" + "a" * 5000,
    "too long below": "/tmp/" + "a/" * 2035,
}


@pytest.mark.parametrize("folder", NO_HOME.values(), ids=NO_HOME)
def test_a_cache_folder_that_cannot_exist_is_one_clear_error(fake, monkeypatch, folder):
    monkeypatch.setenv("SPECORACLE_HOME", folder)
    for use in (provision, remove, lambda spec: installed()):
        with pytest.raises(EngineError, match="set SPECORACLE_HOME to a folder") as caught:
            use(SPEC)
        assert caught.value.exit_code == 2
    assert fake.steps == []


def test_a_user_without_a_home_folder_is_told_to_name_one(fake, monkeypatch):
    for name in ("SPECORACLE_HOME", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # no entry in the password file
    with pytest.raises(EngineError, match="set SPECORACLE_HOME to a folder"):
        installed()


def test_a_cache_folder_that_may_not_be_read_is_one_clear_error(fake, monkeypatch):
    def denied(path, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(EngineError, match="Permission denied; set SPECORACLE_HOME to a folder"):
        home.Home.locate()


def test_a_removal_that_may_not_write_is_one_clear_error_and_removes_nothing(fake, monkeypatch):
    provision(SPEC)

    def denied(*args):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", denied)
    with pytest.raises(EngineError, match="cannot be removed from .*: Permission denied"):
        remove(SPEC)
    assert [each.spec for each in installed()] == [SPEC]


def test_a_build_of_torch_for_cuda_needs_more_room_and_is_stopped_early(fake, place, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(9e9, 5e9, 4e9))

    def run(command, *, on_line=print, **options):
        on_line("Collecting nvidia-cublas==13.1.0.3 (from torch==2.13.0)")
        return fake(command, on_line=on_line, **options)

    monkeypatch.setattr(tools, "run", run)
    assert "built for CUDA needs 8.0 GB, 4.0 GB are free" in str(error_of())
    assert left_over(place) == [] and list(place.layers.iterdir()) == []


def test_an_engine_that_does_not_import_is_not_installed(fake, place):
    fake.fail["import"] = failing(["Traceback (most recent call last):", "ImportError: no cutlass"])
    message = str(error_of())
    assert "does not import here" in message and "ImportError: no cutlass" in message and "Traceback" not in message
    assert installed() == [] and list(place.engines.iterdir()) == []


def test_a_writer_that_never_ends_is_given_up_on(fake, place, monkeypatch):
    monkeypatch.setattr(home, "LOCK_DEADLINE_S", 0)
    monkeypatch.setattr(home, "LOCK_POLL_S", 0.01)
    with place.writing(lambda text, fraction: None):
        assert "another process has been provisioning" in str(error_of())


@pytest.mark.parametrize("spec", [SPEC, EngineSpec("sglang", local=True)])
def test_removing_what_is_not_there_says_what_is(fake, spec):
    provision(parse("sglang==0.5.12"))
    with pytest.raises(EngineError, match="provisioned: sglang==0.5.12|only published versions"):
        remove(spec)


def test_a_checkout_without_the_package_is_refused_before_anything_is_built(fake, tmp_path):
    error = error_of(parse(f"sglang@{tmp_path}"))
    assert "no package 'sglang'" in str(error) and fake.steps == []


def test_a_local_engine_needs_an_interpreter(fake):
    assert "--python" in str(error_of(parse("sglang==local")))


def test_an_interpreter_without_the_engine_and_one_that_does_not_run_are_told_apart(tmp_path):
    told = str(error_of(EngineSpec("sglang", local=True), python=Path(sys.executable)))
    assert "has no sglang" in told and "PackageNotFoundError: No package metadata" in told
    assert "raise" not in told and len(told.splitlines()) == 3
    assert "cannot be run" in str(error_of(EngineSpec("sglang", local=True), python=tmp_path / "none"))


@pytest.mark.parametrize("program", ["true", "echo"])
def test_a_program_that_is_no_python_is_told_from_an_interpreter(program):
    python = Path(shutil.which(program))
    told = str(error_of(EngineSpec("sglang", local=True), python=python))
    assert f"--python {python} does not answer as Python does" in told and "the interpreter that has sglang" in told


def test_an_interpreter_for_a_checkout_needs_torch(tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    checkout = EngineSpec("sglang", path=tmp_path, local=True)
    assert "install torch there" in str(error_of(checkout, python=_bare_python(tmp_path)))
    assert "no package 'sglang'" in str(
        error_of(EngineSpec("sglang", path=tmp_path / "no", local=True), python=tmp_path)
    )


def _bare_python(folder: Path) -> Path:
    """An interpreter that sees the standard library alone."""
    path = folder / "bare-python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    path.chmod(0o755)
    return path


def test_an_interpreter_in_the_current_folder_is_found_there_and_not_on_the_path(tmp_path, monkeypatch):
    _bare_python(tmp_path).rename(tmp_path / "true")
    monkeypatch.chdir(tmp_path)
    assert "has no sglang" in str(error_of(EngineSpec("sglang", local=True), python=Path("true")))


def test_a_killed_provisioning_takes_its_children_and_theirs_along(tmp_path):
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = f"import os, subprocess, sys; print(os.getpid()); subprocess.run([sys.executable, '-c', {sleeper!r}])"
    supervisor = (
        "import sys; from fuzz.engines import tools\n"
        f"tools.run([sys.executable, '-u', '-c', {code!r}], deadline_s=60, on_line=lambda s: print(s, flush=True))"
    )
    parent = subprocess.Popen([sys.executable, "-c", supervisor], stdout=subprocess.PIPE, text=True, cwd=PROJECT)
    child, grandchild = int(parent.stdout.readline()), int(parent.stdout.readline())
    try:
        assert _runs(child) and _runs(grandchild)
        parent.kill()
        parent.wait()
        _wait_until_ended(child, grandchild)
    finally:
        parent.stdout.close()
        for pid in filter(_runs, (child, grandchild)):
            os.kill(pid, signal.SIGKILL)


def test_a_child_that_ends_leaves_no_guard_and_what_it_started_alone():
    """Only the death of this process ends a group; an ordinary end must not."""
    before = _children()
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '3'], stdout=subprocess.DEVNULL, stderr=-3).pid)"
    (line,) = tools.run([sys.executable, "-c", code], deadline_s=30)
    try:
        assert _children() == before and _runs(int(line))
    finally:
        os.kill(int(line), signal.SIGKILL)


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_a_child_that_hangs_is_ended_with_its_children():
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeper!r}])"
    with pytest.raises(tools.ToolFailed) as caught:
        tools.run([sys.executable, "-c", code], deadline_s=2)
    assert caught.value.returncode is None
    _wait_until_ended(int(caught.value.lines[0]))


def _wait_until_ended(*pids: int) -> None:
    start = time.monotonic()
    while any(map(_runs, pids)):  # the kernel ends them a moment after the signal
        assert time.monotonic() - start < 20
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process is there and is not just waiting to be collected by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_childs_output_arrives_line_by_line_with_its_status():
    seen = []
    code = "print('a'); print('b'); raise SystemExit(3)"
    with pytest.raises(tools.ToolFailed) as caught:
        tools.run([sys.executable, "-c", code], deadline_s=30, on_line=seen.append)
    assert seen == caught.value.lines == ["a", "b"] and caught.value.returncode == 3
