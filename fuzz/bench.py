"""What a case costs, and how much of it is production code.

A benchmark measures and asserts nothing. Medians within one run; the machine may
be shared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from fuzz.adapter import Adapter
from fuzz.executor import Columns, interpret
from fuzz.presentation import PLAIN
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from fuzz.supervisor import Session
from oracle import contracts

HEADER = f"{'target':<92} {'cases/s':>8} {'production':>10} {'adapter':>9} {'harness ms':>10}"


def bench(session: Session, adapters: list[Adapter], cases: int, say: Callable[[str], None]) -> None:
    """Print, per target: cases per second, shares of time in production code and
    in the adapter around it, and the harness's own median cost a case (encode,
    pipe, decode and judge) in milliseconds."""
    say(HEADER)
    for adapter in adapters:
        if adapter.id in session.ready["unsupported"]:
            continue
        row = measure(session, adapter, cases)
        if row is None:
            say(f"{adapter.id:<92} no case executed")
            continue
        rate, production, around, harness_ms = row
        say(f"{adapter.id:<92} {rate:>8.0f} {100 * production:>9.0f}% {100 * around:>8.0f}% {harness_ms:>10.3f}")


def measure(session: Session, adapter: Adapter, cases: int) -> tuple[float, float, float, float] | None:
    """Cases per second, production share, adapter share, harness ms a case."""
    contract, structure = contracts.get(adapter.contract), structure_of(adapter.contract)
    total, production, worker, harness = 0.0, 0.0, 0.0, []
    for i in range(cases):
        case = structure(RandomSource(f"bench:{i}"))
        began = time.perf_counter()
        columns = contract.columns(case)
        if adapter.accepts(Columns(columns)):
            continue
        request = {"target": adapter.id, "case": columns}
        answer = session.call(request)
        if not isinstance(answer, dict) or answer["status"] != "ok":
            continue
        interpret(contract, adapter, case, PLAIN, answer)
        spent = time.perf_counter() - began
        total += spent
        production += answer["production_s"]
        worker += answer["worker_s"]
        harness.append(spent - answer["worker_s"])
    if not harness:
        return None
    return (
        len(harness) / total,
        production / total,
        (worker - production) / total,
        1e3 * statistics.median(harness),
    )
