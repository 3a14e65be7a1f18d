"""``specoracle engines``: what is provisioned, and how to add and remove."""

from __future__ import annotations

from pathlib import Path

import click

from fuzz.engines.provision import installed, make_bundle, provision, remove
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


@engines.command("bundle")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option("--python-version", default="3.12", show_default=True, help="Of the interpreter that will run it.")
@click.option("--kernels", metavar="ARCH", help="Compiled kernels for this GPU too, such as sm90.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="A new folder.")
def bundle(specs: tuple[str, ...], python_version: str, kernels: str | None, out: Path) -> None:
    """Pack each SPEC for a machine without a network.

    There, an interpreter that has torch, torchvision, triton and NumPy runs it: give a
    run --bundle DIR and --python PATH. For Linux on x86-64.
    """
    with Display("bundle") as display:
        made = make_bundle(
            [parse(s) for s in specs], python_version, out, kernels,
            progress=lambda text, done: display.show(text, done, stage=True),
        )  # fmt: skip
    for piece in {p.file: p for pieces in made.engines.values() for p in pieces}.values():
        click.echo(f"{(out / piece.file).stat().st_size / 1e6:6.1f} MB  {piece.file}{'  optional' * piece.optional}")
    click.echo(f"{out} is ready")


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
