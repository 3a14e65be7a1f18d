"""``specoracle triage``: which divergences a team lives with, who said so, and why."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import click

from fuzz import candidates
from fuzz import known as known_
from fuzz import triage as triage_
from fuzz.candidates import Candidate, TriageError
from fuzz.commands.options import corpus_option
from fuzz.commands.runs import counted
from fuzz.frozen import printable
from fuzz.known import DEVICES, Known
from fuzz.triage import Decision
from reports.events import parts, read

engine_option = click.option(
    "--engine", default="sglang", show_default=True, help="Whose list, a name without version."
)
by_option = click.option("--by", required=True, metavar="NAME", help="Who decides.")
folder = click.Path(path_type=Path)


class Day(click.ParamType):
    """A date such as ``2027-01-31``."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        try:
            return value if isinstance(value, date) else date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!a} is not a date like 2027-01-31", param, ctx)


@click.group()
def triage() -> None:
    """Decide which divergences the gate lives with (fixtures/known/ENGINE.toml).

    WHICH and --identity take a number of `triage list`, or a text that stands in
    one identity only.
    """


@triage.command("list")
@click.argument("out", required=False, type=folder)
@engine_option
@corpus_option
def list_(out: Path | None, engine: str, corpus: Path) -> None:
    """Show the known list, or with OUT the divergences of that run.

    OUT is the folder of a run, also of one that was killed.
    """
    if out is None:
        listed = known_.load(corpus, triage_.engine_name(engine))
        for number, entry in enumerate(listed, 1):
            click.echo(f"{number:>3}  {_state(entry):<10} {entry.versions:<12} {_plain(entry.identity)}")
        click.echo(f"{len(listed)} {'entry' if len(listed) == 1 else 'entries'} in {known_.path_of(corpus, engine)}")
        return
    events = _events(out)
    found = candidates.candidates(parts(events))
    for number, each in enumerate(found, 1):
        click.echo(f"{number:>3}  {_plain(each.verdict):<10} {_status(corpus, each):<12} {_plain(each.identity)}")
    click.echo(f"{counted(len(found), 'divergence')} in {out}")
    for target, count in sorted(candidates.near_ties(events).items()):
        click.echo(f"near ties, which agree and are never listed: {count} of {_plain(target)}")


@triage.command()
@click.argument("which")
@click.option("--run", "out", type=folder, metavar="OUT", help="Look in a run instead of the list.")
@engine_option
@corpus_option
def show(which: str, out: Path | None, engine: str, corpus: Path) -> None:
    """Show one entry of the list, or of a run's divergences, whole."""
    if out is not None:
        each = _chosen(out, which)
        rows = {
            "verdict": each.verdict, "seen in": f"{each.engine}=={each.version} on {each.device}",
            "cases": each.cases, "claim": each.claim, "frozen": each.frozen, "status": _status(corpus, each),
        }  # fmt: skip
        _rows(each.identity, rows)
        return
    entry = _entry(corpus, engine, which)[1]
    names = ("versions", "device", "line", "reachable", "reason", "link", "by", "on", "expires")
    _rows(entry.identity, {"state": _state(entry)} | {name: getattr(entry, name) for name in names})
    for text in entry.notes:
        click.echo(f"  note:      {_plain(text)}")


@triage.command()
@click.argument("out", type=folder)
@click.option(
    "--identity", "which", required=True, metavar="WHICH", help="Number or text, as `triage list OUT` shows it."
)
@click.option("--versions", required=True, metavar="RANGE", help="Versions it is accepted in, such as '>=0.5.22'.")
@click.option("--reason", required=True, help="Why it may stay, in words.")
@click.option("--link", required=True, help="Issue upstream, or: none filed.")
@click.option("--line", required=True, help="The production line at fault, with its version.")
@click.option("--reachable", required=True, help="Which settings lead there, or: hostile input only.")
@by_option
@click.option("--expires", type=Day(), metavar="DATE", help="Last day of the decision, such as 2027-01-31.")
@click.option("--device", type=click.Choice(DEVICES), help="Only there.  [default: on every device]")
@corpus_option
def accept(out, which, versions, reason, link, line, reachable, by, expires, device, corpus) -> None:
    """List a divergence of the run in OUT as known."""
    if _events(out)[0].get("against") is not None:
        raise TriageError(f"{out} compared two implementations; list what a gate or a fuzz run without --against saw")
    each, today = _chosen(out, which), date.today()
    decision = Decision(versions, line, reachable, reason, link, by, today, device, expires)
    path = triage_.accept(corpus, each, decision, today)
    click.echo(f"accepted {each.identity}\nwrote {path}")
    if each.frozen:
        again = f'specoracle corpus add {out / printable(each.frozen)} --reason "..."'
        click.echo(f"the gate sees it once a frozen case shows it; if none does yet: {again}")


@triage.command()
@click.argument("which")
@by_option
@click.option("--reason", required=True, help="Why it may not stay, in words.")
@engine_option
@corpus_option
def reopen(which: str, by: str, reason: str, engine: str, corpus: Path) -> None:
    """Take a decision back: the gate fails on it again."""
    index, entry = _entry(corpus, engine, which)
    path = triage_.reopen(corpus, engine, index, by, reason, date.today())
    click.echo(f"reopened {entry.identity}\nwrote {path}")


@triage.command()
@click.argument("which")
@by_option
@click.option("--text", required=True, help="What is to be remembered.")
@engine_option
@corpus_option
def note(which: str, by: str, text: str, engine: str, corpus: Path) -> None:
    """Add a remark to an entry."""
    index, entry = _entry(corpus, engine, which)
    path = triage_.note(corpus, engine, index, by, text, date.today())
    click.echo(f"noted at {entry.identity}\nwrote {path}")


def _events(out: Path) -> list[dict[str, Any]]:
    try:
        return read(out)
    except (OSError, ValueError) as error:
        raise TriageError(str(error)) from None


def _chosen(out: Path, which: str) -> Candidate:
    events = _events(out)
    found = candidates.candidates(parts(events))
    ties = [t for t in candidates.near_ties(events) if which in t] if not which.isdecimal() else []
    if ties and not any(which in str(c.identity) for c in found):
        raise TriageError(f"{ties[0]}: a near tie is AGREE: production took another legal outcome; it is never listed")
    return found[candidates.choose(which, [_plain(c.identity) for c in found], "divergence in this run")]


def _entry(corpus: Path, engine: str, which: str) -> tuple[int, Known]:
    listed = known_.load(corpus, triage_.engine_name(engine))
    index = candidates.choose(which, [str(e.identity) for e in listed], "entry in this list")
    return index, listed[index]


def _state(entry: Known) -> str:
    return "expired" if entry.state == "accepted" and entry.expired(date.today()) else entry.state


def _status(corpus: Path, each: Candidate) -> str:
    try:
        listed = known_.load(corpus, triage_.engine_name(each.engine))
    except TriageError:
        return "new"
    numbers = [n for n, e in enumerate(listed, 1) if e.covers(each.identity, each.version, each.device)]
    return f"entry {numbers[0]}" if numbers else "new"


def _rows(identity: Any, rows: dict[str, Any]) -> None:
    click.echo(_plain(identity))
    for name, value in rows.items():
        if value is not None:
            click.echo(f"  {name + ':':<10} {_plain(value)}")


def _plain(value: Any) -> str:
    """One line that is safe to print, whatever an event or a file holds."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in printable(str(value)))
