"""Every buffer of a GPU lies between guards: the allocator over a driver on host memory, the check
with NumPy in torch's place, and what becomes of a find."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fuzz import adapter as adapters
from fuzz import guards, supervisor
from fuzz.commands import runs
from fuzz.difference import Side, compare
from fuzz.engines.home import Home
from fuzz.executor import interpret
from fuzz.presentation import PLAIN
from fuzz.supervisor import PROJECT_ROOT
from fuzz.sweep import Block, sweep
from fuzz.verdict import Kind
from fuzz.worker import layout
from fuzz.worker.compiling import Compiling
from fuzz.worker.guards import Guards, typed
from fuzz.worker.serve import answer
from fuzz.worker.zygote import guard
from oracle.commit.checkpoint_steps import CONTRACT, Request
from tests.conftest import fake_launch
from tests.fake_engine import right

COMPILER = next(filter(None, map(shutil.which, guards.COMPILERS)), None)
compiled = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
PAGE = 4096
MIB = 1 << 20
POISON = np.uint16(0xFFA5)
CAPTURED = 7  # the stream that the fake driver captures


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The allocator and the fake driver, compiled once."""
    folder = tmp_path_factory.mktemp("guards")
    driver = folder / "driver.so"
    source = PROJECT_ROOT / "tests" / "fake_driver.cpp"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", str(driver), str(source)], check=True, timeout=120)
    return guards.library(Home(folder)), driver


class Array(np.ndarray):
    """An array with the few methods of a tensor that the check uses."""

    def to(self, device, non_blocking=False):
        return self.copy()

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)

    def data_ptr(self):
        return self.ctypes.data


class FakeTorch:
    """NumPy in torch's place; what it wraps is not copied."""

    uint8 = np.uint8
    cuda = SimpleNamespace(synchronize=lambda device: None)

    @staticmethod
    def from_numpy(array):
        return array.view(Array)

    @staticmethod
    def arange(count, device):
        return np.arange(count).view(Array)

    @staticmethod
    def as_tensor(wrapped, device):
        facts = wrapped.__cuda_array_interface__
        return memory(facts["data"][0], 8 * int(np.prod(facts["shape"]))).view("i8").reshape(facts["shape"]).view(Array)


def memory(address: int, count: int) -> np.ndarray:
    """Bytes at an address."""
    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=np.uint8)


class Device:
    """A fresh copy of the allocator on a fresh fake device, driven as torch would."""

    def __init__(self, built, folder):
        copies = [shutil.copy(path, folder) for path in built]  # a library keeps its state as long as it is loaded
        self.library, self.driver = (ctypes.CDLL(copy) for copy in copies)
        self.library.so_driver(copies[1].encode())
        self.library.so_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.driver.fake_malloc.restype = ctypes.c_void_p
        self.driver.fake_malloc.argtypes = [
            ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p,
        ]  # fmt: skip
        self.driver.fake_used.restype = ctypes.c_size_t
        self.guards = Guards(FakeTorch, typed(self.library), "cuda:0")
        self.said = ""
        self.first = self.malloc(1)  # torch's arrays for the check are the first to be allocated; NumPy's are not here

    def malloc(self, size: int, stream: int = 0) -> int:
        text = ctypes.create_string_buffer(400)
        found = self.driver.fake_malloc(ctypes.cast(self.library.so_malloc, ctypes.c_void_p), size, 0, stream, text)
        self.said = text.value.decode()
        return found or 0

    def free(self, address: int) -> None:
        self.library.so_free(address, 0, 0, None)

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self.driver, name).value = value

    def get(self, name: str) -> int:
        return ctypes.c_int.in_dll(self.driver, name).value


@pytest.fixture()
def device(built, tmp_path):
    found = Device(built, tmp_path)
    found.guards.begin()
    return found


SIZES = (1, 2, 255, 256, 4095, 4096, 4097, 70000, 3 * PAGE)


