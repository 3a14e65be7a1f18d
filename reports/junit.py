"""JUnit XML from events: one test suite a contract, one test a target; in a run over
several engines one suite a contract and engine.

Red verdicts are failures, harness faults and unfinished cases are errors, and a
target that executed nothing is skipped with its reason, also one that had no turn
before the run ended. A case that was started
and never ended (the run was killed) is an error of its target. A red that is
listed as known is no failure; ``known`` counts such cases. When the
run judged an identity again (it did not repeat, or no sibling agrees), its cases
count with that later verdict. A swept target is one test over all its rows.

Strict readers (Jenkins) refuse properties inside a test, so a suite has the properties
and each test says its own numbers in ``system-out``, a ``name=value`` a line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports.events import FAILURES, STALE, in_flight, parts, read
from reports.files import put
from reports.text import many

ERRORS = frozenset({"HARNESS_ERROR", "ORACLE_SUSPECT", "OUT_OF_MEMORY", "INVALID_CASE"})
SAID = ("where", "expected", "observed", "message", "reason", "how", "rate")
SAID_BESIDE_A_CLAIM = ("rate", "reason")
OUTSIDE = "outside"  # how the failure of a sweep begins that the target's domain explains
NOT_REACHED = "NOT_REACHED"  # no verdict: the run ended before it asked the target
NOT_REACHED_WORDS = "not reached: the run ended before its turn"
MAX_SHOWN = 20  # failures spelled out per target
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(out: Path) -> Path:
    """Write ``OUT/junit.xml`` of the run in ``out`` and return its path. Raises
    ValueError or OSError."""
    return put(out / "junit.xml", to_xml(junit(read(out))))


def to_xml(root: ElementTree.Element) -> bytes:
    """The content of a file."""
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def junit(*runs: list[dict[str, Any]]) -> ElementTree.Element:
    """The ``testsuites`` element for the events of runs."""
    root = ElementTree.Element("testsuites", name="specoracle")
    for part in (part for events in runs for part in parts(events)):
        _engine(root, part, several=len(runs) > 1)
    return root


def _engine(root: ElementTree.Element, events: list[dict[str, Any]], several: bool) -> None:
    """Add the suites of one engine's part of the run; of ``several`` runs each suite
    names the engine too."""
    run = next((e for e in events if e["event"] == "run_started"), {})
    engine = f"{run.get('engine')}=={run.get('version')} " if several or "engines" in run else ""
    again = {e["case"] if "case" in e else _key(e): e for e in events if e["event"] == "verdict"}
    ends: dict[str, list[dict[str, Any]]] = defaultdict(list)
    swept: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["event"] == "end":
            ends[event["target"]].append(_judged_again(event, again))
        elif event["event"] == "swept":
            swept[event.get("contract", contract_of(event["target"]))].append(event)
    for event in in_flight(events):
        only = {k: event[k] for k in ("case", "target")}
        ends[event["target"]].append(only | {"verdict": "UNFINISHED", "contract": contract_of(event["target"])})
    _known_list(root, engine, [e for e in events if e["event"] == "stale" and e["strict"]])
    by_contract: dict[str, list[str]] = defaultdict(list)
    for target, cases in ends.items():
        by_contract[cases[0]["contract"]].append(target)
    reasons = unasked(events)
    for target, (contract, _) in reasons.items():
        by_contract[contract].append(target)
    for contract in sorted({*by_contract, *swept}):
        suite = ElementTree.SubElement(root, "testsuite", name=clean(engine + contract))
        properties = ElementTree.SubElement(suite, "properties")
        for key in ("engine", "version", "device", "seed", "shard"):
            if key in run:
                _property(properties, key, run[key])
        counts = [
            _unasked(suite, contract, t, reasons[t][1]) if t in reasons else _testcase(suite, contract, t, ends[t])
            for t in sorted(by_contract[contract])
        ]
        counts += [_sweep(suite, contract, e) for e in sorted(swept[contract], key=lambda e: e["target"])]
        reached = {b for t in by_contract[contract] for e in ends[t] for b in e.get("behaviours", [])}
        _property(properties, "behaviours", " ".join(sorted(reached)))
        for name, at in (("tests", None), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(counts) if at is None else counts.count(at)))


def _known_list(root: ElementTree.Element, engine: str, stale: list[dict[str, Any]]) -> None:
    """Add the entries of the known list that a strict gate fails on, a test each."""
    if not stale:
        return
    counts = {"tests": str(len(stale)), "failures": str(len(stale)), "errors": "0", "skipped": "0"}
    suite = ElementTree.SubElement(root, "testsuite", {"name": clean(f"{engine}known list"), **counts})
    for event in stale:
        name = " | ".join(event["identity"].get(k, "") for k in ("contract", "target", "field", "kind"))
        case = ElementTree.SubElement(suite, "testcase", classname="known list", name=clean(name), time="0.000")
        _ended(case, "failure", "stale", f"the listed divergence {STALE[event['why']]}")


def _key(event: dict[str, Any]) -> tuple[str, ...]:
    """Of which divergence an ``end`` or ``verdict`` event speaks."""
    return event["contract"], event["target"], event["identity"]["field"], event["identity"]["kind"]


def _judged_again(end: dict[str, Any], again: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """A red ``end`` event with the verdict that it, or its identity, got later."""
    later = again.get(end["case"], again.get(_key(end))) if end["verdict"] in FAILURES else None
    if later is None:
        return end
    return end | {"verdict": later["verdict"], "evidence": end.get("evidence", {}) | later.get("evidence", {})}


def contract_of(target: str) -> str:
    """The contract inside a target id."""
    parts = target.split("/")
    return parts[2] if len(parts) == 4 else "unknown"


def unasked(events: list[dict[str, Any]]) -> dict[str, tuple[str, str | None]]:
    """Contract and reason of each target of which the run says how it did, and that it
    was asked nothing; without a reason it had no turn."""
    asked = {e["target"] for e in events if e["event"] in ("start", "end", "swept")}
    said = (e for e in events if e["event"] == "target" and e["target"] not in asked)
    return {e["target"]: (e["contract"], e.get("reason")) for e in said}


def _unasked(suite: ElementTree.Element, contract: str, target: str, reason: str | None) -> str:
    """Add a target that was asked nothing."""
    case = _open(suite, contract, target, 0.0, {"cases": 0})
    return _ended(case, "skipped", None, reason or NOT_REACHED_WORDS)


def _testcase(suite: ElementTree.Element, contract: str, target: str, cases: list[dict[str, Any]]) -> str | None:
    """Add one target and say how it ended: failure, error, skipped or None."""
    reached = sorted({b for e in cases for b in e.get("behaviours", [])})
    red = [e for e in cases if e["verdict"] in FAILURES]
    failures = [e for e in red if not e.get("known")]
    errors = [e for e in cases if e["verdict"] in ERRORS or e["verdict"] == "UNFINISHED"]
    said = {"cases": len(cases), "behaviours": " ".join(reached)}
    if len(failures) < len(red):
        said["known"] = len(red) - len(failures)
    case = _open(suite, contract, target, sum(e.get("production_s", 0.0) for e in cases), said)
    if failures:
        message = "; ".join(sorted({_identity(e) for e in failures}))
        return _ended(case, "failure", failures[0]["verdict"], message, map(_line, failures[:MAX_SHOWN]))
    if errors:
        return _ended(case, "error", errors[0]["verdict"], many(len(errors), "case"), map(_line, errors[:MAX_SHOWN]))
    if all(e["verdict"] == "UNSUPPORTED" for e in cases):
        return _ended(case, "skipped", None, cases[0].get("evidence", {}).get("reason", ""))
    return None


def _sweep(suite: ElementTree.Element, contract: str, swept: dict[str, Any]) -> str | None:
    """Add one swept target. A row that diverges fails it, also when the sweep then
    stopped; a sweep that asked nothing is skipped, never passed."""
    stopped = swept.get("failure")
    said = {name: swept[name] for name in ("rows", "crossing", "diverging")} | ({"stopped": stopped} if stopped else {})
    case = _open(suite, contract, swept["target"], swept.get("seconds", 0.0), said)
    if swept["diverging"]:
        text = [f"first: {swept.get('first')}", f"stopped: {stopped}"][: 2 if stopped else 1]
        return _ended(case, "failure", "DIVERGE", f"{swept['diverging']} of {swept['rows']} rows", text)
    if stopped and not stopped.startswith(OUTSIDE):
        verdict = swept.get("verdict", "HARNESS_ERROR")
        how = "failure" if verdict in FAILURES else "error"
        return _ended(case, how, verdict, f"stopped after {swept['rows']} rows", [stopped])
    if not swept["rows"]:
        return _ended(case, "skipped", None, stopped or "no row was executed")
    return None


def _open(
    suite: ElementTree.Element, contract: str, target: str, seconds: float, said: dict[str, Any]
) -> ElementTree.Element:
    """A new test case that says its numbers."""
    attributes = {"classname": clean(contract), "name": clean(target), "time": f"{seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    ElementTree.SubElement(case, "system-out").text = clean("\n".join(f"{k}={v}" for k, v in said.items()))
    return case


def _property(properties: ElementTree.Element, name: str, value: Any) -> None:
    ElementTree.SubElement(properties, "property", name=name, value=clean(value))


def _ended(case: ElementTree.Element, how: str, kind: str | None, message: Any, lines: Iterable[str] = ()) -> str:
    """Give a test case its failure, error or skipped element; returns ``how``."""
    element = ElementTree.SubElement(case, how, message=clean(message))
    if kind is not None:
        element.set("type", kind)
    element.text = clean("\n".join(lines)) or None
    return how


def _identity(event: dict[str, Any]) -> str:
    identity = event.get("identity", {})
    return f"{identity.get('field')} {identity.get('kind')}"


def _line(event: dict[str, Any]) -> str:
    evidence = event.get("evidence", {})
    if evidence.get("claim"):
        said = " ".join(str(evidence[k]) for k in ("claim", *SAID_BESIDE_A_CLAIM) if k in evidence)
    else:
        said = str({k: evidence[k] for k in SAID if k in evidence})
    return f"case {event['case']} {event['verdict']} {_identity(event)} {said}"


def clean(value: Any) -> str:
    """Text that XML can hold; whatever a worker printed may be in it."""
    return _NOT_XML.sub("\ufffd", str(value))
