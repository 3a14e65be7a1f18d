"""SARIF 2.1.0: a rule a contract, a result a divergence, one SARIF run an engine,
version and device.

The fingerprint of a result is the divergence's identity, so that the same bug stays
one alert over releases and runs. Its place is the production symbol that the adapter
calls, with file and line where the engine gave them; paths are relative to the
engine's packages. A listed divergence is a suppressed result. What is only suspected
(the reference may be wrong) is for review and fails nothing. A harness fault is a
notification about the run, never a result about the engine.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oracle import contracts
from reports import severity
from reports.model import Divergence, Run, Sighting, Target, View
from reports.text import one_line

VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "specoracle/identity/v1"
BASE = "ENGINE"  # what relative paths are relative to
MAX_RESULTS = 5000  # of one SARIF run; code-scanning services take 5000 for one
PLACE = re.compile(r"(?P<path>[^\s:][^:]{0,500}):(?P<line>[1-9][0-9]{0,8})\Z")


def to_bytes(view: View) -> bytes:
    """The file for ``view``, UTF-8 without lone surrogates."""
    return (json.dumps(sarif(view), indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode()


def sarif(view: View) -> dict[str, Any]:
    """The SARIF log as plain values."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in view.runs:
        groups.setdefault((run.label, run.device), []).append(run)
    return {"$schema": SCHEMA, "version": VERSION, "runs": [_run(view, runs) for runs in groups.values()]}


def _run(view: View, runs: list[Run]) -> dict[str, Any]:
    seen = [(d, s) for d in view.divergences if (s := _sightings(d, runs))][:MAX_RESULTS]
    rules = sorted({d.contract for d, _ in seen} | {t.contract for t in view.targets if t.run in runs})
    label, device = one_line(runs[0].label, 200), one_line(runs[0].device, 50)
    command = "+".join(sorted({_command(r) for r in runs}))
    faults = [t for t in view.targets if t.run in runs and t.troubles]
    return {
        "tool": {"driver": {"name": "specoracle", "rules": [_rule(name) for name in rules]}},
        "automationDetails": {"id": f"specoracle/{command}/{label}/{device}/"},
        "originalUriBaseIds": {BASE: {"description": {"text": f"the folder of the Python packages of {label}"}}},
        "properties": {"engine": label, "device": device, "runs": [_about(r) for r in runs]},
        "invocations": [_invocation(runs, faults)],
        "results": [_result(d, sightings, rules.index(d.contract)) for d, sightings in seen],
        "columnKind": "unicodeCodePoints",
    }


def _sightings(divergence: Divergence, runs: list[Run]) -> list[Sighting]:
    return [s for s in divergence.sightings if s.run in runs]


def _command(run: Run) -> str:
    """A comparison of two implementations is another analysis than a run of one."""
    return "against" if run.started.get("against") is not None else one_line(run.started.get("command", "run"), 50)


def _about(run: Run) -> dict[str, str]:
    names = ("command", "against", "seed", "shard", "corpus", "time")
    return {name: one_line(run.started[name], 200) for name in names if run.started.get(name) is not None}


def _rule(name: str) -> dict[str, Any]:
    return {
        "id": one_line(name, 200),
        "shortDescription": {"text": one_line(f"{name}: production does what the contract says", 300)},
        "fullDescription": {"text": one_line(_definition(name))},
        "defaultConfiguration": {"level": "error"},
    }


def _definition(name: str) -> str:
    """First paragraph of the module that defines a contract."""
    contract = contracts.all_contracts().get(name)
    text = contract and sys.modules[contract.reference.__module__].__doc__
    return " ".join((text or "A contract that this version of specoracle does not have.").split("\n\n")[0].split())


def _invocation(runs: list[Run], faults: list[Target]) -> dict[str, Any]:
    done = [r.finished for r in runs if r.finished is not None]
    stopped = [one_line(d["stopped"], 500) for d in done if d.get("stopped")]
    said = [f"{t.id}: {t.troubles[0].get('verdict')}: {_words(t.troubles[0])}" for t in faults] + stopped
    said += ["the run was killed before its end"] * (len(runs) - len(done))
    made: dict[str, Any] = {"executionSuccessful": not said}
    if said:
        made["toolExecutionNotifications"] = [{"level": "error", "message": {"text": one_line(t)}} for t in said]
    codes = [d["exit"] for d in done if type(d.get("exit")) is int and abs(d["exit"]) < 2**31]
    return made | ({"exitCode": codes[-1]} if codes else {})


def _words(event: dict[str, Any]) -> str:
    evidence = event.get("evidence", {})
    return str(evidence.get("message") or evidence.get("reason") or "no answer")


def _result(divergence: Divergence, sightings: list[Sighting], rule: int) -> dict[str, Any]:
    shown = next((s for s in sightings if s.event["event"] == "found"), sightings[0])
    known = all(s.known for s in sightings)
    identity = [one_line(part, 500) for part in divergence.identity]
    doubted = shown.verdict == "ORACLE_SUSPECT"
    properties = {
        "verdict": shown.verdict,
        "severity": severity.NAMES[divergence.severity],
        "field": identity[2],
        "kind": identity[3],
        "cases": sum(s.count for s in sightings),
    }
    event, evidence = shown.event, shown.evidence
    more = {
        "file": next((name for name, _ in shown.frozen), None), "frozen": event.get("frozen"),
        "rate": event.get("rate") or evidence.get("rate"), "sibling": event.get("sibling"),
    }  # fmt: skip
    properties |= {name: one_line(value) for name, value in more.items() if isinstance(value, str)}
    made = {
        "ruleId": identity[0],
        "ruleIndex": rule,
        "kind": "review" if doubted else "fail",
        "level": "none" if doubted else "note" if known else "warning" if shown.verdict == "FLAKY" else "error",
        "message": {"text": one_line(f"{identity[2]} {identity[3]}" + _claim(shown))},
        "locations": [_location(identity[1], shown.run)],
        "partialFingerprints": {FINGERPRINT: " | ".join(identity)},
        "properties": properties,
    }
    if known:
        why = "listed in the known list of the corpus, with reason and reachability"
        made["suppressions"] = [{"kind": "external", "status": "accepted", "justification": why}]
    return made


def _claim(shown: Sighting) -> str:
    said = next((shown.evidence[k] for k in ("claim", "message", "reason", "how") if shown.evidence.get(k)), None)
    return f": {said}" if said else ""


def _location(target: str, run: Run) -> dict[str, Any]:
    symbol = target.rsplit("/", 1)[-1]
    made: dict[str, Any] = {"logicalLocations": [{"name": symbol, "fullyQualifiedName": target, "kind": "function"}]}
    places = run.started.get("places")
    place = PLACE.match(str(places.get(target))) if isinstance(places, dict) else None
    if place is not None and ".." not in Path(place["path"]).parts:
        path = Path(place["path"])
        artifact = {"uri": path.as_uri()} if path.is_absolute() else {"uri": quote(path.as_posix()), "uriBaseId": BASE}
        made["physicalLocation"] = {"artifactLocation": artifact, "region": {"startLine": int(place["line"])}}
    return made
