"""Two implementations on the same cases: what differs, which side is legal, what is red."""

from __future__ import annotations

import json
from dataclasses import replace

import click
import numpy as np
import pytest
from click.testing import CliRunner

from fuzz.adapter import Adapter, accept_all
from fuzz.against import Sides, matching, pairs
from fuzz.cli import cli
from fuzz.commands.options import read_sides
from fuzz.difference import BOTH_LEGAL, Side, compare, first_difference, says, takes_side
from fuzz.engines.spec import EngineError
from fuzz.frozen import read as read_case
from fuzz.verdict import Identity, Kind, Verdict
from oracle import contracts
from reports.events import read
from tests import fake_releases

CONTRACT = contracts.get("commit.checkpoint_steps")


def target(symbol: str, engine: str = "e", observes=("current_step", "checkpoint_step"), accepts=accept_all) -> Adapter:
    return Adapter(engine, CONTRACT.name, "m", symbol, lambda *_: {}, observes, (), "torch", accepts)


LEFT, RIGHT = target("a"), target("b")
SIDES = (Side("l", "e==1", LEFT.id), Side("r", "e==2", RIGHT.id))


def verdict(kind: Kind = Kind.AGREE, field: str = "checkpoint_step", how: str = "missing") -> Verdict:
    identity = None if kind in (Kind.AGREE, Kind.UNSUPPORTED, Kind.HARNESS_ERROR) else Identity("c", "t", field, how)
    evidence = {"reason": "why"} if identity is None and kind is not Kind.AGREE else {}
    return Verdict(kind, "t", CONTRACT.name, identity, evidence)


def compared(left: Verdict, right: Verdict, seen_left, seen_right) -> Verdict:
    return compare(CONTRACT, LEFT, SIDES, (left, right), (seen_left, seen_right))


def seen(checkpoint: int, current: int = 0) -> dict:
    return {"current_step": [current], "checkpoint_step": [checkpoint]}


GOOD, BAD = verdict(), verdict(Kind.DIVERGE)


@pytest.mark.parametrize(
    ("left", "right", "takes", "blamed"),
    [(GOOD, BAD, "left", SIDES[1]), (BAD, GOOD, "right", SIDES[0]), (BAD, BAD, "neither", SIDES[0])],
)
def test_a_difference_is_a_find_and_says_whose_side_the_reference_takes(left, right, takes, blamed):
    found = compared(left, right, seen(0), seen(-1))
    assert found.kind is Kind.DIVERGE
    assert found.identity == Identity(CONTRACT.name, LEFT.id, "checkpoint_step", f"missing:reference_takes_{takes}")
    assert (found.evidence["left"], found.evidence["right"], found.evidence["where"]) == (0, -1, [0])
    assert found.evidence["takes"] == takes
    assert found.evidence["blamed"] == {"engine": blamed.engine, "target": blamed.target}
    assert found.evidence["claim"].startswith("request 0: checkpoint_step")
    assert "l has 0 and r has -1; the reference takes " in found.evidence["claim"]


def test_sides_that_are_both_legal_are_reported_and_not_red():
    found = compared(GOOD, GOOD, seen(0), seen(1))
    assert found.kind is Kind.AGREE and found.flags == (BOTH_LEGAL,) and not found.red
    assert "both are legal" in found.evidence["claim"]


def test_sides_that_are_wrong_alike_show_no_difference():
    found = compared(BAD, BAD, seen(-1), seen(-1))
    assert found.kind is Kind.AGREE and found.flags == () and found.evidence == {}


def test_the_first_field_in_trace_order_is_named():
    found = compared(GOOD, verdict(Kind.DIVERGE, "current_step", "wrong_step"), seen(0, 3), seen(-1, 4))
    assert found.identity.field == "current_step" and found.identity.kind == "wrong_step:reference_takes_left"


