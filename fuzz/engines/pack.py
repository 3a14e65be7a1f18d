"""Makes a bundle (see `bundle`) from the pieces of provisioned engines.

An engine's own folder is packed as it is; the packages beside it are fetched once more, for the Python of the runner,
without what has to fit its GPU. A bundle is made whole or not at all.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.engines import imports, layers, tools
from fuzz.engines.bundle import FILE, RUNNER_HAS, VERSION, Bundle, Piece, read
from fuzz.engines.home import Home, Progress
from fuzz.engines.spec import EngineError, EngineSpec

SCRATCH = ".bundle-"  # then the maker's process id: what it leaves when it is killed goes with the next one
UNUSED = (".pyc", ".a")  # byte code, and static libraries: nothing here links one, and xgrammar's has 65 MB
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (35, 34, 31, 28, 27, 24, 17, 12, 5)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]


def make(
    pieces: dict[EngineSpec, list[layers.Layer]],
    python: str,
    out: Path,
    place: Home,
    kernels: str | None = None,
    progress: Progress = lambda text, fraction: None,
) -> Bundle:
    """Write a bundle into the new folder `out`. `pieces` maps an engine to its provisioned layers, the first in
    PYTHONPATH first; `kernels` is the GPU architecture, such as ``sm90``, whose compiled kernels go in too. Raises
    `EngineError`."""
    if not re.fullmatch(r"3\.\d+", python):
        raise EngineError(f"--python-version {python}: write it like 3.12")
    if kernels is not None and not re.fullmatch(r"sm\d{2,3}[a-z]?", kernels):
        raise EngineError(f"--kernels {kernels!r}: write the architecture like sm90")
    if os.path.lexists(out):
        raise EngineError(f"--out {out} exists already: name a new folder")
    made: dict[str, Piece] = {}
    engines: dict[str, list[str]] = {}
    try:
        beside = out.absolute().parent
        beside.mkdir(parents=True, exist_ok=True)
        _sweep(beside)
        with tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{os.getpid()}-", dir=beside) as scratch:
            staging = Path(scratch) / "made"
            staging.mkdir()
            todo = [(spec, _sources(spec, each, python, place, kernels)) for spec, each in pieces.items()]
            total = sum(len(sources) for _, sources in todo)
            for spec, sources in todo:
                for source in sources:
                    progress(f"packing {source.name}", len(made) / total)
                    if source.name not in made:
                        made[source.name] = source.pack(staging, Path(scratch))
                engines[str(spec)] = [s.name for s in sources if made[s.name].sha256]
            data = {
                "bundle_version": VERSION, "python": python, "platform": "linux x86_64", "runner_has": RUNNER_HAS,
                "engines": engines,
                "pieces": {p.name: vars(p) for p in made.values() if p.sha256},
            }  # fmt: skip
            (staging / FILE).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            os.replace(staging, out)
    except OSError as error:
        raise EngineError(f"--out {out} cannot be written: {error.strerror or error}") from error
    return read(out)


def _sweep(folder: Path) -> None:
    """Delete what makers of bundles left that were killed."""
    for scratch in folder.glob(f"{SCRATCH}*-*"):
        if not os.path.exists(f"/proc/{scratch.name.removeprefix(SCRATCH).partition('-')[0]}"):
            shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True)
class _Source:
    """A piece to be packed: ``fill`` makes its folder from an empty one, or names one that is there."""

    name: str
    fill: Callable[[Path], Path]
    optional: bool = False
    torch: str | None = None

    def pack(self, staging: Path, scratch: Path) -> Piece:
        folder = scratch / self.name
        folder.mkdir()
        file = staging / f"{self.name}.tar.xz"
        count = packed(self.fill(folder), file)
        shutil.rmtree(folder)
        if not count:  # a lock may name nothing that the runner lacks
            file.unlink()
            return Piece(self.name, file.name, "")
        return Piece(self.name, file.name, layers.sha256(file), self.optional, self.torch)


def _sources(
    spec: EngineSpec, parts: list[layers.Layer], python: str, place: Home, kernels: str | None
) -> list[_Source]:
    """The engine's own folder as it is, then the packages beside it, fetched for the runner's Python."""
    engine, *packages = parts
    table = imports.load(spec.name)
    made = [_Source(f"{spec.name}-{spec.version}", lambda _: engine.path)]
    for row in table.kernels(spec.version) if kernels is not None else ():
        name = f"{row['distribution']}-{row['version']}-{kernels}"
        made.append(_Source(name, _wheel(row, python, place, kernels), optional=True, torch=row.get("torch")))
    return made + [
        _Source(each.facts["lock"].removesuffix(".txt"), _packages(each, python, place)) for each in packages
    ]


def _packages(layer: layers.Layer, python: str, place: Home) -> Callable[[Path], Path]:
    def fill(folder: Path) -> Path:
        lines = (imports.LOCKS / layer.facts["lock"]).read_text(encoding="utf-8").splitlines()
        wanted = [line for line in lines if line.partition("==")[0] not in RUNNER_HAS and not line.startswith("#")]
        lock = folder.with_suffix(".lock")
        lock.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        _pip(place, python, [*layers.INSTALL, "--target", folder, "-r", lock], layer.title)
        shutil.rmtree(folder / "bin", ignore_errors=True)
        return folder

    return fill


def _wheel(row: dict, python: str, place: Home, architecture: str) -> Callable[[Path], Path]:
    """The members of a published wheel that its row keeps."""

    def fill(folder: Path) -> Path:
        fetched = folder.with_suffix(".wheel")
        package = f"{row['distribution']}=={row['version']}"
        _pip(place, python, [*layers.DOWNLOAD, "--dest", fetched, package], package)
        with zipfile.ZipFile(next(fetched.glob("*.whl"))) as archive:
            for pattern in row["keep"]:
                names = fnmatch.filter(archive.namelist(), pattern.format(architecture=architecture))
                if not names:
                    raise EngineError(f"{package} has no {pattern.format(architecture=architecture)}")
                archive.extractall(folder, names)
        shutil.rmtree(fetched)
        return folder

    return fill


def _pip(place: Home, python: str, arguments: list, title: str) -> None:
    target = [part for platform in PLATFORMS for part in ("--platform", platform)]
    target += ["--python-version", python, "--implementation", "cp"]
    try:
        layers.pip(place, [*arguments, *layers.WHEELS_ALONE, *target], lambda line: None)
    except tools.ToolFailed as failure:
        raise tools.explain(failure, f"{title} for Python {python}", place.root) from None


def packed(folder: Path, file: Path) -> int:
    """Pack a folder, the same bytes for the same files, without what is UNUSED and our own manifest; returns how
    many files there are."""
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in UNUSED and path.name != layers.MANIFEST
    )
    with tarfile.open(file, "w:xz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = (folder / name).stat().st_size
            with (folder / name).open("rb") as stream:
                archive.addfile(member, stream)
    return len(names)
