"""What NVIDIA's compute-sanitizer said, as reports: one a kernel, place and kind of fault.

Its log is text for people, and its form changes with its releases, so only what those
have in common is relied on: a line that begins with the prefix and one blank opens a
block, deeper lines tell more, and a location is a kernel's name with an offset. A block
of an unknown kind that names a kernel is a report like any other; one that names none
is a remark of the tool. The trade: a fault that the tool cannot place is no report here;
the device fault that comes with it is seen anyway.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MAX_TEXT = 2000  # characters of a block that are kept
MAX_SLUG = 60
PREFIX = re.compile(r"^={8,} ?")
DETAIL = re.compile(r"\s|(at|by|and|in|Address|Access|Device Frame|Host Frame|Saved|Current Value|Read|Write)\b")
SEVERITY = re.compile(r"^(error|warning|info|fatal)\s*:\s*", re.IGNORECASE)
NO_REPORT = re.compile(
    r"COMPUTE-SANITIZER|.*SUMMARY:|Target application returned|process didn't terminate|Program hit .* on CUDA API call"
)
# It did not look at the kernels: no verdict, and never a pass.
TROUBLE = re.compile(
    r".*(Internal Sanitizer Error|No attachable process found|timed-out|before first instrumented|"
    r"Device not supported|Unable to find injection)",
    re.IGNORECASE,
)
HAZARDS = re.compile(r" \[[\d,]+ hazards?\]$")
LOCATION = re.compile(r"(?P<name>.+?)[+:]0x[0-9a-fA-F]+(?: in (?P<place>.+:\d+))?$")
OLDER_LOCATION = re.compile(r"0x[0-9a-fA-F]+ in (?:(?P<place>[^\s:]+:\d+):)?(?P<name>.+)$")
OLDER_FRAME = re.compile(r"(?:(?P<place>[^\s:]+:\d+):)?(?P<name>.+?)(?: \(.* : 0x[0-9a-f]+\)| \[0x[0-9a-f]+\])$")
HEX = re.compile(r"(?: (?:to|at))? 0x[0-9a-fA-F]+")
# Kernels that an engine calls and does not own.
LIBRARIES = (
    "at::",
    "c10::",
    "cub::",
    "thrust::",
    "cutlass::",
    "cublas",
    "cudnn",
    "cusparse",
    "cusolver",
    "nccl",
    "nvjet",
)
ATEN = "at::native"  # in the template arguments of a kernel that torch keeps in no namespace of its own


@dataclass(frozen=True)
class Report:
    """One fault. ``function`` is the kernel without its arguments, ``full`` as the tool
    spells it; ``place`` is FILE:LINE where line information exists; ``note`` says about
    the address; ``count`` is how many blocks said the same."""

    kind: str
    severity: str
    function: str | None = None
    full: str = ""
    place: str | None = None
    note: str | None = None
    text: str = ""
    count: int = 1

    @property
    def of_library(self) -> bool:
        """The kernel belongs to torch or one of NVIDIA's libraries."""
        short = self.function or ""
        return short.startswith(LIBRARIES) or "cub::" in short or ATEN in self.full

    def blames(self, tool: str) -> bool:
        """Whether the engine has to answer for it. Warnings and remarks are none of its
        faults. memcheck blames whoever called: an index outside reaches torch's kernels
        through the engine. The other tools see how a kernel was written, so its owner
        is to blame, and libraries read padding and synchronise in ways of their own."""
        return self.severity == "error" and self.function is not None and (tool == "memcheck" or not self.of_library)

    def identity(self, tool: str) -> str:
        """What makes two reports the same fault: neither sizes nor addresses."""
        words = re.sub(r"of size [\d,]+ bytes?|\(s\)", lambda m: "s" if m[0] == "(s)" else "", self.kind.lower())
        slug = "-".join(re.findall("[a-z]+", words))[:MAX_SLUG].strip("-")
        return f"{tool}:{slug}:{self.function}"

    def words(self, tool: str) -> str:
        """The report in one sentence."""
        where = f" in {self.function}" if self.function else ""
        where += f" ({self.place})" if self.place else ""
        note = f"; {self.note}" if self.note else ""
        return f"{tool}: {self.kind}{where}{note}" + (f" (said {self.count} times)" if self.count > 1 else "")


