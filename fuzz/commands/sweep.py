"""``specoracle sweep``: every row of the bounded domain of commit.checkpoint_steps.

With ``--exhaustive`` targets that can be swept on the device get its larger domain instead, every length up to 2^20;
the others keep the bounded one.
"""

from __future__ import annotations

import sys
from collections import Counter

import click

from fuzz import exhaustive as exhaustive_
from fuzz import pieces, support
from fuzz import sweep as sweep_
from fuzz.adapter import Adapter
from fuzz.commands.options import (
    corpus_option,
    engine_options,
    fresh_folder,
    out_option,
    read_engine,
    read_targets,
    seed_option,
)
from fuzz.commands.runs import counted, ending, run_finished, run_started
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
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Every length up to --max-length, made and compared on the device; for targets that can.",
)
@click.option(
    "--max-length",
    type=click.IntRange(1, 2**30),
    help=f"Largest length before verify, with --exhaustive.  [default: {pieces.MAX_LENGTH}]",
)
def sweep(
    engine, target, contract, device, python, bundle, offline, corpus, out, seed, max_commit, exhaustive, max_length
) -> None:
    """Enumerate the bounded domain of commit.checkpoint_steps, every row."""
    if max_length and not exhaustive:
        raise click.UsageError("--max-length goes with --exhaustive")
    spec = read_engine(engine, python, bundle)
    adapters = [a for a in read_targets(spec.name, target, contract) if a.contract == sweep_.CONTRACT]
    if not adapters:
        raise click.UsageError(f"a sweep exists for {sweep_.CONTRACT} only; no such target was selected")
    support.expected(corpus, spec.name, spec.version or "", device)
    folder = fresh_folder(out, "sweep")
    large = pieces.pieces(max_length or pieces.MAX_LENGTH, max_commit, pieces.DEVICE_ROWS) if exhaustive else []
    domain = _bounded(max_commit) if not exhaustive or any(a.sweep is None for a in adapters) else []
    if exhaustive:
        click.echo(f"{sum(p.rows for p in large)} rows on the device, for targets that can be swept there")
    rows = sum(b.rows for b in domain) + sum(p.rows for p in large)
    results: list[sweep_.SweepResult] = []
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        run_started(events, session, "sweep", rows=rows, seed=seed)
        with Display("sweep") as display, ending() as end:
            for adapter in adapters:
                if exhaustive and adapter.sweep:
                    asked = pieces.domain(adapter, device, large[-1].last, max_commit, seed)
                    results.append(_on_device(session, adapter, *asked, seed, events, display))
                else:
                    results.append(_one(session, adapter, domain, seed, events, display))
        for result in results:
            _print(result)
        listed = set(support.expected(corpus, spec.name, session.launch.version, device))
        absent = [r.target for r in results if r.target in listed and not r.rows]
        verdicts = Counter(r.verdict for r in results)
        code = end.exit_code(exit_code(verdicts, sum(r.verdict in RED for r in results), absent))
        run_finished(events, code, end)
    if exhaustive:
        _summarise([r for r in results if r.exhaustive])
    sys.exit(code)


def _bounded(max_commit: int) -> list[sweep_.Block]:
    """The bounded domain, with what is said about it."""
    domain = sweep_.blocks(max_commit)
    checked = sweep_.check_closed_form(domain)
    rows = sum(b.rows for b in domain)
    click.echo(f"{rows} rows; closed form equals the token-by-token reference on all {checked} distinct ones")
    unreachable = sum(b.rows for b in domain if not b.reachable)
    click.echo(f"{unreachable} rows have grids 8, 16 and 32, which no engine allows with such blocks")
    return domain


def _one(session: Session, adapter, domain, seed: int, events: Events, display: Display) -> sweep_.SweepResult:
    missing = session.ready["unsupported"].get(adapter.id)
    if missing:
        return sweep_.SweepResult(adapter.id, failure=missing, verdict=Kind.UNSUPPORTED)
    number = events.start(adapter.id, sweep=True)
    result = sweep_.sweep(session, adapter, domain, seed, lambda r: display.show(f"{r.target} {r.rows} rows"))
    events.emit("swept", case=number, contract=adapter.contract, **vars(result))
    return result


def _on_device(
    session: Session, adapter: Adapter, asked: list[pieces.Piece], whole: bool, seed: int, events: Events,
    display: Display,
) -> sweep_.SweepResult:  # fmt: skip
    missing = session.ready["unsupported"].get(adapter.id)
    if missing:
        return sweep_.SweepResult(adapter.id, failure=missing, verdict=Kind.UNSUPPORTED, exhaustive=True)
    number, total = events.start(adapter.id, sweep=True), sum(p.rows for p in asked)
    display.show(f"{adapter.id} first call", 0.0, stage=True)
    result = exhaustive_.sweep(
        session, adapter, asked, whole, seed, lambda r: display.show(f"{r.target} {r.rows} rows", r.rows / total)
    )
    events.emit("swept", case=number, contract=adapter.contract, **vars(result))
    return result


def _print(r: sweep_.SweepResult) -> None:
    if not r.rows:
        click.echo(f"{r.target}: {r.verdict}: {r.failure}")
        return
    what = "every row" if r.whole else "seeded sample"
    click.echo(f"{r.target}: {r.rows} rows ({what}), {r.seconds:.1f} s")
    if r.exhaustive:
        click.echo(
            f"  {_rate(r.rows, r.seconds)}, in production {r.production_s:.2f} s; first calls {r.compile_s:.1f} s"
        )
        click.echo(f"  {r.walked} rows walked token by token: the comparison on the device is the reference's")
    click.echo(f"  diverging rows {r.diverging}, crossing rows by the closed form {r.crossing}")
    if r.diverging:
        click.echo(f"  diverging rows that do not cross {r.wrong_not_crossing}")
        click.echo(f"  first: {r.first}")
    if r.failure:
        click.echo(f"  stopped: {r.verdict}: {r.failure}")


def _rate(rows: int, seconds: float) -> str:
    rate = rows / max(seconds, 1e-3)
    return f"{rate / 1e6:.1f} million rows/s" if rate >= 1e6 else f"{rate:.0f} rows/s"


def _summarise(results: list[sweep_.SweepResult]) -> None:
    rows, seconds = sum(r.rows for r in results), sum(r.seconds for r in results)
    whole = all(r.whole and not r.failure for r in results)
    click.echo(
        f"exhaustive: {rows} rows of {counted(len(results), 'target')} in {seconds:.1f} s, {_rate(rows, seconds)}, "
        f"{sum(r.diverging for r in results)} diverging, {sum(r.walked for r in results)} walked"
        f"{'' if whole else '; not every row was asked'}"
    )
