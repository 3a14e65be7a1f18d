"""The view of runs that all reports share: counts, identities, order."""

from __future__ import annotations

import json

import pytest

from reports import severity
from reports.model import view

TARGET = "sglang/dflash/commit.checkpoint_steps/_update"
IDENTITY = {"contract": "commit.checkpoint_steps", "target": TARGET, "field": "checkpoint_step", "kind": "missing"}
RED = {"verdict": "DIVERGE", "identity": IDENTITY, "evidence": {"claim": "must be 0, production has -1"}}


def run(folder, *events, **started):
    folder.mkdir(parents=True)
    first = {"engine": "sglang", "version": "0.5.18", "device": "cpu"} | started
    lines = [{"schema": 1, "event": "run_started", **first}, *({"schema": 1, **e} for e in events)]
    (folder / "events.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def case(number, verdict="AGREE", target=TARGET, **values):
    start = {"event": "start", "case": number, "target": target} | (
        {"file": values.pop("file")} if "file" in values else {}
    )
    end = {"event": "end", "case": number, "target": target, "contract": target.split("/")[2], "verdict": verdict}
    return start, end | values


def test_cases_of_one_identity_are_one_divergence_over_all_runs(tmp_path):
    old = run(tmp_path / "old", *case(1, **RED), *case(2, **RED), *case(3), version="0.5.16")
    new = run(tmp_path / "new", *case(1, **RED))
    (divergence,) = view([old, new]).divergences
    assert divergence.count == 3
    assert [s.run.version for s in divergence.sightings] == ["0.5.16", "0.5.18"]
    assert divergence.claim == "must be 0, production has -1"


def test_a_run_over_several_engines_falls_apart_into_one_run_each(tmp_path):
    started = [{"event": "engine_started", "engine": e, "version": "1", "device": "cpu"} for e in ("a", "b")]
    start, end = case(1, **RED)
    events = [started[0], started[1], start | {"engine": "b", "version": "1"}, end | {"engine": "b", "version": "1"}]
    whole = view([run(tmp_path / "r", *events, engines=["a", "b"])])
    assert [r.label for r in whole.runs] == ["a==1", "b==1"]
    assert [s.run.label for s in whole.divergences[0].sightings] == ["b==1"]


def test_the_find_is_shown_and_not_the_first_case(tmp_path):
    found = {"event": "found", "target": TARGET, "contract": IDENTITY["contract"], "frozen": "found/x/y.json", **RED}
    (divergence,) = view([run(tmp_path / "r", *case(1, **RED), found | {"evidence": {"claim": "smaller"}})]).divergences
    assert divergence.claim == "smaller"
    assert divergence.shown.event["frozen"] == "found/x/y.json"


def test_a_red_that_was_judged_again_is_what_it_turned_out_to_be(tmp_path):
    again = {"event": "verdict", "target": TARGET, "contract": IDENTITY["contract"], "identity": IDENTITY}
    flaky = run(tmp_path / "f", *case(1, **RED), again | {"verdict": "FLAKY", "evidence": {"rate": "1 of 3"}})
    suspect = run(tmp_path / "s", *case(1, **RED), again | {"verdict": "ORACLE_SUSPECT"})
    assert view([flaky]).divergences[0].verdict == "FLAKY"
    assert view([suspect]).divergences[0].severity == severity.DOUBT


def test_the_worst_verdict_of_an_identity_stands_for_it(tmp_path):
    whole = view([run(tmp_path / "r", *case(1, **RED), *case(2, **RED | {"verdict": "HANG"}))])
    assert whole.divergences[0].verdict == "HANG"


def test_a_killed_run_has_a_view_with_the_case_in_flight(tmp_path):
    whole = view([run(tmp_path / "r", *case(1), case(2)[0])])
    (target,) = whole.targets
    assert target.word == "UNFINISHED"
    assert [e["case"] for e in target.troubles] == [2]
    assert whole.runs[0].finished is None


def test_only_executed_cases_reach_a_behaviour(tmp_path):
    events = (*case(1, behaviours=["no_boundary"]), *case(2, "UNSUPPORTED", behaviours=["crossed_several"]))
    (target,) = view([run(tmp_path / "r", *events)]).targets
    assert dict(target.behaviours) == {"no_boundary": 1}
    assert "crossed_several" in target.not_reached
    assert "no_boundary" not in target.not_reached


def test_near_ties_and_bounds_keep_their_extremes(tmp_path):
    ties = [
        {"flags": ["near_tie"], "evidence": {"margin_ulp": m, "error_of_bound": b}}
        for m, b in ((0.5, 0.1), (0.25, 0.7))
    ]
    (target,) = view([run(tmp_path / "r", *case(1, **ties[0]), *case(2, **ties[1]))]).targets
    assert (target.near_ties, target.least_margin_ulp, target.worst_of_bound) == (2, 0.25, 0.7)


def test_a_listed_divergence_is_known_and_comes_last(tmp_path):
    other = RED | {"identity": IDENTITY | {"kind": "wrong_step"}}
    whole = view([run(tmp_path / "r", *case(1, known=True, **RED), *case(2, **other))])
    assert [(d.identity[3], d.known) for d in whole.divergences] == [("wrong_step", False), ("missing", True)]


def test_a_sweep_that_diverges_is_a_divergence_with_its_rows(tmp_path):
    swept = {
        "event": "swept",
        "case": 1,
        "target": TARGET,
        "rows": 90,
        "crossing": 40,
        "diverging": 40,
        "first": {"pre": 255},
    }
    whole = view([run(tmp_path / "r", swept)])
    assert whole.divergences[0].count == 40
    assert "255" in whole.divergences[0].claim
    assert dict(whole.targets[0].verdicts) == {"AGREE": 50, "DIVERGE": 40}


@pytest.mark.parametrize(
    ("verdict", "field", "kind", "contract", "rank"),
    [
        ("DIVERGE", "checkpoint_step", "missing", "commit.checkpoint_steps", severity.STATE),
        ("DIVERGE", "bonus_token", "wrong_token", "commit.lengths", severity.TOKEN),
        ("DIVERGE", "path", "wrong_node", "verify.greedy_tree", severity.TOKEN),
        ("DIVERGE", "outside_writes", "written_outside", "verify.greedy_tree", severity.OUTSIDE),
        ("DIVERGE", "current_step", "outside_block", "commit.checkpoint_steps", severity.OUTSIDE),
        ("DIVERGE", "sanitizer", "memcheck:invalid-global-read:k", "verify.greedy_tree", severity.OUTSIDE),
        ("DIVERGE", "sanitizer", "racecheck:race:k", "commit.lengths", severity.STATE),
        ("CRASH", "process", "died:SIGSEGV", "commit.lengths", severity.CRASH),
        ("HANG", "process", "hang", "commit.lengths", severity.CRASH),
        ("CRASH", "call", "raised:AttributeError:f", "commit.lengths", severity.CRASH),
        ("CRASH", "call", "raised:ValueError:f", "commit.lengths", severity.REFUSED),
        ("ORACLE_SUSPECT", "path", "wrong_node", "verify.greedy_tree", severity.DOUBT),
    ],
)
def test_severity_by_contract_and_kind(verdict, field, kind, contract, rank):
    assert severity.of(verdict, {"field": field, "kind": kind}, contract) == rank


def test_a_target_that_had_no_turn_is_not_called_unsupported(tmp_path):
    said = {"event": "target", "contract": IDENTITY["contract"], "executed": 0}
    events = [said | {"target": "a/b/c/unasked", "reason": None}, said | {"target": "a/b/c/refused", "reason": "why"}]
    whole = view([run(tmp_path / "r", *case(1), *events, *case(2, "UNSUPPORTED", "a/b/c/none"))])
    words = {t.id.rpartition("/")[2]: t.word for t in whole.targets}
    assert words == {"_update": "AGREE", "unasked": "NOT_REACHED", "refused": "UNSUPPORTED", "none": "UNSUPPORTED"}


def test_of_a_case_in_flight_only_its_number_and_target_count(tmp_path):
    start = case(2)[0] | {"contract": ["x"], "production_s": "x", "identity": 5, "evidence": {"message": "mine"}}
    (target,) = view([run(tmp_path / "r", *case(1), start)]).targets
    assert target.troubles == [{"case": 2, "target": TARGET, "verdict": "UNFINISHED"}]


@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf"), "1", True])
def test_a_margin_that_is_no_number_is_none(tmp_path, number):
    tie = {"flags": ["near_tie"], "evidence": {"margin_ulp": number}}
    (target,) = view([run(tmp_path / "r", *case(1, **tie))]).targets
    assert (target.near_ties, target.least_margin_ulp) == (1, None)


def test_cases_that_were_journalled_together_are_clocked_one_behind_the_other(tmp_path):
    """Three cases start at 10 s; they end at 11, 12 and 13 s on their device, another device's in between."""
    starts = [case(n)[0] | {"time": 10.0, "device": "cuda:0"} for n in (1, 2, 3)]
    ends = [case(n)[1] | {"time": 10.0 + n, "device": "cuda:0"} for n in (1, 2, 3)]
    other = [case(4)[0] | {"time": 10.5, "device": "cuda:1"}, case(4)[1] | {"time": 11.5, "device": "cuda:1"}]
    (target,) = view([run(tmp_path / "r", *starts, other[0], ends[0], other[1], *ends[1:])]).targets
    assert target.wall_s == pytest.approx(3.0 + 1.0)


def test_of_a_batch_without_ends_the_first_of_each_device_was_in_flight(tmp_path):
    starts = [case(n)[0] | {"device": d} for n, d in ((1, "cuda:0"), (2, "cuda:1"), (3, "cuda:0"), (4, "cuda:1"))]
    (target,) = view([run(tmp_path / "r", *starts, case(1)[1] | {"device": "cuda:0"})]).targets
    assert [t["case"] for t in target.troubles] == [2, 3]
