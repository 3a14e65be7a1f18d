"""What ran, what was reached and what was not: a view of runs as words and rows."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from oracle import contracts
from reports.html.text import listed, number, short
from reports.model import Divergence, Run, Target, View

EXITS = {
    0: "agreed", 1: "a divergence that is not listed", 2: "usage, configuration or corpus", 3: "inconclusive",
    4: "an error of the harness", 130: "interrupted",
}  # fmt: skip
COUNTED = {"max_examples": "case", "cases": "frozen case", "rows": "row"}


def ran(run: Run) -> dict[str, Any]:
    """What ran, as words."""
    started, finished = run.started, run.finished
    budget = []
    for name, words in (
        ("max_seconds", "{} s"), ("max_examples", "{} a target"), ("cases", "{}"), ("rows", "{} a target"),
    ):  # fmt: skip
        if type(started.get(name)) in (int, float):
            budget.append(words.format(_counted(started[name], COUNTED.get(name))))
    code = finished.get("exit") if finished else None
    ended = f"exit {code}: {EXITS.get(code, 'unknown')}" if type(code) is int else "killed before its end"
    environment, worker = started.get("environment"), started.get("worker")
    place = environment if isinstance(environment, dict) else {}
    versions = worker.get("versions") if isinstance(worker, dict) else None
    return {
        "run": run,
        "command": started.get("command", "unknown"),
        "seed": started.get("seed", "–"),
        "budget": ", ".join(budget) or "–",
        "began": _date(started.get("time")),
        "ended": ended,
        "stopped": finished and finished.get("stopped"),
        "environment": [
            ("engine", run.label),
            ("device", run.device),
            *((k, short(str(v), 200)) for k, v in (versions.items() if isinstance(versions, dict) else ())),
            *((k, short(str(v), 200)) for k, v in place.items()),
        ],
    }


def _counted(value: float, what: str | None) -> str:
    return number(value) if what is None else f"{number(value)} {what}" + ("" if value == 1 else "s")


def _date(seconds: Any) -> str:
    if type(seconds) not in (int, float) or not 0 <= seconds < 2**35:
        return "unknown"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def behaviours(view: View) -> list[dict[str, Any]]:
    """Per contract: what was reached by any target, what by none, and a row a target."""
    by_contract: dict[str, list[Target]] = defaultdict(list)
    for target in view.targets:
        if target.executed and target.contract in contracts.all_contracts():
            by_contract[target.contract].append(target)
    found = []
    for name, targets in by_contract.items():
        every = contracts.get(name).behaviours
        missed = {b: m for b, m in every.items() if not any(t.behaviours[b] for t in targets)}
        found.append({"contract": name, "every": every, "missed": missed, "targets": targets})
    return found


def unsupported(targets: list[Target]) -> list[tuple[str, str, str, int]]:
    """Target, reason, runs and number of cases, of what was not executed."""
    rows: dict[tuple[str, str], tuple[list[str], int]] = {}
    for t in targets:
        for reason, n in (t.reasons or ({t.stopped: 0} if t.stopped and not t.executed else {})).items():
            labels, count = rows.get((t.id, reason), ([], 0))
            rows[t.id, reason] = ([*labels, t.run.label], count + n)
    return [(t, reason, listed(dict.fromkeys(labels), 4), n) for (t, reason), (labels, n) in rows.items()]


def called(divergence: Divergence) -> str | None:
    """The place in production that the target calls, where the run says it."""
    places = divergence.shown.run.started.get("places")
    place = places.get(divergence.target) if isinstance(places, dict) else None
    return short(place, 300) if isinstance(place, str) else None


def definition(contract: str) -> str:
    """What the contract is about: the first line of the module that defines it."""
    module = next((m for m in map(import_module, contracts.MODULES) if m.CONTRACT.name == contract), None)
    first = (module and module.__doc__ or "").partition("\n")[0]
    return first.partition(":")[2].strip()