def test_a_crash_on_one_side_is_a_difference_and_on_both_alike_is_none():
    crash = verdict(Kind.CRASH, "call", "raised:ValueError:f")
    found = compared(GOOD, crash, seen(0), None)
    assert (found.identity.field, found.identity.kind) == ("call", "raised:ValueError:f:reference_takes_left")
    assert "l has an answer and r has CRASH raised:ValueError:f" in found.evidence["claim"]
    assert compared(crash, GOOD, None, seen(0)).identity.kind == "raised:ValueError:f:reference_takes_right"
    assert compared(crash, crash, None, None).kind is Kind.AGREE
    other = verdict(Kind.CRASH, "process", "died:SIGSEGV")
    assert compared(crash, other, None, None).identity.kind == "raised:ValueError:f:reference_takes_neither"


@pytest.mark.parametrize("kind", [Kind.UNSUPPORTED, Kind.HARNESS_ERROR])
@pytest.mark.parametrize("at", [0, 1])
def test_a_side_without_an_answer_makes_no_comparison_and_says_which(kind, at):
    both = [GOOD, GOOD]
    both[at] = verdict(kind)
    found = compared(*both, seen(0), seen(0))
    assert found.kind is kind and found.evidence["reason"] == f"{'lr'[at]}: why"


def test_arrays_are_compared_cell_by_cell_and_nan_equals_itself():
    a = np.array([[1.0, np.nan], [2.0, 3.0]])
    b = a.copy()
    b[1, 1] = 4
    contract = replace(CONTRACT, fields=(replace(CONTRACT.fields[0], name="state", axis="array"),))
    same = compare(contract, LEFT, SIDES, (GOOD, GOOD), ({"state": a}, {"state": a.copy()}))
    assert same.kind is Kind.AGREE and not same.flags
    other = compare(contract, LEFT, SIDES, (GOOD, verdict(Kind.DIVERGE, "state")), ({"state": a}, {"state": b}))
    assert other.evidence["where"] == [1, 1] and (other.evidence["left"], other.evidence["right"]) == (3.0, 4.0)
    assert first_difference(a, b[:1]) == () and first_difference([1, 2], [1, 3]) == (1,)
    lists = ({"state": [float("nan"), 1]}, {"state": [float("nan"), 1]})
    assert not compare(contract, LEFT, SIDES, (GOOD, GOOD), lists).flags


def test_releases_of_one_engine_meet_themselves_and_other_targets_all_of_their_contract():
    other = replace(target("x"), contract="verify.greedy_chain")
    assert [(p.left.symbol, p.right.symbol) for p in pairs([LEFT, RIGHT], [LEFT, RIGHT], same_engine=True)] == [
        ("a", "a"), ("b", "b"),
    ]  # fmt: skip
    (pair,) = pairs([LEFT], [LEFT, RIGHT, other], same_engine=False)
    assert (pair.left.symbol, pair.right.symbol) == ("a", "b")
    assert pair.adapter.id == f"{LEFT.id} against m:b" and pair.adapter.id.count("/") == 3
    assert matching([LEFT, RIGHT], "*/b") == [RIGHT]


def test_a_fault_must_repeat_in_fresh_processes_of_both_sides():
    freshened = []

    class One:
        def __init__(self, name):
            self.fresh = lambda: freshened.append(name)

    Sides(One("left"), One("right"), []).fresh()
    assert freshened == ["left", "right"]


def test_a_pair_accepts_what_both_accept_and_compares_what_both_observe():
    narrow = target("n", observes=("checkpoint_step",), accepts=lambda case: "too narrow")
    (pair,) = pairs([LEFT], [narrow], same_engine=False)
    assert pair.shared == pair.adapter.observes == ("checkpoint_step",)
    assert pair.adapter.accepts(None) == "too narrow"


@pytest.mark.parametrize(
    ("verdicts", "takes"),
    [((GOOD, GOOD), "both"), ((GOOD, BAD), "left"), ((BAD, GOOD), "right"), ((BAD, BAD), "neither")],
)
def test_the_reference_takes_the_legal_side(verdicts, takes):
    assert takes_side(verdicts) == takes and says(takes, ("l", "r"))


