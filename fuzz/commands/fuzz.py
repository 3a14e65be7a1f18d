"""``specoracle fuzz``: look for divergences on fresh inputs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from fuzz import known as known_
from fuzz import support
from fuzz.adapter import Adapter, select
from fuzz.against import Sides, matching, pairs
from fuzz.campaign import Campaign, Options
from fuzz.commands import parts
from fuzz.commands.fuzz_words import Done, finds, show
from fuzz.commands.in_lanes import in_lanes
from fuzz.commands.options import (
    Duration,
    ShardParam,
    check_sanitize,
    corpus_option,
    engine_options,
    engine_words,
    fresh_folder,
    out_option,
    read_engine,
    read_sides,
    read_targets,
    sanitize_option,
    seed_option,
    several_devices,
    where_words,
)
from fuzz.commands.parts import counts
from fuzz.commands.runs import Ending, counted, ending, run_finished, run_started
from fuzz.commands.second_pass import second_pass
from fuzz.commands.session import open_session, provisioned, started
from fuzz.database import Store, open_store
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events
from fuzz.known import Known
from fuzz.progress import Display
from fuzz.supervisor import Launch, Session
from fuzz.target_state import TargetState, emit_target
from fuzz.verdict import Identity, Kind, exit_code

EXAMPLES = "examples"  # the database of a run that is given none, in its folder


@click.command()
@partial(engine_options, device=several_devices)
@corpus_option
@out_option
@seed_option
@click.option("--max-time", type=Duration(), default="60s", show_default=True, help="Time to fuzz, such as 30m.")
@click.option("--max-examples", type=click.IntRange(min=1), help="Cases per target at most.")
@click.option(
    "--shard", type=ShardParam(), default="1/1", show_default=True, help="One part of a campaign that several run."
)
@click.option(
    "--database",
    metavar="DIR|URL",
    help="Where finds are kept that later runs begin with: a folder or redis://HOST:PORT.  [default: OUT/examples]",
)
@click.option("--continue-on-failure", is_flag=True, help="Go on with a target after its first new divergence.")
@click.option(
    "--against", metavar="SPEC|GLOB", help="Compare with another engine or release, or with other targets of this one."
)
@sanitize_option
def fuzz(
    engine, target, contract, devices, python, bundle, offline, corpus, out, seed, max_time, max_examples,
    shard, database, continue_on_failure, against, sanitize,
) -> None:  # fmt: skip
    """Look for divergences on fresh inputs, shrink and freeze them.

    With --against two implementations are shown the same cases. A difference between
    them is a find, and says which side the reference takes; one in which both are legal
    is reported and not red. Several devices share the targets of one run.

    With --sanitize (and --device cuda) the finds are run again under that tool when the
    campaign is over, and what it says stands under each.
    """
    device = devices[0]
    check_sanitize(sanitize, devices)
    options = Options(seed, max_time, max_examples, continue_on_failure, shard)
    if against is not None:
        if len(devices) > 1:
            raise click.UsageError("--against runs on one device; name one")
        if sanitize is not None:
            raise click.UsageError("--sanitize goes with one engine; replay the finds of --against under it")
        sides = read_sides(engine, against, python, bundle)
        sys.exit(_against(*sides, against, target, contract, device, python, offline, corpus, out, options, database))
    spec = read_engine(engine, python, bundle)
    adapters = read_targets(spec.name, target, contract)
    known = known_.load(corpus, spec.name)
    support.expected(corpus, spec.name, spec.version or "", device)  # a broken file is said now, not after the run
    folder = fresh_folder(out, "fuzz")
    store = open_store(database, folder / EXAMPLES)
    if len(devices) > 1:
        launch = provisioned(spec, device, python, offline)
        listed = support.expected(corpus, spec.name, launch.version, device)
        again = engine_words(spec, device, python)
        sys.exit(_on_several(launch, devices, adapters, options, folder, known, listed, again, store))
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        listed = support.expected(corpus, spec.name, session.launch.version, device)
        code = _run(
            session, adapters, options, events, known, listed, session.launch.label, engine_words(spec, device, python),
            store, sanitize,
        )  # fmt: skip
    sys.exit(code)


def _against(
    left: EngineSpec, right: EngineSpec | None, against: str, target: str, contract: str, device: str,
    python: Path | None, offline: bool, corpus: Path, out: Path | None, options: Options, database: str | None,
) -> int:  # fmt: skip
    """The same campaign over pairs of targets; returns the exit code."""
    adapters = read_targets(left.name, target, contract)
    others = matching(select(left.name), against) if right is None else select(right.name)
    chosen = pairs(adapters, others, same_engine=right is not None and right.name == left.name)
    if not chosen:
        raise click.UsageError(
            f"nothing to compare: no target that --against {against!r} selects has the contract of one that "
            f"--target {target!r} and --contract {contract!r} select"
        )
    support.expected(corpus, left.name, left.version or "", device)
    folder = fresh_folder(out, "against")
    store = open_store(database, folder / EXAMPLES)
    with contextlib.ExitStack() as stack:
        specs = [left] if right is None else [left, right]
        launches = [provisioned(spec, device, python if spec.own_python else None, offline) for spec in specs]
        sessions = [stack.enter_context(started(launch)) for launch in launches]
        events = stack.enter_context(Events(folder))
        runs = [set(support.expected(corpus, s.launch.engine, s.launch.version, device)) for s in sessions]
        listed = [p.adapter.id for p in chosen if all(a.id in r for a, r in zip((p.left, p.right), runs * 2))]
        sides = Sides(sessions[0], sessions[-1], chosen)
        again = where_words(left, device, python)
        title = f"{sessions[0].launch.label} against {sessions[-1].launch.label if right else against}"
        return _run(
            sides, [p.adapter for p in chosen], options, events, [], listed, title, again, store, against=against
        )


def _run(
    session: Session | Sides, adapters: list[Adapter], options: Options, events: Events, known: list[Known],
    listed: list[str], title: str, again: str, store: Store, sanitize: str | None = None, **values: Any,
) -> int:  # fmt: skip
    """Run the campaign, print, write the last event and return the exit code."""
    values |= {"sanitize": sanitize} if sanitize else {}
    run_started(events, session, "fuzz", **_bounds(options, store, events), **values)
    with Display("fuzz") as display:
        campaign = Campaign(session, adapters, options, events, known, lambda c: _show(display, c), store)
        with ending() as end:
            campaign.run()
    said: dict[Identity, list[str]] = {}
    if sanitize and not end.reason:
        with ending() as end:
            second_pass(session, sanitize, [f for f in finds(campaign.states) if f.known is None], said, events)
    done = Done(campaign.states, session.launch, session.ready["places"], options, campaign.elapsed_s)
    return _finish(done, events, end, listed, title, again, store, said)


def _on_several(
    launch: Launch, devices: Sequence[str], adapters: list[Adapter], options: Options, folder: Path,
    known: list[Known], listed: list[str], again: str, store: Store,
) -> int:  # fmt: skip
    """The campaign on several devices at once; returns the exit code."""
    split, began = parts.split(adapters, options, len(devices)), 0.0

    def begin(session: Any) -> None:
        nonlocal began
        run_started(events, session, "fuzz", **_bounds(options, store, events))
        began = time.monotonic()

    def so_far(display: Display, sums: list[int]) -> None:
        elapsed_s = time.monotonic() - began
        display.show(_words(*sums, elapsed_s), elapsed_s / options.max_seconds)

    with Events(folder) as events:
        worked, end, session = in_lanes(
            launch, devices, len(split), events,
            lambda lane: parts.work(lane, adapters, split, options, known, store), begin, so_far, "fuzz",
        )  # fmt: skip
        states = parts.merged(worked, adapters, options, session.ready["unsupported"])
        store.lost = next((each.lost_store for each in worked if each.lost_store), None)
        for state in states:
            emit_target(events, state)
        done = Done(states, session.launch, session.ready["places"], options, time.monotonic() - began)
        return _finish(done, events, end, listed, launch.label, again, store)


def _bounds(options: Options, store: Store, events: Events) -> dict[str, Any]:
    bounds = {"seed": options.seed, "max_seconds": options.max_seconds, "max_examples": options.max_examples}
    bounds |= {"shard": str(options.shard)} if options.shard.count > 1 else {}
    return bounds | ({} if store.name == str(events.out / EXAMPLES) else {"database": store.name})


def _finish(
    done: Done, events: Events, end: Ending, listed: list[str], title: str, again: str, store: Store,
    said: Mapping[Identity, list[str]] = MappingProxyType({}),
) -> int:  # fmt: skip
    """Print, write the last event and return the exit code."""
    code = end.exit_code(_code(done.states, listed, end))
    show(done, title, again, said, end.reason)
    if store.lost:
        click.echo(f"the database {store.name} was lost during the run: {store.lost}", err=True)
    run_finished(events, code, end, seconds=round(done.seconds, 2))
    return code


def _show(display: Display, campaign: Campaign) -> None:
    display.show(
        _words(*counts(campaign.states), campaign.elapsed_s), campaign.elapsed_s / campaign.options.max_seconds
    )


def _words(cases: int, behaviours: int, finds: int, seconds: float) -> str:
    rate = cases / max(seconds, 1e-9)
    return f"{cases} cases, {rate:.0f}/s, {behaviours} behaviours reached, {counted(finds, 'divergence')}"


def _code(states: list[TargetState], listed: list[str], end: Ending) -> int:
    """Exit code of a campaign; ``listed`` are the targets that must run, unless it was stopped early."""
    verdicts: Counter[Kind] = Counter()
    for state in states:
        verdicts.update(state.verdicts)
    unknown = sum(1 for f in finds(states) if f.known is None and f.belief.kind is not Kind.ORACLE_SUSPECT)
    unknown += sum(len(s.seen.keys() - s.found.keys()) for s in states)
    chosen = {s.adapter.id: s for s in states}
    did_not_run = [t for t in listed if t in chosen and not chosen[t].executed and not end.reason]
    if not any(s.executed for s in states) and not end.reason:
        click.echo("inconclusive: no selected target executed a case", err=True)
    for name in did_not_run:
        click.echo(f"inconclusive: {name} is listed in support.toml but executed nothing", err=True)
    return exit_code(verdicts, unknown, did_not_run)
