"""Options that several commands share, and the checks behind them."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fuzz.adapter import Adapter, select
from fuzz.corpus import DEFAULT_CORPUS
from fuzz.engines.bundle import read as read_bundle
from fuzz.engines.imports import ENGINES
from fuzz.engines.spec import EngineSpec, parse
from fuzz.events import FILE as EVENTS_FILE
from fuzz.sanitize import NoSanitizer, program
from fuzz.sanitizer_log import TOOLS
from fuzz.shard import Shard

UNITS_S = {"s": 1, "m": 60, "h": 3600}


class Duration(click.ParamType):
    """A time such as ``60s``, ``30m`` or ``2h``, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", value)
        if not match or float(match[1]) == 0:
            self.fail(f"{value!r} is not a time above zero like 60s, 30m or 2h", param, ctx)
        return float(match[1]) * UNITS_S[match[2]]


class ShardParam(click.ParamType):
    """A part such as ``2/4``."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        if isinstance(value, Shard):
            return value
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            self.fail(f"{value!r} is no part like 1/4, 2/4 ... 4/4", param, ctx)
        return Shard(int(match[1]), int(match[2]))


def check_device(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d{1,4})?", value):
        raise click.BadParameter(f"{value!r} is not cpu, cuda or cuda:N")
    return "cuda:0" if value == "cuda" else value


def check_devices(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """``cuda:0,1`` as the devices that it names."""
    if not re.fullmatch(r"cuda:\d{1,4}(,\d{1,4})+", value):
        return (check_device(ctx, param, value),)
    numbers = value.removeprefix("cuda:").split(",")
    devices = tuple(f"cuda:{int(n)}" for n in numbers)
    if len(set(devices)) < len(devices):
        raise click.BadParameter(f"{value!r} names a device twice")
    return devices


one_device = click.option("--device", default="cpu", callback=check_device, help="cpu, cuda or cuda:N.  [default: cpu]")
several_devices = click.option(
    "--device", "devices", default="cpu", callback=check_devices,
    help="cpu, cuda, cuda:N or, for several at once, cuda:N,M.  [default: cpu]",
)  # fmt: skip


def check_sanitize(tool: str | None, devices: Sequence[str]) -> None:
    """A tool that watches kernels needs a GPU, and itself."""
    if tool is None:
        return
    if len(devices) > 1:
        raise click.UsageError(f"--sanitize {tool} runs on one device; name one")
    if devices[0] == "cpu":
        raise click.UsageError(f"--sanitize {tool} watches kernels on a GPU; add --device cuda")
    try:
        program()
    except NoSanitizer as error:
        raise click.UsageError(f"--sanitize {tool}: {error}") from None


SPEC_HELP = "NAME, NAME==VERSION, NAME==local (with --python) or NAME@CHECKOUT"
one_engine = click.option(
    "--engine", "engine", default="sglang", show_default=True, metavar="SPEC", help=f"{SPEC_HELP}."
)
several_engines = click.option(
    "--engine", "engines", multiple=True, default=("sglang",), metavar="SPEC",
    help=f"{SPEC_HELP}; repeatable.  [default: sglang]",
)  # fmt: skip


def engine_options(
    function: Callable, engine: Callable = one_engine, python: bool = True, device: Callable = one_device
) -> Callable:
    """``--engine``, ``--target``, ``--contract``, ``--device``, ``--python``, ``--bundle``, ``--offline``."""
    interpreter = click.option(
        "--python", type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Interpreter that has torch and the engine.",
    )  # fmt: skip
    bundle = click.option(
        "--bundle", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
        help="Folder made by `engines bundle`, to run without a network.",
    )  # fmt: skip
    for option in reversed(
        (
            engine,
            click.option("--target", default="*", metavar="GLOB", help="Only targets whose id matches."),
            click.option("--contract", default="*", metavar="GLOB", help="Only contracts whose name matches."),
            device,
            *([interpreter, bundle] if python else []),
            click.option("--offline", is_flag=True, help="Never provision what is missing."),
        )
    ):  # fmt: skip
        function = option(function)
    return function


corpus_option = click.option(
    "--corpus", default=DEFAULT_CORPUS, type=click.Path(path_type=Path), metavar="DIR",
    help="Folder of frozen cases.  [default: the shipped one]",
)  # fmt: skip
out_option = click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Where the run is written."
)
sanitize_option = click.option(
    "--sanitize", type=click.Choice(TOOLS), metavar="TOOL",
    help=f"Under compute-sanitizer: {', '.join(TOOLS[:-1])} or {TOOLS[-1]}.",
)  # fmt: skip
seed_option = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the run.")


def read_engine(text: str, python: Path | None, bundle: Path | None = None) -> EngineSpec:
    """The engine that ``--engine`` names, out of ``--bundle`` where one is given. Raises EngineError."""
    if bundle is not None:
        return replace(read_bundle(bundle).spec(text), bundle=bundle)
    return parse(text, has_python=python is not None)


def read_sides(
    engine: str, against: str, python: Path | None, bundle: Path | None = None
) -> tuple[EngineSpec, EngineSpec | None]:
    """The engines of a comparison; the second is ``None`` when ``--against`` is a
    pattern of targets. ``--python`` goes to the sides that are local."""
    texts = [engine, against] if "==" in against or "@" in against or against in ENGINES else [engine]
    specs = [read_engine(t, python if bundle or not re.search(r"==\s*\d", t) else None, bundle) for t in texts]
    if len(specs) == 2 and specs[0] == specs[1]:
        raise click.UsageError(f"--engine and --against both name {specs[0]}")
    if python is not None and not any(spec.own_python for spec in specs):
        raise click.UsageError(f"--python goes with NAME==local or NAME@CHECKOUT; {' and '.join(texts)} are neither")
    return specs[0], specs[1] if len(specs) == 2 else None


def read_targets(engine: str, target: str, contract: str) -> list[Adapter]:
    """Adapters that the globs select; nothing selected is a usage error."""
    found = select(engine, target, contract)
    if not found:
        raise click.UsageError(
            f"no target of {engine} matches --target {target!r} and --contract {contract!r}; "
            f"see `specoracle targets --engine {engine}`"
        )
    return found


def fresh_folder(out: Path | None, what: str) -> Path:
    """The folder of a new run, not made yet. One that already holds a run is
    refused, so that nothing written before is lost."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = out or Path("out") / f"{what}-{stamp}-{os.getpid()}"
    if out is not None and out.name in ("", ".."):
        raise click.UsageError(f"--out {out} is no folder of a run's own; name one, such as out/first")
    try:
        if (folder / EVENTS_FILE).exists():
            raise click.UsageError(f"--out {folder} already holds a run; name another folder or move that one away")
        existing = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
        writable = existing.is_dir() and os.access(existing, os.W_OK)
    except OSError as error:
        raise click.UsageError(f"--out {folder} cannot be used: {error.strerror}") from None
    if not writable:
        raise click.UsageError(f"--out {folder} cannot be written: {existing} is no folder that you may write to")
    return folder


def read_engines(texts: Iterable[str], python: Path | None, bundle: Path | None = None) -> list[EngineSpec]:
    """The engines that ``--engine`` names, each once. Raises EngineError."""
    specs = [read_engine(text, python, bundle) for text in texts]
    for spec in specs:
        if specs.count(spec) > 1:
            raise click.UsageError(f"--engine {spec} is named twice")
    return specs


def engine_words(spec: EngineSpec, device: str, python: Path | None) -> str:
    """The options that select this engine again, for a printed command."""
    return f"--engine {spec} {where_words(spec, device, python)}".rstrip()


def where_words(spec: EngineSpec, device: str, python: Path | None) -> str:
    """Those of them that say where it comes from and runs."""
    words = ["--bundle", str(spec.bundle)] if spec.bundle else []
    words += ["--python", str(python)] if python else []
    return shlex.join(words + (["--device", device] if device != "cpu" else []))
