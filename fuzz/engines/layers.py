"""The pieces of an environment, each built whole or not at all.

``core``  an interpreter with torch                              one for all engines
``base``  what every engine imports                              one for all engines
``pins``  packages whose version a family of releases dictates   one per family
overlay   one published wheel (see `overlay`)                    one per version

A piece is a folder whose name carries the digest of its lock, with a manifest written last; a folder whose manifest is
missing, or counts more files than are there, is rebuilt. An interrupted provisioning therefore repeats one piece only.
The pieces are joined by PYTHONPATH alone, so torch lies on the disk once and a version costs little.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.engines import imports, tools
from fuzz.engines.home import Home, Progress, disk_full
from fuzz.engines.spec import EXIT_INCONCLUSIVE, EngineError

MANIFEST = "specoracle-manifest.json"
MANIFEST_VERSION = 1
PIP_DEADLINE_S = 1800  # torch is 200 MB to 3 GB, depending on the build that the platform gets
VENV_DEADLINE_S = 180
CORE_BYTES = 2_000_000_000  # a CPU torch takes 0.9 GB and as much again while it is unpacked
# Which build an index has is known only once pip names the first part of a CUDA one, which it does before it fetches
# most of them. An estimate: their wheels lie beside what is unpacked from them, about 3 and 5 GB.
CUDA_CORE_BYTES = 8_000_000_000
CUDA_PART = re.compile(r"(Collecting|Processing) (\S*/)?nvidia[-_]")
PACKAGES_BYTES = 1_500_000_000
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
# Compiling everything costs more than the first import, which compiles only what it reaches and keeps it.
WHEELS_ALONE = ("--no-deps", "--only-binary", ":all:")
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV")
DOWNLOAD = ("download", "--retries", "2", "--progress-bar", "off")
INSTALL = ("install", "--no-compile", "--no-warn-script-location", "--retries", "2", "--progress-bar", "off")


@dataclass(frozen=True)
class Layer:
    """A piece at `path`; `build` fills an empty folder and returns facts for the manifest.

    `facts` are those known before: a manifest with other ones belongs to something else, so the piece is not there.
    `probe`, relative to `path`, must exist as well: the core's interpreter is a link to one that may be gone.
    """

    title: str
    path: Path
    size_bytes: int
    build: Callable[[Path, Progress], dict]
    facts: dict = field(default_factory=dict)
    probe: str = MANIFEST

    def whole(self) -> dict | None:
        """The manifest if the piece is usable, else None."""
        found = manifest(self.path)
        if found is None or not self.facts.items() <= found.items() or not os.path.exists(self.path / self.probe):
            return None
        return found


def manifest(path: Path) -> dict | None:
    """The manifest of a whole piece, else None (absent, half-written, damaged, files lost, or of another layout).

    More files than were counted are no damage: some engines write beside their modules.
    """
    try:
        data = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict) or data.get("manifest_version") != MANIFEST_VERSION:
        return None
    files = data.get("files")
    if data.get("name") != path.name or type(files) is not int or count_files(path) < files:
        return None
    return data


def ensure(layer: Layer, home: Home, progress: Progress) -> dict:
    """Build `layer` unless it is whole; returns its manifest. The caller is the writer (`Home.writing`)."""
    if (found := layer.whole()) is not None:
        return found
    home.need(layer.size_bytes, layer.title)
    progress(layer.title, 0.0)
    staging = home.scrap(layer.path)
    try:
        staging.mkdir()
        facts = layer.facts | layer.build(staging, progress)
        data = {"manifest_version": MANIFEST_VERSION, "name": layer.path.name, "files": count_files(staging), **facts}
        (staging / MANIFEST).write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        home.put(staging, layer.path)
    except tools.ToolFailed as failure:
        raise tools.explain(failure, layer.title, home.root) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(home.root, f"{layer.title} stopped") from None
        raise EngineError(f"{layer.title} failed: {error}; check the cache folder {home.root}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    progress(layer.title, 1.0)
    return data


def missing_offline(title: str, home: Home) -> EngineError:
    return EngineError(
        f"--offline, but this is not in {home.root}: {title}. Run the command once without --offline, "
        "or point SPECORACLE_HOME at a folder where it was provisioned",
        exit_code=EXIT_INCONCLUSIVE,
    )


def core(home: Home) -> Layer:
    lock = imports.LOCKS / "core.txt"

    def build(staging: Path, progress: Progress) -> dict:
        tools.run([sys.executable, "-m", "venv", staging], deadline_s=VENV_DEADLINE_S)
        on_line = _steps(lock, progress, "torch")
        cuda = False

        def watch(line: str) -> None:
            nonlocal cuda
            if not cuda and CUDA_PART.match(line):
                cuda = True  # asked once: at a later part, the wheels of earlier ones take some of that room already
                home.need(CUDA_CORE_BYTES, "a torch that is built for CUDA")
            on_line(line)

        pip(home, [*INSTALL, "-r", lock], watch, python=interpreter(staging))
        return {}

    path = home.layers / f"core-{_digest(lock)}"
    return Layer(
        "Python environment with torch", path, CORE_BYTES, build, {"lock": lock.name}, str(interpreter(Path()))
    )


def packages(home: Home, lock_name: str, title: str) -> Layer:
    """A folder of packages installed from the lock, without dependencies."""
    lock = imports.LOCKS / f"{lock_name}.txt"

    def build(staging: Path, progress: Progress) -> dict:
        pip(home, [*INSTALL, *WHEELS_ALONE, "--target", staging, "-r", lock], _steps(lock, progress, title))
        shutil.rmtree(staging / "bin", ignore_errors=True)
        return {}

    return Layer(title, home.layers / f"{lock_name}-{_digest(lock)}", PACKAGES_BYTES, build, {"lock": lock.name})


def interpreter(core_path: Path) -> Path:
    return core_path / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def count_files(path: Path) -> int:
    """Files of a piece without byte code, which importing adds, and without the manifest itself."""
    found = (name for _folder, _folders, files in os.walk(path) for name in files)
    return sum(not name.endswith(".pyc") and name != MANIFEST for name in found)


def pip(home: Home, arguments: list, on_line: Callable[[str], None], python: Path | None = None) -> None:
    """Run pip of the core (or of `python`). Raises `tools.ToolFailed`."""
    # pip unpacks into its temporary folder and moves from there: beside the target that is a rename, and a small /tmp
    # is spared.
    scratch = home.scrap(home.layers / "pip")
    scratch.mkdir()
    env = {key: value for key, value in os.environ.items() if key not in FOREIGN}
    env |= {"TMPDIR": str(scratch), "PYTHONNOUSERSITE": "1"}
    try:
        command = [python or interpreter(core(home).path), *PIP, *arguments]
        tools.run(command, deadline_s=PIP_DEADLINE_S, on_line=on_line, env=env)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _steps(lock: Path, progress: Progress, title: str) -> Callable[[str], None]:
    """Turn pip's lines into progress: a share for each package collected, the rest for installing."""
    total = sum("==" in line and not line.startswith("#") for line in lock.read_text(encoding="utf-8").splitlines())
    seen = 0

    def on_line(line: str) -> None:
        nonlocal seen
        if line.startswith(("Collecting ", "Requirement already")):
            seen += 1
            progress(f"{title}: {line.split()[1]}", min(0.6, 0.6 * seen / max(total, 1)))
        elif line.startswith("Installing collected"):
            progress(f"{title}: installing", 0.7)

    return on_line


def _digest(lock: Path) -> str:
    return sha256(lock)[:10]


def sha256(file: Path) -> str:
    """Of a file's bytes."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
