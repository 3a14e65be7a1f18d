"""From an engine's name to a runnable environment.

`provision` makes what is missing and returns what a worker is started with: interpreter, PYTHONPATH, environment and a
record of what is in there. Whole pieces are taken as they are, without a lock, so a warm call only counts files. The
trade: removing an engine while another process runs it breaks that process.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from fuzz.engines import bundle, imports, layers, pack, tools
from fuzz.engines.home import Home, Progress
from fuzz.engines.overlay import overlay
from fuzz.engines.spec import EngineError, EngineSpec, parse

LOCAL_DEADLINE_S = 60
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP")  # would bring in another environment's packages
SHARES = {"core": 0.45, "base": 0.25, "pins": 0.1, "overlay": 0.2}  # of a cold start, measured on 2 cores
ASK_VERSION = f"import importlib.metadata as m, sys; print({tools.FACTS!r} + m.version(sys.argv[1]))"


@dataclass(frozen=True)
class EngineInstall:
    """What a worker for `spec` is started with.

    `record` is plain data: ``engine``, ``version`` (None for a checkout), ``supported`` (a version whose modules were
    checked), ``stubs`` (for `shims.install`), ``unset`` (variables to take away) and ``layers`` (piece -> manifest).
    """

    spec: EngineSpec
    python: Path
    pythonpath: tuple[Path, ...]
    env: dict[str, str]
    record: dict

    def environment(self, parent: Mapping[str, str] = os.environ) -> dict[str, str]:
        """A child's whole environment: `parent` without ``unset``, with `env` and `pythonpath`.

        One that runs in the user's interpreter keeps the rest, also what `parent` has on PYTHONPATH: it may be needed.
        The project itself is not on it: a worker appends the project to ``sys.path``, because a site-packages folder
        that holds the project may hold other versions of the engine's packages as well.
        """
        kept = {key: value for key, value in parent.items() if key not in self.record["unset"]} | self.env
        if self.spec.own_python:
            behind = [kept["PYTHONPATH"]] if kept.get("PYTHONPATH") else []
            path = os.pathsep.join([*map(str, self.pythonpath), *behind])
            return kept | {"PYTHONPATH": path} if path else kept
        kept = {key: value for key, value in kept.items() if key not in FOREIGN}
        return kept | {"PYTHONNOUSERSITE": "1", "PYTHONPATH": os.pathsep.join(map(str, self.pythonpath))}


def provision(
    spec: EngineSpec,
    *,
    offline: bool = False,
    progress: Progress = lambda text, fraction: None,
    python: Path | None = None,
    device: str = "cpu",
    home: Path | None = None,
) -> EngineInstall:
    """Make the environment of `spec` and return it; raises `EngineError`.

    `python` is the interpreter of a ``local`` engine, is needed for one and goes with no other. A `device` other than
    ``cpu`` leaves out the settings that select Triton's interpreter. `progress` gets a stage's text and the fraction
    done, None when unknown.
    """
    if spec.local:
        return _local(spec, python, device)
    if spec.bundle is not None:
        return _bundled(spec, python, device, Home.locate(home), progress)
    if python is not None:
        raise EngineError(f"--python goes with an engine that is local; {spec} has an interpreter of its own")
    if spec.path is not None:
        _package_root(spec)  # fails now rather than after minutes of installing
    place = Home.locate(home)
    pieces = _pieces(place, spec)
    manifests = {kind: piece.whole() for kind, piece in pieces.items()}
    missing = [pieces[kind].title for kind, found in manifests.items() if found is None]
    if missing and offline:
        raise layers.missing_offline(", ".join(missing), place)
    if missing:
        with place.writing(progress):
            done = 0.0
            for kind, piece in pieces.items():
                manifests[kind] = layers.ensure(piece, place, _part(progress, done, SHARES[kind]))
                done += SHARES[kind]
        progress(f"{spec} is ready", 1.0)
    return _install(spec, pieces, manifests, device)


def installed(home: Path | None = None) -> list[EngineInstall]:
    """The whole, runnable published versions in the cache folder, oldest first. Writes nothing."""
    place = Home.locate(home)
    found = []
    for spec in _versions(place):
        pieces = _pieces(place, spec)
        manifests = {kind: piece.whole() for kind, piece in pieces.items()}
        if None not in manifests.values():
            found.append(_install(spec, pieces, manifests, "cpu"))
    return sorted(found, key=lambda each: (each.spec.name, Version(each.spec.version)))


def remove(spec: EngineSpec, *, home: Path | None = None, progress: Progress = lambda text, fraction: None) -> None:
    """Delete a version's overlay, and the shared pieces that no other version needs. Raises `EngineError`.

    What goes is decided before the first deletion. A version that is there but damaged keeps its shared pieces.
    """
    place = Home.locate(home)
    if spec.local or spec.path is not None:
        raise EngineError(f"{spec} is not in the cache folder: only published versions can be removed")
    pieces = _pieces(place, spec)
    if not os.path.isdir(pieces["overlay"].path):
        have = ", ".join(str(each.spec) for each in installed(home)) or "none"
        raise EngineError(f"{spec} is not provisioned in {place.root}; provisioned: {have}")
    with place.writing(progress):
        others = [_pieces(place, other) for other in _versions(place) if other != spec]
        needed = {piece.path for other in others for piece in other.values()}
        unneeded = [piece.path for piece in pieces.values() if piece.path not in needed]
        try:
            # The overlay, built last, goes first: what an interruption leaves is no version that lacks a piece.
            for path in reversed(unneeded):
                place.discard(path)
        except OSError as error:
            raise EngineError(
                f"{spec} cannot be removed from {place.root}: {error.strerror or error}; "
                "run the command again as a user who may write there"
            ) from error


def _versions(place: Home) -> list[EngineSpec]:
    """The versions that have a folder in `place`, whole or not. Folders of another name are none of ours."""
    found = []
    for path in place.engines.glob("*-*/"):
        name, _, version = path.name.rpartition("-")
        with contextlib.suppress(EngineError):
            spec = parse(f"{name}=={version}")
            if path.name == f"{spec.name}-{spec.version}":
                found.append(spec)
    return found


def _pieces(place: Home, spec: EngineSpec) -> dict[str, layers.Layer]:
    """Piece by kind, in the order they are built; a checkout has no overlay."""
    pins = imports.load(spec.name).pins(spec.version)
    pieces = {
        "core": layers.core(place),
        "base": layers.packages(place, "base", "packages that every engine needs"),
        "pins": layers.packages(place, pins, f"packages pinned for {pins}"),
    }
    if spec.path is None:
        below = (pieces["pins"].path, pieces["base"].path)
        pieces["overlay"] = overlay(place, spec.name, spec.version, below)
    return pieces


def _install(
    spec: EngineSpec, pieces: dict[str, layers.Layer], manifests: dict[str, dict], device: str
) -> EngineInstall:
    engine = pieces["overlay"].path if spec.path is None else _package_root(spec)
    return EngineInstall(
        spec=spec,
        python=layers.interpreter(pieces["core"].path),
        pythonpath=(engine, pieces["pins"].path, pieces["base"].path),
        env=_env(spec, device),
        record=_record(spec, spec.version, manifests),
    )


def _package_root(spec: EngineSpec) -> Path:
    for root in (spec.path / "python", spec.path):
        if os.path.isfile(root / spec.name / "__init__.py"):
            return root
    raise EngineError(f"{spec}: no package {spec.name!r} there; give the root of a source checkout of {spec.name}")


def _local(spec: EngineSpec, python: Path | None, device: str) -> EngineInstall:
    """What `python` has installed, used as it is; only a version is asked, without importing anything.

    Of a checkout, `python` has to have what it imports; torch is asked for in its place, and no pinned packages of ours
    are put between.
    """
    if python is None:
        raise EngineError(f"{spec} means what an interpreter has installed: say which one with --python PATH")
    roots = () if spec.path is None else (_package_root(spec),)
    wanted = imports.load(spec.name).distribution if spec.path is None else "torch"
    there = Path(python).absolute()  # a bare name would be looked for on PATH
    try:
        answer = tools.facts([there, "-c", ASK_VERSION, wanted], deadline_s=LOCAL_DEADLINE_S)
    except OSError as error:
        raise EngineError(f"--python {python} cannot be run: {error.strerror or error}") from None
    except tools.ToolFailed as failure:
        raise EngineError(
            f"--python {python} has no {wanted} that it can name:\n{tools.last_lines(failure.lines)}\n"
            f"install {wanted} there, or leave --python out to use a provisioned version"
        ) from None
    if answer is None:
        raise EngineError(
            f"--python {python} does not answer as Python does; give the interpreter that has {wanted}, such as "
            ".venv/bin/python, or leave --python out to use a provisioned version"
        )
    version = answer if spec.path is None else None
    return EngineInstall(spec, there, roots, _env(spec, device), _record(spec, version, {}))


def make_bundle(
    specs: list[EngineSpec], python: str, out: Path, kernels: str | None = None, *, home: Path | None = None,
    progress: Progress = lambda text, fraction: None,
) -> bundle.Bundle:  # fmt: skip
    """Provision published engines and pack them for an interpreter of another machine; see `pack.make`."""
    if wrong := [str(spec) for spec in specs if spec.local or spec.path is not None]:
        raise EngineError(f"{', '.join(wrong)} cannot be bundled: only published versions can")
    place = Home.locate(home)
    pieces = {}
    for spec in specs:
        provision(spec, progress=progress, home=home)
        found = _pieces(place, spec)
        pieces[spec] = [found[kind] for kind in ("overlay", "pins", "base")]
    return pack.make(pieces, python, out, place, kernels, progress)


def _bundled(spec: EngineSpec, python: Path | None, device: str, place: Home, progress: Progress) -> EngineInstall:
    there = Path(python or sys.executable).absolute()
    folders = bundle.install(bundle.read(spec.bundle), spec, there, place, progress)
    manifests = {name: layers.manifest(path) for name, path in folders.items()}
    return EngineInstall(
        spec, there, tuple(folders.values()), _env(spec, device), _record(spec, spec.version, manifests)
    )


def _env(spec: EngineSpec, device: str) -> dict[str, str]:
    return dict(imports.load(spec.name).env) if device == "cpu" else {}


def _record(spec: EngineSpec, version: str | None, manifests: dict[str, dict]) -> dict:
    table = imports.load(spec.name)
    return {
        "engine": spec.name,
        "version": version,
        "supported": version in table.supported,
        "stubs": table.stubs(version),
        "unset": list(table.unset),
        "layers": manifests,
    }


def _part(progress: Progress, start: float, share: float) -> Progress:
    """`progress` of one piece as a part of the whole."""

    def report(text: str, fraction: float | None) -> None:
        progress(text, None if fraction is None else start + share * fraction)

    return report
