"""A folder from which an interpreter that has torch runs an engine, without a network.

It holds the pieces of provisioned engines (see `layers`), each as one archive, with the packages for the Python of the
runner, and a manifest with their hashes. Left out is what has to fit the runner's GPU: torch, and the torchvision,
triton and NumPy that fit it. Compiled kernels are pieces that may be taken away. `pack` makes one.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fuzz.engines import layers, tools
from fuzz.engines.home import Home, Progress
from fuzz.engines.spec import EngineError, EngineSpec, parse

FILE = "manifest.json"
VERSION = 1
RUNNER_HAS = ("torch", "torchvision", "triton", "numpy")
ASK_DEADLINE_S = 120  # it imports nothing, but a machine that just started reads its disk slowly
ASK = f"""
import importlib.metadata as m, json, sys
have = {{}}
for name in sys.argv[1:]:
    try: have[name] = m.version(name)
    except m.PackageNotFoundError: pass
print({tools.FACTS!r} + json.dumps([".".join(map(str, sys.version_info[:2])), have]))
"""


@dataclass(frozen=True)
class Piece:
    """One archive: ``file`` in the bundle's folder, with its ``sha256``; an ``optional`` one may be missing there."""

    name: str
    file: str
    sha256: str
    optional: bool = False
    torch: str | None = None  # the release that compiled code in it was built for

    @property
    def folder(self) -> str:
        return f"bundled-{self.name}-{self.sha256[:10]}"


@dataclass(frozen=True)
class Bundle:
    """What a manifest says: the Python it is for, and the pieces of each engine in the order of PYTHONPATH."""

    path: Path
    python: str
    engines: dict[str, tuple[Piece, ...]]

    def spec(self, text: str) -> EngineSpec:
        """The engine meant by ``--engine``; a bare name is the one version that is in here. Raises `EngineError`."""
        asked = "".join(text.split())
        named = [spec for spec in self.engines if asked in (spec, spec.partition("==")[0])]
        if len(named) != 1:
            raise EngineError(
                f"{text} names {len(named) or 'none'} of what --bundle {self.path} has: {', '.join(self.engines)}"
            )
        return parse(named[0])


def read(path: Path) -> Bundle:
    """The bundle in a folder. Raises `EngineError` where none is, or one of another layout."""
    try:
        data = json.loads((path / FILE).read_text(encoding="utf-8"))
        if data["bundle_version"] != VERSION:
            raise EngineError(f"--bundle {path} has another layout ({data['bundle_version']}): make it again")
        known = {name: Piece(**values) for name, values in data["pieces"].items()}
        for piece in known.values():
            if not re.fullmatch(r"[\w.-]+", piece.name + piece.file) or not re.fullmatch("[0-9a-f]{64}", piece.sha256):
                raise ValueError(f"{piece.file} with {piece.sha256}")
            if type(piece.optional) is not bool or not isinstance(piece.torch, str | None):
                raise ValueError(f"{piece.file} is optional: {piece.optional}, for torch {piece.torch}")
        engines = {str(parse(spec)): tuple(known[name] for name in names) for spec, names in data["engines"].items()}
        if not isinstance(data["python"], str) or not all(engines.values()):
            raise ValueError(f"Python {data['python']!r}, {engines}")
        return Bundle(path, data["python"], engines)
    except OSError as error:
        raise EngineError(
            f"--bundle {path}: no {FILE} there ({error.strerror}); `specoracle engines bundle` makes one"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise EngineError(f"--bundle {path}: {FILE} is damaged ({type(error).__name__}: {error})") from None


def install(bundle: Bundle, spec: EngineSpec, python: Path, place: Home, progress: Progress) -> dict[str, Path]:
    """Check `python`, unpack what is not unpacked yet, and return piece -> folder in the order of PYTHONPATH. Raises
    `EngineError`."""
    version, have = _ask(python)
    if version != bundle.python:
        raise EngineError(f"--bundle {bundle.path} is for Python {bundle.python}, --python {python} is {version}")
    if lacking := [name for name in RUNNER_HAS if name not in have]:
        raise EngineError(f"--python {python} has no {', '.join(lacking)}; a bundle brings everything but these")
    folders = {}
    for piece in bundle.engines[str(spec)]:
        if piece.optional and not (bundle.path / piece.file).exists():
            progress(f"{piece.file} is not in the bundle: kernels in it are not run", None)
        elif piece.torch and not have["torch"].startswith(f"{piece.torch}."):
            progress(f"{piece.file} was built for torch {piece.torch}, not for {have['torch']}: it is left out", None)
        else:
            folders[piece.name] = _unpacked(bundle, piece, place, progress)
    return folders


def _unpacked(bundle: Bundle, piece: Piece, place: Home, progress: Progress) -> Path:
    archive = bundle.path / piece.file

    def build(staging: Path, progress: Progress) -> dict:
        try:
            if layers.sha256(archive) != piece.sha256:
                raise EngineError(f"{archive} is not what the manifest says: copy the bundle again")
            _unpack(archive, staging)
        except (FileNotFoundError, PermissionError) as error:
            raise EngineError(f"{archive} cannot be read: {error.strerror}") from None
        except (tarfile.TarError, lzma.LZMAError, EOFError, IsADirectoryError, NotADirectoryError) as error:
            raise EngineError(f"{archive} cannot be unpacked: {error}; copy or make the bundle again") from None
        return {"sha256": piece.sha256}

    layer = layers.Layer(f"{piece.name} of the bundle", place.layers / piece.folder, 500_000_000, build)
    if layer.whole() is None:
        with place.writing(progress):
            layers.ensure(layer, place, progress)
    return layer.path


def _ask(python: Path) -> tuple[str, dict[str, str]]:
    """Its Python version, and which of `RUNNER_HAS` it has."""
    try:
        version, have = json.loads(tools.facts([python, "-c", ASK, *RUNNER_HAS], deadline_s=ASK_DEADLINE_S))
        return str(version), {str(name): str(found) for name, found in have.items()}
    except tools.ToolFailed as failure:
        how = f"ended: {failure}" if failure.returncode is not None else f"is silent for {ASK_DEADLINE_S} s"
        raise EngineError(f"--python {python} {how}") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise EngineError(f"--python {python} does not answer as Python does ({why})") from None


def _unpack(archive: Path, into: Path) -> None:
    """Plain files below `into` and nothing else, also where this Python has no filter for it. Raises `EngineError`."""
    with tarfile.open(archive, "r:xz") as file:
        members = file.getmembers()
        for member in members:
            name = PurePosixPath(member.name)
            if not member.isreg() or name.is_absolute() or ".." in name.parts:
                raise EngineError(
                    f"{archive} holds {member.name!r}, which is no plain file of its own: nothing is unpacked"
                )
        file.extractall(into, members, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
