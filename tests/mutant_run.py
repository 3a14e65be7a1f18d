"""The folder of a run whose divergences are those of mutants: made in a second, with
a real case, claim and observation for each."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fuzz import corpus
from fuzz.events import Events
from fuzz.executor import interpret
from fuzz.frozen import read
from fuzz.mutants.mutant import Mutant, mutants_of
from fuzz.presentation import PLAIN
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import RandomSource
from oracle import contracts

FIXTURES = Path(__file__).parents[1] / "fixtures"
DRAWN = 60  # cases of the strategy tried for a mutant that no frozen case kills
ENGINE = {"engine": "sglang", "version": "0.5.18", "device": "cpu"}


def target(contract: str, mutant: str) -> str:
    return f"sglang/mutants/{contract}/{mutant}"


@cache
def cases(contract: str) -> tuple[Any, ...]:
    """Frozen cases, the small ones first, then what the strategy draws."""
    files = sorted((FIXTURES / contract).glob("*.json"), key=lambda p: p.stat().st_size)
    build = shown_case(contract)
    drawn = (build(RandomSource(f"mutants:{i}"))[0] for i in range(DRAWN))
    return (*(read(path).case for path in files), *drawn)


def killing(contract: str, mutant: Mutant) -> tuple[Any, Any] | None:
    """The first case that kills ``mutant``, with the red verdict."""
    adapter = SimpleNamespace(id=target(contract, mutant.name), contract=contract, rounding_ulp=0.0, observes=())
    known = contracts.get(contract)
    for case in cases(contract):
        if not mutant.killed_by(known, case):
            continue
        verdict = interpret(known, adapter, case, PLAIN, {"status": "ok", "observed": mutant.observe(case)})
        if verdict.red:
            return case, verdict
    return None


def write(out: Path, *names: str, most: int | None = None, **started: Any) -> Path:
    """A finished run in ``out`` with a find for each mutant of the contracts."""
    with Events(out) as events:
        events.emit("run_started", **({"command": "fuzz", "seed": 0, "max_seconds": 20.0} | ENGINE | started))
        for contract in names:
            for mutant in mutants_of(contract)[:most]:
                found = killing(contract, mutant)
                if found is not None:
                    _find(events, *found)
        events.emit("run_finished", exit=1, stopped=None)
    return out


def _find(events: Events, case: Any, verdict: Any) -> None:
    events.end(events.start(verdict.target), verdict)
    frozen = corpus.make(
        verdict.contract, case, slug=verdict.target.rpartition("/")[2].replace("_", "-"), reason="found by a test",
        provenance={},
    )  # fmt: skip
    path = corpus.write(frozen, events.out / "found")
    events.emit(
        "found", target=verdict.target, contract=verdict.contract, verdict=str(verdict.kind),
        identity=vars(verdict.identity), known=False, evidence=verdict.evidence, rate="3 of 3 fresh processes",
        frozen=str(path.relative_to(events.out)),
    )  # fmt: skip