@compiled
def test_a_buffer_is_aligned_poisoned_and_lies_between_guards(device):
    for size in SIZES:
        start = device.malloc(size)
        assert start % 256 == 0
        whole = memory(start - PAGE, PAGE + size + PAGE)
        words = whole[: len(whole) // 2 * 2].view(np.uint16)
        assert (words == POISON).all(), size
    assert np.isnan(np.array([0xFFA5FFA5], dtype=np.uint32).view(np.float32)).all()
    assert np.isnan(np.array([0xFFA5], dtype=np.uint16).view(np.float16)).all()
    assert device.guards.outside() == ""


@compiled
def test_no_buffers_share_a_byte_or_a_guard_that_is_too_small(device):
    placed = sorted((device.malloc(size), size) for size in SIZES * 3)
    for (start, size), (following, _) in itertools.pairwise(placed):
        assert following - (start + size) >= PAGE


@compiled
@pytest.mark.parametrize("size", [1, 100, PAGE, PAGE + 2, 65 * MIB])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda size: size, "1 bytes changed, first 0 bytes behind it"),
        (lambda size: size + PAGE - 1, f"1 bytes changed, first {PAGE - 1} bytes behind it"),
        (lambda size: -1, "1 bytes changed, first 1 bytes before it"),
        (lambda size: -2000, "1 bytes changed, first 2000 bytes before it"),
    ],
)
def test_a_byte_written_beside_a_buffer_is_found_and_told_once(device, size, place, words):
    start = device.malloc(size)
    memory(start + place(size), 1)[:] ^= 1
    assert device.guards.outside() == f"a buffer of {size} bytes: {words}"
    device.guards.begin()
    assert device.guards.outside() == ""


@compiled
@pytest.mark.parametrize("place", [-PAGE, 100, 101, PAGE - 1, 2 * PAGE - 1])
def test_every_byte_of_the_guards_counts(device, place):
    memory(device.malloc(100) + place, 1)[:] ^= 128
    assert device.guards.outside() != ""


@compiled
def test_what_is_written_into_buffers_is_nobodys_business(device):
    for size in SIZES:
        memory(device.malloc(size), size)[:] = 3
    assert device.guards.outside() == ""


@compiled
def test_a_page_between_two_buffers_counts_for_the_nearer_one(device):
    first, second = device.malloc(PAGE), device.malloc(2 * PAGE)
    memory(first + PAGE, 4)[:] = 0
    assert device.guards.outside() == f"a buffer of {PAGE} bytes: 4 bytes changed, first 0 bytes behind it"
    device.guards.begin()
    first, second = device.malloc(PAGE), device.malloc(2 * PAGE)
    memory(second - 4, 4)[:] = 0
    assert device.guards.outside() == f"a buffer of {2 * PAGE} bytes: 4 bytes changed, first 4 bytes before it"


@compiled
def test_the_same_sizes_get_the_same_addresses_and_nothing_is_used_twice_before(device):
    kept = []
    for _ in range(3):
        device.guards.begin()
        addresses = []
        for size in SIZES:
            addresses.append(device.malloc(size))
            device.free(addresses[-1])
        assert len(set(addresses)) == len(SIZES)
        kept.append(device.guards.sequence())
        assert kept[-1] == tuple(zip(addresses, SIZES, strict=True))
    assert kept[0] == kept[1] == kept[2]


@compiled
def test_a_write_into_the_guards_of_a_freed_buffer_is_seen(device):
    start = device.malloc(100)
    device.free(start)
    memory(start + 100, 2)[:] = 0
    assert "a buffer of 100 bytes: 2 bytes" in device.guards.outside()