def test_what_against_names_is_a_release_a_checkout_an_engine_or_a_pattern(tmp_path):
    (tmp_path / "sglang").mkdir()
    assert [str(s) for s in read_sides("sglang==0.5.23", "sglang==0.5.22", None)] == [
        "sglang==0.5.23",
        "sglang==0.5.22",
    ]
    assert read_sides("sglang==0.5.23", "*dflash*", None)[1] is None
    assert read_sides("sglang==0.5.23", f"sglang@{tmp_path}", None)[1].path == tmp_path
    left, right = read_sides("sglang==0.5.23", "sglang==local", tmp_path)
    assert (left.local, right.local) == (False, True)
    with pytest.raises(click.UsageError, match="both name sglang==0.5.22"):
        read_sides("sglang==0.5.22", "sglang==0.5.22", None)
    with pytest.raises(click.UsageError, match="are neither"):
        read_sides("sglang==0.5.23", "sglang==0.5.22", tmp_path)
    with pytest.raises(EngineError, match="unknown engine"):
        read_sides("sglang==0.5.23", "sglong==0.5.22", None)


@pytest.fixture
def fuzz(monkeypatch, tmp_path):
    """``fuzz --against`` over the fake engine's releases."""
    fake_releases.put_in_place(monkeypatch.setattr)

    def run(engine: str, against: str, glob: str = "*/commit", more: tuple = ("--max-examples", "200")):
        arguments = ["fuzz", "--engine", engine, "--against", against, "--target", glob, "--out", str(tmp_path / "run")]
        return CliRunner().invoke(cli, [*arguments, *more], catch_exceptions=False), tmp_path / "run"

    return run


@pytest.mark.parametrize(("engine", "against", "takes"), [("1.8", "1.4", "left"), ("1.4", "1.8", "right")])
def test_a_difference_between_two_releases_is_shrunk_frozen_and_names_the_wrong_one(fuzz, engine, against, takes):
    done, out = fuzz(f"history=={engine}", f"history=={against}")
    assert done.exit_code == 1, done.output
    assert f"history=={engine} against history=={against} on cpu" in done.output
    assert f"checkpoint_step | missing:reference_takes_{takes}" in done.output
    assert f"the reference takes the {takes} side, history==1.8" in done.output
    assert "repeats: in 3 of 3 fresh processes" in done.output and "sibling: agrees with" in done.output
    (frozen,) = [read_case(path) for path in (out / "found").rglob("*.json")]
    assert frozen.provenance["engine"] == "history==1.4" and frozen.provenance["target"] == fake_releases.TARGET
    (request,) = frozen.case.requests
    assert frozen.case.grid == 256 and request.committed == 1 and (request.pre + 1) % 256 == 0
    (found,) = [e for e in read(out) if e["event"] == "found"]
    assert found["evidence"]["sides"] == [f"history=={engine}", f"history=={against}"]
    assert json.loads((out / "events.ndjson").read_text().splitlines()[0])["against"] == f"history=={against}"


def test_releases_that_behave_alike_agree_also_when_both_are_wrong(fuzz):
    done, _ = fuzz("history==1.4", "history==1.3")
    assert done.exit_code == 0, done.output


def test_a_target_is_compared_with_another_one_of_the_same_release(fuzz):
    done, out = fuzz("history==1.4", "*/refactored")
    assert done.exit_code == 1, done.output
    assert "worker:commit has -1 and worker:refactored has " in done.output
    assert "the reference takes the right side, worker:refactored" in done.output
    events = read(out)
    assert sum(e["event"] == "start" for e in events) == sum(e["event"] == "end" for e in events)


def test_another_engine_is_compared_by_contract(fuzz):
    done, _ = fuzz("history==1.8", "other==2.1")
    assert done.exit_code == 1, done.output
    assert "commit against other:kernel:commit" in done.output and "reference takes the left side" in done.output


def test_a_side_that_is_not_there_is_inconclusive(fuzz):
    done, _ = fuzz("history==1.8", "history==1.5", more=("--max-time", "20s"))
    assert done.exit_code == 3, done.output
    assert "history==1.5: not in this release" in done.output


def test_nothing_to_compare_is_a_usage_error(fuzz):
    done, out = fuzz("history==1.8", "*/commit")
    assert done.exit_code == 2 and "nothing to compare" in done.output and not out.exists()
