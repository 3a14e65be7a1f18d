"""JUnit XML from events: one test suite a contract, one test a target.

Red verdicts are failures, harness faults and unfinished cases are errors, and a
target that executed nothing is skipped with its reason. A case that was started
and never ended (the run was killed) is an error of its target. A red that is
listed as known is no failure; the property ``known`` counts such cases. When the
run judged an identity again (it did not repeat, or no sibling agrees), its cases
count with that later verdict. A swept target is one test over all its rows.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports.events import FAILURES, read

ERRORS = frozenset({"HARNESS_ERROR", "ORACLE_SUSPECT", "OUT_OF_MEMORY", "INVALID_CASE"})
SAID = ("where", "expected", "observed", "message", "reason", "how", "rate")
SAID_BESIDE_A_CLAIM = ("rate", "reason")
OUTSIDE = "outside"  # how the failure of a sweep begins that the target's domain explains
MAX_SHOWN = 20  # failures spelled out per target
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(out: Path) -> Path:
    """Write ``OUT/junit.xml`` and return its path. Raises ValueError."""
    events = read(out)
    path, new = out / "junit.xml", out / "junit.xml.new"
    try:
        ElementTree.ElementTree(junit(events)).write(new, encoding="utf-8", xml_declaration=True)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)  # an older report is worth more than half a new one
        raise
    return path


def junit(events: list[dict[str, Any]]) -> ElementTree.Element:
    """The ``testsuites`` element for the events of one run."""
    run = next((e for e in events if e["event"] == "run_started"), {})
    again = {_key(e): e for e in events if e["event"] == "verdict"}
    ends: dict[str, list[dict[str, Any]]] = defaultdict(list)
    swept: dict[str, list[dict[str, Any]]] = defaultdict(list)
    open_cases: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start":
            open_cases[event["case"]] = event
        elif event["event"] == "end":
            open_cases.pop(event["case"], None)
            ends[event["target"]].append(_judged_again(event, again))
        elif event["event"] == "swept":
            open_cases.pop(event["case"], None)
            swept[event.get("contract", contract_of(event["target"]))].append(event)
    for event in open_cases.values():
        ends[event["target"]].append(event | {"verdict": "UNFINISHED", "contract": contract_of(event["target"])})
    by_contract: dict[str, list[str]] = defaultdict(list)
    for target, cases in ends.items():
        by_contract[cases[0]["contract"]].append(target)
    root = ElementTree.Element("testsuites", name="specoracle")
    for contract in sorted({*by_contract, *swept}):
        suite = ElementTree.SubElement(root, "testsuite", name=clean(contract))
        properties = ElementTree.SubElement(suite, "properties")
        for key in ("engine", "version", "device", "seed"):
            if key in run:
                _property(properties, key, run[key])
        counts = [_testcase(suite, contract, t, ends[t]) for t in sorted(by_contract[contract])]
        counts += [_sweep(suite, contract, e) for e in sorted(swept[contract], key=lambda e: e["target"])]
        for name, at in (("tests", None), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(counts) if at is None else counts.count(at)))
    return root


def _key(event: dict[str, Any]) -> tuple[str, ...]:
    """Of which divergence an ``end`` or ``verdict`` event speaks."""
    return event["contract"], event["target"], event["identity"]["field"], event["identity"]["kind"]


def _judged_again(end: dict[str, Any], again: dict[tuple[str, ...], dict[str, Any]]) -> dict[str, Any]:
    """A red ``end`` event with the verdict that its identity got later."""
    later = again.get(_key(end)) if end["verdict"] in FAILURES else None
    if later is None:
        return end
    return end | {"verdict": later["verdict"], "evidence": end.get("evidence", {}) | later.get("evidence", {})}


def contract_of(target: str) -> str:
    """The contract inside a target id."""
    parts = target.split("/")
    return parts[2] if len(parts) == 4 else "unknown"


def _testcase(suite: ElementTree.Element, contract: str, target: str, cases: list[dict[str, Any]]) -> str | None:
    """Add one target and say how it ended: failure, error, skipped or None."""
    case, properties = _open(suite, contract, target, sum(e.get("production_s", 0.0) for e in cases))
    reached = sorted({b for e in cases for b in e.get("behaviours", [])})
    red = [e for e in cases if e["verdict"] in FAILURES]
    failures = [e for e in red if not e.get("known")]
    errors = [e for e in cases if e["verdict"] in ERRORS or e["verdict"] == "UNFINISHED"]
    _property(properties, "cases", len(cases))
    _property(properties, "behaviours", " ".join(reached))
    if len(failures) < len(red):
        _property(properties, "known", len(red) - len(failures))
    if failures:
        message = "; ".join(sorted({_identity(e) for e in failures}))
        return _ended(case, "failure", failures[0]["verdict"], message, map(_line, failures[:MAX_SHOWN]))
    if errors:
        return _ended(case, "error", errors[0]["verdict"], f"{len(errors)} cases", map(_line, errors[:MAX_SHOWN]))
    if all(e["verdict"] == "UNSUPPORTED" for e in cases):
        return _ended(case, "skipped", None, cases[0].get("evidence", {}).get("reason", ""))
    return None


def _sweep(suite: ElementTree.Element, contract: str, swept: dict[str, Any]) -> str | None:
    """Add one swept target. A row that diverges fails it, also when the sweep then
    stopped; a sweep that asked nothing is skipped, never passed."""
    case, properties = _open(suite, contract, swept["target"], swept.get("seconds", 0.0))
    for name in ("rows", "crossing", "diverging"):
        _property(properties, name, swept[name])
    stopped = swept.get("failure")
    if stopped:
        _property(properties, "stopped", stopped)
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
    suite: ElementTree.Element, contract: str, target: str, seconds: float
) -> tuple[ElementTree.Element, ElementTree.Element]:
    """A new test case and its properties."""
    case = ElementTree.SubElement(
        suite, "testcase", classname=clean(contract), name=clean(target), time=f"{seconds:.3f}"
    )
    return case, ElementTree.SubElement(case, "properties")


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
