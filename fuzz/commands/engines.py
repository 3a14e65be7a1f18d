"""``specoracle engines``: what is provisioned, and how to add and remove."""

from __future__ import annotations

import click

from fuzz.engines.provision import installed, provision, remove
from fuzz.engines.spec import parse
from fuzz.progress import Display


@click.group()
def engines() -> None:
    """Provision published engines into the cache folder (SPECORACLE_HOME)."""


@engines.command("add")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option("--offline", is_flag=True, help="Only say whether it is there.")
def add(specs: tuple[str, ...], offline: bool) -> None:
    """Provision each SPEC, such as sglang==0.5.18."""
    for spec in [parse(s) for s in specs]:
        with Display(str(spec)) as display:
            provision(spec, offline=offline, progress=lambda text, done: display.show(text, done, stage=True))
        click.echo(f"{spec} is ready")


@engines.command("list")
def list_() -> None:
    """Show what is provisioned."""
    found = installed()
    if not found:
        click.echo("no engine is provisioned yet; `specoracle engines add sglang==VERSION` does it")
    for each in found:
        layers = ", ".join(sorted({p.name for p in each.pythonpath}))
        click.echo(f"{each.spec}  {layers}")


@engines.command("remove")
@click.argument("spec", metavar="SPEC")
def remove_(spec: str) -> None:
    """Delete a provisioned engine."""
    remove(parse(spec))
    click.echo(f"{spec} is removed")
