"""What a person reads of a campaign: a line a target, then each find in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import click

from fuzz.believe import words_for
from fuzz.campaign import Options
from fuzz.commands.runs import compiled_words, counted
from fuzz.difference import BOTH_LEGAL
from fuzz.supervisor import Launch
from fuzz.target_state import Found, TargetState
from fuzz.verdict import Identity, Kind
from oracle import contracts, explain


@dataclass(frozen=True)
class Done:
    """A campaign that ended: what each target was shown, under which bounds, where, in how long."""

    states: list[TargetState]
    launch: Launch
    places: dict[str, str | None]
    options: Options
    seconds: float


def _not_executed(state: TargetState, stopped: str | None) -> str:
    if state.reason:
        return f"UNSUPPORTED: {state.reason}"
    if state.sought:
        return f"not reached: none of {counted(state.sought, 'draw')} lay in its domain"
    return "no result: the run stopped early" if stopped else "not reached: the run ended before its turn"


def finds(states: list[TargetState]) -> list[Found]:
    """What was found on all targets."""
    return [f for s in states for f in s.found.values()]


def show(done: Done, title: str, again: str, said: Mapping[Identity, list[str]], stopped: str | None) -> None:
    """The table of targets and each find in words; ``again`` are the options of a
    replay, ``said`` what a sanitizer says of the finds, ``stopped`` why the run ended early."""
    launch, options, seconds = done.launch, done.options, done.seconds
    width = max(len(s.adapter.id) for s in done.states)
    part = f", part {options.shard}" if options.shard.count > 1 else ""
    compiled = compiled_words(sum(s.compile_s for s in done.states))
    click.echo(f"\n{title} on {launch.device}, seed {options.seed}{part}, {seconds:.0f} s{compiled}")
    for s in done.states:
        total = len(contracts.get(s.adapter.contract).behaviours)
        if not s.executed:
            click.echo(f"{s.adapter.id:<{width}}  {_not_executed(s, stopped)}")
            continue
        red = sum(n for k, n in s.verdicts.items() if k is not Kind.AGREE and k is not Kind.UNSUPPORTED)
        note = f"  {red} not agreeing" if red else ""
        note += f"  {s.flags[BOTH_LEGAL]} differ, both legal" if s.flags[BOTH_LEGAL] else ""
        note += f"  stopped: {s.reason}" if s.reason else ""
        note += f"  no graph: {s.uncaptured.most_common(1)[0][0]}" if s.has_no_graph else ""
        click.echo(f"{s.adapter.id:<{width}}  {s.executed:>6} cases  {len(s.behaviours):>2}/{total} behaviours{note}")
    for s in done.states:
        if s.flags[BOTH_LEGAL]:
            click.echo(
                f"\nnot red, both legal: {s.adapter.id}, {s.flags[BOTH_LEGAL]} cases\n  {s.first_claim[BOTH_LEGAL]}"
            )
    for found in finds(done.states):
        _show_find(found, again, done.places)
        for words in said.get(found.identity, []):
            click.echo(f"  sanitizer: {words}")
    for s in done.states:
        for identity in s.seen.keys() - s.found.keys():
            click.echo(f"\nseen, not investigated: {identity}\n  {words_for(s.seen[identity])}")


def _show_find(found: Found, again: str, places: dict[str, str | None]) -> None:
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
