"""What a person reads of a gate: the red first, then what is listed, and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from fuzz.believe import words_for
from fuzz.commands.runs import compiled_words, counted
from fuzz.gate import GateResult, asked_as
from fuzz.sanitize import lines as sanitizer_lines

MAX_REASONS = 12  # why pairs were not shown in a presentation that was asked for
MAX_NOTES = 5  # of a sanitizer, printed


def show(
    result: GateResult, absent: list[str], paths: dict[str, Path], places: dict[str, str | None], again: str
) -> None:
    """What the gate saw, the red first; ``again`` are the options of a replay."""
    for identity, hits in result.red.items():
        name, verdict = hits[0]
        click.echo(f"{verdict.kind}: {identity}")
        click.echo("\n".join(f"  {line}" for line in (words_for(verdict), *sanitizer_lines(verdict))))
        if places.get(identity.target):
            click.echo(f"  called: {places[identity.target]}")
        click.echo(f"  again:  {_again(name, paths, again)} --target '{identity.target}'")
        click.echo(f"  frozen cases that show it: {_cases(n for n, _ in hits)}")
    for name, verdict in result.suspects:
        reason = verdict.evidence.get("reason") or verdict.evidence.get("message")
        click.echo(f"{verdict.kind}: {verdict.target} on {name}: {reason}")
    for identity, names in result.known_red.items():
        click.echo(f"known: {identity} (frozen cases that show it: {_cases(names)})")
    for target in absent:
        click.echo(f"inconclusive: {target} is listed in support.toml but did not run: {result.reasons.get(target)}")


def _again(label: str, paths: dict[str, Path], again: str) -> str:
    """The command that shows a hit again: what was asked for more is not in the file."""
    name, more = asked_as(label)
    return (
        f"specoracle gate --corpus {paths[name]} --present {more} {again}"
        if more
        else f"specoracle replay {paths[name]} {again}"
    )


def _cases(labels: Iterable[str]) -> int:
    return len({asked_as(label)[0] for label in labels})


def show_notes(notes: Counter[str]) -> None:
    """What a sanitizer said of kernels that are not the engine's, or only warned of."""
    for words, number in notes.most_common(MAX_NOTES):
        click.echo(f"not red: {words}, in {counted(number, 'case')}")
    if len(notes) > MAX_NOTES:
        click.echo(f"not red: {len(notes) - MAX_NOTES} more of these; see the events")


def show_counts(result: GateResult, engine: str, cases: int) -> None:
    listed = Counter(a.verdict.kind for a in result.answers if a.listed)
    counts = ", ".join(f"{n} {k}{_listed(listed[k], n)}" for k, n in sorted(result.verdicts.items()) if n)
    for (more, reason), n in result.not_shown.most_common(MAX_REASONS):
        click.echo(f"not shown as {more}: {counted(n, 'pair')} of case and target: {reason}")
    if len(result.not_shown) > MAX_REASONS:
        click.echo(f"not shown for {len(result.not_shown) - MAX_REASONS} more reasons; see events.ndjson")
    compiled = compiled_words(result.compile_s)
    click.echo(
        f"{engine}: {counted(cases, 'frozen case')}, {counted(len(result.executed), 'target')}: {counts}{compiled}"
    )


def _listed(listed: int, number: int) -> str:
    """Why a divergence that is counted may leave the gate green."""
    return "" if not listed else " (all listed)" if listed == number else f" ({listed} listed)"
