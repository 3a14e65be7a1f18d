"""The commands that run production code: targets, fuzz, sweep, gate, replay."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from fuzz import corpus as corpus_
from fuzz import known as known_
from fuzz import support
from fuzz import sweep as sweep_
from fuzz.believe import words_for
from fuzz.bench import bench
from fuzz.campaign import Campaign, Found, Options
from fuzz.commands.options import (
    Duration,
    corpus_option,
    engine_options,
    fresh_folder,
    out_option,
    read_engine,
    read_targets,
    seed_option,
)
from fuzz.commands.session import open_session
from fuzz.events import Events, environment
from fuzz.frozen import read
from fuzz.gate import GateResult
from fuzz.gate import gate as run_gate
from fuzz.progress import Display
from fuzz.replay import EXIT, choose
from fuzz.replay import replay as run_replay
from fuzz.verdict import (
    EXIT_AGREED,
    EXIT_DIVERGED,
    EXIT_HARNESS,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    Kind,
    exit_code,
)
from oracle import contracts
from reports.junit import write_junit


@click.command()
@engine_options
@corpus_option
@click.option("--write", is_flag=True, help="Write the result into support.toml of the corpus.")
def targets(engine, target, contract, device, python, offline, corpus, write) -> None:
    """List contract x target with RUNS or UNSUPPORTED and the reason."""
    spec = read_engine(engine, python)
    adapters = read_targets(spec.name, target, contract)
    with open_session(spec, device, python, offline) as session:
        version = session.launch.version
        found = support.probe_all(session, adapters)
        width = max(len(s.target) for s in found)
        for each in sorted(found, key=lambda s: (s.contract, s.target)):
            click.echo(f"{each.target:<{width}}  {'RUNS' if each.runs else 'UNSUPPORTED: ' + each.reason}")
        runs = sum(s.runs for s in found)
        click.echo(f"{runs} of {len(found)} targets run at {spec.name}=={version} on {device}")
        if write:
            click.echo(f"wrote {support.write(corpus, spec.name, version, device, found)}")
            return
        listed = set(support.expected(corpus, spec.name, version, device))
        running = {s.target for s in found if s.runs}
        chosen = {a.id for a in adapters}
        for name in sorted(listed & chosen - running):
            click.echo(f"support.toml lists {name}, which does not run", err=True)
        for name in sorted(running - listed):
            click.echo(f"support.toml does not list {name}, which runs", err=True)
        if (listed & chosen) != running:
            sys.exit(EXIT_INCONCLUSIVE)


@click.command()
@engine_options
@corpus_option
@out_option
@seed_option
@click.option("--max-time", type=Duration(), default="60s", show_default=True, help="Time to fuzz, such as 30m.")
@click.option("--max-examples", type=click.IntRange(min=1), help="Cases per target at most.")
@click.option("--continue-on-failure", is_flag=True, help="Go on with a target after its first new divergence.")
def fuzz(
    engine, target, contract, device, python, offline, corpus, out, seed, max_time, max_examples, continue_on_failure
) -> None:
    """Look for divergences on fresh inputs, shrink and freeze them."""
    spec = read_engine(engine, python)
    adapters = read_targets(spec.name, target, contract)
    known = known_.load(corpus, spec.name)
    folder = fresh_folder(out, "fuzz")
    interrupted = False
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        options = Options(seed, max_time, max_examples, continue_on_failure)
        run_started(events, session, "fuzz", seed=seed, max_seconds=max_time, max_examples=max_examples)
        with Display("fuzz") as display:
            campaign = Campaign(session, adapters, options, events, known, lambda c: show_campaign(display, c))
            try:
                campaign.run()
            except KeyboardInterrupt:
                interrupted = True
        code = EXIT_INTERRUPTED if interrupted else campaign_code(campaign, corpus, session.launch.version, device)
        events.emit("run_finished", exit=code, seconds=round(campaign.elapsed_s, 2))
        print_campaign(campaign, session.launch.version)
    write_junit(folder)
    click.echo(f"results: {folder}")
    sys.exit(code)


def run_started(events: Events, session, command: str, **values) -> None:
    """The first event of every run: what, where, with which engine."""
    launch = session.launch
    events.emit(
        "run_started", command=command, engine=launch.engine, version=launch.version, device=launch.device,
        worker={k: v for k, v in session.ready.items() if k not in ("unsupported", "ready")},
        environment=environment(), **values,
    )  # fmt: skip


def show_campaign(display: Display, campaign: Campaign) -> None:
    cases = sum(s.executed for s in campaign.states)
    behaviours = len({(s.adapter.contract, b) for s in campaign.states for b in s.behaviours})
    finds = sum(len(s.found) for s in campaign.states)
    rate = cases / max(campaign.elapsed_s, 1e-9)
    text = f"{cases} cases, {rate:.0f}/s, {behaviours} behaviours reached, {finds} divergences"
    display.show(text, campaign.elapsed_s / campaign.options.max_seconds)


def campaign_code(campaign: Campaign, corpus: Path, version: str, device: str) -> int:
    """Exit code of a campaign."""
    verdicts: Counter[Kind] = Counter()
    for state in campaign.states:
        verdicts.update(state.verdicts)
    finds = all_finds(campaign)
    for found in finds:
        if found.belief.kind is Kind.ORACLE_SUSPECT:
            verdicts[Kind.ORACLE_SUSPECT] += 1
    unknown = sum(1 for f in finds if f.known is None and f.belief.kind is not Kind.ORACLE_SUSPECT)
    engine = campaign.session.launch.engine
    chosen = {s.adapter.id: s for s in campaign.states}
    listed = support.expected(corpus, engine, version, device)
    did_not_run = [t for t in listed if t in chosen and not chosen[t].executed]
    for name in did_not_run:
        click.echo(f"inconclusive: {name} is listed in support.toml but executed nothing", err=True)
    return exit_code(verdicts, unknown, did_not_run)


def all_finds(campaign: Campaign) -> list[Found]:
    return [f for s in campaign.states for f in s.found.values()]


def print_campaign(campaign: Campaign, version: str) -> None:
    """The table of targets and each find in words."""
    engine = campaign.session.launch.engine
    width = max(len(s.adapter.id) for s in campaign.states)
    device, seed = campaign.session.launch.device, campaign.options.seed
    click.echo(f"\n{engine}=={version} on {device}, seed {seed}, {campaign.elapsed_s:.0f} s")
    for s in campaign.states:
        total = len(contracts.get(s.adapter.contract).behaviours)
        if not s.executed:
            click.echo(f"{s.adapter.id:<{width}}  UNSUPPORTED: {s.reason or 'outside the budget'}")
            continue
        red = sum(n for k, n in s.verdicts.items() if k is not Kind.AGREE and k is not Kind.UNSUPPORTED)
        note = f"  {red} not agreeing" if red else ""
        note += f"  stopped: {s.reason}" if s.reason else ""
        click.echo(f"{s.adapter.id:<{width}}  {s.executed:>6} cases  {len(s.behaviours):>2}/{total} behaviours{note}")
    for found in all_finds(campaign):
        title = "KNOWN " if found.known else ""
        click.echo(f"\n{title}{found.belief.kind}: {found.identity}")
        click.echo(f"  {found.belief.words}")
        if found.known is not None:
            click.echo(f"  {found.known.line}")
            click.echo(f"  reachable: {found.known.reachable}")
            continue
        click.echo(f"  repeated in {found.belief.rate}, shrunk with {found.belief.calls} calls")
        if found.belief.sibling is not None:
            click.echo(f"  agrees on a sibling with {found.belief.sibling_words}")
        if found.frozen:
            click.echo(f"  frozen: {found.frozen}")


@click.command()
@engine_options
@corpus_option
@out_option
def gate(engine, target, contract, device, python, offline, corpus, out) -> None:
    """Replay frozen cases against an engine and decide, for CI."""
    spec = read_engine(engine, python)
    adapters = read_targets(spec.name, target, contract)
    cases = [(p, f) for p, f in corpus_.load(corpus) if any(a.contract == f.contract for a in adapters)]
    known = known_.load(corpus if corpus.is_dir() else corpus_.DEFAULT_CORPUS, spec.name)
    folder = fresh_folder(out, "gate")
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        run_started(events, session, "gate", corpus=str(corpus), cases=len(cases))
        version = session.launch.version
        total = sum(a.contract == f.contract for a in adapters for _, f in cases)
        with Display("gate") as display:
            result = run_gate(
                session, adapters, cases, events, known,
                lambda r: show_gate(display, r, total),
            )  # fmt: skip
        listed = support.expected(corpus if corpus.is_dir() else corpus_.DEFAULT_CORPUS, spec.name, version, device)
        contracts_met = {f.contract for _, f in cases}
        chosen = {a.id for a in adapters if a.contract in contracts_met}
        absent = [t for t in listed if t in chosen and not result.executed[t]]
        code = exit_code(result.verdicts, len(result.red), absent)
        events.emit("run_finished", exit=code, verdicts={str(k): n for k, n in result.verdicts.items()})
        print_gate(result, absent, f"{spec.name}=={version}", len(cases))
    write_junit(folder)
    click.echo(f"results: {folder}")
    sys.exit(code)


def show_gate(display: Display, result: GateResult, total: int) -> None:
    done = result.verdicts.total()
    display.show(f"{done} of {total}, {len(result.red)} divergences", done / total)


def print_gate(result: GateResult, absent: list[str], engine: str, cases: int) -> None:
    """What the gate saw, the red first."""
    for identity, hits in result.red.items():
        name, verdict = hits[0]
        click.echo(f"{verdict.kind}: {identity}")
        click.echo(f"  {words_for(verdict)}")
        click.echo(f"  {len(hits)} frozen cases, first {name}")
    for name, verdict in result.suspects:
        reason = verdict.evidence.get("reason") or verdict.evidence.get("message")
        click.echo(f"{verdict.kind}: {verdict.target} on {name}: {reason}")
    for identity, names in result.known_red.items():
        click.echo(f"known: {identity} ({len(names)} frozen cases)")
    for entry in result.silent_known:
        click.echo(f"known but no longer fires: {entry.identity}")
    for target in absent:
        click.echo(f"inconclusive: {target} is listed in support.toml but did not run: {result.reasons.get(target)}")
    counts = ", ".join(f"{n} {k}" for k, n in sorted(result.verdicts.items()) if n)
    click.echo(f"{engine}: {cases} frozen cases, {len(result.executed)} targets: {counts}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@engine_options
def replay(file, engine, target, contract, device, python, offline) -> None:
    """Replay one case FILE and explain the answer: FIXED, FAILED or ERROR."""
    frozen = read(file)
    if engine == "sglang" and "engine" in frozen.provenance and python is None:
        engine = str(frozen.provenance["engine"])
    spec = read_engine(engine, python)
    adapters = choose(read_targets(spec.name, "*", contract), frozen, None if target == "*" else target)
    if not adapters:
        raise click.UsageError(
            f"no target of {spec.name} has contract {frozen.contract} and matches --target {target!r}"
        )
    codes = []
    click.echo(f"{frozen.name}\n  {frozen.reason}")
    with open_session(spec, device, python, offline) as session:
        for adapter in adapters:
            answer = run_replay(session, adapter, frozen)
            if answer.verdict.kind is Kind.UNSUPPORTED and len(adapters) > 1:
                click.echo(f"\n{adapter.id}: {answer.lines[0]}")
                continue
            codes.append(EXIT[answer.result])
            click.echo(f"\n{answer.result} {adapter.id} at {spec.name}=={session.launch.version}")
            for line in answer.lines:
                click.echo(f"  {line}")
    if not codes:
        click.echo("ERROR: no target could be shown this case", err=True)
    sys.exit(EXIT_HARNESS if not codes or EXIT_HARNESS in codes else max(codes))


@click.command()
@engine_options
@out_option
@seed_option
@click.option("--max-commit", default=sweep_.MAX_COMMIT, show_default=True, type=click.IntRange(1, 64),
              help="Largest committed count on production grids.")  # fmt: skip
def sweep(engine, target, contract, device, python, offline, out, seed, max_commit) -> None:
    """Enumerate the bounded domain of commit.checkpoint_steps, every row."""
    spec = read_engine(engine, python)
    adapters = [a for a in read_targets(spec.name, target, contract) if a.contract == sweep_.CONTRACT]
    if not adapters:
        raise click.UsageError(f"a sweep exists for {sweep_.CONTRACT} only; no such target was selected")
    folder = fresh_folder(out, "sweep")
    domain = sweep_.blocks(max_commit)
    checked = sweep_.check_closed_form(domain)
    rows = sum(b.rows for b in domain)
    click.echo(f"{rows} rows; closed form equals the token-by-token reference on all {checked} distinct ones")
    unreachable = sum(b.rows for b in domain if not b.reachable)
    click.echo(f"{unreachable} rows have grids 8, 16 and 32, which no engine allows with such blocks")
    results = []
    with open_session(spec, device, python, offline) as session, Events(folder) as events:
        run_started(events, session, "sweep", rows=rows, seed=seed)
        with Display("sweep") as display:
            for adapter in adapters:
                if adapter.id in session.ready["unsupported"]:
                    click.echo(f"{adapter.id}: UNSUPPORTED: {session.ready['unsupported'][adapter.id]}")
                    continue
                number = events.start(adapter.id, sweep=True)
                result = sweep_.sweep(
                    session, adapter, domain, seed, lambda r: display.show(f"{r.target} {r.rows} rows")
                )
                events.emit("swept", case=number, **vars(result))
                results.append(result)
        for r in results:
            what = "every row" if r.whole else "seeded sample"
            click.echo(f"{r.target}: {r.rows} rows ({what}), {r.seconds:.1f} s")
            click.echo(f"  diverging rows {r.diverging}, crossing rows by the closed form {r.crossing}")
            click.echo(f"  diverging rows that do not cross {r.wrong_not_crossing}")
            if r.first:
                click.echo(f"  first: {r.first}")
            if r.failure:
                click.echo(f"  stopped: {r.failure}")
        code = EXIT_AGREED
        if any(r.failure and not r.failure.startswith("outside") for r in results):
            code = EXIT_HARNESS
        elif any(r.diverging for r in results):
            code = EXIT_DIVERGED
        elif not any(r.rows for r in results):
            code = EXIT_INCONCLUSIVE
        events.emit("run_finished", exit=code)
    click.echo(f"results: {folder}")
    sys.exit(code)


@click.command("bench")
@engine_options
@click.option("--cases", default=200, show_default=True, type=click.IntRange(min=10), help="Cases per target.")
def bench_(engine, target, contract, device, python, offline, cases) -> None:
    """Measure cases per second and the share of time in production code."""
    spec = read_engine(engine, python)
    adapters = read_targets(spec.name, target, contract)
    with open_session(spec, device, python, offline) as session:
        bench(session, adapters, cases, click.echo)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
def report(out: Path) -> None:
    """Derive junit.xml from the events of a run in OUT, also of a killed one."""
    try:
        click.echo(f"wrote {write_junit(out)}")
    except (OSError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(EXIT_USAGE)


COMMANDS = (targets, fuzz, sweep, gate, replay, bench_, report)