@compiled
def test_living_buffers_are_passed_over_and_stay_guarded(device):
    first, cache, last = (device.malloc(PAGE) for _ in range(3))
    memory(cache, PAGE)[:] = 9
    for start in (first, last):
        device.free(start)
    for _ in range(2):
        device.guards.begin()
        again = [device.malloc(PAGE), device.malloc(PAGE)]
        assert again == [first, last] and (memory(cache, PAGE) == 9).all()
        assert device.guards.sequence() == ((first, PAGE), (last, PAGE))
        for start in again:
            device.free(start)
    device.guards.begin()
    wide = device.malloc(2 * PAGE)  # too wide for the gap in front of it
    assert wide == last
    memory(cache - 1, 1)[:] = 0
    assert "first 1 bytes before it" in device.guards.outside()
    device.guards.begin()
    assert device.guards.outside() == "" and (memory(cache, PAGE) == 9).all()


@compiled
def test_an_empty_arena_starts_again_at_its_first_page(device):
    device.free(device.first)
    for _ in range(2):
        device.guards.begin()
        assert device.malloc(2 * PAGE) == device.first and device.guards.outside() == ""
        memory(device.first - 1, 1)[:] = 0
        assert "first 1 bytes before it" in device.guards.outside()
        device.free(device.first)


@compiled
def test_guards_are_whole_again_after_a_run_that_nobody_checked(device):
    """Its call raised. The next case must not be blamed."""
    cache = device.malloc(101)
    memory(cache + 101, 5000)[:] = 0
    memory(cache - 3, 3)[:] = 0
    device.guards.begin()
    assert device.guards.outside() == ""


@compiled
def test_large_buffers_go_back_to_the_device_and_keep_their_guards(device):
    before = device.driver.fake_used()
    start = device.malloc(70 * MIB)
    device.free(start)
    memory(start + 70 * MIB, 8)[:] = 0  # it may still be written: nothing is given back before the run ends
    assert device.driver.fake_used() > before
    assert "a buffer of 73400320 bytes: 8 bytes changed, first 0 bytes behind it" in device.guards.outside()
    assert device.driver.fake_used() == before


@compiled
def test_memory_of_freed_buffers_is_given_back_when_there_is_no_other(device):
    first = device.malloc(300 * MIB)
    memory(first - 1, 1)[:] = 0
    device.free(first)
    assert device.malloc(350 * MIB), device.said
    assert not device.guards.out_of_memory()
    assert "a buffer of 314572800 bytes: 1 bytes changed, first 1 bytes before it" in device.guards.outside()


@compiled
@pytest.mark.parametrize("size", [2**44, 2**64 - 1, 600 * MIB])
def test_out_of_memory_says_so_and_the_device_goes_on(device, size):
    assert device.malloc(size) == 0
    assert device.said.startswith(f"CUDA out of memory: {size} bytes were asked for")
    assert device.guards.out_of_memory()
    device.guards.begin()
    assert not device.guards.out_of_memory()
    assert device.malloc(64) and device.guards.outside() == ""


@compiled
def test_an_empty_tensor_needs_no_memory(device):
    assert device.malloc(0) == 0 and device.said == ""
    assert device.guards.sequence() == ()


@compiled
def test_a_full_arena_does_not_end_the_run(device):
    """The fake has an arena of 64 MiB."""
    placed = [device.malloc(20 * MIB) for _ in range(5)]
    assert len(set(placed)) == 5
    memory(placed[4] + 20 * MIB, 1)[:] = 0
    assert "first 0 bytes behind it" in device.guards.outside()
    for start in placed:
        device.free(start)
    device.guards.begin()
    assert device.malloc(20 * MIB) == placed[0]


@compiled
def test_a_graph_poisons_its_buffers_at_every_replay_and_leaves_guards_alone(device):
    device.set("fake_capturing", 1)
    start = device.malloc(103, CAPTURED)
    device.set("fake_capturing", 0)
    assert device.guards.outside() == ""  # guards are there although nothing was replayed yet
    memory(start, 103)[:] = 0
    memory(start + 200, 2)[:] = 0
    device.driver.fake_replay()
    assert (memory(start, 102).view(np.uint16) == POISON).all()
    assert "2 bytes changed, first 97 bytes behind it" in device.guards.outside()


