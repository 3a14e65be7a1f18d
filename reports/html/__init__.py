"""The HTML report: one self-contained folder, an overview and a page a divergence.

Everything shown may come from a stranger: a case, a worker's output, a version's name.
So all text is escaped, pages carry a content policy that allows the report's own style
sheet and script and nothing else, no file outside a run's folder is read for it, and
cases are parsed and shown, never run. Without JavaScript the pages say the same; with
it the table of divergences can be filtered and tables sorted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from reports import files, history, model
from reports.html import pages

OURS = re.compile(r"[0-9a-f]{12}\.(html|json)")  # pages and cases, also of an older report in the same folder
STATIC = Path(__file__).parent / "static"


def write(runs: Iterable[Path], out: Path, corpus: Path | None = None) -> Path:
    """Write the report of ``runs`` (folders with events) into the folder ``out`` and
    return the path of its first page. ``corpus`` is where frozen cases that a gate
    names, the known list and the ground truth lie. Raises ValueError naming file and
    line, or OSError; ``out`` is touched only when the runs could be read."""
    view = model.view(runs)
    past = history.load(corpus) if corpus is not None else history.History()
    folder = files.folder(out.parent, out.name)
    for asset in sorted(STATIC.iterdir()):
        files.put(files.folder(folder, "static") / asset.name, asset.read_bytes())
    inner = files.folder(folder, "divergences"), files.folder(folder, "cases")
    site = pages.Site(view, past, corpus)
    written = set()
    for page in site.divergences():
        written.add(files.put(inner[0] / f"{page.key}.html", page.html))
        if page.case_file is not None:
            written.add(files.put(inner[1] / f"{page.key}.json", page.case_file))
    for stale in {path for place in inner for path in place.iterdir() if OURS.fullmatch(path.name)} - written:
        stale.unlink()
    return files.put(folder / "index.html", site.overview())
