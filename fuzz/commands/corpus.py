"""``specoracle corpus``: check, format, extend and count frozen cases."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from fuzz import capture
from fuzz import corpus as corpus_
from fuzz.commands.options import corpus_option
from fuzz.frozen import CorpusError, FrozenCase, check, content, read, require_folder, schema
from fuzz.mutants.mutant import mutants_of
from fuzz.verdict import EXIT_USAGE
from oracle import contracts


@click.group()
def corpus() -> None:
    """Check, format, extend and count frozen cases."""


@corpus.command()
@corpus_option
def lint(corpus: Path) -> None:
    """Check every case file; exit 2 when one is wrong."""
    problems = corpus_.lint(corpus)
    for problem in problems:
        click.echo(f"{problem.path}: {problem.message}")
    click.echo(f"{len(corpus_.files(corpus))} files, {len(problems)} problems")
    if problems:
        sys.exit(EXIT_USAGE)


@corpus.command()
@corpus_option
def fmt(corpus: Path) -> None:
    """Rewrite files into canonical form and write the schemas."""
    changed = corpus_.format_all(corpus)
    for contract in contracts.all_contracts().values():
        path = corpus / "schema" / f"{contract.name}.json"
        raw = (json.dumps(schema(contract), indent=2, sort_keys=True) + "\n").encode()
        if not path.exists() or content(path) != raw:
            corpus_.put(path, raw)
            changed.append(path)
    for path in changed:
        click.echo(f"rewrote {path}")
    click.echo(f"{len(changed)} files rewritten")


@corpus.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--from",
    "captured",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An input dumped by a running engine (fuzz.capture.dump); repeatable.",
)
@click.option("--reason", help="Why the case matters, in words.")
@click.option("--slug", help="Name of the case, such as lands-on-256.")
@click.option("--link", "links", multiple=True, help="Issue or source; repeatable.")
@click.option("--flag", "flags", multiple=True, help="A tag; repeatable.")
@corpus_option
def add(
    files: tuple[Path, ...],
    captured: tuple[Path, ...],
    reason: str | None,
    slug: str | None,
    links: tuple[str, ...],
    flags: tuple[str, ...],
    corpus: Path,
) -> None:
    """Take case FILES, such as those that a run froze, into the corpus, or inputs
    that a running engine dumped.

    The reference judges each. A case that kills no mutant is refused: it would assert
    nothing. All FILES are checked before the first is written.
    """
    if not files and not captured:
        raise click.UsageError("give case FILES, or --from FILE for a dumped input")
    if slug and len(files) + len(captured) > 1:
        raise click.UsageError("--slug names one case; give one file")
    if captured and not reason:
        raise click.UsageError("--from needs --reason: a dump does not say why the case matters")
    existing: dict[str, Path] = {}
    if os.path.lexists(corpus):
        require_folder(corpus)
        existing = {corpus_.content_hash(f.contract, f.case): p for p, f in map(_named, corpus_.files_in(corpus))}
    made = []
    for path in (*files, *captured):
        if path in captured:
            contract, case = capture.read(path)
            new = corpus_.make(contract, case, slug=slug or "captured", reason=reason, flags=flags, links=links,
                               provenance={"source": "captured from a running engine"})  # fmt: skip
        else:
            old = read(path)
            new = corpus_.make(
                old.contract, old.case, slug=old.slug if slug is None else slug,
                reason=old.reason if reason is None else reason, flags=flags or old.flags,
                links=links or old.links, provenance=old.provenance, presentation=old.presentation,
            )  # fmt: skip
        if not new.kills:
            names = ", ".join(m.name for m in mutants_of(new.contract))
            raise CorpusError(f"{path}: kills no mutant, so it asserts nothing; the mutants are {names}")
        check(new, str(path))
        key = corpus_.content_hash(new.contract, new.case)
        if key in existing:
            raise CorpusError(f"{path}: twin of {existing[key]}; a corpus holds a case once")
        existing[key] = path
        made.append(new)
    for new in made:
        click.echo(f"added {corpus_.write(new, corpus)}")


def _named(path: Path) -> tuple[Path, FrozenCase]:
    return path, read(path)


@corpus.command()
@corpus_option
def stats(corpus: Path) -> None:
    """Count cases, behaviours and mutants per contract."""
    total = 0
    for name, row in corpus_.statistics(corpus).items():
        total += row["cases"]
        contract = contracts.get(name)
        click.echo(
            f"{name:<26} {row['cases']:>3} cases  {row['behaviours']:>2}/{len(contract.behaviours)} behaviours  "
            f"{row['mutants'] - len(row['mutants_alive']):>2}/{row['mutants']} mutants killed"
        )
        for label in ("behaviours_missing", "mutants_alive"):
            if row[label]:
                click.echo(f"  {label.replace('_', ' ')}: {', '.join(row[label])}")
    click.echo(f"{total} cases")
