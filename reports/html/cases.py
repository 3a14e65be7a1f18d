"""The frozen case of a divergence, read to be shown.

The file's name comes from an event and its content from whoever wrote the run, so the
name must stay inside the folder it is looked up in, no part of the way may be a link,
and the content is bounded, parsed as JSON and held against the contract's own domain.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from oracle import contracts
from oracle.case import from_plain
from oracle.contract import Contract, InvalidCase

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 32


@dataclass(frozen=True)
class Case:
    """A case that can be shown: ``raw`` the file, ``plain`` its JSON values and
    ``value`` the contract's own type."""

    contract: Contract
    raw: bytes
    plain: dict[str, Any]
    value: Any
    domain: str
    shown_how: tuple[str, ...] = ()
    links: tuple[str, ...] = field(default=())


def load(folder: Path, name: str, contract: str) -> Case:
    """The case ``name`` (``CONTRACT/FILE.json`` with forward slashes) in ``folder``.
    Raises ValueError that says what is wrong with the file."""
    parts = PurePosixPath(name).parts
    if len(parts) != 2 or ".." in parts or not name.endswith(".json"):
        raise ValueError(f"{name[:200]!a} is no name of a case file")
    return parse(_content(folder, parts), contract)


def _content(folder: Path, parts: tuple[str, ...]) -> bytes:
    path = folder.joinpath(*parts)
    if (folder / parts[0]).is_symlink():
        raise ValueError("the case lies behind a link")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise ValueError(f"the case file cannot be read: {getattr(error, 'strerror', error)}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            raise ValueError(f"the case file is no regular file of at most {MAX_FILE_BYTES >> 20} MiB")
        return os.read(handle, status.st_size)
    finally:
        os.close(handle)


def parse(raw: bytes, contract: str) -> Case:
    """A case of ``contract`` from file content. Raises ValueError."""
    try:
        plain = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise ValueError("the case file is not JSON") from None
    if _depth(plain) > MAX_DEPTH:
        raise ValueError(f"the case file is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(plain, dict) or plain.get("contract") != contract or contract not in contracts.all_contracts():
        raise ValueError(f"the case file holds no case of {contract}")
    known = contracts.get(contract)
    try:
        value = from_plain(known.case_type, plain.get("case"))
        domain = known.domain(value)
    except InvalidCase as error:
        raise ValueError(f"the case file holds no valid case: {error}") from None
    links = plain.get("links")
    return Case(known, raw, plain["case"], value, domain, _how(plain.get("presentation")), _texts(links))


def _how(presentation: Any) -> tuple[str, ...]:
    """What deviates from the plain presentation, in words."""
    if not isinstance(presentation, dict):
        return ()
    words = {
        "strided": "strided tensors", "repeat": "run twice", "padding": "padding rows", "order": "rows reordered",
        "stream": "on a side stream", "graph": "in a replayed CUDA graph",
    }  # fmt: skip
    return tuple(words[name] for name in words if presentation.get(name))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def _depth(value: Any) -> int:
    deepest, left = 0, [(value, 1)]
    while left:
        part, depth = left.pop()
        deepest = max(deepest, depth)
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        left += [(v, depth + 1) for v in inner] if depth <= MAX_DEPTH else []
    return deepest
