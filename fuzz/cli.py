"""The command line. It validates, wires the parts together, prints, and turns
results into exit codes; it decides nothing about verify and commit."""

from __future__ import annotations

import sys
import traceback

import click

from fuzz.commands import corpus as corpus_commands
from fuzz.commands import engines as engine_commands
from fuzz.commands import running
from fuzz.engines.spec import EngineError
from fuzz.frozen import CorpusError
from fuzz.supervisor import SessionError
from fuzz.verdict import EXIT_HARNESS, EXIT_INTERRUPTED, EXIT_USAGE
from oracle.contract import InvalidCase


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="specoracle")
def cli() -> None:
    """Test an engine's verify-and-commit code against an executable specification.

    \b
    Exit codes: 0 agreed, 1 divergence, 2 usage or set-up, 3 inconclusive,
    4 harness error, 130 interrupted.
    """


for command in (engine_commands.engines, corpus_commands.corpus, *running.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Entry point of ``specoracle``: every expected failure is one clear line."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = EXIT_INTERRUPTED
    except KeyboardInterrupt:
        click.echo("interrupted; what was found so far is written", err=True)
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except EngineError as error:
        click.echo(f"error: {error}", err=True)
        code = error.exit_code
    except (CorpusError, SessionError, InvalidCase) as error:
        click.echo(f"error: {error}", err=True)
        code = EXIT_USAGE
    except Exception:
        traceback.print_exc()
        click.echo("error: this is a fault of specoracle itself; please report it with the lines above", err=True)
        code = EXIT_HARNESS
    sys.exit(code or 0)
