"""``specoracle gate``: replay the frozen cases and decide, for CI."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from fuzz import agreement, support
from fuzz import corpus as corpus_
from fuzz import known as known_
from fuzz.adapter import Adapter, select
from fuzz.commands import gate_lanes
from fuzz.commands.gate_words import show, show_counts, show_notes
from fuzz.commands.options import (
    check_sanitize,
    corpus_option,
    engine_options,
    engine_words,
    fresh_folder,
    out_option,
    read_engines,
    read_targets,
    sanitize_option,
    several_devices,
    several_engines,
)
from fuzz.commands.runs import (
    Ending,
    counted,
    ending,
    engine_started,
    run_finished,
    run_started,
    several_started,
)
from fuzz.commands.session import provisioned, started
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events, EventsError
from fuzz.frozen import FrozenCase
from fuzz.gate import PRESENTATIONS, GateResult, doubt_reference
from fuzz.gate import gate as run_gate
from fuzz.known import Known
from fuzz.presentation import ON_DEVICE
from fuzz.progress import Display
from fuzz.supervisor import Launch, Session
from fuzz.verdict import exit_code, worst_exit

TABLE = "agreement.csv"
Cases = list[tuple[Path, FrozenCase]]


@dataclass
class Part:
    """One engine of a gate and what became of it. ``end`` is ``None`` for an engine
    whose turn did not come. Only a ``whole`` corpus says that a listed divergence no
    longer fires; ``strict`` fails on such entries and on expired ones; ``more`` are
    presentations besides the files' own; ``sanitize`` is the tool under which it runs,
    ``notes`` what that said and blames nobody for."""

    spec: EngineSpec
    launch: Launch
    adapters: list[Adapter]
    known: list[Known]
    cases: Cases
    whole: bool
    strict: bool
    more: tuple[str, ...] = ()
    sanitize: str | None = None
    result: GateResult = field(default_factory=GateResult)
    places: dict[str, str | None] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    end: Ending | None = None
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def label(self) -> str:
        return self.launch.label

    def show(self, display: Display, done: int, red: int) -> None:
        """How far it is."""
        total = sum(a.contract == f.contract for a in self.adapters for _, f in self.cases) * (1 + len(self.more))
        display.show(f"{done} of {total}, {counted(red, 'divergence')}", done / max(total, 1))

    @property
    def code(self) -> int:
        """The exit code that this engine alone would give."""
        red = len(self.result.red) + (len(self.stale) if self.strict else 0)
        return self.end.exit_code(exit_code(self.result.verdicts, red, self.absent))

    @property
    def stale(self) -> list[tuple[str, Known]]:
        """Entries of the known list that need a look, with why."""
        silent = [("silent", k) for k in self.result.silent_known if self.whole]
        return silent + [("expired", k) for k in self.result.expired_known]


@click.command()
@partial(engine_options, engine=several_engines, device=several_devices)
@corpus_option
@out_option
@click.option("--strict", is_flag=True, help="Fail too on a listed divergence that expired or no longer fires.")
@click.option(
    "--present", "more", multiple=True, type=click.Choice(PRESENTATIONS), metavar="HOW",
    help="Show each case in this way too: repeat, or on a GPU graph or stream; repeatable.",
)  # fmt: skip
@sanitize_option
def gate(
    engines, target, contract, devices, python, bundle, offline, corpus, out, strict, more, sanitize,
) -> None:  # fmt: skip
    """Replay frozen cases against one or several engines and decide, for CI.

    Several engines run one after the other and are compared: see OUT/agreement.csv. A
    reference that all of them contradict alike is ORACLE_SUSPECT, not a divergence.
    Several devices share the targets.

    With --sanitize (and --device cuda) each report of the tool is charged to its case
    and is a divergence. It is a pass of its own, 10 to 100 times slower.
    """
    device = devices[0]
    for name in set(more) & set(ON_DEVICE) if device == "cpu" else ():
        raise click.UsageError(f"--present {name} is for a GPU; add --device cuda")
    check_sanitize(sanitize, devices)
    specs = read_engines(engines, python, bundle)
    chosen = [select(spec.name, target, contract) for spec in specs]
    if not any(chosen):
        read_targets(specs[0].name, target, contract)  # says what to do
    cases = list(corpus_.load(corpus))
    lists = corpus if corpus.is_dir() else corpus_.DEFAULT_CORPUS
    known = [known_.load(lists, spec.name) for spec in specs]
    for spec in specs:  # a broken file is said now, not after the run
        support.expected(lists, spec.name, spec.version or "", device)
    folder = fresh_folder(out, "gate")
    launches = [provisioned(spec, device, python, offline) for spec in specs]
    parts = [
        Part(
            spec,
            launch,
            adapters,
            listed,
            [c for c in cases if any(a.contract == c[1].contract for a in adapters)],
            corpus.is_dir(),
            strict,
            tuple(dict.fromkeys(more)),
            sanitize,
        )  # fmt: skip
        for spec, launch, adapters, listed in zip(specs, launches, chosen, known, strict=True)
    ]
    labels = [part.label for part in parts]
    if len(set(labels)) < len(labels):
        raise click.UsageError(f"two of the engines are {max(labels, key=labels.count)}; name each release once")
    under = {"sanitize": sanitize} if sanitize else {}
    if len(devices) > 1:
        with Events(folder) as events:
            met = {frozen.name for part in parts for _, frozen in part.cases}
            _shared(parts, devices, labels, events, lists, corpus=str(corpus), cases=len(met))
            code = _finish(parts, events, device, python)
    elif len(parts) == 1:
        with started(parts[0].launch, sanitize) as session, Events(folder) as events:
            run_started(events, session, "gate", corpus=str(corpus), cases=len(parts[0].cases), **under)
            _one(parts[0], session, events, lists)
            code = _finish(parts, events, device, python)
    else:
        with Events(folder) as events:
            met = {frozen.name for part in parts for _, frozen in part.cases}
            several_started(events, "gate", labels, device, corpus=str(corpus), cases=len(met), **under)
            _several(parts, events, lists)
            code = _finish(parts, events, device, python)
    sys.exit(code)


def _several(parts: list[Part], events: Events, lists: Path) -> None:
    """One session after the other."""

    def run(part: Part) -> None:
        with started(part.launch, part.sanitize) as session:
            events.about = {"engine": part.launch.engine, "version": part.launch.version}
            engine_started(events, session)
            _one(part, session, events, lists)

    _in_turn(parts, events, run)


def _shared(
    parts: list[Part], devices: Sequence[str], labels: list[str], events: Events, lists: Path, **values: Any
) -> None:
    """One engine after the other, each on all devices."""
    alone = len(parts) == 1
    if not alone:
        several_started(events, "gate", labels, ",".join(devices), **values)
    begin = partial(run_started, command="gate", **values) if alone else engine_started

    def run(part: Part) -> None:
        events.about = {} if alone else {"engine": part.launch.engine, "version": part.launch.version}
        session = gate_lanes.run(part, devices, events, partial(begin, events))
        _conclude(part, session, events, lists)

    if alone:  # one that cannot be started is an error of the call
        run(parts[0])
    else:
        _in_turn(parts, events, run)


def _in_turn(parts: list[Part], events: Events, run: Callable[[Part], None]) -> None:
    """One engine after the other; one that cannot be started does not stop the rest."""
    for part in parts:
        if not part.adapters:
            part.end = Ending()  # nothing executed is inconclusive
            continue
        with ending() as stopped:
            run(part)
        events.about = {}
        part.end = stopped if stopped.reason else part.end
        if part.end.interrupted:
            break
    with ending():
        doubt_reference([part.result for part in parts], events)
    events.about = {}


def _one(part: Part, session: Session, events: Events, lists: Path) -> None:
    with Display("gate") as display, ending() as part.end:
        run_gate(
            session, part.adapters, part.cases, events, part.known, part.result,
            lambda r: part.show(display, r.done, len(r.red)), part.more,
        )  # fmt: skip
    _conclude(part, session, events, lists)


def _conclude(part: Part, session: Session, events: Events, lists: Path) -> None:
    """What a gate says about its lists: entries that need a look, targets that should have run."""
    with contextlib.suppress(EventsError):  # a full disk was reported already
        for why, entry in [] if part.end.reason else part.stale:
            events.emit("stale", identity=vars(entry.identity), why=why, strict=part.strict)
    part.places, part.notes = session.ready["places"], getattr(session, "notes", Counter())
    listed = support.expected(lists, part.spec.name, part.launch.version, part.launch.device)
    # a stopped gate is inconclusive anyway
    part.absent = [] if part.end.reason else _absent(listed, part.adapters, part.cases, part.result)


def _absent(listed: list[str], adapters: list[Adapter], cases: Cases, result: GateResult) -> list[str]:
    """Listed targets that met cases of their contract and executed none."""
    met = {f.contract for _, f in cases}
    chosen = {a.id for a in adapters if a.contract in met}
    return [t for t in listed if t in chosen and not result.executed[t]]


def _finish(parts: list[Part], events: Events, device: str, python: Path | None) -> int:
    """Print, write the table and the last event, and return the exit code over all."""
    ran = [part for part in parts if part.end is not None]
    for part in ran:
        paths = {f.name: p for p, f in part.cases}
        if len(parts) > 1:
            click.echo(f"== {part.label}" + ("" if part.adapters else ": no target matches"))
        again = engine_words(part.spec, device, python) + (f" --sanitize {part.sanitize}" if part.sanitize else "")
        show(part.result, part.absent, paths, part.places, again)
        show_notes(part.notes)
        for why, entry in part.stale:
            until = f" since {entry.expires}" if why == "expired" else ""
            click.echo(f"known but {'expired' if until else 'no longer fires'}{until}: {entry.identity}")
        show_counts(part.result, part.label, len(part.cases))
    names = {f.name: None for part in parts for _, f in part.cases}
    stopped = [p.label for p in parts if p.end is None or p.end.reason]
    rows = agreement.table([a for p in parts for a in p.result.answers], names, [p.label for p in parts], stopped)
    if len(parts) > 1:
        click.echo("\n".join(["", *agreement.short(rows)]))
    end = next((part.end for part in ran if part.end.reason), Ending())
    code = worst_exit(part.code for part in ran)
    with ending():
        events.write(TABLE, agreement.csv_text(rows))
    run_finished(events, code, end, **_counts(parts))
    return code


def _counts(parts: list[Part]) -> dict[str, Any]:
    def of(part: Part) -> dict[str, int]:
        return {str(k): n for k, n in part.result.verdicts.items() if n}

    return {"verdicts": of(parts[0])} if len(parts) == 1 else {"verdicts_by_engine": {p.label: of(p) for p in parts}}
