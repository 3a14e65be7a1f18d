"""Pictures of report pages for the documents: wide, narrow and as printed.

``python -m tests.screenshots PAGE.html PREFIX`` writes ``PREFIX-wide.png``,
``PREFIX-narrow.png`` and ``PREFIX-print.png``. They are made to be looked at, not compared.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from tests.browser import Browser

WIDTHS = {"wide": (1240, ""), "narrow": (420, ""), "print": (780, "print")}
MAX_HEIGHT = 1400


def shoot(browser: Browser, page: Path, prefix: Path) -> list[Path]:
    """The three pictures of ``page``."""
    written = []
    for name, (width, media) in WIDTHS.items():
        browser.call("Emulation.setEmulatedMedia", media=media)
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.open(page)
        height = min(browser.run("document.documentElement.scrollHeight"), MAX_HEIGHT)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        data = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        path = prefix.with_name(f"{prefix.name}-{name}.png")
        path.write_bytes(base64.b64decode(data))
        written.append(path)
    return written


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as one:
        for made in shoot(one, Path(sys.argv[1]).resolve(), Path(sys.argv[2])):
            print(made)