@compiled
def test_a_captured_buffer_stays_until_the_run_ends(device):
    device.set("fake_capturing", 1)
    start = device.malloc(300 * MIB, CAPTURED)
    device.free(start)
    device.set("fake_capturing", 0)
    assert device.malloc(350 * MIB) == 0  # a replay would still write there
    device.guards.begin()
    assert device.malloc(350 * MIB)


@compiled
def test_a_clean_case_waits_for_the_device_once(device):
    """What the allocator itself waits is all: synchronize is torch's."""
    before = device.get("fake_syncs")
    for _ in range(3):
        for size in SIZES:
            device.free(device.malloc(size))
        assert device.guards.outside() == ""
        device.guards.begin()
    assert device.get("fake_syncs") == before


@compiled
def test_more_buffers_than_there_are_rows(device):
    for _ in range(700):
        device.malloc(16)
    last = device.malloc(24)
    assert len(device.guards.sequence()) == 701
    memory(last + 24, 1)[:] = 0
    assert device.guards.outside().startswith("a buffer of 24 bytes")


@compiled
def test_a_lost_device_raises_and_is_not_called_clean(device):
    device.malloc(70 * MIB)
    device.set("fake_lost", 700)
    with pytest.raises(RuntimeError, match="cannot reach the device"):
        device.guards.outside()
    assert device.malloc(10) == 0
    assert device.said == "CUDA error: the fake is lost (guard allocator: fill)"


@compiled
def test_it_is_compiled_once_and_appears_whole(tmp_path, monkeypatch):
    home = Home(tmp_path)
    made = guards.library(home)
    assert [p.name for p in made.parent.iterdir()] == [made.name]
    monkeypatch.setattr(guards.subprocess, "run", None)
    assert guards.library(home) == made


def test_without_a_compiler_the_reason_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECORACLE_HOME", str(tmp_path))
    monkeypatch.setattr(guards, "COMPILERS", ("no-such-compiler",))
    told = guards.offer({})
    assert told["library"] is None and "no C++ compiler (no-such-compiler) is on the PATH" in told["reason"]


def test_a_compiler_that_hangs_or_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECORACLE_HOME", str(tmp_path))
    tool = tmp_path / "cc"
    tool.write_text("#!/bin/sh\nwhile [ $1 != -o ]; do shift; done; echo half > $2; echo broken >&2; exit 1\n")
    tool.chmod(0o755)
    monkeypatch.setattr(guards, "COMPILERS", (str(tool),))
    assert "does not compile the guard allocator: broken" in guards.offer({})["reason"]
    monkeypatch.setattr(guards, "COMPILE_DEADLINE_S", 0.2)
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    assert "did not end within 0.2 s" in guards.offer({})["reason"]
    assert not [p for p in tmp_path.rglob("guards/*")]


def test_whoever_asks_for_the_plain_allocator_gets_it():
    assert "plain allocator" in guards.offer({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})["reason"]
    assert guards.offer({}, wanted=False) == {"library": None, "reason": "off: not wanted"}


def test_a_worker_says_whether_it_has_guards(tmp_path):
    engine = SimpleNamespace(device="cuda:0", guards=None, torch=SimpleNamespace())
    offer = {"library": str(tmp_path / "missing.so"), "reason": None}
    assert guard(engine, {"library": None, "reason": "no compiler"}) == {"guards": "no compiler"}
    assert guard(engine, offer)["guards"].startswith("torch takes no other allocator here:")
    assert engine.guards is None
    assert guard(SimpleNamespace(device="cpu"), None) == {}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_supervisor_offers_guards_to_a_gpu_alone(device, monkeypatch):
    sent = []
    monkeypatch.setattr(supervisor.wire, "send", lambda socket, message: sent.append(message))
    session = supervisor.Session(replace(fake_launch(), device=device, guards=False))
    session._end(session._spawn())
    session.close()
    assert sent[0]["guards"] == (None if device == "cpu" else {"library": None, "reason": "off: not wanted"})


