"""What each page shows: the view of the runs, turned into values for the templates."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports import severity
from reports.history import History, Past
from reports.html import cases, facts, shown
from reports.html.text import breakable, clean, link, listed, number, short
from reports.junit import NOT_REACHED, NOT_REACHED_WORDS
from reports.model import Divergence, Target, View
from reports.text import many

ANSWER = re.compile(r"\s*Reachable\b:?\s*")  # how the words of the ground truth begin; the page says it itself
MAX_CLAIM = 600  # characters; the whole stands in the events


@dataclass(frozen=True)
class Page:
    """One page, and the case it shows."""

    key: str
    html: bytes
    case_file: bytes | None


class Site:
    """The pages of one report."""

    def __init__(self, view: View, past: History, corpus: Path | None):
        self.view, self.past, self.corpus = view, past, corpus
        self._cases: dict[str, tuple[cases.Case | None, str]] = {}
        self.env = Environment(
            loader=PackageLoader("reports.html"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
            lstrip_blocks=True, finalize=_visible,
        )  # fmt: skip
        self.env.filters |= {
            "short": short,
            "listed": listed,
            "link": link,
            "breakable": breakable,
            "number": number,
            "many": many,
        }
        self.env.globals |= {"severities": severity.NAMES, "meanings": severity.MEANINGS}

    def overview(self) -> bytes:
        """``index.html``."""
        view = self.view
        ties = [t for t in view.targets if t.near_ties]
        return self._page(
            "overview.html",
            root="",
            view=view,
            runs=[facts.ran(run) for run in view.runs],
            rows=[self._row(d) for d in view.divergences],
            labels=self.labels,
            agreement=self._agreement(),
            behaviours=facts.behaviours(view),
            bounds=[t for t in view.targets if t.worst_of_bound is not None],
            ties=ties,
            unsupported=facts.unsupported(view.targets),
            troubles=[(t, e) for t in view.targets for e in t.troubles],
            unreached=[t for t in view.targets if t.word == NOT_REACHED],
            not_reached=NOT_REACHED_WORDS,
            stopped=[t for t in view.targets if t.stopped and t.executed],
        )

    def divergences(self) -> Iterator[Page]:
        """A page for each divergence, in the order of the overview."""
        every = self.view.divergences
        for i, divergence in enumerate(every):
            case, why_not = self._case(divergence)
            page = self._page(
                "divergence.html",
                root="../",
                d=divergence,
                row=self._row(divergence),
                before=key(every[i - 1]) if i else None,
                after=key(every[i + 1]) if i + 1 < len(every) else None,
                place=i + 1,
                total=len(every),
                case=case,
                why_not=why_not,
                shown=shown.show(divergence, case),
                reachable=reachable(self._past(divergence), case),
                past=self._past(divergence),
                again=_again(divergence, case),
                versions=self._versions(divergence),
                run=facts.ran(divergence.shown.run),
                definition=facts.definition(divergence.contract),
                called=facts.called(divergence),
            )
            yield Page(key(divergence), page, case and case.raw)

    @cached_property
    def labels(self) -> list[str]:
        """A column a run; what tells two runs of one release apart is added."""
        plain = [run.label for run in self.view.runs]
        full = [f"{run.label} {run.device} {run.folder.name}" for run in self.view.runs]
        return [f if plain.count(p) > 1 else p for p, f in zip(plain, full, strict=True)]

    def _page(self, template: str, **values: Any) -> bytes:
        return self.env.get_template(template).render(**values).encode("utf-8", "replace")

    def _row(self, divergence: Divergence) -> dict[str, Any]:
        case, _ = self._case(divergence)
        return {
            "key": key(divergence),
            "d": divergence,
            "claim": short(divergence.claim, MAX_CLAIM),
            "severity": severity.NAMES[divergence.severity],
            "rank": divergence.severity,
            "reachable": reachable(self._past(divergence), case),
            "seen_in": listed(dict.fromkeys(s.run.label for s in divergence.sightings), 4),
        }

    def _past(self, divergence: Divergence) -> Past:
        return self.past.of(divergence.identity, divergence.shown.run.engine)

    def _case(self, divergence: Divergence) -> tuple[cases.Case | None, str]:
        at = key(divergence)
        if at not in self._cases:
            self._cases[at] = _load(divergence, self.corpus)
        return self._cases[at]

    def _agreement(self) -> dict[str, list[tuple[str, list[dict[str, Any] | None]]]]:
        """Contract to rows of (target, a cell a run)."""
        cells: dict[str, dict[str, dict[int, Target]]] = defaultdict(lambda: defaultdict(dict))
        place = {id(run): i for i, run in enumerate(self.view.runs)}
        for target in self.view.targets:
            cells[target.contract][target.id][place[id(target.run)]] = target
        pages: dict[tuple[str, str, int], str] = {}
        for d in self.view.divergences:
            for s in d.sightings:
                pages.setdefault((d.contract, d.target, id(s.run)), key(d))
        return {
            contract: [
                (name, [
                    {"t": row[i], "page": pages.get((contract, name, id(run)))} if i in row else None
                    for i, run in enumerate(self.view.runs)
                ])
                for name, row in rows.items()
            ]
            for contract, rows in cells.items()
        }  # fmt: skip

    def _versions(self, divergence: Divergence) -> list[tuple[str, str]]:
        """What each run says about the divergence's target."""
        seen = {id(s.run): s for s in divergence.sightings}
        asked = {id(t.run): t for t in self.view.targets if (t.contract, t.id) == divergence.identity[:2]}
        rows = []
        for run, label in zip(self.view.runs, self.labels, strict=True):
            if id(run) in seen:
                s = seen[id(run)]
                rows.append((label, f"{s.verdict}{' (listed)' if s.known else ''}, {many(s.count, 'case')}"))
            elif id(run) in asked:
                t = asked[id(run)]
                unsupported = f"UNSUPPORTED: {listed(t.reasons or [t.stopped], 1)}"
                silent = NOT_REACHED_WORDS if t.word == NOT_REACHED else unsupported
                rows.append((label, "does not show it" if t.executed else silent))
        return rows


