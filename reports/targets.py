"""A table of targets for people: what each was shown, how fast, how near its bound.

One row a target, grouped by contract, under a heading that names the engine and the
machine. Runs of one engine on machines of one kind (a gate and a campaign, its parts) are
merged: cases, verdicts and times add up, behaviours are united, the worst error is the
worst of all. The trade: it is as long as there are targets; the short page is `markdown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from oracle import contracts
from reports.junit import NOT_REACHED_WORDS
from reports.markdown import about, code
from reports.model import NOT_EXECUTED, Run, Target, View
from reports.text import many

VERSIONS = ("torch", "triton", "cuda", "driver")  # of ``run_started``'s worker, in the order shown
NUMBERS_FROM = 10  # cases per second from which on a fraction says nothing
EXPLAINED = (
    "Cases per second are of wall time from the case's START to its END, without compilation, which has a column of "
    "its own. *Worst* is the largest error of an agreeing case as a share of its bound; a dash stands where values are "
    "compared exactly. Pairs outside a target's domain are left out of the counts."
)
HEADER = (
    "| target | cases | cases/s | worst | behaviours | verdicts | compile s |",
    "|---|---:|---:|---:|---:|---|---:|",
)
Place = tuple[str, str]  # engine and version, machine


def page(view: View) -> str:
    """The page of ``view``, as Markdown."""
    runs: dict[Place, list[Run]] = defaultdict(list)
    targets: dict[Place, list[Target]] = defaultdict(list)
    for run in view.runs:
        runs[place(run)].append(run)
    for target in view.targets:
        targets[place(target.run)].append(target)
    lines = ["# Targets", "", EXPLAINED]
    for where, made in runs.items():
        lines += _engine(where, made, merged(targets[where]))
    return "\n".join(lines) + "\n"


def place(run: Run) -> Place:
    """What runs must share to be merged: the release, the kind of machine and what runs kernels there."""
    worker = run.started.get("worker")
    worker = worker if isinstance(worker, dict) else {}
    versions = worker.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    known = [f"{name} {versions[name]}" for name in VERSIONS if versions.get(name)]
    known += [f"Python {worker['python']}"] if worker.get("python") else []
    return run.label, ", ".join([str(worker.get("device") or run.device), *known])


def merged(targets: Iterable[Target]) -> list[Target]:
    """One target for all that share contract and id."""
    found: dict[tuple[str, str], Target] = {}
    for each in targets:
        one = found.setdefault((each.contract, each.id), Target(each.run, each.contract, each.id))
        for name in ("verdicts", "listed", "behaviours", "reasons"):
            getattr(one, name).update(getattr(each, name))
        for name in ("production_s", "wall_s", "compile_s", "near_ties"):
            setattr(one, name, getattr(one, name) + getattr(each, name))
        one.stopped = one.stopped or each.stopped
        shares = [s for s in (one.worst_of_bound, each.worst_of_bound) if s is not None]
        one.worst_of_bound = max(shares, default=None)
    return list(found.values())


def _engine(where: Place, runs: list[Run], targets: list[Target]) -> list[str]:
    executed = [t for t in targets if t.executed]
    said = f"{many(sum(t.executed for t in executed), 'case')} on {len(executed)} of {many(len(targets), 'target')}"
    compiled = sum(t.compile_s for t in targets)
    said += f"; compiled {compiled:.0f} s" if compiled >= 1 else ""
    ran = "; ".join(code(about(run)) for run in runs)
    lines = ["", f"## {code(where[0])}", "", f"{code(where[1])}. {said}. Runs: {ran}."]
    by_contract: dict[str, list[Target]] = defaultdict(list)
    for target in targets:
        by_contract[target.contract].append(target)
    for contract, members in by_contract.items():
        lines += ["", f"### {code(contract)}", "", *HEADER, *map(_row, members)]
    return lines


def _row(target: Target) -> str:
    worst, rate = target.worst_of_bound, target.cases_per_s
    cells = [
        code(short(target.id)),
        f"{target.executed:,}",
        "-" if rate is None else f"{rate:,.0f}" if rate >= NUMBERS_FROM else f"{rate:.1f}",
        "-" if worst is None else f"{worst:.2g}",
        _behaviours(target),
        verdicts(target),
        f"{target.compile_s:.1f}" if target.compile_s else "-",
    ]
    return f"| {' | '.join(cells)} |"


def short(target: str) -> str:
    """A target's id without what stands above its row: engine and contract."""
    parts = target.split("/")
    return f"{parts[1]}/{parts[3]}" if len(parts) == 4 else target


def _behaviours(target: Target) -> str:
    if target.contract not in contracts.all_contracts():
        return "-"
    missing = len(target.not_reached)
    total = len(contracts.get(target.contract).behaviours)
    return f"{total - missing}/{total}"


def verdicts(target: Target) -> str:
    """``92 AGREE, 4 DIVERGE (listed)``; of a target that executed nothing, why."""
    counts: list[tuple[str, Any]] = sorted(target.verdicts.items(), key=lambda each: (each[0] != "AGREE", each[0]))
    shown = [f"{n:,} {v}{_listed(target.listed[v], n)}" for v, n in counts if n and v not in NOT_EXECUTED]
    if shown:
        return ", ".join(shown)
    if target.verdicts["INVALID_CASE"]:
        return f"{target.verdicts['INVALID_CASE']:,} INVALID_CASE"
    reason = target.stopped or next((r for r, _ in target.reasons.most_common(1)), None)
    return f"UNSUPPORTED: {code(reason)}" if reason else NOT_REACHED_WORDS


def _listed(listed: int, count: int) -> str:
    return "" if not listed else " (listed)" if listed == count else f" ({listed:,} listed)"
