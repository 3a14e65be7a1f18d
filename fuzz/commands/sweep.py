"""``specoracle sweep``: every row of the bounded domain of commit.checkpoint_steps."""

from __future__ import annotations

import sys
from collections import Counter

import click

from fuzz import support
from fuzz import sweep as sweep_
from fuzz.commands.options import (
    corpus_option,
    engine_options,
    fresh_folder,
    out_option,
    read_engine,
    read_targets,
    seed_option,
)
from fuzz.commands.runs import ending, run_finished, run_started
from fuzz.commands.session import open_session
from fuzz.events import Events
from fuzz.progress import Display
from fuzz.supervisor import Session
from fuzz.verdict import RED, Kind, exit_code


@click.command()
@engine_options
@corpus_option
@out_option
@seed_option
@click.option(
    "--max-commit",
    default=sweep_.MAX_COMMIT,
    show_default=True,
    type=click.IntRange(1, 64),
    help="Largest committed count on production grids.",
)
def sweep(engine, target, contract, device, python, bundle, offline, corpus, out, seed, max_commit) -> None:
    """Enumerate the bounded domain of commit.checkpoint_steps, every row."""
    spec = read_engine(engine, python, bundle)
    adapters = [a for a in read_targets(spec.name, target, contract) if a.contract == sweep_.CONTRACT]
    if not adapters:
        raise click.UsageError(f"a sweep exists for {sweep_.CONTRACT} only; no such target was selected")
    support.expected(corpus, spec.name, spec.version or "", device)
    folder = fresh_folder(out, "sweep")
    domain = sweep_.blocks(max_commit)
    checked = sweep_.check_closed_form(domain)
    rows = sum(b.rows for b in domain)
    click.echo(f"{rows} rows; closed form equals the token-by-token reference on all {checked} distinct ones")
    unreachable = sum(b.rows for b in domain if not b.reachable)
    click.echo(f"{unreachable} rows have grids 8, 16 and 32, which no engine allows with such blocks")
    results: list[sweep_.SweepResult] = []
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        run_started(events, session, "sweep", rows=rows, seed=seed)
        with Display("sweep") as display, ending() as end:
            for adapter in adapters:
                results.append(_one(session, adapter, domain, seed, events, display))
        for result in results:
            _print(result)
        listed = set(support.expected(corpus, spec.name, session.launch.version, device))
        absent = [r.target for r in results if r.target in listed and not r.rows]
        verdicts = Counter(r.verdict for r in results)
        code = end.exit_code(exit_code(verdicts, sum(r.verdict in RED for r in results), absent))
        run_finished(events, code, end)
    sys.exit(code)


def _one(session: Session, adapter, domain, seed: int, events: Events, display: Display) -> sweep_.SweepResult:
    missing = session.ready["unsupported"].get(adapter.id)
    if missing:
        return sweep_.SweepResult(adapter.id, failure=missing, verdict=Kind.UNSUPPORTED)
    number = events.start(adapter.id, sweep=True)
    result = sweep_.sweep(session, adapter, domain, seed, lambda r: display.show(f"{r.target} {r.rows} rows"))
    events.emit("swept", case=number, contract=adapter.contract, **vars(result))
    return result


def _print(r: sweep_.SweepResult) -> None:
    if not r.rows:
        click.echo(f"{r.target}: {r.verdict}: {r.failure}")
        return
    what = "every row" if r.whole else "seeded sample"
    click.echo(f"{r.target}: {r.rows} rows ({what}), {r.seconds:.1f} s")
    click.echo(f"  diverging rows {r.diverging}, crossing rows by the closed form {r.crossing}")
    if r.diverging:
        click.echo(f"  diverging rows that do not cross {r.wrong_not_crossing}")
        click.echo(f"  first: {r.first}")
    if r.failure:
        click.echo(f"  stopped: {r.verdict}: {r.failure}")
