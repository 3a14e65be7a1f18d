"""Which releases of an engine there are: what a bisection and a range walk through.

The package index is asked through pip, so that mirrors, proxies and credentials are the
user's own; with ``--offline`` only what is provisioned counts. Pre-releases are left
out, post-releases are releases of their own, and nothing outside the range that this
package has data for is offered.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

from fuzz.engines import imports, layers, tools
from fuzz.engines.home import Home
from fuzz.engines.provision import installed
from fuzz.engines.spec import EXIT_INCONCLUSIVE, EXIT_USAGE, EngineError, EngineSpec, parse

INDEX_DEADLINE_S = 120
RANGE = re.compile(r"(?P<name>[^=@]+)==(?P<low>[^.][^=]*?)\.\.(?P<high>[^.].*)")
AVAILABLE = "Available versions:"


def published(name: str, *, offline: bool = False, home: Path | None = None) -> list[str]:
    """Releases of engine ``name`` that have data here, oldest first. Raises EngineError
    when the index cannot be asked."""
    table = imports.load(name)
    found = provisioned(name, home) if offline else _from_index(table.distribution, Home.locate(home))
    low, high = Version(table.oldest), Version(table.newest)
    within = {v for v in map(_version, found) if v is not None and not v.is_prerelease and low <= v}
    return [str(v) for v in sorted(within) if v <= high]


def provisioned(name: str, home: Path | None = None) -> list[str]:
    """Releases of engine ``name`` that are in the cache folder, oldest first."""
    return [each.spec.version for each in installed(home) if each.spec.name == name]


def between(versions: list[str], low: str, high: str) -> list[str]:
    """Those of ``versions`` from ``low`` to ``high``, both included and in place even
    when the list lacks them; oldest first."""
    ends = Version(low), Version(high)
    inside = {Version(v) for v in versions} | set(ends)
    return [str(v) for v in sorted(inside) if min(ends) <= v <= max(ends)]


def expand(text: str, *, offline: bool = False) -> list[EngineSpec]:
    """The engines that one ``--engine`` of a matrix names: one, or for
    ``NAME==LOW..HIGH`` every release in that range. Raises EngineError."""
    match = RANGE.fullmatch(text.strip())
    if match is None:
        return [parse(text)]
    low, high = (parse(f"{match['name'].strip()}=={match[end].strip()}") for end in ("low", "high"))
    if Version(low.version) > Version(high.version):
        raise EngineError(f"{text}: {low.version} is newer than {high.version}; write the older release first")
    found = published(low.name, offline=offline)
    inside = [v for v in between(found, low.version, high.version) if v in found]
    if not inside:
        where, code = ("provisioned", EXIT_INCONCLUSIVE) if offline else ("published", EXIT_USAGE)
        raise EngineError(f"{text}: no release is {where} in this range", exit_code=code)
    return [parse(f"{low.name}=={v}") for v in inside]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _from_index(distribution: str, home: Home) -> list[str]:
    python = layers.interpreter(layers.core(home).path)
    command = [python if python.exists() else sys.executable, *layers.PIP, "index", "versions", distribution]
    env = {key: value for key, value in os.environ.items() if key not in layers.FOREIGN}
    try:
        lines = tools.run(command, deadline_s=INDEX_DEADLINE_S, env=env)
    except tools.ToolFailed as failure:
        raise tools.explain(failure, f"listing the releases of {distribution}", home.root) from None
    listed = next((line for line in lines if line.startswith(AVAILABLE)), None)
    if listed is None:
        raise EngineError(f"pip lists no releases of {distribution}; name the releases one by one, or use --offline")
    return [v.strip() for v in listed.removeprefix(AVAILABLE).split(",")]