@compiled
def test_torch_gets_the_allocator_before_anything_else(built):
    given, memory = [], SimpleNamespace()
    memory.CUDAPluggableAllocator = lambda *names: names
    memory.change_current_allocator = given.append
    engine = SimpleNamespace(device="cuda:0", guards=None, torch=SimpleNamespace(cuda=SimpleNamespace(memory=memory)))
    assert guard(engine, {"library": str(built[0]), "reason": None}) == {"guards": "on"}
    assert given == [(str(built[0]), "so_malloc", "so_free")] and isinstance(engine.guards, Guards)


@pytest.mark.parametrize("guarded", [None, "on", "no compiler"])
def test_a_run_without_guards_says_so_once(guarded, capsys):
    ready = {"guards": guarded} if guarded else {}
    said = "no guard zones around this engine's GPU buffers: no compiler\n"
    launch = SimpleNamespace(engine="e", version="1", device="cuda")
    emitted = []
    events = SimpleNamespace(emit=lambda name, **values: emitted.append(values))
    runs.run_started(events, SimpleNamespace(launch=launch, ready={"places": {}, **ready}), "fuzz")
    assert capsys.readouterr().err == (said if guarded == "no compiler" else "")
    assert emitted[0]["worker"] == ready


CASE = replace(CONTRACT.example, requests=(Request(250, 2, 0),))
TARGET = adapters.load("fake")["fake/fake/commit.checkpoint_steps/right"]
WORDS = "a buffer of 16 bytes: 4 bytes changed, first 0 bytes behind it"


def observed() -> dict:
    return right(SimpleNamespace(**CONTRACT.columns(CASE)))


def judged(**answered):
    return interpret(CONTRACT, TARGET, CASE, PLAIN, {"status": "ok", "observed": observed(), **answered})


def test_right_values_and_a_write_outside_are_red():
    assert judged().kind is Kind.AGREE
    verdict = judged(outside=WORDS)
    assert verdict.kind is Kind.DIVERGE
    assert (verdict.identity.field, verdict.identity.kind) == ("buffers", "written_outside")
    assert verdict.evidence["claim"] == f"The call wrote outside the buffers it was given: {WORDS}."


def test_a_wrong_value_keeps_its_identity():
    wrong = {**observed(), "current_step": [9]}
    plain, beside = judged(observed=wrong), judged(observed=wrong, outside=WORDS)
    assert plain.identity == beside.identity and beside.evidence == {**plain.evidence, "outside": WORDS}
    unstable = judged(unstable=True, outside=WORDS)
    assert unstable.identity.kind == "two_runs_differ" and unstable.evidence["outside"] == WORDS


def test_a_sweep_stops_at_a_write_outside():
    row = np.array([250], dtype=np.int64)
    session = SimpleNamespace(call=lambda request: {"status": "ok", "observed": {}, "outside": WORDS})
    result = sweep(session, TARGET, [Block(256, "int64", row, row - 248)])
    assert (result.verdict, result.failure) == (Kind.DIVERGE, f"the call wrote outside its buffers: {WORDS}")


def test_two_sides_differ_when_one_of_them_writes_outside():
    sides = (Side("l", "e==1", "t"), Side("r", "e==2", "t"))
    clean, dirty, seen = judged(), judged(outside=WORDS), observed()
    assert compare(CONTRACT, TARGET, sides, (dirty, dirty), (seen, seen)).kind is Kind.AGREE
    verdict = compare(CONTRACT, TARGET, sides, (clean, dirty), (seen, seen))
    assert (verdict.identity.field, verdict.identity.kind) == ("buffers", "written_outside:reference_takes_left")
    assert verdict.evidence["claim"].startswith(f"l has not and r has written outside its buffers ({WORDS});")


