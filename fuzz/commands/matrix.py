"""``specoracle matrix``: the frozen cases against many releases, and where faults begin and end."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import filelock

from fuzz import corpus as corpus_
from fuzz import fleet, matrix_page
from fuzz.adapter import select
from fuzz.commands.options import (
    corpus_option,
    engine_options,
    fresh_folder,
    out_option,
    read_targets,
)
from fuzz.commands.runs import counted, ending
from fuzz.engines.releases import expand
from fuzz.engines.spec import EngineSpec
from fuzz.fleet import Job
from fuzz.frozen import content
from fuzz.matrix import BAD, NEW, Fault, History, Release, histories, load_faults, read_release
from fuzz.progress import Display
from fuzz.supervisor import PROJECT_ROOT
from fuzz.verdict import EXIT_DIVERGED, EXIT_INCONCLUSIVE, Kind, exit_code, worst_exit
from reports.events import read

RUNS = "runs"
LOCK = "matrix.lock"
CELLS_FILE, FAULTS_FILE, PAGE_FILE = "matrix.csv", "faults.csv", "matrix.md"
CODE = ("fuzz", "oracle")  # whose change makes an older result stale
SPECORACLE = ("-c", f"import sys; sys.path.insert(0, {str(PROJECT_ROOT)!r}); from fuzz.cli import main; main()")
spec_option = click.option(
    "--engine", "engines", multiple=True, required=True, metavar="SPEC",
    help="NAME, NAME==VERSION, NAME@CHECKOUT or, for every release in between, NAME==LOW..HIGH; repeatable.",
)  # fmt: skip


@click.command()
@partial(engine_options, engine=spec_option, python=False)
@corpus_option
@out_option
@click.option("--jobs", type=click.IntRange(min=1), help="Releases at once.  [default: by cores and free memory]")
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write the page there too.")
def matrix(engines, target, contract, device, offline, corpus, out, jobs, page) -> None:
    """Replay frozen cases against many releases, several at once.

    Each release is a gate of its own under OUT/runs. With an OUT that holds results,
    those that stand are kept and only the others are run.
    """
    specs = list(dict.fromkeys(spec for text in engines for spec in expand(text, offline=offline)))
    for spec in specs:
        if spec.local:
            raise click.UsageError(f"--engine {spec}: a matrix provisions its engines; gate takes --python")
    for name in {spec.name for spec in specs}:
        if not select(name, target, contract):
            read_targets(name, target, contract)  # says what to do
    faults = load_faults(corpus if corpus.is_dir() else corpus_.DEFAULT_CORPUS)
    next(corpus_.load(corpus))  # a corpus that is none is said now
    folder = fresh_folder(out, "matrix")
    with _alone(folder):
        code = _matrix(folder, specs, faults, engines, target, contract, device, offline, corpus, jobs, page)
    sys.exit(code)


def _matrix(folder, specs, faults, engines, target, contract, device, offline, corpus, jobs, page) -> int:
    options = ["--target", target, "--contract", contract, "--device", device, "--corpus", str(corpus.absolute())]
    options += ["--offline"] if offline else []
    work = [_job(folder, spec, options) for spec in specs]
    key = _key(corpus, options)
    waiting = [job for job in work if _result(job, key, faults) is None]
    click.echo(f"{counted(len(work), 'release')}, {len(work) - len(waiting)} of them done before", err=True)
    command = _command(engines, target, contract, device, corpus, page)
    codes: dict[str, int | None] = {}

    def ended(job: Job, code: int | None) -> None:
        codes[job.name] = code
        _write(folder, work, key, faults, command, codes, None)

    with Display("matrix") as display, ending() as end:
        at_once = jobs or fleet.places(len(waiting))
        fleet.run(waiting, key, at_once, _whole, ended, lambda running: _show(display, running, len(waiting), codes))
    # A matrix that was stopped has no page to publish, but its own files are right.
    _write(folder, work, key, faults, command, codes, page if end.reason is None else None)
    releases = _releases(work, key, faults)
    for line in _summary(work, releases, histories(releases.values(), faults), codes):
        click.echo(line)
    click.echo(f"results: {folder}")
    return end.exit_code(worst_exit(_code(job, releases.get(job.name), codes) for job in work))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """``folder`` for this matrix only: a second one would clear what the first writes."""
    lock, runs = folder / LOCK, folder / RUNS
    for path in (lock, runs):
        if path.is_symlink():
            raise click.UsageError(f"--out {folder}: {path.name} in it is a link; remove it or name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(lock, timeout=0):
            yield
    except filelock.Timeout:
        raise click.UsageError(f"--out {folder}: another matrix writes there; wait, or name another folder") from None


def _job(folder: Path, spec: EngineSpec, options: list[str]) -> Job:
    place = folder / RUNS / _folder_name(spec)
    part = place.with_name(place.name + fleet.PART)
    return Job(
        str(spec), place, (sys.executable, *SPECORACLE, "gate", "--engine", str(spec), *options, "--out", str(part))
    )


def _folder_name(spec: EngineSpec) -> str:
    """A name of its own for every engine, also for two checkouts whose paths read alike."""
    if spec.path is None:
        return str(spec).replace("==", "-")
    return f"{spec.name}@{spec.path.name[:40]}-{hashlib.sha256(str(spec).encode()).hexdigest()[:8]}"


def _key(corpus: Path, options: list[str]) -> str:
    """What a result depends on: the cases and lists, the selection, our own code."""
    digest = hashlib.sha256(repr(options).encode())
    listed = [corpus] if corpus.is_file() else sorted(p for p in corpus.rglob("*") if p.suffix in (".json", ".toml"))
    code = [p for name in CODE for p in (PROJECT_ROOT / name).rglob("*") if p.suffix in (".py", ".toml")]
    for path in [*listed, *sorted(code)]:
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(content(path)).digest())
    return digest.hexdigest()


def _events(folder: Path) -> list[dict[str, Any]] | None:
    """The events of a gate that reached its end; ``None`` for any other folder."""
    try:
        events = read(folder)
    except (OSError, ValueError):
        return None
    last = events[-1]
    return events if last["event"] == "run_finished" and last.get("stopped") is None else None


def _whole(folder: Path) -> bool:
    return _events(folder) is not None


def _result(job: Job, key: str, faults: list[Fault]) -> Release | None:
    """What a job found; ``None`` when it is not finished or its result is damaged."""
    events = _events(job.folder) if fleet.finished(job, key) else None
    try:
        return None if events is None else read_release(events, faults)
    except (LookupError, TypeError, ValueError):  # lines that were taken out leave others without theirs
        return None


def _releases(work: list[Job], key: str, faults: list[Fault]) -> dict[str, Release]:
    found = {job.name: _result(job, key, faults) for job in work}
    return {name: release for name, release in found.items() if release is not None}


def _write(
    folder: Path, work: list[Job], key: str, faults: list[Fault], command: str, codes: dict, page: Path | None
) -> None:
    """Everything that is derived, from the releases that are done so far."""
    releases = _releases(work, key, faults)
    found = histories(releases.values(), faults)
    missing = {job.name: _why(job, codes) for job in work if job.name not in releases}
    cases = {case for release in releases.values() for answers in release.answers.values() for case in answers}
    facts = [f"{counted(len(releases), 'release')}, {counted(len(cases), 'frozen case')}, {time.strftime('%Y-%m-%d')}."]
    text = matrix_page.page(command, list(releases.values()), found, missing, facts)
    corpus_.put(folder / CELLS_FILE, matrix_page.cells_csv(releases.values()).encode())
    corpus_.put(folder / FAULTS_FILE, matrix_page.faults_csv(found).encode())
    corpus_.put(folder / PAGE_FILE, text.encode())
    if page is not None:
        corpus_.put(page, text.encode())


def _why(job: Job, codes: dict[str, int | None]) -> str:
    """Why a release has no result, in the words of its gate."""
    if job.name not in codes:
        return "not run yet"
    if codes[job.name] is None:
        return f"no end after {fleet.JOB_DEADLINE_S / 60:.0f} minutes"
    lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines() if job.log.exists() else []
    said = next((line for line in lines if line.startswith(("error:", "Error:", "the run stopped"))), "")
    return said or f"exit status {codes[job.name]}; see {job.log.name}"


def _command(engines, target: str, contract: str, device: str, corpus: Path, page: Path | None) -> str:
    words = ["specoracle", "matrix"]
    for engine in engines:
        words += ["--engine", engine]
    words += ["--target", target] if target != "*" else []
    words += ["--contract", contract] if contract != "*" else []
    words += ["--device", device] if device != "cpu" else []
    words += ["--corpus", str(corpus)] if corpus != corpus_.DEFAULT_CORPUS else []
    words += ["--page", str(page)] if page else []
    return shlex.join(words)


def _show(display: Display, running: list[Job], total: int, codes: dict) -> None:
    names = ", ".join(job.name for job in running)
    display.show(f"{len(codes)} of {total} done; now {names}" if names else "all done", len(codes) / max(total, 1))


def _summary(work: list[Job], releases: dict[str, Release], found: list[History], codes: dict) -> list[str]:
    lines = []
    for job in work:
        release = releases.get(job.name)
        if release is None:
            lines.append(f"{job.name}: no result: {_why(job, codes)}")
            continue
        notes = [note for c in release.cells for note in c.red.values()]
        counts = {str(k): sum(c.counts.get(k, 0) for c in release.cells) for k in Kind}
        words = ", ".join(f"{n} {k}" for k, n in counts.items() if n)
        words += "".join(
            f"; {counted(notes.count(n), 'divergence')} {n}" for n in ("known", "fault", NEW) if n in notes
        )
        lines.append(f"{job.name}: {words}")
    for h in found:
        bad = ", ".join(v for v, s in h.states if s == BAD)
        target, field, kind = h.identity
        lines.append(f"{target} {field} {kind}: bad in {bad}; fixed in {h.first_good or '-'}")
        if not h.monotone:
            lines.append("  not monotone: " + ", ".join(f"{v} {s}" for v, s in h.states))
    return lines


def _code(job: Job, release: Release | None, codes: dict[str, int | None]) -> int:
    """What a release contributes to the exit code: recorded faults are expected."""
    if release is None:
        return codes.get(job.name) or EXIT_INCONCLUSIVE
    last = (_events(job.folder) or [{"exit": EXIT_INCONCLUSIVE}])[-1]["exit"]
    if last != EXIT_DIVERGED or any(NEW in c.red.values() for c in release.cells):
        return last
    verdicts: Counter[Kind] = Counter()
    for cell in release.cells:
        verdicts.update(cell.counts)
    return exit_code(verdicts, 0)
