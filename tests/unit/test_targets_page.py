"""The table of targets: a row a target, runs of one engine on one machine merged, and
nothing from a run is markup."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

from fuzz.worker import zygote
from oracle import contracts
from reports import targets
from reports.model import view
from tests import sample_run as sample
from tests.unit.test_markdown import MARKUP

H200 = {
    "device": "NVIDIA H200", "python": "3.12.3",
    "versions": {"torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "driver": "580.95.05", "sglang": "0.5.23"},
}  # fmt: skip
BEHAVIOURS = len(contracts.get(sample.CONTRACT).behaviours)
SHORT = "dflash/_update"


def page(*runs: Path) -> str:
    return targets.page(view(runs))


def on_a_gpu(out: Path, *events: dict, command: str = "gate", device: str = "cuda:0") -> Path:
    return sample.write(out, [sample.started(device=device, worker=H200, command=command, seed=None), *events])


def rows(text: str) -> list[list[str]]:
    lines = (line for line in text.splitlines() if line.startswith("| `"))
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def one(number: int, begins: float, ends: float, **values) -> list[dict]:
    return [sample.start(number, time=begins), sample.end(number, "AGREE", time=ends, **values)]


def test_a_gate_and_a_campaign_of_one_engine_are_one_table(tmp_path):
    gate = on_a_gpu(
        tmp_path / "gate",
        *one(1, 10.0, 14.0, compile_s=3.0, behaviours=["committed_zero"], evidence={"error_of_bound": 0.25}),
        sample.start(2, time=14.0),
        sample.red(2, known=True, time=15.0),
    )
    fuzz = on_a_gpu(
        tmp_path / "fuzz",
        *one(1, 50.0, 51.0, behaviours=["all_committed"], evidence={"error_of_bound": 0.5}),
        *one(2, 51.0, 52.0),
        command="fuzz",
        device="cuda:1",
    )
    text = page(gate, fuzz)
    assert text.count("## `sglang==0.5.18`") == 1
    assert (
        "`NVIDIA H200, torch 2.11.0, triton 3.6.0, cuda 13.0, driver 580.95.05, Python 3.12.3`. "
        "4 cases on 1 of 1 target; compiled 3 s. Runs: `gate, killed`; `fuzz, killed`." in text
    )
    assert f"### `{sample.CONTRACT}`" in text
    # 4 cases in 4 + 1 + 1 + 1 seconds, 3 of which were compilation
    assert rows(text) == [[SHORT, "4", "1.0", "0.5", f"2/{BEHAVIOURS}", "3 AGREE, 1 DIVERGE (listed)", "3.0"]]


def test_machines_and_releases_are_not_merged(tmp_path):
    here = sample.write(tmp_path / "cpu", sample.several_engines())
    there = on_a_gpu(tmp_path / "gpu", *one(1, 0.0, 1.0))
    assert [line for line in page(here, there).splitlines() if line.startswith("## ")] == [
        "## `sglang==0.5.18`", "## `sglang==0.5.20`", "## `sglang==0.5.18`",
    ]  # fmt: skip


def test_what_is_listed_in_part_is_counted_and_refusals_are_not(tmp_path):
    events = [sample.red(1, known=True), sample.red(2), sample.end(3, "UNSUPPORTED", evidence={"reason": "outside"})]
    ((_, cases, *_, verdicts, _),) = rows(page(on_a_gpu(tmp_path / "run", *events)))
    assert (cases, verdicts) == ("2", "2 DIVERGE (1 listed)")


def test_a_target_that_executed_nothing_says_why_unless_another_run_did(tmp_path):
    refused = sample.end(1, "UNSUPPORTED", sample.OTHER, evidence={"reason": "no such symbol"})
    late = sample.untold()
    gate = on_a_gpu(tmp_path / "gate", refused, late | {"target": sample.TARGET})
    found = {row[0]: row[1:] for row in rows(page(gate))}
    assert found["eagle_v2/_commit"] == [
        "0", "-", "-", f"0/{BEHAVIOURS}", "UNSUPPORTED: `no such symbol", "-",
    ]  # fmt: skip
    assert found[SHORT][4].startswith("not reached")
    fuzz = on_a_gpu(tmp_path / "fuzz", *one(1, 0.0, 0.01), command="fuzz")
    assert {row[0]: row[5] for row in rows(page(gate, fuzz))}[SHORT] == "1 AGREE"


def test_a_clock_that_was_set_back_gives_no_rate(tmp_path):
    run = on_a_gpu(tmp_path / "run", *one(1, 9.0, 5.0), *one(2, 5.0, "x"))
    assert rows(page(run))[0][:3] == [SHORT, "2", "-"]


@pytest.mark.parametrize("text", sample.HOSTILE)
def test_hostile_text_is_never_markup(tmp_path, text):
    worker = {"device": text, "python": text, "versions": {"torch": text}}
    events = [
        sample.started(engine=text, worker=worker, command=text), sample.red(1, target=text),
        sample.end(2, "UNSUPPORTED", f"{text}x", evidence={"reason": text}),
    ]  # fmt: skip
    made = page(sample.write(tmp_path / "run", events))
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(made)
    inner = [t for token in tokens for t in (token, *(token.children or ()))]
    assert {t.type.rpartition("_")[0] or t.type for t in inner} <= MARKUP | {"em"}
    assert {line.count("|") for line in made.splitlines() if line.startswith("|")} == {8}


@pytest.mark.parametrize("worker", [None, "x", {"versions": "x"}, {"versions": {"torch": None}, "device": None}])
def test_a_worker_that_says_nothing_about_its_machine_is_its_device(tmp_path, worker):
    run = sample.write(tmp_path / "run", [sample.started(worker=worker), sample.end(1, "AGREE")])
    assert "\n`cpu`. 1 case" in page(run)


def test_the_driver_is_what_nvml_says_and_unknown_without_it(monkeypatch):
    def library(name: str) -> SimpleNamespace:
        assert name == "libnvidia-ml.so.1"
        said = lambda text, size: int(setattr(text, "value", b"580.95.05") is not None)  # noqa: E731
        return SimpleNamespace(nvmlInit_v2=lambda: 0, nvmlSystemGetDriverVersion=said)

    torch = SimpleNamespace(version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setattr(ctypes, "CDLL", library)
    assert zygote.gpu_versions(torch) == {"cuda": "13.0", "driver": "580.95.05"}
    monkeypatch.undo()
    assert zygote.gpu_versions(torch)["cuda"] == "13.0"  # whether this machine has the library or not
