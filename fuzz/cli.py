"""The command line. It validates, wires the parts together, prints, and turns
results into exit codes; it decides nothing about verify and commit."""

from __future__ import annotations

import io
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import click

from fuzz import interrupt
from fuzz.adapter import AdapterError
from fuzz.commands.bisect import bisect
from fuzz.commands.corpus import corpus
from fuzz.commands.engines import engines
from fuzz.commands.fuzz import fuzz
from fuzz.commands.gate import gate
from fuzz.commands.matrix import matrix
from fuzz.commands.report import report
from fuzz.commands.single import bench, replay, targets
from fuzz.commands.sweep import sweep
from fuzz.commands.triage import triage
from fuzz.database import DatabaseError
from fuzz.engines.spec import EngineError
from fuzz.events import EventsError
from fuzz.frozen import CorpusError
from fuzz.supervisor import SessionError
from fuzz.verdict import EXIT_HARNESS, EXIT_INTERRUPTED, EXIT_USAGE
from oracle.contract import InvalidCase

COMMANDS = Path(__file__).parent / "commands"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="specoracle")
def cli() -> None:
    """Test an engine's verify-and-commit code against an executable specification.

    \b
    Exit codes: 0 agreed, 1 divergence, 2 usage or set-up, 3 inconclusive,
    4 harness error, 130 interrupted.
    """


for command in (fuzz, gate, matrix, bisect, replay, sweep, targets, corpus, engines, bench, report, triage):
    cli.add_command(command)


class _Output(io.FileIO):
    """Standard output or error whose reader may go away or whose disk may be full:
    what was printed is lost, the exit code stays the run's."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def _lasting(stream: TextIO | None) -> TextIO | None:
    """The stream with a writer that cannot fail; a terminal is left as it is."""
    try:
        if stream is None or stream.isatty():
            return stream
        raw = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)


def _of_a_command(trace: TracebackType | None) -> bool:
    """True when the innermost frame, which called ``sys.exit``, is a command's own."""
    return Path(traceback.extract_tb(trace)[-1].filename).parent == COMMANDS


def main() -> None:
    """Entry point of ``specoracle``: every expected failure is one clear line."""
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)
    interrupt.listen()
    try:
        code = _command()
    except KeyboardInterrupt:  # another one, while the first was being said
        code = EXIT_INTERRUPTED
    finally:
        interrupt.deafen()
    sys.exit(code)


def _command() -> int:
    """Run the command and return its exit code."""
    try:
        return cli.main(standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EngineError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except (AdapterError, CorpusError, DatabaseError, EventsError, SessionError, InvalidCase) as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_USAGE
    except SystemExit as end:
        if not _of_a_command(end.__traceback__):  # foreign code ended the run: nothing is known, so no pass
            traceback.print_exc()
            click.echo("error: the run was ended by code that is not its own; see the lines above", err=True)
            return EXIT_HARNESS
        raise
    except (KeyboardInterrupt, Exception) as error:
        # click makes Abort of a Ctrl-C, and of an end of file, which is nobody's wish
        aborted = isinstance(error, click.exceptions.Abort) and not isinstance(error.__cause__, EOFError)
        if aborted or isinstance(error, KeyboardInterrupt) or interrupt.heard():
            click.echo("interrupted", err=True)
            return EXIT_INTERRUPTED
        traceback.print_exc()
        click.echo("error: this is a fault of specoracle itself; please report it with the lines above", err=True)
        return EXIT_HARNESS
