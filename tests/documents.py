"""Run what a document shows: the commands of its ``console`` blocks, in order, in one
shell, and compare what they print.

A line that begins with ``$ `` is a command, a final backslash continues it, the lines
below are what it prints. A line ``...`` stands for any lines, ``...`` inside a line
for any text; standard error is not compared. A command must succeed, unless the next
one is ``echo $?``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "=== end of a command:"


@dataclass(frozen=True)
class Command:
    """One command of a document, with the lines that it is said to print."""

    text: str
    prints: tuple[str, ...]


def commands(document: str) -> list[Command]:
    """The commands of all ``console`` blocks. Raises ValueError for a block that does
    not begin with one."""
    found: list[Command] = []
    for block in re.findall(r"^```console\n(.*?)^```$", document, re.DOTALL | re.MULTILINE):
        lines = iter(block.splitlines())
        if not block.startswith("$ "):
            raise ValueError(f"a console block begins with a command: {block[:60]!r}")
        for line in lines:
            if line.startswith("$ "):
                text = line[2:]
                while text.endswith("\\"):
                    text = f"{text[:-1].rstrip()} {next(lines).strip()}"
                found.append(Command(text, ()))
            else:
                found[-1] = Command(found[-1].text, (*found[-1].prints, line))
    return found


def run(document: str, cwd: Path, timeout_s: float) -> None:
    """Run the commands of ``document`` in ``cwd``; AssertionError says which did not do
    what is shown."""
    asked = commands(document)
    assert asked, "no command in it"
    binaries = cwd / ".bin"
    binaries.mkdir()
    wrapper = binaries / "specoracle"
    wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from fuzz.cli import main; main()' \"$@\"\n")
    wrapper.chmod(0o755)
    env = {
        **os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "120",
        "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8",
    }  # fmt: skip
    script = "".join(f"{c.text}\nstatus=$?; echo; echo '{MARK}' $status; (exit $status)\n" for c in asked)
    done = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=env, text=True, timeout=timeout_s,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    answers = re.split(rf"\n?^{MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    outputs, codes = answers[0:-1:2], answers[1::2]
    assert len(outputs) == len(asked), (
        f"{asked[len(outputs)].text}: the shell stopped there\n{done.stdout}{done.stderr}"
    )
    for number, (command, output, code) in enumerate(zip(asked, outputs, codes)):
        said = number + 1 < len(asked) and asked[number + 1].text == "echo $?"
        assert code == "0" or said, f"$ {command.text}\nexit {code}\n{output}{done.stderr}"
        shown = "\n".join(command.prints)
        assert matches(command.prints, output), f"$ {command.text}\nprints\n{output}\nand not\n{shown}"


def matches(shown: tuple[str, ...], output: str) -> bool:
    """True when ``output`` is what a document shows. Showing nothing promises nothing."""
    if not shown:
        return True
    pattern = "".join(
        r"(?:[^\n]*\n)*" if line == "..." else ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ ]*\n"
        for line in shown
    )
    return re.fullmatch(pattern, output.rstrip("\n") + "\n") is not None
