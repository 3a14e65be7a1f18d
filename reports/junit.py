"""JUnit XML from events: one test suite a contract, one test a target.

Red verdicts are failures, harness faults and unfinished cases are errors, and a
target that executed nothing is skipped with its reason. A case that was started
and never ended (the run was killed) is an error of its target.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reports.events import read

FAILURES = frozenset({"DIVERGE", "CRASH", "HANG", "FLAKY"})
ERRORS = frozenset({"HARNESS_ERROR", "ORACLE_SUSPECT", "OUT_OF_MEMORY", "INVALID_CASE"})
SAID = ("where", "expected", "observed", "message", "reason", "how")
MAX_SHOWN = 20  # failures spelled out per target
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(out: Path) -> Path:
    """Write ``OUT/junit.xml`` and return its path. Raises ValueError."""
    events = read(out)
    path = out / "junit.xml"
    ElementTree.ElementTree(junit(events)).write(path, encoding="utf-8", xml_declaration=True)
    return path


def junit(events: list[dict[str, Any]]) -> ElementTree.Element:
    """The ``testsuites`` element for the events of one run."""
    run = next((e for e in events if e["event"] == "run_started"), {})
    ends: dict[str, list[dict[str, Any]]] = defaultdict(list)
    open_cases: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start":
            open_cases[event["case"]] = event
        elif event["event"] in ("end", "swept"):
            open_cases.pop(event["case"], None)
            if event["event"] == "end":
                ends[event["target"]].append(event)
    for event in open_cases.values():
        ends[event["target"]].append(event | {"verdict": "UNFINISHED", "contract": contract_of(event["target"])})
    root = ElementTree.Element("testsuites", name="specoracle")
    by_contract: dict[str, list[str]] = defaultdict(list)
    for target, cases in ends.items():
        by_contract[cases[0]["contract"]].append(target)
    for contract, targets in sorted(by_contract.items()):
        suite = ElementTree.SubElement(root, "testsuite", name=contract)
        properties = ElementTree.SubElement(suite, "properties")
        for key in ("engine", "version", "device", "seed"):
            if key in run:
                ElementTree.SubElement(properties, "property", name=key, value=clean(run[key]))
        counts = [_testcase(suite, contract, t, ends[t]) for t in sorted(targets)]
        for name, at in (("tests", None), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(name, str(len(counts) if at is None else counts.count(at)))
    return root


def contract_of(target: str) -> str:
    """The contract inside a target id."""
    parts = target.split("/")
    return parts[2] if len(parts) == 4 else "unknown"


def _testcase(suite: ElementTree.Element, contract: str, target: str, cases: list[dict[str, Any]]) -> str | None:
    """Add one target and say how it ended: failure, error, skipped or None."""
    seconds = sum(e.get("production_s", 0.0) for e in cases)
    case = ElementTree.SubElement(
        suite, "testcase", classname=clean(contract), name=clean(target), time=f"{seconds:.3f}"
    )
    reached = sorted({b for e in cases for b in e.get("behaviours", [])})
    properties = ElementTree.SubElement(case, "properties")
    ElementTree.SubElement(properties, "property", name="cases", value=str(len(cases)))
    ElementTree.SubElement(properties, "property", name="behaviours", value=" ".join(reached))
    failures = [e for e in cases if e["verdict"] in FAILURES]
    errors = [e for e in cases if e["verdict"] in ERRORS or e["verdict"] == "UNFINISHED"]
    if failures:
        identities = sorted({_identity(e) for e in failures})
        element = ElementTree.SubElement(
            case, "failure", type=failures[0]["verdict"], message=clean("; ".join(identities))
        )
        element.text = clean("\n".join(_line(e) for e in failures[:MAX_SHOWN]))
        return "failure"
    if errors:
        element = ElementTree.SubElement(case, "error", type=errors[0]["verdict"], message=f"{len(errors)} cases")
        element.text = clean("\n".join(_line(e) for e in errors[:MAX_SHOWN]))
        return "error"
    if all(e["verdict"] == "UNSUPPORTED" for e in cases):
        ElementTree.SubElement(case, "skipped", message=clean(cases[0].get("evidence", {}).get("reason", "")))
        return "skipped"
    return None


def _identity(event: dict[str, Any]) -> str:
    identity = event.get("identity", {})
    return f"{identity.get('field')} {identity.get('kind')}"


def _line(event: dict[str, Any]) -> str:
    evidence = event.get("evidence", {})
    said = evidence.get("claim") or {k: evidence[k] for k in SAID if k in evidence}
    return f"case {event['case']} {event['verdict']} {_identity(event)} {said}"


def clean(value: Any) -> str:
    """Text that XML can hold; whatever a worker printed may be in it."""
    return _NOT_XML.sub("\ufffd", str(value))
