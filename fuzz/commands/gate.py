"""``specoracle gate``: replay the frozen cases and decide, for CI."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fuzz import corpus as corpus_
from fuzz import known as known_
from fuzz import support
from fuzz.believe import words_for
from fuzz.commands.options import (
    corpus_option,
    engine_options,
    engine_words,
    fresh_folder,
    out_option,
    read_engine,
    read_targets,
)
from fuzz.commands.runs import ending, run_finished, run_started
from fuzz.commands.session import open_session
from fuzz.events import Events
from fuzz.gate import GateResult
from fuzz.gate import gate as run_gate
from fuzz.progress import Display
from fuzz.verdict import exit_code


@click.command()
@engine_options
@corpus_option
@out_option
def gate(engine, target, contract, device, python, offline, corpus, out) -> None:
    """Replay frozen cases against an engine and decide, for CI."""
    spec = read_engine(engine, python)
    adapters = read_targets(spec.name, target, contract)
    cases = [(p, f) for p, f in corpus_.load(corpus) if any(a.contract == f.contract for a in adapters)]
    lists = corpus if corpus.is_dir() else corpus_.DEFAULT_CORPUS
    known = known_.load(lists, spec.name)
    support.expected(lists, spec.name, spec.version or "", device)  # a broken file is said now, not after the run
    folder = fresh_folder(out, "gate")
    result = GateResult()
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        run_started(events, session, "gate", corpus=str(corpus), cases=len(cases))
        total = sum(a.contract == f.contract for a in adapters for _, f in cases)
        with Display("gate") as display, ending() as end:
            run_gate(session, adapters, cases, events, known, result, lambda r: _show(display, r, total))
        listed = support.expected(lists, spec.name, session.launch.version, device)
        absent = [] if end.reason else _absent(listed, adapters, cases, result)  # a stopped gate is inconclusive anyway
        code = end.exit_code(exit_code(result.verdicts, len(result.red), absent))
        paths = {f.name: p for p, f in cases}
        _print(result, absent, paths, session.ready["places"], engine_words(spec, device, python))
        _print_counts(result, f"{spec.name}=={session.launch.version}", len(cases))
        run_finished(events, code, end, verdicts={str(k): n for k, n in result.verdicts.items()})
    sys.exit(code)


def _show(display: Display, result: GateResult, total: int) -> None:
    done = result.verdicts.total()
    display.show(f"{done} of {total}, {len(result.red)} divergences", done / total)


def _absent(listed: list[str], adapters: list, cases: list, result: GateResult) -> list[str]:
    """Listed targets that met cases of their contract and executed none."""
    met = {f.contract for _, f in cases}
    chosen = {a.id for a in adapters if a.contract in met}
    return [t for t in listed if t in chosen and not result.executed[t]]


def _print(
    result: GateResult, absent: list[str], paths: dict[str, Path], places: dict[str, str | None], again: str
) -> None:
    """What the gate saw, the red first; ``again`` are the options of a replay."""
    for identity, hits in result.red.items():
        name, verdict = hits[0]
        click.echo(f"{verdict.kind}: {identity}")
        click.echo(f"  {words_for(verdict)}")
        if places.get(identity.target):
            click.echo(f"  called: {places[identity.target]}")
        click.echo(f"  again:  specoracle replay {paths[name]} {again} --target '{identity.target}'")
        click.echo(f"  frozen cases that show it: {len(hits)}")
    for name, verdict in result.suspects:
        reason = verdict.evidence.get("reason") or verdict.evidence.get("message")
        click.echo(f"{verdict.kind}: {verdict.target} on {name}: {reason}")
    for identity, names in result.known_red.items():
        click.echo(f"known: {identity} (frozen cases that show it: {len(names)})")
    for entry in result.silent_known:
        click.echo(f"known but no longer fires: {entry.identity}")
    for target in absent:
        click.echo(f"inconclusive: {target} is listed in support.toml but did not run: {result.reasons.get(target)}")


def _print_counts(result: GateResult, engine: str, cases: int) -> None:
    counts = ", ".join(f"{n} {k}" for k, n in sorted(result.verdicts.items()) if n)
    click.echo(f"{engine}: {cases} frozen cases, {len(result.executed)} targets: {counts}")