def key(divergence: Divergence) -> str:
    """The name of a divergence's page: a hash of its identity, the same in each report."""
    text = json.dumps(divergence.identity)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def reachable(past: Past, case: cases.Case | None) -> str:
    """Whether production gets there, in words that stand behind a title that asks it."""
    if past.reachable is not None:
        begun = ANSWER.match(past.reachable)
        said = past.reachable[begun.end() :] if begun else ""
        return said[:1].upper() + said[1:] if said else past.reachable
    if case is not None and case.domain == "defensive":
        return severity.HOSTILE
    return "not judged yet; the input is a valid one" if case is not None else "not judged yet"


def _load(divergence: Divergence, corpus: Path | None) -> tuple[cases.Case | None, str]:
    """The case of the sighting that is shown, or why there is none. Of the frozen cases
    that a gate replayed the smallest is taken, and its event becomes the one shown."""
    sighting = divergence.shown
    found = sighting.event.get("frozen") if sighting.event["event"] == "found" else None
    why = "No case was frozen for it: the run ended before, or the corpus with the case is not at hand."
    if sighting.event["event"] == "found" and sighting.known:
        why = "No case was frozen for it: it is listed, and this run only reported it."
    if found is not None:
        try:
            first, _, name = found.partition("/")
            if first != "found" or (sighting.run.folder / first).is_symlink():
                raise ValueError(f"{found[:200]!a} is no find of this run")
            return cases.load(sighting.run.folder / "found", name, divergence.contract), ""
        except ValueError as error:
            return None, str(error)
    loaded = []
    for name, event in sighting.frozen if corpus is not None else ():
        try:
            loaded.append((cases.load(corpus, f"{name}.json", divergence.contract), event))
        except ValueError as error:
            why = str(error)
    if not loaded:
        return None, why
    case, sighting.event = min(loaded, key=lambda pair: len(json.dumps(pair[0].plain)))
    return case, ""


def _again(divergence: Divergence, case: cases.Case | None) -> str | None:
    """The command that reproduces it, to be run in the report's folder."""
    if case is None:
        return None
    run = divergence.shown.run
    blamed = divergence.shown.evidence.get("blamed")  # in a comparison: the side to look at
    named = blamed if isinstance(blamed, dict) else {}
    engine, target = str(named.get("engine", run.label)), str(named.get("target", divergence.target))
    words = ["specoracle", "replay", f"cases/{key(divergence)}.json", "--engine", engine]
    words += ["--device", run.device] if run.device not in ("cpu", "unknown") else []
    return shlex.join([*words, "--target", target])


def _visible(value: Any) -> Any:
    return value if isinstance(value, Markup) else clean(str(value))
