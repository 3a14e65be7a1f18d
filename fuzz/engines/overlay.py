"""The thin overlay of one engine version: its published wheel, minus what verification never imports.

The wheel is downloaded and unpacked here instead of installed, because dropping servers, image generation and tests
saves half of the disk. Before the overlay counts as installed it is imported once, in the environment it will run in:
one that cannot import its engine is reported now, with the import's own last line, and not as a finding later.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
import zipfile
from pathlib import Path

from fuzz.engines import imports, layers, tools
from fuzz.engines.home import Home, Progress
from fuzz.engines.spec import EngineError

SMOKE_DEADLINE_S = 600  # an import takes 10 s, and a minute on a busy machine that has no byte code yet
PROJECT = Path(__file__).resolve().parents[2]
SMOKE = f"""
import importlib, json, platform, sys
stubs, module, project = json.loads(sys.argv[1])
sys.path.append(project)  # last: other packages in a site-packages folder of ours must not shadow the engine's
from fuzz.engines import shims
shims.install(stubs)
import torch, triton
importlib.import_module(module)
facts = {{"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}}
print({tools.FACTS!r} + json.dumps(facts))
"""


def overlay(home: Home, name: str, version: str, below: tuple[Path, ...]) -> layers.Layer:
    """The piece of ``name==version``; `below` are the folders that stand behind it on PYTHONPATH."""
    table = imports.load(name)
    title = f"{name} {version}"

    def build(staging: Path, progress: Progress) -> dict:
        progress(f"{title}: downloading", 0.0)
        fetched = staging / ".wheel"
        fetch = [*layers.DOWNLOAD, *layers.WHEELS_ALONE, "--dest", fetched, f"{table.distribution}=={version}"]
        layers.pip(home, fetch, lambda line: None)
        wheel = next(fetched.glob("*.whl"))
        progress(f"{title}: unpacking", 0.3)
        digest = layers.sha256(wheel)
        unpack(wheel, staging, table.drop)
        shutil.rmtree(fetched)
        progress(f"{title}: importing once", 0.5)
        facts = smoke(home, name, version, (staging, *below))
        return {"wheel": wheel.name, "wheel_sha256": digest, **facts}

    known = {"engine": name, "version": version}
    return layers.Layer(title, home.engines / f"{name}-{version}", table.overlay_bytes, build, known)


def unpack(wheel: Path, into: Path, drop: tuple[str, ...]) -> None:
    """Extract a wheel except the members that match a pattern of `drop`."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if not any(fnmatch.fnmatchcase(member, pattern) for pattern in drop):
                archive.extract(member, into)


def smoke(home: Home, name: str, version: str, pythonpath: tuple[Path, ...]) -> dict:
    """Import the engine's smoke module in a child; returns the versions found there. Raises `EngineError`."""
    table = imports.load(name)
    env = {key: value for key, value in os.environ.items() if key not in (*table.unset, "PYTHONHOME")} | table.env
    env |= {"PYTHONPATH": os.pathsep.join(map(str, pythonpath)), "PYTHONNOUSERSITE": "1"}
    argument = json.dumps([table.stubs(version), table.smoke, str(PROJECT)])
    python = layers.interpreter(layers.core(home).path)
    try:
        return json.loads(tools.facts([python, "-c", SMOKE, argument], deadline_s=SMOKE_DEADLINE_S, env=env))
    except tools.ToolFailed as failure:
        if tools.NO_ROOM.search("\n".join(failure.lines)):
            raise
        raise EngineError(
            f"{name} {version} was unpacked but does not import here (nothing was left installed):\n"
            f"{tools.last_lines(failure.lines)}\n"
            f"versions known to import: {', '.join(table.supported)}"
        ) from None
