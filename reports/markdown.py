"""A summary for a pull-request comment: what was asked, what is new, what to do.

Bounded whatever the run was: the worst rows are shown, the others counted. Nothing
from a run is ever markup: it stands in code spans, in which a comment knows neither
links nor mentions nor HTML.
"""

from __future__ import annotations

import re
from typing import Any

from reports import severity
from reports.events import STALE
from reports.junit import NOT_REACHED, NOT_REACHED_WORDS
from reports.model import Divergence, Run, Target, View
from reports.text import many, one_line

MAX_CHARACTERS = 65_000  # a comment may have 65,536
MAX_ENGINES = 8
MAX_NEW = 15
MAX_KNOWN = 6
MAX_NAMES = 3  # of targets that had no turn
MAX_SHORT = 6  # lines of any other list
CELL = 160  # characters of a cell
SHELL = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@=/+-]{0,300}\Z")  # what is safe to paste, and names no machine
QUOTED = re.compile(r"[A-Za-z0-9_.()+:/ -]{1,300}\Z")  # what is safe between single quotes; no pattern of a glob


def markdown(view: View) -> str:
    """The summary of ``view``: fewer than 60 lines, at most ``MAX_CHARACTERS``."""
    new = [d for d in view.divergences if not d.known and d.verdict != "ORACLE_SUSPECT"]
    known = [d for d in view.divergences if d.known]
    doubted = [d for d in view.divergences if not d.known and d.verdict == "ORACLE_SUSPECT"]
    lines = [f"## specoracle: {_headline(view, new)}", "", *_engines(view)]
    if new:
        lines += ["", f"### {many(len(new), 'new divergence')}", ""]
        lines += ["| severity | target | what | cases |", "|---|---|---|---:|", *map(_row, new[:MAX_NEW])]
        lines += _more(len(new) - MAX_NEW) + _again(new)
    lines += _list("Known, listed, not failing", [_known(d) for d in known], MAX_KNOWN)
    lines += _list("Suspect: the reference or the adapter may be wrong", [_known(d) for d in doubted], MAX_SHORT)
    lines += _list("Known list", [_stale(e) for r in view.runs for e in r.stale], MAX_SHORT)
    lines += _list("Near ties, which agree", [_tie(t) for t in view.targets if t.near_ties], MAX_SHORT)
    lines += _list("No verdict", _unreached(view) + [w for t in view.targets for w in _troubles(t)], MAX_SHORT)
    text = "\n".join(lines) + "\n"
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 2].rpartition("\n")[0] + "\n"


def _headline(view: View, new: list[Divergence]) -> str:
    codes = [r.finished.get("exit") if r.finished is not None else None for r in view.runs]
    if new:
        return f"{many(len(new), 'new divergence')}"
    if 1 in codes:
        return "failed"
    if any(code is None for code in codes):
        return "incomplete, the run was killed before its end"
    return "agreed" if all(code == 0 for code in codes) else "inconclusive"


def _engines(view: View) -> list[str]:
    lines = [
        "| engine | device | run | targets | cases | agree | new | known | unsupported |",
        "|---|---|---|" + "---:|" * 6,
    ]
    for run in view.runs[:MAX_ENGINES]:
        mine = [t for t in view.targets if t.run is run]
        agree = sum(t.verdicts["AGREE"] for t in mine)
        words = [t.word for t in mine]
        unsupported = words.count("UNSUPPORTED")
        asked = len(mine) - unsupported - words.count(NOT_REACHED)
        counts = [asked, sum(t.executed for t in mine), agree, sum(t.red - t.known for t in mine)]
        counts += [sum(t.known for t in mine), unsupported]
        cells = [code(run.label), code(run.device), code(about(run)), *map(str, counts)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines + _more(len(view.runs) - MAX_ENGINES)


def about(run: Run) -> str:
    """Which command a run was and how it ended."""
    how = "killed" if run.finished is None else f"exit {run.finished.get('exit')}"
    what = [str(run.started.get("command", "run"))]
    what += [
        f"{name} {run.started[name]}" for name in ("against", "seed", "shard") if run.started.get(name) is not None
    ]
    return f"{' '.join(what)}, {how}"


def _row(divergence: Divergence) -> str:
    what, claim = " ".join(divergence.identity[2:]), divergence.claim
    what = what if claim == ": ".join(divergence.identity[2:]) else f"{what}: {claim}"
    word = severity.NAMES[divergence.severity] + (" (flaky)" if divergence.verdict == "FLAKY" else "")
    return f"| {word} | {code(divergence.target)} | {code(what)} | {divergence.count} |"


def _again(new: list[Divergence]) -> list[str]:
    """How to see the first ones again, from where the run was started."""
    lines = []
    for divergence in new[:3]:
        run, event = divergence.shown.run, divergence.shown.event
        file = next((name for name, _ in divergence.shown.frozen), None)
        if isinstance(event.get("frozen"), str):
            path = f"{run.folder}/{event['frozen']}"
        else:
            path = f"{run.started.get('corpus', 'fixtures')}/{file}.json" if file else ""
        if SHELL.match(path) and SHELL.match(run.label) and QUOTED.match(divergence.target):
            lines.append(f"specoracle replay {path} --engine {run.label} --target '{divergence.target}'")
    return ["", "```sh", *lines, "```"] if lines else []


def _known(divergence: Divergence) -> str:
    return f"{code(' | '.join(divergence.identity[1:]))}, {many(divergence.count, 'case')}"


def _stale(event: dict[str, Any]) -> str:
    identity = event["identity"]
    return f"{STALE[event['why']]}: {code(' | '.join(identity.get(k, '') for k in ('target', 'field', 'kind')))}"


def _tie(target: Target) -> str:
    margin = target.least_margin_ulp
    least = "" if margin is None else f", the least margin {margin:.3g} ULP"
    return f"{code(target.id)}, {many(target.near_ties, 'case')}{least}"


def _unreached(view: View) -> list[str]:
    """One line for all targets that had no turn."""
    names = [code(t.id) for t in view.targets if t.word == NOT_REACHED]
    if not names:
        return []
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return [f"{many(len(names), 'target')} {NOT_REACHED_WORDS}: {', '.join(names[:MAX_NAMES])}{more}"]


def _troubles(target: Target) -> list[str]:
    if not target.troubles:
        return []
    evidence = target.troubles[0].get("evidence", {})
    said = evidence.get("message") or evidence.get("reason") or "no answer"
    return [f"{code(target.id)}: {code(target.troubles[0]['verdict'])} {code(said)}"]


def _list(title: str, lines: list[str], most: int) -> list[str]:
    if not lines:
        return []
    return [
        "",
        f"**{title}** ({len(lines)})",
        "",
        *(f"- {line}" for line in lines[:most]),
        *_more(len(lines) - most, "- "),
    ]


def _more(count: int, bullet: str = "") -> list[str]:
    if count <= 0:
        return []
    return [f"{bullet}and {count} more"] if bullet else ["", f"and {count} more"]


def code(value: Any) -> str:
    """A code span that nothing in it can leave, also not in a cell of a table."""
    text = one_line(value, CELL).replace("`", "'").replace("|", "¦").strip()
    return f"`{text or '-'}`"
