"""Write the files of a report: whole or not at all, and never outside their folder.

The folder of a run may come from a stranger, with links in it that point elsewhere.
So a file is written under a new name and renamed over whatever stood there, which
replaces a link instead of following it, and a folder that is a link is refused.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def put(path: Path, raw: bytes) -> Path:
    """Make ``raw`` the content of ``path``; an older file is lost only when the new
    one is complete. Raises OSError."""
    beside = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with beside.open("xb") as file:
            file.write(raw)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return path


def folder(parent: Path, name: str) -> Path:
    """The folder ``name`` in ``parent``, made when it is missing. Raises ValueError
    when something else stands there, such as a link."""
    path = parent / name
    if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
        raise ValueError(f"{path}: a report wants to be a folder here; move away what stands there")
    path.mkdir(exist_ok=True)
    return path
