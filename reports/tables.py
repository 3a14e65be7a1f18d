"""CSV or Parquet for people who analyse, written with pandas.

``verdicts``: a row a case (a sweep: a row a target), with what a red turned out to be;
a target that was asked nothing has a row without a case and with 0 ``rows``.
``targets``: a row a target and run, with the worst error of correct answers as a share of
its bound, cases per second of wall time and the compilation that is not in it.
``divergences``: a row an identity and run. ``behaviours``: a row a behaviour of
each target, ``cases`` 0 when it was never shown. Text that a spreadsheet would take for a
formula gets a quote in front; numbers stay numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import severity
from reports.events import parts, read
from reports.files import folder, put
from reports.junit import NOT_REACHED, unasked
from reports.model import SHARE_OF_BOUND, Run, Target, View, judged, view
from reports.text import one_line

if TYPE_CHECKING:
    import pandas

FOLDER = "tables"
FORMATS = ("csv", "parquet")
FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for one
INT64_MAX = 2**63 - 1
WHERE = {"run": "str", "engine": "str", "version": "str", "device": "str"}
WHAT = {"contract": "str", "target": "str"}
COLUMNS = {
    "verdicts": WHERE | {"command": "str", "case": "Int64"} | WHAT | {
        "verdict": "str", "known": "bool", "field": "str", "kind": "str", "near_tie": "bool", "margin_ulp": "float64",
        "error_of_bound": "float64", "frozen_case": "str", "rows": "Int64", "production_s": "float64",
    },
    "targets": WHERE | WHAT | {
        "verdict": "str", "cases": "Int64", "agree": "Int64", "red": "Int64", "known": "Int64", "near_ties": "Int64",
        "behaviours": "Int64", "behaviours_of_contract": "Int64", "worst_error_of_bound": "float64",
        "cases_per_production_s": "float64", "cases_per_s": "float64", "compile_s": "float64",
    },
    "divergences": WHERE | WHAT | {
        "field": "str", "kind": "str", "verdict": "str", "known": "bool", "severity": "str", "cases": "Int64",
        "claim": "str", "rate": "str", "frozen": "str",
    },
    "behaviours": WHERE | WHAT | {"behaviour": "str", "cases": "Int64"},
}  # fmt: skip


def write(runs: Iterable[Path], out: Path, form: str) -> list[Path]:
    """Write the tables of ``runs`` into ``out/tables``; returns the files. Raises
    ValueError, also when ``form`` is parquet and pyarrow is missing."""
    if form == "parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ValueError("parquet needs pyarrow: python -m pip install 'specoracle[parquet]'") from None
    made = {name: _bytes(table, form) for name, table in frames(list(runs)).items()}
    where = folder(out, FOLDER)
    return [put(where / f"{name}.{form}", raw) for name, raw in made.items()]


def frames(runs: list[Path]) -> dict[str, pandas.DataFrame]:
    """The tables by name."""
    import pandas

    seen = view(runs)
    rows = {
        "verdicts": [row for path in runs for events in parts(read(path)) for row in _verdicts(path, events)],
        "targets": [_target(target) for target in seen.targets],
        "divergences": list(_divergences(seen)),
        "behaviours": list(_behaviours(seen)),
    }
    tables = {}
    for name, columns in COLUMNS.items():
        data = {c: [_value(row.get(c), kind) for row in rows[name]] for c, kind in columns.items()}
        kinds = {c: "object" if kind == "str" else kind for c, kind in columns.items()}
        tables[name] = pandas.DataFrame({c: pandas.Series(data[c], dtype=kinds[c]) for c in columns})
    return tables


def _bytes(table: pandas.DataFrame, form: str) -> bytes:
    if form == "parquet":
        return table.to_parquet(index=False)
    return table.to_csv(index=False, lineterminator="\n").encode()


def _value(value: Any, kind: str) -> Any:
    """A value that fits a column; what does not is missing."""
    if kind == "str":
        text = "" if value is None else one_line(value)
        return f"'{text}" if text.startswith(FORMULA) else text
    if kind == "bool":
        return bool(value)
    fits = type(value) is int or (kind == "float64" and type(value) is float)
    return value if fits and abs(value) <= INT64_MAX else None


def _where(run: Run) -> dict[str, Any]:
    return {"run": run.folder.name, "engine": run.engine, "version": run.version, "device": run.device}


def _verdicts(path: Path, events: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    shared = _where(Run(path, events[0], None)) | {"command": events[0].get("command")}
    files = {e["case"]: e.get("file") for e in events if e["event"] == "start"}
    for end in judged(events):
        identity, evidence = end.get("identity", {}), end.get("evidence", {})
        yield end | shared | {
            "field": identity.get("field"), "kind": identity.get("kind"), "frozen_case": files.get(end["case"]),
            "near_tie": "near_tie" in end.get("flags", ()), "margin_ulp": evidence.get("margin_ulp"), "rows": 1,
            "error_of_bound": evidence.get(SHARE_OF_BOUND),
        }  # fmt: skip
    for swept in (e for e in events if e["event"] == "swept"):
        verdict = "DIVERGE" if swept["diverging"] else "AGREE" if swept["rows"] else "UNSUPPORTED"
        yield swept | shared | {"verdict": verdict}
    for target, (contract, reason) in unasked(events).items():
        verdict = "UNSUPPORTED" if reason else NOT_REACHED
        yield shared | {"target": target, "contract": contract, "verdict": verdict, "rows": 0}


def _target(target: Target) -> dict[str, Any]:
    reached = sum(n > 0 for n in target.behaviours.values())
    return _where(target.run) | {
        "contract": target.contract, "target": target.id, "verdict": target.word, "cases": target.executed,
        "agree": target.verdicts["AGREE"], "red": target.red, "known": target.known, "near_ties": target.near_ties,
        "behaviours": reached, "behaviours_of_contract": reached + len(target.not_reached),
        "worst_error_of_bound": target.worst_of_bound,
        "cases_per_production_s": target.executed / target.production_s if target.production_s else None,
        "cases_per_s": target.cases_per_s, "compile_s": round(target.compile_s, 3),
    }  # fmt: skip


def _divergences(seen: View) -> Iterable[dict[str, Any]]:
    for divergence in seen.divergences:
        contract, target, field, kind = divergence.identity
        for sighting in divergence.sightings:
            event, evidence = sighting.event, sighting.evidence
            file = next((name for name, _ in sighting.frozen), None)
            yield _where(sighting.run) | {
                "contract": contract, "target": target, "field": field, "kind": kind, "verdict": sighting.verdict,
                "known": sighting.known, "severity": severity.NAMES[divergence.severity], "cases": sighting.count,
                "claim": evidence.get("claim") or evidence.get("message") or evidence.get("reason"),
                "rate": event.get("rate") or evidence.get("rate"), "frozen": event.get("frozen") or file,
            }  # fmt: skip


def _behaviours(seen: View) -> Iterable[dict[str, Any]]:
    for target in seen.targets:
        shared = _where(target.run) | {"contract": target.contract, "target": target.id}
        for name in sorted({*target.behaviours, *target.not_reached}):
            yield shared | {"behaviour": name, "cases": target.behaviours[name]}