class Watching:
    """The part of an engine that a worker's answer needs, which says ``told`` after each run."""

    def __init__(self, told):
        self.name, self.told, self.ran = "fake", list(told), []
        self.device, self.production_s, self.compiling = "cpu", 0.0, Compiling()

    def begin(self):
        self.ran.append("begin")

    def outside(self):
        self.ran.append("outside")
        return self.told.pop(0)

    def symbol(self, key):
        return key

    def out_of_memory(self):
        return "short" in self.told

    def device_fault(self):
        return None


def raises(engine, case):
    raise RuntimeError("production has its own words for it")


@pytest.mark.parametrize(("repeat", "told"), [(False, [WORDS]), (True, ["", WORDS]), (True, [WORDS, ""])])
def test_a_worker_looks_after_each_run(repeat, told):
    engine = Watching(told)
    target = replace(TARGET, run=lambda engine, case: right(case))
    request = {"target": TARGET.id, "case": CONTRACT.columns(CASE), "repeat": repeat}
    answered = answer(engine, {TARGET.id: target}, request)
    assert answered["outside"] == WORDS and answered["observed"] == observed()
    assert engine.ran == ["begin", "outside"] * (1 + repeat)


@pytest.mark.parametrize(("told", "status"), [([], "harness"), (["short"], "out_of_memory")])
def test_a_worker_does_not_look_when_the_call_raised(told, status):
    engine = Watching(told)
    answered = answer(engine, {TARGET.id: replace(TARGET, run=raises)}, {"target": TARGET.id, "case": {}})
    assert answered["status"] == status and engine.ran == ["begin"]


class Cells:
    """Tensors of NumPy for the check of the filler."""

    int16, int32 = np.int16, np.int32

    @staticmethod
    def full(shape, filler, dtype, device=None):
        return tensor(np.full(shape, filler, dtype=dtype))

    @staticmethod
    def stack(values):
        return np.stack(values)


class tensor(Array):  # noqa: N801
    device = "cpu"

    def __new__(cls, array):
        return np.asarray(array).view(cls)


def test_filler_that_was_written_over_is_told():
    wide = [(Cells.full((2, 7), layout.FILLER, np.int32), layout.FILLER), (Cells.full((3,), 0, np.int16), 0)]
    for cells, _ in wide:
        cells[..., 1::2] = 5
    assert layout.overwritten(Cells, wide) == "" == layout.overwritten(Cells, [])
    wide[0][0][1, 4] = 5
    words = "a strided int32 tensor of shape (2, 3): 1 cells between its elements changed"
    assert layout.overwritten(Cells, wide) == words


def test_the_pattern_is_the_same_on_both_sides():
    from fuzz.worker import guards as worker_side

    source = guards.SOURCE.read_text(encoding="utf-8")
    assert f"PATTERN = 0x{worker_side.PATTERN:X};" in source and f"PAGE = {worker_side.PAGE_BYTES};" in source
    assert "worker/*.cpp" in (PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert os.path.exists(guards.SOURCE)


def test_a_compiler_that_hangs_is_waited_for_once_and_nothing_of_it_stays(tmp_path, monkeypatch):
    path = tmp_path / guards.COMPILERS[0]
    path.write_text(f"#!/bin/sh\nsleep 77 &\necho $! >>{tmp_path}/started\nwait\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(guards, "COMPILE_DEADLINE_S", 1)
    for _ in range(2):
        with pytest.raises(guards.GuardsError, match="did not end within 1 s"):
            guards.library(Home(tmp_path))
    (child,) = (tmp_path / "started").read_text().split()
    assert gone(int(child))


def gone(pid: int) -> bool:
    """Whether a process ended, or only waits for somebody to read its status."""
    for _ in range(50):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@compiled
def test_an_empty_file_in_the_librarys_place_is_compiled_anew(tmp_path):
    place = guards.library(Home(tmp_path))
    place.write_bytes(b"")
    assert guards.library(Home(tmp_path)).read_bytes()[:4] == guards.ELF
