"""pip and Python as provisioning calls them, played without a network, and what its tests share."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import pytest

from fuzz.engines import home, layers, tools
from fuzz.engines.provision import provision
from fuzz.engines.spec import EngineError, EngineSpec

FACTS = {"python": "3.11.0", "torch": "2.13.0", "triton": "3.7.1"}
NO_NETWORK = [
    "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...)': /torch/",
    "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)",
]


class Tools:
    """Stands in for `tools.run`: writes what pip and Python would write, and fails at a step when told to."""

    def __init__(self, log: Path | None = None, pause_s: float = 0.0):
        self.steps: list[str] = []
        self.commands: list[list[str]] = []
        self.fail: dict[str, BaseException] = {}
        self.log, self.pause_s = log, pause_s

    def __call__(self, command, *, deadline_s, on_line=lambda line: None, env=None):
        words = [str(word) for word in command]
        step = self.step(words)
        self.steps.append(step)
        self.commands.append(words)
        if self.log:
            with self.log.open("a") as stream:
                stream.write(step + "\n")
        getattr(self, "do_" + step.split(":")[0])(words)
        time.sleep(self.pause_s)
        if step in self.fail:
            raise self.fail[step]
        return [tools.FACTS + json.dumps(FACTS)]

    @staticmethod
    def step(words: list[str]) -> str:
        if "venv" in words:
            return "venv"
        if "-c" in words:
            return "import"
        if "download" in words:
            return "download:" + words[-1]
        return "install:" + Path(words[-1]).stem

    def do_venv(self, words):
        write(layers.interpreter(Path(words[-1])))

    def do_install(self, words):
        if "--target" in words:
            write(Path(words[words.index("--target") + 1]) / "package" / "__init__.py")
            write(Path(words[words.index("--target") + 1]) / "package" / "__pycache__" / "__init__.pyc")

    def do_download(self, words):
        into = Path(words[words.index("--dest") + 1])
        into.mkdir()
        package = words[-1].partition("==")[0].partition("-")[0]
        with zipfile.ZipFile(into / f"{package}-0-py3-none-any.whl", "w") as wheel:
            for member in ("__init__.py", "srt/spec.py", "test/big.py", "srt/grpc/_core.so"):
                wheel.writestr(f"{package}/{member}", "x = 1\n")

    def do_import(self, words):
        pass


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")


@pytest.fixture
def fake(monkeypatch, tmp_path) -> Tools:
    monkeypatch.setenv("SPECORACLE_HOME", str(tmp_path / "home"))
    player = Tools()
    monkeypatch.setattr(tools, "run", player)
    return player


@pytest.fixture
def place(fake) -> home.Home:
    return home.Home.locate()


SPEC = EngineSpec("sglang", version="0.5.18")
COLD = ["venv", "install:core", "install:base", "install:sglang-to-0.5.20", "download:sglang==0.5.18", "import"]


def failing(lines, returncode=1):
    return tools.ToolFailed(returncode, lines)


def left_over(place: home.Home) -> list[str]:
    return [path.name for folder in (place.layers, place.engines) for path in folder.glob(".*")]


def error_of(spec=SPEC, **options) -> EngineError:
    with pytest.raises(EngineError) as caught:
        provision(spec, **options)
    return caught.value
