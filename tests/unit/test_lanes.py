"""Several devices under one supervisor: every part is done once, in one stream, and a device that is lost costs
its own part and is named."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fuzz import corpus
from fuzz.adapter import accept_all
from fuzz.campaign import Options
from fuzz.commands import fuzz as fuzz_command
from fuzz.commands import fuzz_words, gate_lanes, in_lanes, parts
from fuzz.commands.gate import Part
from fuzz.database import open_store
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.gate import GateResult
from fuzz.gate import gate as run_gate
from fuzz.lanes import Lanes, Lost
from fuzz.shard import Shard
from fuzz.supervisor import Session, SessionError
from fuzz.target_state import TargetState
from fuzz.verdict import Kind
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.unit.test_isolation import adapter, case_with
from tests.unit.test_runs import FAKE_RUN, alive, fake

ROOT = Path(__file__).parents[2]
FAKE_TORCH = ROOT / "tests" / "fake_torch"
RIGHT = "fake/fake/commit.checkpoint_steps/right"
DEVICES = ("cuda:0", "cuda:1")


def on_gpus():
    """The fake engine behind a torch that says it has GPUs."""
    launch = fake_launch()
    return replace(launch, shims=False, env=launch.env | {"PYTHONPATH": f"{FAKE_TORCH}{os.pathsep}{ROOT}"})


def taken(lane):
    """What a lane does in these tests: note the parts it took."""
    mine = []
    while (part := lane.next_part()) is not None:
        mine.append(part[0])
        lane.events.end_of_part = lane.events.start("t")
        lane.tell(len(mine), 0, 0)
        time.sleep(0.01)
    return lane.device, mine


def test_every_part_is_taken_once_and_numbers_are_not_shared(tmp_path):
    shown = []
    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 40) as lanes:
        lanes.start(events, taken)
        events.emit("run_started")
        results = lanes.go(shown.append)
    assert sorted(device for device, _ in results) == list(DEVICES)
    assert sorted(part for _, mine in results for part in mine) == list(range(40))
    assert all(mine for _, mine in results)
    starts = [e for e in event_reader.read(tmp_path) if e["event"] == "start"]
    assert sorted(e["case"] for e in starts) == sorted(set(e["case"] for e in starts)) and len(starts) == 40
    assert {e["device"] for e in starts} == set(DEVICES)
    assert max(s[0] for s in shown) <= 40


def test_a_worker_sees_its_own_device_alone(tmp_path):
    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 0) as lanes:
        lanes.start(events, taken)
        assert {d: r["device"] for d, r in lanes.ready.items()} == {"cuda:0": "cuda:0 of 0", "cuda:1": "cuda:0 of 1"}
    chosen = replace(on_gpus(), device="cuda:1")
    with Session(replace(chosen, env=chosen.env | {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"})) as session:
        assert session.ready["device"] == "cuda:0 of GPU-b"
    with pytest.raises(SessionError, match="cuda:1 is not among"):
        Session(replace(chosen, env=chosen.env | {"CUDA_VISIBLE_DEVICES": "3"})).start()


def test_long_lines_of_several_processes_do_not_mix(tmp_path):
    def writes(lane):
        for n in range(200):
            lane.events.emit("note", text=str(lane.number) * 30_000, n=n)

    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 0) as lanes:
        lanes.start(events, writes)
        events.emit("run_started")
        lanes.go(lambda sums: None)
    texts = [e["text"] for e in event_reader.read(tmp_path) if e["event"] == "note"]
    assert len(texts) == 400 and all(len(set(t)) == 1 for t in texts)


def test_a_lane_that_is_killed_is_lost_and_the_other_takes_the_rest(tmp_path):
    def dies(lane):
        if lane.number == 0:
            lane.next_part()
            os.kill(os.getpid(), signal.SIGKILL)
        return taken(lane)

    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 10) as lanes:
        lanes.start(events, dies)
        events.emit("run_started")
        results = lanes.go(lambda sums: None)
    (lost,) = [r for r in results if isinstance(r, Lost)]
    assert lost.device == "cuda:0" and "ended with -9" in lost.reason
    ((_, mine),) = [r for r in results if not isinstance(r, Lost)]
    assert len(mine) == 9


def lost_one(tmp_path, work, show=lambda sums: None):
    """What becomes of two lanes of which the first does ``work``: the one that is lost, and how long it took."""
    began = time.monotonic()
    with Events(tmp_path / "run") as events, Lanes(on_gpus(), DEVICES, 10) as lanes:
        lanes.start(events, lambda lane: work(lane) if lane.number == 0 else taken(lane))
        results = lanes.go(show)
    lost = [r.reason for r in results if isinstance(r, Lost)]
    return lost, time.monotonic() - began


def stop(lane):
    lane.next_part()
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_lane_that_stands_still_is_lost_in_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.lanes.STILL_LOOKS", 15)
    lost, took_s = lost_one(tmp_path, stop)
    assert lost == ["cuda:0: its supervising process stood still"] and took_s < 30


def test_who_interrupts_twice_waits_no_longer_for_a_lane_that_stands_still(tmp_path, monkeypatch):
    lost, took_s = lost_one(tmp_path, stop, lambda sums: monkeypatch.setattr("fuzz.interrupt._heard", 2))
    assert lost == [] and took_s < 30


def test_a_lane_that_is_killed_leaves_no_folder(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    lost, _ = lost_one(tmp_path, lambda lane: os.kill(os.getpid(), signal.SIGKILL))
    assert len(lost) == 1 and not list(temporary.iterdir())


def test_a_spare_that_died_while_it_waited_is_charged_to_no_case():
    with Session(replace(on_gpus(), device="cuda:0")) as session:
        spare = session._spare
        assert select.select([spare.control], [], [], 60)[0]  # it has imported the engine
        spare.process.kill()
        spare.process.wait()
        assert execute(session, adapter(RIGHT), case_with(5)).kind is Kind.AGREE
        session.fresh()
        assert execute(session, adapter(RIGHT), case_with(5)).kind is Kind.AGREE


def test_a_lane_imports_its_engine_once_and_once_to_spare(tmp_path):
    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 0) as lanes:
        lanes.start(events, lambda lane: lane.session._spawned)
        assert lanes.go(lambda sums: None) == [2, 2]


def test_an_interruption_at_a_lanes_first_breath_shows_no_traceback(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("fuzz.lanes.end_with_parent", lambda _: os.kill(os.getpid(), signal.SIGINT))
    with Events(tmp_path) as events, Lanes(on_gpus(), DEVICES, 1) as lanes, pytest.raises(SessionError):
        lanes.start(events, taken)
    assert "Traceback" not in capfd.readouterr().err


def test_a_lane_that_somebody_interrupts_is_no_pass(tmp_path, monkeypatch):
    def interrupted(session, *_):
        if session.launch.device == "cuda:0":
            raise KeyboardInterrupt
        time.sleep(1.0)

    monkeypatch.setattr(gate_lanes, "run_gate", interrupted)
    part = Part(EngineSpec("fake", version="1.0"), on_gpus(), [adapter(RIGHT)] * 2, [], [], True, False)
    with Events(tmp_path) as events:
        gate_lanes.run(part, DEVICES, events, lambda session: None)
    assert part.end.exit_code(0) == 3 and "cuda:0: interrupted" in part.end.reason


def test_what_was_shown_in_no_graph_is_counted_over_all_lanes():
    states = [TargetState(adapter(RIGHT), captured=1, uncaptured=Counter(why=2)) for _ in range(2)]
    states[0].add(states[1])
    assert states[0].captured == 2 and states[0].uncaptured == {"why": 4}


def test_a_device_that_does_not_start_is_named_and_none_is_an_error(tmp_path):
    broken = replace(on_gpus(), modules=("no_such_module",))
    with (
        Events(tmp_path / "a") as events,
        Lanes(broken, DEVICES, 1) as lanes,
        pytest.raises(SessionError, match="cuda"),
    ):
        lanes.start(events, taken)
    assert len(lanes.failed) == 2 and all("no_such_module" in lost.reason for lost in lanes.failed)


def test_a_fixed_campaign_is_cut_finer_than_its_lanes_and_nothing_is_lost():
    many = [f"t{i}" for i in range(40)]
    assert len(parts.split(many, Options(max_seconds=9), 2)) == 2
    fixed = parts.split(many, Options(seed=3, max_examples=10), 2)
    assert len(fixed) == 2 * parts.PARTS_A_LANE
    assert sorted(t for o in fixed for t in o.shard.share(many, o.seed)[0]) == sorted(many)
    alone = parts.split(["t"], Options(max_examples=100), 2)
    assert sum(o.max_examples for o in alone) == 100
    assert len({o.shard.share(["t"], o.seed)[1] for o in alone}) == len(alone) == 2 * parts.PARTS_A_LANE
    assert len(parts.split(["t"], Options(max_examples=3), 2)) == 3
    half = Options(max_examples=10, shard=Shard(2, 2))
    own = [t for o in parts.split(many, half, 2) for t in o.shard.share(half.shard.share(many, 0)[0], 0)[0]]
    assert sorted(own) == sorted(many[1::2])


def test_what_parts_say_of_a_target_adds_up():
    one, two = TargetState(adapter(RIGHT)), TargetState(adapter(RIGHT))
    for state, count in ((one, 2), (two, 3)):
        state.verdicts[Kind.AGREE], state.uncaptured["it waits"], state.captured = count, count, count
        state.raw, state.compile_s = count, count
    two.stored = 4
    one.add(two)
    assert (one.executed, one.uncaptured["it waits"], one.captured, one.raw, one.compile_s) == (5, 5, 5, 5, 5)
    assert one.stored == 4 and one.drawn == 9


def test_a_gate_whose_corpus_has_nothing_for_it_is_no_crash():
    part = Part(EngineSpec("fake", version="1.0"), on_gpus(), [adapter(RIGHT)], [], [], True, False)
    part.show(SimpleNamespace(show=lambda text, share: None), 0, 0)


SEVERAL = FAKE_RUN.replace("lambda spec, **_: fake_launch()", "lambda spec, **_: on_gpus()").replace(
    "from tests.conftest import fake_launch", "from tests.unit.test_lanes import on_gpus"
)


def executed(events):
    """Cases that each device was shown; there is no graph here to show one in."""
    return Counter(e["device"] for e in events if e["event"] == "end" and e["verdict"] != "UNSUPPORTED")


def several(monkeypatch, *arguments, **popen):
    monkeypatch.setattr("tests.unit.test_runs.FAKE_RUN", SEVERAL)
    return fake("fuzz", "--device", "cuda:0,1", *arguments, **popen)


def test_one_run_over_two_devices_is_one_campaign(tmp_path, monkeypatch):
    run = several(monkeypatch, "--target", "*right", "--max-examples", "300", "--out", str(tmp_path / "run"))
    output, error = run.communicate(timeout=120)
    assert run.returncode == 0, error
    assert "on cuda:0,1, seed 0" in output and RIGHT in output
    events = event_reader.read(tmp_path / "run")
    assert events[0]["device"] == "cuda:0,1" and events[-1]["event"] == "run_finished" and events[-1]["exit"] == 0
    ends = executed(events)
    assert set(ends) == set(DEVICES) and min(ends.values()) > 0
    ends = executed(events)
    (said,) = [e for e in events if e["event"] == "target"]
    assert said["executed"] == sum(ends.values()) and not alive(tmp_path)


def test_a_find_of_one_device_is_printed_and_red(tmp_path, monkeypatch):
    run = several(monkeypatch, "--target", "*two_bugs", "--max-time", "3s", "--out", str(tmp_path / "run"))
    output, error = run.communicate(timeout=120)
    assert run.returncode == 1, error
    assert "DIVERGE: commit.checkpoint_steps | fake/fake/commit.checkpoint_steps/two_bugs" in output
    assert "sibling: agrees" in output and list((tmp_path / "run" / "found").rglob("*.json"))


def test_an_interrupted_run_writes_what_both_had(tmp_path, monkeypatch):
    run = several(
        monkeypatch, "--target", "*right", "--max-time", "60s", "--out", str(tmp_path / "run"),
        env={**os.environ, "SPECORACLE_TEST_RUN": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    file = tmp_path / "run" / "events.ndjson"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (file.exists() and file.read_text().count('"end"') > 50):
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    output, error = run.communicate(timeout=60)
    assert run.returncode == 130 and "Traceback" not in error, error
    events = event_reader.read(tmp_path / "run")
    assert events[-1]["event"] == "run_finished" and events[-1]["exit"] == 130
    ends = executed(events)
    (said,) = [e for e in events if e["event"] == "target"]
    assert said["executed"] == sum(ends.values()) and "interrupted" in error
    assert not alive(tmp_path)


def killed_after(work):
    """Lanes that do their work and are killed before they can say what they found."""

    def dies(*arguments):
        work(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return dies


def gate_of(tmp_path, *names):
    """A gate of some targets on two devices, and what became of it."""
    chosen = [adapter(RIGHT.replace("right", name)) for name in names]
    cases = [c for c in corpus.load(corpus.DEFAULT_CORPUS) if c[1].contract == chosen[0].contract][:40]
    part = Part(EngineSpec("fake", version="1.0"), on_gpus(), chosen, [], cases, True, False)
    with Events(tmp_path / "gate") as events:
        gate_lanes.run(part, DEVICES, events, lambda session: events.emit("run_started"))
    return part


@pytest.mark.parametrize(("name", "code"), [("two_bugs", 1), ("right", 3)])
def test_what_lost_devices_had_found_is_said_and_red(tmp_path, monkeypatch, capfd, name, code):
    monkeypatch.setattr(gate_lanes, "_work", killed_after(gate_lanes._work))
    part = gate_of(tmp_path, name)
    assert "ended with -9" in part.end.reason and part.code == code
    found = f"had found before: DIVERGE: commit.checkpoint_steps | {RIGHT.replace('right', name)} | "
    assert (found in capfd.readouterr().err) == (code == 1)

    monkeypatch.setattr(parts, "work", killed_after(parts.work))
    options, store = Options(max_seconds=3.0, max_examples=100), open_store(None, tmp_path / "examples")
    chosen = [adapter(RIGHT.replace("right", name))]
    arguments = (on_gpus(), DEVICES, chosen, options, tmp_path / "fuzz", [], [chosen[0].id], "again", store)
    assert fuzz_command._on_several(*arguments) == code
    said = capfd.readouterr()
    assert (found in said.err) == (code == 1) and "no result: the run stopped early" in said.out
    assert "executed nothing" not in said.err and "before its turn" not in said.out


@pytest.mark.parametrize(
    ("sought", "stopped", "words"),
    [
        (0, None, "not reached: the run ended before its turn"), (0, "lost", "no result: the run stopped early"),
        (5, None, "none of 5 draws lay in its domain"), (5, "lost", "none of 5 draws lay in its domain"),
    ],
)  # fmt: skip
def test_a_target_that_was_shown_nothing_says_why(sought, stopped, words):
    assert words in fuzz_words._not_executed(TargetState(adapter(RIGHT), sought=sought), stopped)


def test_a_fault_of_ours_in_a_lane_is_a_harness_error(tmp_path, monkeypatch):
    monkeypatch.setattr(gate_lanes, "run_gate", lambda *_: {}["of ours"])
    assert gate_of(tmp_path, "right").code == 4


def test_a_fault_of_ours_at_the_start_of_one_lane_is_a_harness_error(tmp_path, monkeypatch):
    class Faulty(Session):
        def start(self):
            return {}["of ours"] if self.launch.device == "cuda:1" and not self.ready else super().start()

    monkeypatch.setattr("fuzz.lanes.Session", Faulty)
    part = gate_of(tmp_path, "right")
    assert part.code == 4 and part.result.executed


X = {
    "target": RIGHT,
    "contract": "commit.checkpoint_steps",
    "identity": {"field": "current_step", "kind": "wrong_step"},
}
OLD, NEW = ({"engine": "fake", "version": version} for version in ("1.0", "2.0"))


def ended(device, verdict, engine=NEW, **more):
    return engine | {"event": "end", "device": device, "case": 1, "verdict": verdict, **X, **more}


@pytest.mark.parametrize(
    ("lines", "lost", "code"),
    [
        ([ended("cuda:0", "DIVERGE")], Lost("cuda:0", "killed"), 1),
        ([ended("cuda:0", "AGREE")], Lost("cuda:0", "killed"), 3),
        ([ended("cuda:0", "DIVERGE", known=True)], Lost("cuda:0", "killed"), 3),
        ([ended("cuda:1", "DIVERGE")], Lost("cuda:0", "killed"), 3),  # its lane says that itself
        ([ended("cuda:0", "DIVERGE", OLD), ended("cuda:0", "AGREE")], Lost("cuda:0", "killed"), 3),
        (
            [ended("cuda:0", "DIVERGE", OLD), OLD | {"event": "verdict", "verdict": "ORACLE_SUSPECT", **X},
             ended("cuda:0", "DIVERGE")],
            Lost("cuda:0", "killed"), 1,
        ),
        ([ended("cuda:0", "AGREE")], Lost("cuda:0", "raised", 4), 4),
        ([ended("cuda:0", "FLAKY")], Lost("cuda:0", "killed"), 1),
        ([{"event": "end"}], Lost("cuda:0", "killed"), 3),  # an event that nobody can read
    ],
)  # fmt: skip
def test_the_journal_says_what_a_lost_device_had_found(tmp_path, capsys, lines, lost, code):
    with Events(tmp_path) as events:
        events.emit("run_started")
        for engine in (OLD, NEW):
            events.emit("engine_started", device="cuda:0,1", **engine)
            for line in lines:
                if line.get("version", "2.0") == engine["version"]:
                    events.emit(**line)
        assert in_lanes._unheard([lost], events) == code
        assert in_lanes._unheard([], events) == 0
    assert ("cannot be read" in capsys.readouterr().err) == (lines == [{"event": "end"}])


@pytest.mark.parametrize("text", ["cuda:0,0", "cuda:0,", "cpu,cpu", "cuda:a,b", "cuda,cuda:1"])
def test_devices_that_are_none_are_a_usage_error(text):
    run = fake("fuzz", "--device", text)
    output, error = run.communicate(timeout=60)
    assert run.returncode == 2 and ("is not cpu, cuda" in error or "twice" in error), error


@pytest.mark.parametrize("devices", [DEVICES, DEVICES[:1]])
def test_a_gate_in_lanes_gives_what_one_session_gives(tmp_path, fake_session, devices):
    """Also of a lane that takes several targets, the first of which is red."""
    known = []
    chosen = [adapter(RIGHT.replace("right", name)) for name in ("two_bugs", "right", "remembers")]
    cases = [c for c in corpus.load(corpus.DEFAULT_CORPUS) if c[1].contract == chosen[0].contract][:40]
    with Events(tmp_path / "one") as events:
        one = run_gate(fake_session, chosen, cases, events, known, GateResult())
    part = Part(EngineSpec("fake", version="1.0"), on_gpus(), chosen, known, cases, True, False)
    with Events(tmp_path / "two") as events:
        gate_lanes.run(part, devices, events, lambda session: events.emit("run_started"))
    two = part.result
    assert part.end.reason is None and one.verdicts == two.verdicts and one.executed == two.executed
    assert {i: len(h) for i, h in one.red.items()} == {i: len(h) for i, h in two.red.items()} and one.red
    assert Counter(a.case for a in one.answers) == Counter(a.case for a in two.answers)


def test_a_part_whose_share_of_the_time_was_too_short_goes_on_behind_the_others(fake_session, tmp_path):
    """Eight targets in two seconds; one takes 0.1 s a case and has a quarter of a second, then what others leave."""

    def slowly(case):
        time.sleep(0.1)

    targets = [replace(adapter(RIGHT), symbol=f"t{i}", accepts=slowly if i == 0 else accept_all) for i in range(8)]
    session = SimpleNamespace(
        **{n: getattr(fake_session, n) for n in ("launch", "ready", "stream", "fresh", "history")}
    )
    session.stream = lambda requests: fake_session.stream([r | {"target": RIGHT} for r in requests])
    options, taken_parts = Options(max_seconds=2.5, max_examples=8, bare=True), iter(range(8))
    with Events(tmp_path) as events:
        lane = SimpleNamespace(
            session=session, events=events, lanes=1, device="cpu", tell=lambda *counts: None,
            next_part=lambda: next(((n, 8 - n) for n in taken_parts), None),
        )  # fmt: skip
        split = parts.split(targets, options, 1)
        worked, _ = parts.work(lane, targets, split, options, [], open_store(None, tmp_path / "examples"))
    assert [worked.states[t.id].raw for t in targets] == [8] * 8
