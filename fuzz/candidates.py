"""What a run offers to decide about: its red identities, and how a person names one.

Works on the events of a run, also of one that was killed. A near tie is AGREE and no
candidate; it is counted apart, so that whoever looks for it is told why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fuzz.frozen import CorpusError, printable
from fuzz.known import IDENTITY
from fuzz.verdict import RED, Identity

MAX_SHOWN = 8  # candidates that an ambiguous choice names


class TriageError(CorpusError):
    """A decision that cannot be taken. The message says what to do instead."""


@dataclass(frozen=True)
class Candidate:
    """One identity that a run saw: its last verdict, where, how often, and the
    case that was frozen for it, relative to the run's folder."""

    identity: Identity
    verdict: str
    engine: str
    version: str
    device: str
    cases: int
    claim: str
    frozen: str | None = None


def candidates(runs: Iterable[list[dict[str, Any]]]) -> list[Candidate]:
    """The red identities of runs in the order in which they came, each with the
    verdict that it got when it was doubted, if it was. Each run is the events over
    one engine, the first of which starts it."""
    return [candidate for events in runs for candidate in _candidates(events)]


def _candidates(events: list[dict[str, Any]]) -> list[Candidate]:
    place = tuple(str(events[0].get(k, "")) for k in ("engine", "version", "device"))
    found: dict[Identity, dict[str, Any]] = {}
    for event in events:
        identity, kind = event.get("identity"), event["event"]
        if kind not in ("end", "verdict", "found") or not isinstance(identity, dict):
            continue
        name = Identity(*(str(identity.get(k, event.get(k, ""))) for k in IDENTITY))
        row = found.setdefault(name, {"cases": 0, "claim": "", "frozen": None, "verdicts": {}})
        row["claim"] = row["claim"] or _claim(event.get("evidence"))
        if kind == "end":
            row["cases"] += 1
            row["verdicts"].setdefault(event["case"], event["verdict"])
        elif "case" in event:  # only that case was judged again
            row["verdicts"][event["case"]] = event["verdict"]
        else:
            row["whole"] = str(event.get("verdict", ""))
        if isinstance(event.get("frozen"), str):
            row["frozen"] = event["frozen"]
    return [Candidate(n, _last(r), *place, r["cases"], r["claim"], r["frozen"]) for n, r in found.items()]


def _last(row: dict[str, Any]) -> str:
    """The verdict of an identity: the one it got as a whole, else that of a case
    that still counts as red, else any."""
    each = list(row["verdicts"].values())
    return row.get("whole") or next((v for v in each if v in RED), "".join(each[:1]))


def _claim(evidence: Any) -> str:
    said = evidence if isinstance(evidence, dict) else {}
    return str(next((said[k] for k in ("claim", "message", "how", "rate", "reason") if said.get(k)), ""))


def near_ties(events: list[dict[str, Any]]) -> dict[str, int]:
    """How many near ties each target of a run had."""
    counts: dict[str, int] = {}
    for event in events:
        flags = event.get("flags")
        if event["event"] == "end" and isinstance(flags, list) and "near_tie" in flags:
            counts[event["target"]] = counts.get(event["target"], 0) + 1
    return counts


def choose(which: str, names: list[str], what: str) -> int:
    """Index of the one name that ``which`` means: its number, counted from 1, or a
    text that stands in no other. Raises TriageError."""
    if not names:
        raise TriageError(f"there is no {what} to choose from")
    if re.fullmatch(r"[0-9]{1,9}", which):
        if not 1 <= int(which) <= len(names):
            raise TriageError(f"there is no {what} {which}; they are numbered 1 to {len(names)}")
        return int(which) - 1
    hits = [i for i, name in enumerate(names) if which == name] or [i for i, name in enumerate(names) if which in name]
    if len(hits) == 1 and which:
        return hits[0]
    shown = "".join(f"\n  {i + 1}  {names[i]}" for i in (hits or range(len(names)))[:MAX_SHOWN])
    said = f"is in {len(hits)} of them" if hits else f"is in no {what}"
    raise TriageError(f"{printable(which)[:200]!r} {said}; name one by number or by more of its text:{shown}")
