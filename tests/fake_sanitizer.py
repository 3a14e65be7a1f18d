"""A compute-sanitizer that instruments nothing, and an engine whose target tells it what to say.

As a program it takes the options of the real one, starts the worker without handing on any descriptor and keeps a log.
``FAKE_SANITIZER=buffered`` writes that log only at the end. As a module it is the engine ``sanitized``: ``pre`` of the
first request selects what the tool says while the case runs, or when the process ends by itself.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.adapter import adapter
from tests import sanitizer_blocks as blocks
from tests.fake_engine import functional_chain, lose_device, right

ADAPTER_MODULES = ("tests.fake_sanitizer",)
LOG = "FAKE_SANITIZER_LOG"
SAYS = {
    3001: blocks.WRITE, 3002: blocks.WRITE, 3003: blocks.WRITE, 3004: blocks.WRITE, 3005: blocks.WRITE,
    3006: blocks.UNINITIALISED_IN_TORCH, 3007: blocks.RACE, 3008: blocks.RACE_WARNING, 3009: blocks.NOT_ATTACHED,
    3010: blocks.WRITE * 2000, 3011: blocks.WRITE,
}  # fmt: skip
AT_END, WRONG, LOST, EXIT, SOON, HANG = 3002, 3003, 3004, 3005, 3011, 3012
SOON_S = 0.5


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="kernels", engine="sanitized",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def kernels(engine: Any, case: Any) -> dict[str, Any]:
    code = int(case.pre[0]) if len(case.pre) else 0
    path = os.environ[LOG]
    if code == AT_END:
        atexit.register(say, path, SAYS[code])
    elif code == SOON:
        threading.Timer(SOON_S, say, (path, SAYS[code])).start()
    elif code in SAYS:
        say(path, SAYS[code])
    if code == LOST:
        lose_device(engine, in_production=True)
    if code == EXIT:
        os._exit(7)
    if code == HANG:
        time.sleep(3600)
    answer = right(case)
    return answer | {"current_step": [s + (code == WRONG) for s in answer["current_step"]]}


@adapter(
    contract="commit.checkpoint_steps", module="fake", symbol="on_grid_64", engine="sanitized",
    observes=("current_step", "checkpoint_step"), needs=(), accepts=functional_chain,
)  # fmt: skip
def on_grid_64(engine: Any, case: Any) -> dict[str, Any]:
    """Saves nothing on grid 64, and its kernel writes elsewhere, which only the tool sees."""
    answer = right(case)
    if case.grid == 64:
        say(os.environ.get(LOG, os.devnull), blocks.WRITE)
        answer["checkpoint_step"] = [-1] * len(answer["checkpoint_step"])
    return answer


def say(path: str, text: str) -> None:
    with open(path, "a") as log:
        log.write(text)


def main() -> int:
    arguments, options = sys.argv[1:], {}
    while arguments[0].startswith("--"):
        options[arguments[0]], arguments = arguments[1], arguments[2:]
    log = shown = options["--log-file"]
    if os.environ.get("FAKE_SANITIZER") == "buffered":
        open(log, "w").close()
        shown = log + ".buffer"
    say(shown, blocks.HEAD)
    code = subprocess.run(arguments, env={**os.environ, LOG: shown}, check=False).returncode
    say(shown, blocks.TAIL)
    if shown != log:
        say(log, Path(shown).read_text())
    return code


if __name__ == "__main__":
    sys.exit(main())
