"""The short commands that run an engine: targets, replay, bench."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fuzz import support
from fuzz.bench import bench as run_bench
from fuzz.commands.options import (
    check_sanitize,
    corpus_option,
    engine_options,
    read_engine,
    read_targets,
    sanitize_option,
)
from fuzz.commands.session import open_session
from fuzz.frozen import read
from fuzz.replay import EXIT, choose
from fuzz.replay import replay as run_replay
from fuzz.verdict import EXIT_HARNESS, EXIT_INCONCLUSIVE, Kind
from oracle import explain


@click.command()
@engine_options
@corpus_option
@click.option("--write", is_flag=True, help="Write the result into support.toml of the corpus.")
def targets(engine, target, contract, device, python, bundle, offline, corpus, write) -> None:
    """List contract x target with RUNS or UNSUPPORTED and the reason."""
    spec = read_engine(engine, python, bundle)
    adapters = read_targets(spec.name, target, contract)
    support.expected(corpus, spec.name, spec.version or "", device)
    if write and (target, contract) != ("*", "*"):
        raise click.UsageError("--write records a whole version; leave out --target and --contract")
    with open_session(spec, device, python, offline) as session:
        version = session.launch.version
        found = support.probe_all(session, adapters)
    width = max(len(s.target) for s in found)
    for each in sorted(found, key=lambda s: (s.contract, s.target)):
        click.echo(f"{each.target:<{width}}  {'RUNS' if each.runs else 'UNSUPPORTED: ' + each.reason}")
    running = {s.target for s in found if s.runs}
    click.echo(f"{len(running)} of {len(found)} targets run at {spec.name}=={version} on {device}")
    if write:
        click.echo(f"wrote {support.write(corpus, spec.name, version, device, found)}")
        return
    listed = set(support.expected(corpus, spec.name, version, device)) & {a.id for a in adapters}
    for name in sorted(listed - running):
        click.echo(f"support.toml lists {name}, which does not run", err=True)
    if not listed:
        click.echo(f"support.toml says nothing about {spec.name}=={version} on {device}", err=True)
        return
    for name in sorted(running - listed):
        click.echo(f"support.toml does not list {name}, which runs", err=True)
    if listed != running:
        sys.exit(EXIT_INCONCLUSIVE)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@engine_options
@sanitize_option
def replay(file, engine, target, contract, device, python, bundle, offline, sanitize) -> None:
    """Replay one case FILE and explain the answer: FIXED, FAILED or ERROR.

    Without --engine and --target the case's own provenance says which, if it has
    any; without --target and provenance every target of its contract is asked.
    """
    check_sanitize(sanitize, (device,))
    frozen = read(file)
    given = click.get_current_context().get_parameter_source("engine") is not click.core.ParameterSource.DEFAULT
    if not given and python is None and bundle is None:
        engine = frozen.provenance.get("engine", engine)
    spec = read_engine(engine, python, bundle)
    adapters = choose(read_targets(spec.name, "*", contract), frozen, None if target == "*" else target)
    if not adapters:
        words = f"no target of {spec.name} has contract {frozen.contract} and matches --target {target!r}"
        raise click.UsageError(words)
    codes = []
    click.echo(f"{frozen.name}\n  {frozen.reason}")
    with open_session(spec, device, python, offline, sanitize, alone=True) as session:
        click.echo(f"  case: {explain.compact(frozen.case)}")
        for adapter in adapters:
            answer = run_replay(session, adapter, frozen)
            if answer.verdict.kind is Kind.UNSUPPORTED and len(adapters) > 1:
                click.echo(f"\n{adapter.id}: {answer.lines[0]}")
                continue
            codes.append(EXIT[answer.result])
            click.echo(f"\n{answer.result} {adapter.id} at {spec.name}=={session.launch.version}")
            if session.ready["places"].get(adapter.id):
                click.echo(f"  called: {session.ready['places'][adapter.id]}")
            for line in answer.lines:
                click.echo(f"  {line}".rstrip())
    if not codes:
        click.echo("ERROR: no target could be shown this case", err=True)
    sys.exit(EXIT_HARNESS if not codes else max(codes))


@click.command()
@engine_options
@click.option("--cases", default=100, show_default=True, type=click.IntRange(min=10), help="Cases per target.")
def bench(engine, target, contract, device, python, bundle, offline, cases) -> None:
    """Measure cases per second and the share of time in production code."""
    spec = read_engine(engine, python, bundle)
    adapters = read_targets(spec.name, target, contract)
    with open_session(spec, device, python, offline) as session:
        run_bench(session, adapters, cases, click.echo)
