"""``specoracle report``: everything that can be derived from the events of runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from fuzz.commands.options import corpus_option
from fuzz.frozen import printable
from fuzz.verdict import EXIT_USAGE
from reports import html, markdown, sarif, tables, targets
from reports.events import read
from reports.files import put
from reports.junit import junit, to_xml
from reports.model import view

folder = click.Path(file_okay=False, path_type=Path)
Writer = Callable[[list[Path], Path, Path], list[Path]]  # runs, folder, corpus


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--junit", "kinds", flag_value="junit", multiple=True, help="JUnit XML: OUT/junit.xml.")
@click.option("--sarif", "kinds", flag_value="sarif", multiple=True, help="SARIF 2.1.0: OUT/results.sarif.")
@click.option("--markdown", "kinds", flag_value="markdown", multiple=True, help="A short summary: OUT/summary.md.")
@click.option("--targets", "kinds", flag_value="targets", multiple=True, help="A row a target: OUT/targets.md.")
@click.option("--html", "kinds", flag_value="html", multiple=True, help="Pages to read: OUT/html/index.html.")
@click.option("--table", "forms", multiple=True, type=click.Choice(tables.FORMATS), help="Tables: OUT/tables.")
@click.option("--out", type=folder, metavar="DIR", help="Where they are written.  [default: the folder of the run]")
@corpus_option
def report(
    runs: tuple[Path, ...], kinds: tuple[str, ...], forms: tuple[str, ...], out: Path | None, corpus: Path
) -> None:
    """Derive reports from the events of runs, also of killed ones.

    Without a choice, all but Parquet are written. Several runs are merged. The corpus
    says what is listed as known, and holds the frozen cases that a gate names.
    """
    where = click.get_current_context().get_parameter_source("corpus")
    if where is not ParameterSource.DEFAULT and not os.path.isdir(corpus):
        raise click.UsageError(f"--corpus {printable(str(corpus))} is no folder")
    runs = _each_once(runs)
    if out is None and len(runs) > 1:
        raise click.UsageError("several runs are merged into one report; name its folder with --out")
    if not kinds and not forms:
        kinds, forms = tuple(WRITERS), ("csv",)
    out = out or runs[0]
    try:
        for run in runs:
            read(run)
        out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        _failed(error)
        sys.exit(EXIT_USAGE)
    chosen = {name: WRITERS[name] for name in WRITERS if name in kinds}
    chosen |= {form: partial(_table, form) for form in dict.fromkeys(forms)}
    failed = [name for name, writer in chosen.items() if not _written(writer, list(runs), out, corpus)]
    sys.exit(EXIT_USAGE if failed else 0)


def _each_once(runs: tuple[Path, ...]) -> tuple[Path, ...]:
    """``runs`` without those named before, also by another path; its cases count once."""
    once: dict[str, Path] = {}
    for run in runs:
        if once.setdefault(os.path.realpath(run), run) is not run:
            click.echo(f"note: {printable(str(run))} is named twice; it counts once", err=True)
    return tuple(once.values())


def _written(writer: Writer, runs: list[Path], out: Path, corpus: Path) -> bool:
    """True when the files stand; an error of one keeps no other from being written."""
    try:
        for path in writer(runs, out, corpus):
            click.echo(f"wrote {path}")
    except (OSError, ValueError) as error:
        _failed(error)
        return False
    return True


def _failed(error: Exception) -> None:
    click.echo(f"error: {printable(str(error))}", err=True)


def _junit(runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return [put(out / "junit.xml", to_xml(junit(*map(read, runs))))]


def _sarif(runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return [put(out / "results.sarif", sarif.to_bytes(view(runs)))]


def _markdown(runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return [put(out / "summary.md", markdown.markdown(view(runs)).encode())]


def _targets(runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return [put(out / "targets.md", targets.page(view(runs)).encode())]


def _html(runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return [html.write(runs, out / "html", corpus)]


def _table(form: str, runs: list[Path], out: Path, corpus: Path) -> list[Path]:
    return tables.write(runs, out, form)


WRITERS: dict[str, Writer] = {
    "junit": _junit, "sarif": _sarif, "markdown": _markdown, "targets": _targets, "html": _html,
}  # fmt: skip
