"""Two engines without torch whose releases differ on purpose.

``history`` is an engine with releases 1.0 to 1.9: right until 1.3, then a checkpoint is
missing on grid 256 until 1.7. Release 1.5 does not have the target. ``other`` is a
second engine, for what several engines say about one case.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from fuzz import adapter as adapters
from fuzz.adapter import Unsupported, adapter
from fuzz.engines.spec import EngineError, EngineSpec
from fuzz.supervisor import PROJECT_ROOT, Launch
from tests.fake_engine import functional_chain, right

ADAPTER_MODULES = ("tests.fake_releases",)
TARGET = "history/worker/commit.checkpoint_steps/commit"
FIRST_BAD, ABSENT, FIRST_FIXED = "1.3", "1.5", "1.7"
RELEASES = [f"1.{minor}" for minor in range(10)]

adapters.BUILT_IN["history"] = adapters.BUILT_IN["other"] = "tests.fake_releases"


def launch(engine: str, version: str) -> Launch:
    """How a release of one of the two engines is started: in this interpreter."""
    env = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    targets = tuple(adapters.load(engine))
    return Launch(engine, version, sys.executable, env, {}, ADAPTER_MODULES, targets, torch=False)


def parse(text: str, *, has_python: bool = False) -> EngineSpec:
    """``--engine`` for these two engines."""
    name, _, version = text.partition("==")
    if name not in ("history", "other"):
        raise EngineError(f"unknown engine {name!r}")
    return EngineSpec(name, version=version or RELEASES[-1])


def put_in_place(put: Callable[[str, Any], None]) -> None:
    """Put these engines where the command line has published ones; ``put`` is
    ``monkeypatch.setattr`` or does the same for good."""
    for module in ("fuzz.commands.options", "fuzz.commands.bisect", "fuzz.engines.releases"):
        put(f"{module}.parse", parse)
        if module != "fuzz.commands.options":
            put(f"{module}.published", lambda name, **_: list(RELEASES))
            put(f"{module}.provisioned", lambda name, *_: list(RELEASES))
    put("fuzz.commands.options.ENGINES", ("history", "other"))
    put("fuzz.commands.session.launch_for", lambda spec, **_: launch(spec.name, spec.version))
    put("fuzz.commands.matrix.SPECORACLE", ("-c", "from tests.fake_releases import main; main()"))


def main() -> None:
    """The command line with these engines, in a process of its own."""
    from importlib import import_module

    def put(path: str, value: Any) -> None:
        module, _, name = path.rpartition(".")
        setattr(import_module(module), name, value)

    put_in_place(put)
    import_module("fuzz.cli").main()


def _missing(case: Any) -> dict[str, Any]:
    answer = right(case)
    if case.grid == 256:
        answer["checkpoint_step"] = [-1] * len(answer["checkpoint_step"])
    return answer


@adapter(
    contract="commit.checkpoint_steps", module="worker", symbol="commit", engine="history",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def commit(engine: Any, case: Any) -> dict[str, Any]:
    if engine.version == ABSENT:
        raise Unsupported("not in this release")
    return _missing(case) if FIRST_BAD <= engine.version < FIRST_FIXED else right(case)


@adapter(
    contract="commit.checkpoint_steps", module="worker", symbol="refactored", engine="history",
    observes=("checkpoint_step",), needs=(), accepts=functional_chain,
)  # fmt: skip
def refactored(engine: Any, case: Any) -> dict[str, Any]:
    """A clean-up of ``commit`` that never had the fault."""
    return {"checkpoint_step": right(case)["checkpoint_step"]}


@adapter(
    contract="commit.checkpoint_steps", module="kernel", symbol="commit", engine="other",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def commit_of_other(engine: Any, case: Any) -> dict[str, Any]:
    """Release 2.0 is right, 2.1 has the fault of the other engine."""
    return _missing(case) if engine.version == "2.1" else right(case)
