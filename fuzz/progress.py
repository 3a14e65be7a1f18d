"""Progress on the terminal: a bar where there is one, a plain line now and then
where there is none. Always on stderr, so that stdout stays the result."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_EVERY_S = 10.0


class Display:
    """Shows one line of text and a fraction. Use as a context manager."""

    def __init__(self, title: str):
        self._console = Console(stderr=True)
        self._title = title
        self._last = 0.0
        self._shown = ""
        self._bar: Progress | None = None
        if self._console.is_terminal:
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(title, total=1.0, text="")

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, text: str, fraction: float | None = None, *, stage: bool = False) -> None:
        """Show ``text``. Without a terminal a line is printed every few seconds,
        and at once for a new ``stage``."""
        if self._bar:
            done = {} if fraction is None else {"completed": min(1.0, fraction)}
            self._bar.update(self._task, text=text, **done)
            return
        now = time.monotonic()
        if now - self._last >= PLAIN_EVERY_S or (stage and text != self._shown):
            percent = "" if fraction is None else f" {100 * min(1.0, fraction):3.0f}%"
            self._console.print(f"{self._title}:{percent} {text}", highlight=False, markup=False, soft_wrap=True)
            self._last, self._shown = now, text