def reports(text: str) -> list[Report]:
    """The reports in a log or a part of one, each once, in the order of the log."""
    found: dict[tuple, Report] = {}
    for block in _blocks(text):
        one = _report(block)
        if one is not None:
            key = (one.kind, one.severity, one.function, one.place)
            found[key] = replace(found[key], count=found[key].count + 1) if key in found else one
    return list(found.values())


def trouble(text: str) -> str | None:
    """Why the tool did not do its work, in its own words; ``None`` when nothing says so."""
    lines = (PREFIX.sub("", line) for line in text.splitlines() if PREFIX.match(line))
    return next((line.strip() for line in lines if TROUBLE.match(line)), None)


def short(name: str) -> str:
    """A kernel's name without return type, arguments and template arguments."""
    plain = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    kept, depth = "", 0
    for c in plain.replace("->", ""):
        depth += c in "<("
        kept += c if not depth else ""
        depth -= c in ">)" and depth > 0
    words = kept.split()
    return re.sub("(::)+", "::", words[-1]).strip(":") if words else name


def _blocks(text: str) -> Iterator[list[str]]:
    """The lines of each block, without the prefix; what the application printed is left out."""
    block: list[str] = []
    for line in text.splitlines():
        prefix = PREFIX.match(line)
        if not prefix:
            continue
        said = line[prefix.end() :].rstrip()
        if said and block and DETAIL.match(said):
            block.append(said.strip())
            continue
        if block:
            yield block
        block = [] if not said or DETAIL.match(said) else [said]
    if block:
        yield block


def _report(block: list[str]) -> Report | None:
    severity = SEVERITY.match(block[0])
    head = block[0][severity.end() :] if severity else block[0]
    if NO_REPORT.match(head):
        return None
    level = {"warning": "warning", "info": "info"}.get(severity[1].lower(), "error") if severity else "error"
    head, *accesses = [HAZARDS.sub("", line) for line in block]
    head = head[severity.end() :] if severity else head
    kind, _, rest = head.partition(" at ")
    kind = " ".join([kind, *_others(accesses)]).rstrip(". ")
    spots = [found for spot in (rest, *map(_after_at, accesses)) if (found := _location(spot))]
    frames = [found for line in block if (found := _frame(line))]  # the last one is the kernel, the first where it is
    if not spots and not frames:
        return Report(kind, level, text="\n".join(block)[:MAX_TEXT])
    full = (frames or spots)[-1][0]
    places = dict.fromkeys(place for _, place in (spots or frames) if place)
    note = " ".join(line for line in block if re.match("(Address|Access|and) .*is ", line))
    return Report(
        kind, level, short(full), full, " and ".join(places) or None,
        HEX.sub("", note).replace("Address is", "Access is") or None, "\n".join(block)[:MAX_TEXT],
    )  # fmt: skip


def _others(lines: list[str]) -> list[str]:
    """What else takes part in a race: ``and Read access``, each once."""
    return list(dict.fromkeys(m[0] for line in lines if (m := re.match(r"and (Read|Write) access", line))))


def _after_at(line: str) -> str:
    return "" if "Frame:" in line else re.split(r"(?:^|\s)at ", line, maxsplit=1)[-1]


def _location(text: str) -> tuple[str, str | None] | None:
    """Kernel and place of ``kernel(int *)+0x90 in race.cu:13`` or its older form."""
    match = OLDER_LOCATION.match(text) if text.startswith("0x") else LOCATION.match(text)
    return (match["name"], _base(match["place"])) if match else None


def _frame(line: str) -> tuple[str, str | None] | None:
    if not line.startswith("Device Frame:"):
        return None
    text = line.removeprefix("Device Frame:").strip()
    match = LOCATION.match(text) or OLDER_FRAME.match(text)
    return (match["name"], _base(match["place"])) if match else None


def _base(place: str | None) -> str | None:
    return os.path.basename(place) if place else None
