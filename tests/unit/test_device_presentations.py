"""What a worker makes of a graph, a side stream and a repetition, on a device that is none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fuzz.adapter import Adapter, PathNotTaken, Unsupported, accept_all
from fuzz.worker.serve import RUNS_ON_CPU, RUNS_ON_DEVICE, answer
from fuzz.worker.streams import Late
from tests.fake_device import FakeDevice

BEFORE, NOW = {"values": [5, 6], "calls": 1}, {"values": [1, 2], "calls": 1}


class Double:
    """An adapter: production doubles a buffer. ``wrong`` is what is the matter with it."""

    def __init__(self, wrong: str = "", guarded: bool = True):
        self.device, self.wrong, self.runs = FakeDevice(), wrong, []
        self.engine = self.device.engine(guarded)

    def run(self, columns):
        return self(self.engine, SimpleNamespace(**columns))

    def __call__(self, engine, case):
        device, memory = self.device, self.device.memory
        self.runs.append(case.values)
        device.log.append(f"run {case.values}")
        device.begin()
        given = engine.shown.tensor(lambda: device.allocate(case.values))
        if self.wrong == "raises":
            raise ValueError("of production")
        for _ in range(case.calls):
            with engine.production():
                late = [engine.shown.tensor(lambda: device.allocate(case.values))] if self.wrong == "late input" else []
                scale = sum(case.values) if self.wrong == "bakes" else 2
                more = [0] * (case.values[0] if self.wrong == "sizes" else 0)
                out = device.allocate([0, 0, *more])
                if self.wrong == "reads":
                    device.read(given)
                source = late[0] if late else given
                device.launch(lambda s=source, o=out, f=scale: memory.update({o: [v * f for v in memory[s]]}))
                if self.wrong in ("refuses", "breaks") and device.capturing:
                    device.broken = self.wrong == "breaks"
                    raise AssertionError("not in a graph")
        return {"doubled": device.read(out)}


def observed(double, before=BEFORE, now=NOW):
    return double.engine.graphs.observe(double.run, before, now)


def test_production_is_replayed_for_new_contents_in_the_same_buffers():
    double = Double()
    assert observed(double) == {"doubled": [2, 4]}
    kept = [line for line in double.device.log if "waits" not in line]
    assert kept == [
        "capture 1 relaxed", "captured 1",  # stays, so that the shared buffers do
        "run [1, 2]", "run [5, 6]",
        "run [5, 6]", "capture 2 relaxed", "captured 2", "replay 2",
        "run [1, 2]", "capture 3 relaxed", "captured 3", "replay 2",
    ]  # fmt: skip
    assert observed(double) == {"doubled": [2, 4]} and double.device.graphs == 5  # nothing is left of the first


def test_a_value_of_the_host_stays_that_of_the_batch_before():
    assert observed(Double("bakes")) == {"doubled": [11, 22]}


def test_a_tensor_that_the_adapter_makes_in_the_call_is_no_part_of_the_graph():
    assert observed(Double("late input")) == {"doubled": [2, 4]}


@pytest.mark.parametrize(
    ("wrong", "now", "words"),
    [
        ("sizes", NOW, "a graph needs the same buffers"),
        ("", NOW | {"calls": 2}, "a graph needs the same production calls"),
        ("", NOW | {"calls": 0}, "a graph needs the same production calls"),
        ("reads", NOW, "production cannot be captured: RuntimeError: CUDA error: operation not permitted"),
        ("refuses", NOW, "production cannot be captured: AssertionError: not in a graph"),
    ],
)
def test_what_has_no_graph_is_said_and_the_next_case_works(wrong, now, words):
    double = Double(wrong)
    if not now["calls"]:
        double.device.memory[0] = [0, 0]
        double.run = lambda columns, run=double.run: run(columns) if columns["calls"] else {"doubled": []}
    with pytest.raises(PathNotTaken, match=words) as said:
        observed(double, now=now)
    assert "\n" not in str(said.value) and not double.engine.lost and double.device.capturing is None
    double.wrong = ""
    assert observed(double) == {"doubled": [2, 4]}


def test_a_production_without_a_launch_is_no_plain_success():
    class Nothing(Double):
        def __call__(self, engine, case):
            with engine.production():
                pass
            return {"doubled": [2 * v for v in case.values]}

    with pytest.raises(PathNotTaken, match="launches nothing"):
        observed(Nothing())


def test_an_error_outside_a_capture_keeps_its_meaning():
    with pytest.raises(ValueError, match="of production"):
        observed(Double("raises"))


def test_without_the_guarded_allocator_there_is_no_graph():
    with pytest.raises(Unsupported, match="need the guarded allocator"):
        observed(Double(guarded=False))


def ask(double, **presentation):
    target = Adapter("fake", "c", "m", "s", double, ("doubled",), (), "torch", accept_all)
    return answer(double.engine, {target.id: target}, {"target": target.id, "case": NOW, **presentation})


def test_a_device_that_a_capture_broke_is_lost_and_the_target_is_not_blamed():
    said = [ask(Double(wrong), graph=BEFORE) for wrong in ("refuses", "breaks")]
    assert [s["status"] for s in said] == ["unsupported"] * 2 and [s.get("lost") for s in said] == [None, True]
    assert all("not in a graph" in s["reason"] for s in said)


def test_a_graph_is_shown_by_the_worker_and_the_next_case_plainly():
    double = Double("bakes")
    assert ask(double, graph=BEFORE)["observed"] == {"doubled": [11, 22]}
    assert ask(double)["observed"] == {"doubled": [3, 6]}


def test_on_a_cpu_nothing_is_shown_plainly_instead():
    for presentation in ({"graph": BEFORE}, {"stream": True}):
        double = Double()
        double.engine.device = "cpu"
        assert ask(double, **presentation)["status"] == "unsupported" and not double.runs


class Tensor:
    """A tensor of one value whose copies are logged with the stream they run on."""

    def __init__(self, device, value):
        self.device, self.value = device, value

    def detach(self):
        return self

    def clone(self):
        self.device.log.append(f"clone on {self.device.current.name}")
        return Tensor(self.device, self.value)

    def zero_(self):
        self.value = 0
        self.device.log.append(f"zero on {self.device.current.name}")

    def copy_(self, other):
        self.value = other.value
        self.device.log.append(f"copy on {self.device.current.name}")


def test_a_side_stream_is_late_and_ordered_at_both_ends():
    device = FakeDevice()
    engine = device.engine()
    engine.shown = Late(engine)
    tensor = engine.shown.tensor(lambda: Tensor(device, 7))
    with engine.production():
        device.log.append(f"production on {device.current.name} sees {tensor.value}")
    assert device.log == [
        "clone on default", "zero on default", "side waits for default",
        "sleep on side", "copy on side", "production on side sees 7", "default waits for side",
    ]  # fmt: skip


def test_an_error_on_a_side_stream_leaves_the_streams_in_order():
    device = FakeDevice()
    engine = device.engine()
    engine.shown = Late(engine)
    with pytest.raises(ValueError, match="of production"), engine.production():
        raise ValueError("of production")
    assert device.log[-1] == "default waits for side" and device.current.name == "default"


@pytest.mark.parametrize(("device", "runs"), [("cpu", RUNS_ON_CPU), ("cuda:0", RUNS_ON_DEVICE)])
def test_a_gpu_repeats_more_often_than_a_cpu(device, runs):
    double = Double()
    double.engine.device = device
    said = ask(double, repeat=True)
    assert "unstable" not in said and len(double.runs) == runs == {"cpu": 2, "cuda:0": 20}[device]


def test_a_repetition_ends_at_the_first_run_that_differs():
    double = Double()
    plainly, double.__class__ = double, type("Moody", (Double,), {"__call__": moody})
    said = ask(plainly, repeat=True)
    assert said["unstable"] and said["observed"] == {"doubled": [0, 4]} and len(double.runs) == 7


def moody(self, engine, case):
    seen = Double.__call__(self, engine, case)
    return {"doubled": [0, *seen["doubled"][1:]]} if len(self.runs) == 7 else seen
