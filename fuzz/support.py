"""Which targets run at which version: found out, and written down.

``fixtures/support.toml`` is the expectation: a target listed there that turns
UNSUPPORTED makes a run inconclusive, so that coverage cannot vanish in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.adapter import Adapter
from fuzz.corpus import put
from fuzz.executor import OUTSIDE_DOMAIN, execute
from fuzz.frozen import CorpusError, read_toml, require_folder
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import RandomSource
from fuzz.supervisor import Session
from fuzz.verdict import Kind
from oracle import contracts

FILE = "support.toml"
PROBE_DRAWS = 600  # a target may accept only some forms of a contract's cases; a refusal costs no call


@dataclass(frozen=True)
class Support:
    """Whether a target runs, and why not."""

    target: str
    contract: str
    runs: bool
    reason: str


def probe(session: Session, adapter: Adapter) -> Support:
    """Run one small case: the target runs when production answered it at all."""
    missing = session.ready.get("unsupported", {}).get(adapter.id)
    if missing:
        return Support(adapter.id, adapter.contract, False, missing)
    contract = contracts.get(adapter.contract)
    build = shown_case(adapter.contract)
    reason = ""
    for case in [contract.example, *(build(RandomSource(f"probe:{i}"))[0] for i in range(PROBE_DRAWS))]:
        verdict = execute(session, adapter, case)
        if verdict.kind is Kind.HARNESS_ERROR:
            return Support(adapter.id, adapter.contract, False, f"harness error: {verdict.evidence.get('message')}")
        if verdict.kind is not Kind.UNSUPPORTED:
            return Support(adapter.id, adapter.contract, True, "")
        # A target outside whose domain every probe lies is told apart from one that
        # was asked and did not take its path: the second reason says more.
        if not reason or reason.startswith(OUTSIDE_DOMAIN):
            reason = verdict.evidence["reason"]
    return Support(adapter.id, adapter.contract, False, reason)


def probe_all(
    session: Session, adapters: list[Adapter], on_target: Callable[[Support], None] = lambda s: None
) -> list[Support]:
    """Probe every adapter in turn."""
    found = []
    for adapter in adapters:
        found.append(probe(session, adapter))
        on_target(found[-1])
    return found


def expected(corpus: Path, engine: str, version: str, device: str) -> list[str]:
    """Targets that ``support.toml`` says run there. Raises CorpusError, also when
    ``corpus`` is no folder or another version's entry is wrong."""
    require_folder(corpus)
    return _table(corpus / FILE).get(f"{engine}=={version}", {}).get(kind_of(device), [])


def _table(path: Path) -> dict[str, dict[str, list[str]]]:
    """``support.toml``, checked whole; empty without a file. Raises CorpusError."""
    table: dict[str, Any] = read_toml(path) if path.exists() else {}
    for name, devices in table.items():
        if not isinstance(devices, dict):
            raise CorpusError(f"{path}: {name!r}: must be a table of devices, found {type(devices).__name__}")
        for device, targets in devices.items():
            if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
                raise CorpusError(f"{path}: {name!r}: {device}: must be a list of target ids")
    return table


def kind_of(device: str) -> str:
    """``cpu`` or ``cuda``."""
    return device.partition(":")[0]


def write(corpus: Path, engine: str, version: str, device: str, found: list[Support]) -> Path:
    """Put one version's targets into ``support.toml``, keeping the others."""
    path = corpus / FILE
    table = _table(path)
    table.setdefault(f"{engine}=={version}", {})[kind_of(device)] = sorted(s.target for s in found if s.runs)
    lines = ["# Targets that run, per engine version and device. Written by `specoracle targets --write`.\n"]
    for name in sorted(table):
        lines.append(f'\n["{name}"]\n')
        for where, targets in sorted(table[name].items()):
            lines.append(f"{where} = [\n" + "".join(f'    "{t}",\n' for t in targets) + "]\n")
    put(path, "".join(lines).encode())
    return path
