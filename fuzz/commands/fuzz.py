"""``specoracle fuzz``: look for divergences on fresh inputs."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from fuzz import known as known_
from fuzz import support
from fuzz.adapter import Adapter, select
from fuzz.against import Sides, matching, pairs
from fuzz.believe import words_for
from fuzz.campaign import Campaign, Found, Options, TargetState
from fuzz.commands.options import (
    Duration,
    ShardParam,
    corpus_option,
    engine_options,
    engine_words,
    fresh_folder,
    out_option,
    read_engine,
    read_sides,
    read_targets,
    seed_option,
    where_words,
)
from fuzz.commands.runs import compiled_words, counted, ending, run_finished, run_started
from fuzz.commands.session import open_session, provisioned, started
from fuzz.database import Store, open_store
from fuzz.difference import BOTH_LEGAL
from fuzz.engines.spec import EngineSpec
from fuzz.events import Events
from fuzz.known import Known
from fuzz.progress import Display
from fuzz.supervisor import Session
from fuzz.verdict import Kind, exit_code
from oracle import contracts, explain

EXAMPLES = "examples"  # the database of a run that is given none, in its folder


@click.command()
@engine_options
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
def fuzz(
    engine, target, contract, device, python, bundle, offline, corpus, out, seed, max_time, max_examples,
    shard, database, continue_on_failure, against,
) -> None:  # fmt: skip
    """Look for divergences on fresh inputs, shrink and freeze them.

    With --against two implementations are shown the same cases. A difference between
    them is a find, and says which side the reference takes; one in which both are legal
    is reported and not red.
    """
    options = Options(seed, max_time, max_examples, continue_on_failure, shard)
    if against is not None:
        sides = read_sides(engine, against, python, bundle)
        sys.exit(_against(*sides, against, target, contract, device, python, offline, corpus, out, options, database))
    spec = read_engine(engine, python, bundle)
    adapters = read_targets(spec.name, target, contract)
    known = known_.load(corpus, spec.name)
    support.expected(corpus, spec.name, spec.version or "", device)  # a broken file is said now, not after the run
    folder = fresh_folder(out, "fuzz")
    store = open_store(database, folder / EXAMPLES)
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        listed = support.expected(corpus, spec.name, session.launch.version, device)
        code = _run(
            session, adapters, options, events, known, listed, _name(session), engine_words(spec, device, python), store
        )
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
        title = f"{_name(sessions[0])} against {_name(sessions[-1]) if right else against}"
        return _run(
            sides, [p.adapter for p in chosen], options, events, [], listed, title, again, store, against=against
        )


def _name(session: Session) -> str:
    return f"{session.launch.engine}=={session.launch.version}"


def _run(
    session: Session | Sides, adapters: list[Adapter], options: Options, events: Events, known: list[Known],
    listed: list[str], title: str, again: str, store: Store, **values: Any,
) -> int:  # fmt: skip
    """Run the campaign, print, write the last event and return the exit code."""
    bounds = {"seed": options.seed, "max_seconds": options.max_seconds, "max_examples": options.max_examples}
    bounds |= {"shard": str(options.shard)} if options.shard.count > 1 else {}
    bounds |= {} if store.name == str(events.out / EXAMPLES) else {"database": store.name}
    run_started(events, session, "fuzz", **bounds, **values)
    with Display("fuzz") as display:
        campaign = Campaign(session, adapters, options, events, known, lambda c: _show(display, c), store)
        with ending() as end:
            campaign.run()
    code = end.exit_code(_code(campaign, listed))
    _print(campaign, title, again)
    if store.lost:
        click.echo(f"the database {store.name} was lost during the run: {store.lost}", err=True)
    run_finished(events, code, end, seconds=round(campaign.elapsed_s, 2))
    return code


def _show(display: Display, campaign: Campaign) -> None:
    cases = sum(s.executed for s in campaign.states)
    behaviours = len({(s.adapter.contract, b) for s in campaign.states for b in s.behaviours})
    finds = sum(len(s.found) for s in campaign.states)
    rate = cases / max(campaign.elapsed_s, 1e-9)
    text = f"{cases} cases, {rate:.0f}/s, {behaviours} behaviours reached, {counted(finds, 'divergence')}"
    display.show(text, campaign.elapsed_s / campaign.options.max_seconds)


def _code(campaign: Campaign, listed: list[str]) -> int:
    """Exit code of a campaign; ``listed`` are the targets that must run."""
    verdicts: Counter[Kind] = Counter()
    for state in campaign.states:
        verdicts.update(state.verdicts)
    unknown = sum(1 for f in _finds(campaign) if f.known is None and f.belief.kind is not Kind.ORACLE_SUSPECT)
    unknown += sum(len(s.seen.keys() - s.found.keys()) for s in campaign.states)
    chosen = {s.adapter.id: s for s in campaign.states}
    did_not_run = [t for t in listed if t in chosen and not chosen[t].executed]
    if not any(s.executed for s in campaign.states):
        click.echo("inconclusive: no selected target executed a case", err=True)
    for name in did_not_run:
        click.echo(f"inconclusive: {name} is listed in support.toml but executed nothing", err=True)
    return exit_code(verdicts, unknown, did_not_run)


def _not_executed(state: TargetState) -> str:
    if state.reason:
        return f"UNSUPPORTED: {state.reason}"
    drawn = (
        f"none of {counted(state.sought, 'draw')} lay in its domain"
        if state.sought
        else "the run ended before its turn"
    )
    return f"not reached: {drawn}"


def _finds(campaign: Campaign) -> list[Found]:
    return [f for s in campaign.states for f in s.found.values()]


def _print(campaign: Campaign, title: str, again: str) -> None:
    """The table of targets and each find in words; ``again`` are the options of a
    replay."""
    launch = campaign.session.launch
    width = max(len(s.adapter.id) for s in campaign.states)
    options, seconds = campaign.options, campaign.elapsed_s
    part = f", part {options.shard}" if options.shard.count > 1 else ""
    compiled = compiled_words(sum(s.compile_s for s in campaign.states))
    click.echo(f"\n{title} on {launch.device}, seed {options.seed}{part}, {seconds:.0f} s{compiled}")
    for s in campaign.states:
        total = len(contracts.get(s.adapter.contract).behaviours)
        if not s.executed:
            click.echo(f"{s.adapter.id:<{width}}  {_not_executed(s)}")
            continue
        red = sum(n for k, n in s.verdicts.items() if k is not Kind.AGREE and k is not Kind.UNSUPPORTED)
        note = f"  {red} not agreeing" if red else ""
        note += f"  {s.flags[BOTH_LEGAL]} differ, both legal" if s.flags[BOTH_LEGAL] else ""
        note += f"  stopped: {s.reason}" if s.reason else ""
        click.echo(f"{s.adapter.id:<{width}}  {s.executed:>6} cases  {len(s.behaviours):>2}/{total} behaviours{note}")
    for s in campaign.states:
        if s.flags[BOTH_LEGAL]:
            click.echo(
                f"\nnot red, both legal: {s.adapter.id}, {s.flags[BOTH_LEGAL]} cases\n  {s.first_claim[BOTH_LEGAL]}"
            )
    for found in _finds(campaign):
        _print_find(found, again, campaign.session.ready["places"])
    for s in campaign.states:
        for identity in s.seen.keys() - s.found.keys():
            click.echo(f"\nseen, not investigated: {identity}\n  {words_for(s.seen[identity])}")


def _print_find(found: Found, again: str, places: dict[str, str | None]) -> None:
    title = "KNOWN " if found.known else ""
    click.echo(f"\n{title}{found.belief.kind}: {found.identity}")
    click.echo(f"  {found.belief.words}")
    if found.known is not None:
        click.echo(f"  line:      {found.known.line}")
        click.echo(f"  reachable: {found.known.reachable}")
        return
    shown = ", ".join(found.belief.how.names())
    click.echo(f"  case:    {explain.compact(found.belief.case)}" + (f" shown {shown}" if shown else ""))
    if places.get(found.identity.target):
        click.echo(f"  called:  {places[found.identity.target]}")
    click.echo(f"  repeats: in {found.belief.rate}; shrunk with {found.belief.shrink_words}")
    if found.belief.sibling is not None:
        click.echo(f"  sibling: agrees with {found.belief.sibling_words}")
    if found.frozen:
        click.echo(f"  again:   specoracle replay {found.frozen} {again}".rstrip())
