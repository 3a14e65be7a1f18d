"""Read the events of a run, also of one that was killed.

A last line that was cut (it has no newline) is dropped; anything else that is not
an event, and an event whose members are not what its kind has, is an error that
names file and line. Whoever reads events behind this may trust their shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE = "events.ndjson"
VERDICTS = frozenset(
    {
        "AGREE", "DIVERGE", "CRASH", "HANG", "FLAKY", "UNSUPPORTED",
        "ORACLE_SUSPECT", "OUT_OF_MEMORY", "INVALID_CASE", "HARNESS_ERROR",
    }
)  # fmt: skip
FAILURES = frozenset({"DIVERGE", "CRASH", "HANG", "FLAKY"})
JUDGED_AGAIN = frozenset({"FLAKY", "ORACLE_SUSPECT"})  # what a red may turn into, never green
STALE = {"silent": "no longer fires", "expired": "has expired"}  # why an entry of the known list needs a look
MAX_DEPTH = 64  # nesting of evidence; deeper, Python's own repr gives up
MAX_SECONDS = 1e12


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < MAX_SECONDS  # false for NaN


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _identity(value: Any) -> bool:
    return isinstance(value, dict) and {"field", "kind"} <= value.keys() and all(map(_text, value.values()))


def _verdict(value: Any) -> bool:
    return _text(value) and value in VERDICTS


def _again(value: Any) -> bool:
    return _text(value) and value in JUDGED_AGAIN


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _object_or_none(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _why(value: Any) -> bool:
    return _text(value) and value in STALE


def _engines(value: Any) -> bool:
    return _texts(value) and len(value) > 0


Shape = dict[str, Callable[[Any], bool]]
REQUIRED: dict[str, Shape] = {
    "start": {"case": _count, "target": _text},
    "end": {"case": _count, "target": _text, "contract": _text, "verdict": _verdict},
    "swept": {"case": _count, "target": _text, "rows": _count, "crossing": _count, "diverging": _count},
    "verdict": {"target": _text, "contract": _text, "verdict": _again, "identity": _identity},
    "found": {"target": _text, "contract": _text, "verdict": _verdict, "identity": _identity},
    "target": {"target": _text, "contract": _text},
    "engine_started": {"engine": _text, "version": _text, "device": _text},
    "stale": {"identity": _identity, "why": _why, "strict": _flag},
}
OF_ONE: Shape = {"engine": _text, "version": _text}  # in a run over several engines: of which the event speaks
OPTIONAL: dict[str, Shape] = {
    "run_started": {"engines": _engines},
    "start": {"evidence": _object, **OF_ONE},
    "end": {
        "identity": _identity, "evidence": _object, "behaviours": _texts, "production_s": _seconds, "known": _flag,
        "flags": _texts, "compile_s": _seconds,
        **OF_ONE,
    },
    "swept": {
        "failure": _text_or_none, "first": _object_or_none, "seconds": _seconds, "contract": _text,
        "compile_s": _seconds,
    },
    "verdict": {"evidence": _object, "case": _count, **OF_ONE},
    "found": {
        "evidence": _object, "rate": _text, "sibling": _text_or_none, "frozen": _text_or_none, "known": _flag, **OF_ONE,
    },
    "target": {"reason": _text_or_none, **OF_ONE},
}  # fmt: skip


def read(out: Path) -> list[dict[str, Any]]:
    """Events of the run in ``out``, the first of which starts it. Raises ValueError
    naming file and line, or OSError."""
    path = out / FILE
    if not path.is_file():
        raise ValueError(f"{out}: no {FILE} in it; name the folder of a run")
    lines = path.read_bytes().split(b"\n")  # only "\n" ends an event; splitlines knows a dozen more
    cut = lines.pop()
    events = [_event(line, f"{path}: line {number}") for number, line in enumerate(lines, 1)]
    with suppress(_NotJson):
        events.append(_event(cut, f"{path}: line {len(lines) + 1}"))
    if not events or events[0]["event"] != "run_started":
        raise ValueError(f"{path}: line 1 is not run_started; this is not a run, or its beginning is lost")
    return events


def parts(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The runs over one engine that a run over several consists of, each beginning with
    a ``run_started`` that names its engine; any other run as it is. An engine that
    was not started any more has no part."""
    started = [e for e in events if e["event"] == "engine_started"]
    if not started:
        return [events]
    found = []
    for one in started:
        of_one = {name: one[name] for name in OF_ONE}
        begun = events[0] | {k: v for k, v in one.items() if k != "event"}
        rest = [e for e in events[1:] if e["event"] != "engine_started" and of_one.items() <= (of_one | e).items()]
        found.append([begun, *rest])
    return found


def in_flight(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ``start`` events of the cases that were being run when the run ended. A batch is journalled
    before it is sent and answered in order, so of what has no end it is the first on each device."""
    left: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["event"] == "start":
            left[event["case"]] = event
        elif event["event"] in ("end", "swept"):
            left.pop(event.get("case"), None)
    first: dict[Any, dict[str, Any]] = {}
    for event in left.values():
        first.setdefault(event.get("device"), event)
    return list(first.values())


class _NotJson(ValueError):
    """A line that does not parse: cut, when it is the last one."""


def _event(line: bytes, where: str) -> dict[str, Any]:
    try:
        event = json.loads(line.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        raise _NotJson(f"{where} is not JSON") from None
    if not isinstance(event, dict) or event.get("schema") != SCHEMA or not isinstance(event.get("event"), str):
        raise ValueError(f"{where} is not an event of schema {SCHEMA}")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH and _deep(event):
        raise ValueError(f"{where} is nested deeper than {MAX_DEPTH} levels")
    name = event["event"]
    for member, fits in REQUIRED.get(name, {}).items():
        if member not in event:
            raise ValueError(f"{where}: {name} without {member}")
        _member(event, member, fits, where)
    for member, fits in OPTIONAL.get(name, {}).items():
        if member in event:
            _member(event, member, fits, where)
    if name == "end" and event["verdict"] in FAILURES and "identity" not in event:
        raise ValueError(f"{where}: {name} with verdict {event['verdict']} without identity")
    return event


def _member(event: dict[str, Any], member: str, fits: Callable[[Any], bool], where: str) -> None:
    if not fits(event[member]):
        raise ValueError(f"{where}: {event['event']}: {member}: cannot be {str(event[member])[:60]!a}")


def _deep(value: Any) -> bool:
    left = [(value, 1)]
    while left:
        part, depth = left.pop()
        if depth > MAX_DEPTH:
            return True
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        left += [(v, depth + 1) for v in inner]
    return False
