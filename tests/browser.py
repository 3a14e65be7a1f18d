"""A headless Chromium, driven over its own debugging pipe.

Chromium speaks the DevTools protocol on two file descriptors as JSON texts that end
with a zero byte, so that a page can be opened, clicked and looked at without a driver
of fifty megabytes. Every wait has a deadline.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--remote-debugging-pipe",
)  # fmt: skip
DEADLINE_S = 60.0


def executable() -> str:
    """The browser; the environment variable CHROMIUM may name one."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("no Chromium: apt-get install chromium, or name one in the variable CHROMIUM")
    return found


class Browser:
    """One browser with one page. Use as a context manager."""

    def __init__(self, profile: Path):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # The pipe is promised on descriptors 3 and 4, which pass_fds cannot choose.
        move = (
            f"exec {executable()} {' '.join(ARGUMENTS)} --user-data-dir='{profile}' 3<&{to_browser} 4>&{from_browser}"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", move], pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait(10)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of one command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + DEADLINE_S
        while True:
            answer = self._read(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(end - time.monotonic(), 0))
            more = os.read(self._from, 1 << 16) if ready else b""
            if not more:
                raise TimeoutError(f"the browser said nothing in {DEADLINE_S:.0f} s, or is gone")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, *, scripts: bool = True) -> None:
        """Load a page from disk and wait until it is complete."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + DEADLINE_S
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._read(end))

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "exception"))
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors that the page caused: scripts that failed, what the content policy
        stopped, files that were missing."""
        self.run("0")  # events that are on their way have arrived after it
        found = [e["params"]["entry"] for e in self.events if e.get("method") == "Log.entryAdded"]
        texts = [entry["text"] for entry in found if entry["level"] == "error"]
        thrown = [e["params"]["exceptionDetails"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        return texts + [details["text"] for details in thrown]
