"""``specoracle bisect``: the release in which a divergence appears, or goes."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from packaging.version import Version

from fuzz.adapter import Adapter
from fuzz.believe import FRESH_RUNS, repeats, sibling_of
from fuzz.bisect import Answer, Ask, Bisection, EndsError, Probe, look_again, spread
from fuzz.bisect import bisect as halve
from fuzz.commands.options import check_device, read_targets
from fuzz.commands.session import open_session
from fuzz.engines.releases import between, provisioned, published
from fuzz.engines.spec import EngineError, parse
from fuzz.executor import execute
from fuzz.frozen import CorpusError, FrozenCase, drifted, read
from fuzz.replay import DRIFTED, choose
from fuzz.supervisor import SessionError
from fuzz.verdict import EXIT_AGREED, EXIT_INCONCLUSIVE, Identity, Kind, Verdict, worst_exit

MAX_CHEAP = 3  # releases asked beyond the halving, to notice a history of several changes
ALL = "all"


@click.command()
@click.argument("file", metavar="CASE", type=click.Path(path_type=Path))
@click.option("--engine", default="sglang", show_default=True, metavar="NAME", help="An engine, without a version.")
@click.option("--good", required=True, metavar="VERSION", help="A release that agrees on the case.")
@click.option(
    "--bad", required=True, metavar="VERSION", help="A release that does not; older than --good finds the fix."
)
@click.option("--target", default="*", metavar="GLOB", help="Only targets whose id matches.")
@click.option("--device", default="cpu", callback=check_device, help="cpu, cuda or cuda:N.  [default: cpu]")
@click.option("--offline", is_flag=True, help="Only releases that are provisioned.")
@click.option("--check", type=click.Choice(["none", "some", ALL]), default="some", show_default=True,
              help="Releases asked beyond the halving, to notice a history of several changes: "
                   f"up to {MAX_CHEAP} that are provisioned, or all.")  # fmt: skip
def bisect(file, engine, good, bad, target, device, offline, check) -> None:
    """Find the first release in which CASE diverges as it does in --bad.

    A release that cannot run the target, or that diverges in another way, never counts
    as good: its neighbour is asked, and the answer is a range where none can say.
    """
    frozen = read(file)
    if drifted(frozen):
        raise CorpusError(f"{file}: {DRIFTED}; a bisection against another outcome than the file shows says nothing")
    ends = [parse(f"{engine}=={version}") for version in (good, bad)]
    name, good, bad = ends[0].name, ends[0].version, ends[1].version
    if None in (good, bad):
        raise click.UsageError("--good and --bad name releases, such as 0.5.18; a local engine has no neighbours")
    if Version(good) == Version(bad):
        raise click.UsageError("--good and --bad name the same release")
    adapters = choose(read_targets(name, "*", "*"), frozen, None if target == "*" else target)
    if not adapters:
        raise click.UsageError(f"no target of {name} has contract {frozen.contract} and matches --target {target!r}")
    versions = between(published(name, offline=offline), good, bad)
    if Version(good) > Version(bad):
        versions.reverse()
    bad = versions[-1]  # as it is published: 0.5.18.0 is 0.5.18
    releases = _Releases(name, frozen, adapters, device, offline)
    click.echo(f"{frozen.name}: {len(versions)} releases from {versions[0]} to {versions[-1]}")
    followed = releases.red(bad)
    if not followed:
        raise click.UsageError(f"--bad {bad}: {releases.words(bad)}; name a release that diverges on this case")
    codes = [_follow(identity, versions, releases, check) for identity in followed]
    sys.exit(worst_exit(codes))


def _follow(identity: Identity, versions: list[str], releases: _Releases, check: str) -> int:
    """Bisect one identity and print what was found."""
    click.echo(f"\n{identity}")
    ask = releases.asks(identity)
    try:
        found = halve(versions, ask, _say)
    except EndsError as error:
        click.echo(f"  no bisection: {error}")
        return EXIT_INCONCLUSIVE
    halving = found.steps
    if check != "none":
        cheap = versions if check == ALL else provisioned(releases.name)
        most = len(versions) if check == ALL else MAX_CHEAP
        look_again(found, spread(versions, found.probes, cheap, most), ask, _say)
    for line in _words(found, halving):
        click.echo(line)
    return EXIT_INCONCLUSIVE if found.between else EXIT_AGREED


def _say(probe: Probe) -> None:
    click.echo(f"  {probe.version}: {probe.answer}" + (f" ({probe.reason})" if probe.reason else ""))


def _words(found: Bisection, halving: int) -> list[str]:
    forward = Version(found.good) < Version(found.bad)
    what = "first bad" if forward else "first fixed"
    turn, before = (found.bad, f"last good: {found.good}") if forward else (found.good, f"last bad: {found.bad}")
    if found.between:
        middle = sorted(found.between, key=Version)
        lines = [f"{what} release: one of {', '.join([*middle, turn])} ({before}); {', '.join(middle)} cannot say"]
    else:
        lines = [f"{what} release: {turn} ({before})"]
    lines.append(
        f"{halving} of {len(found.versions)} releases asked while halving, {found.steps - halving} more to check"
    )
    if found.contradictions:
        odd = ", ".join(f"{p.version} is {p.answer}" for p in found.contradictions)
        lines.append(f"the history is not monotone: {odd}; there is more than one change between the ends")
    return lines


class _Releases:
    """Asks releases about one case; each is started once, for all targets."""

    def __init__(self, name: str, frozen: FrozenCase, adapters: list[Adapter], device: str, offline: bool):
        self.name, self._frozen, self._adapters = name, frozen, adapters
        self._device, self._offline = device, offline
        self._seen: dict[str, dict[str, Probe]] = {}
        self._verdicts: dict[str, dict[str, Verdict]] = {}
        self._failed: dict[str, str] = {}

    def red(self, version: str) -> list[Identity]:
        """The divergences that a release shows and that are believed there."""
        self._ask(version)
        verdicts = self._verdicts.get(version, {})
        return [v.identity for t, v in verdicts.items() if v.red and not self._seen[version][t].reason]

    def words(self, version: str) -> str:
        """What a release says, in words."""
        self._ask(version)
        if version in self._failed:
            return self._failed[version]
        return "; ".join(f"{t}: {p.reason or self._verdicts[version][t].kind}" for t, p in self._seen[version].items())

    def asks(self, identity: Identity) -> Ask:
        """The question of a bisection that follows ``identity``."""

        def ask(version: str) -> Probe:
            self._ask(version)
            if version in self._failed:
                return Probe(version, Answer.SKIP, self._failed[version])
            verdict, probe = self._verdicts[version][identity.target], self._seen[version][identity.target]
            if probe.answer is Answer.BAD and verdict.identity != identity:
                return Probe(
                    version, Answer.SKIP, f"diverges otherwise: {verdict.identity.field} {verdict.identity.kind}"
                )
            return probe

        return ask

    def _ask(self, version: str) -> None:
        if version in self._seen or version in self._failed:
            return
        try:
            with open_session(parse(f"{self.name}=={version}"), self._device, None, self._offline) as session:
                verdicts = {
                    a.id: execute(session, a, self._frozen.case, self._frozen.presentation) for a in self._adapters
                }
                probes = {a.id: self._judge(session, a, version, verdicts[a.id]) for a in self._adapters}
        except (EngineError, SessionError) as error:  # not published for this platform, does not import, gone
            self._failed[version] = str(error).splitlines()[0]
            return
        self._verdicts[version], self._seen[version] = verdicts, probes

    def _judge(self, session, adapter: Adapter, version: str, verdict: Verdict) -> Probe:
        """Believed like a gate believes: red repeats and has a sibling that agrees."""
        if verdict.kind is Kind.AGREE:
            return Probe(version, Answer.GOOD)
        if not verdict.red:
            reason = verdict.evidence.get("reason") or verdict.evidence.get("message") or ""
            return Probe(version, Answer.SKIP, f"{verdict.kind}: {reason}".strip())
        repeated = repeats(session, adapter, self._frozen.case, self._frozen.presentation, verdict.identity)
        if repeated < FRESH_RUNS:
            return Probe(version, Answer.SKIP, f"repeats only in {repeated} of {FRESH_RUNS} fresh processes")
        if sibling_of(session, adapter, self._frozen.case, []) is None:
            return Probe(version, Answer.SKIP, "no sibling case agrees on this target")
        return Probe(version, Answer.BAD)
