"""A small run that holds every kind of event and every verdict, for the writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTRACT = "commit.checkpoint_steps"
TARGET = "sglang/dflash/commit.checkpoint_steps/_update"
OTHER = "sglang/eagle_v2/commit.checkpoint_steps/_commit"
PLACE = "sglang/srt/speculative/dflash_worker.py:1308"
CLAIM = "request 0: checkpoint_step must be 0, production has -1"
HOSTILE = (
    "<script>alert(1)</script> | `x` **b** [l](http://e.example) @team #1 & =cmd() \x1b[31m \x00 \u202e \n\n# h1",
    "\ud800", "=1+1", "-->", "]]>", "'; rm -rf / #", "../../../etc/passwd", "\x85\u2028", "é漢🙂" * 400, "x" * 100_000,
    "", " ",
)  # fmt: skip


def identity(kind: str = "missing", target: str = TARGET, **more: str) -> dict[str, str]:
    return {"contract": CONTRACT, "target": target, "field": "checkpoint_step", "kind": kind} | more


def started(**values: Any) -> dict[str, Any]:
    return {
        "event": "run_started", "command": "gate", "engine": "sglang", "version": "0.5.18", "device": "cpu", "seed": 7,
        "places": {TARGET: PLACE}, "corpus": "fixtures",
    } | values  # fmt: skip


def start(case: int, target: str = TARGET, **values: Any) -> dict[str, Any]:
    return {"event": "start", "case": case, "target": target} | values


def end(case: int, verdict: str, target: str = TARGET, **values: Any) -> dict[str, Any]:
    return {
        "event": "end", "case": case, "target": target, "contract": CONTRACT, "verdict": verdict, "production_s": 0.25,
    } | values  # fmt: skip


def red(case: int, kind: str = "missing", verdict: str = "DIVERGE", **values: Any) -> dict[str, Any]:
    target = values.pop("target", TARGET)
    evidence = {"claim": CLAIM, "where": [0], "expected": 0, "observed": -1}
    return end(case, verdict, target, identity=identity(kind, target), evidence=evidence) | values


def again(kind: str, verdict: str, **values: Any) -> dict[str, Any]:
    return {
        "event": "verdict", "target": TARGET, "contract": CONTRACT, "verdict": verdict, "identity": identity(kind),
        "evidence": {"reason": "no sibling case agrees", "rate": "1 of 3 fresh processes"},
    } | values  # fmt: skip


def found(kind: str, **values: Any) -> dict[str, Any]:
    return {
        "event": "found", "target": TARGET, "contract": CONTRACT, "verdict": "DIVERGE", "identity": identity(kind),
        "known": False, "evidence": {"claim": CLAIM}, "rate": "3 of 3 fresh processes", "sibling": "pre=1",
        "frozen": "found/commit.checkpoint_steps/a-0123456789.json",
    } | values  # fmt: skip


def untold(target: str = OTHER, reason: str | None = None) -> dict[str, Any]:
    """How a campaign says that a target was asked nothing; without a reason it had no turn."""
    return {
        "event": "target", "target": target, "contract": CONTRACT, "executed": 0, "verdicts": {}, "behaviours": {},
        "not_reached": [], "production_s": 0.0, "reason": reason,
    }  # fmt: skip


def every_kind() -> list[dict[str, Any]]:
    """One event or more of each kind; the last case is in flight."""
    return [
        started(),
        start(1, file="commit.checkpoint_steps/lands-on-256-51d279f73e"),
        red(1, behaviours=["lands_on_boundary"]),
        start(2, choices=[1, 2]),
        end(2, "AGREE", behaviours=["no_boundary"], flags=["near_tie"], evidence={"margin_ulp": 0.25}),
        start(3),
        red(3, "spurious", known=True),
        start(4),
        red(4, "late"),
        again("late", "FLAKY"),
        start(5),
        red(5, "doubtful"),
        again("doubtful", "ORACLE_SUSPECT", case=5),
        start(6),
        red(6, "died:SIGSEGV", "CRASH", evidence={"how": "SIGSEGV", "output": "x"}),
        start(7),
        red(7, "hang", "HANG", evidence={"deadline_s": 5.0, "stack": "y"}),
        start(8),
        end(8, "HARNESS_ERROR", evidence={"message": "KeyError"}),
        start(9, OTHER),
        end(9, "UNSUPPORTED", OTHER, evidence={"reason": "no such symbol"}),
        found("missing"),
        start(10, sweep=True),
        {
            "event": "swept", "case": 10, "target": TARGET, "contract": CONTRACT, "rows": 9, "crossing": 4,
            "diverging": 2, "first": {"grid": 64, "field": "checkpoint_step"}, "failure": None, "seconds": 0.5,
        },
        {
            "event": "target", "target": TARGET, "contract": CONTRACT, "executed": 8, "verdicts": {"AGREE": 1},
            "behaviours": {"no_boundary": 1}, "not_reached": [], "production_s": 2.0, "reason": None,
        },
        {"event": "stale", "identity": identity("old"), "why": "expired", "strict": True},
        {"event": "run_finished", "exit": 1, "stopped": None},
        start(11),
    ]  # fmt: skip


def several_engines() -> list[dict[str, Any]]:
    """A run over two releases, of which only the older one diverges."""
    events: list[dict[str, Any]] = [
        {"event": "run_started", "command": "gate", "engines": ["sglang==0.5.18", "sglang==0.5.20"], "device": "cpu"}
    ]
    for case, (version, ended) in enumerate((("0.5.18", red(1)), ("0.5.20", end(2, "AGREE"))), 1):
        about = {"engine": "sglang", "version": version}
        events += [
            {"event": "engine_started", "device": "cpu", "places": {TARGET: PLACE}} | about,
            start(case, file="a/b-0123456789") | about,
            ended | about,
        ]
    return [*events, {"event": "run_finished", "exit": 1, "stopped": None}]


def text(events: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps({"schema": 1, "time": 0.0} | e) + "\n" for e in events).encode()


def write(out: Path, events: list[dict[str, Any]]) -> Path:
    """A run's folder."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "events.ndjson").write_bytes(text(events))
    return out
