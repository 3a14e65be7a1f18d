"""Frozen cases as pytest items, for engine owners.

``pytest --specoracle-engine sglang==local --specoracle-contract 'commit.*'`` collects
one item for each pair of a frozen case and a target whose domain it fits. An item
passes on AGREE; its failure text is the explanation that ``specoracle replay`` prints.
A listed divergence is an expected failure. A target that cannot run is a skip with the
reason, unless ``support.toml`` says that it runs. Without ``--specoracle-engine`` the
plugin does nothing. The engine runs in its own process, started by the first item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

ENGINE = "specoracle_engine"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("specoracle", "frozen cases of specoracle against an engine")
    group.addoption("--specoracle-engine", metavar="SPEC", help="Engine to test: NAME, NAME==VERSION, NAME==local.")
    group.addoption("--specoracle-contract", metavar="GLOB", default="*", help="Contracts to test.  [default: *]")
    group.addoption("--specoracle-target", metavar="GLOB", default="*", help="Targets to test.  [default: *]")
    group.addoption("--specoracle-python", metavar="PATH", help="Interpreter that has torch and the engine.")
    group.addoption("--specoracle-device", metavar="DEVICE", default="cpu", help="cpu, cuda or cuda:N.")
    group.addoption("--specoracle-corpus", metavar="DIR", help="Folder of frozen cases.  [default: the shipped one]")
    group.addoption("--specoracle-offline", action="store_true", help="Never provision what is missing.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "specoracle: a frozen case of specoracle on a target")
    if config.getoption(ENGINE) is not None:
        config.stash[_RUN] = _Run(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        config.stash[_RUN].close()


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose among the items
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if _RUN in config.stash:
        collector = FrozenCases.from_parent(session, name="specoracle", nodeid="specoracle")
        ours = list(collector.collect())
        if not ours:
            raise pytest.UsageError("no frozen case fits a target that --specoracle-* selects, so nothing was tested")
        items.extend(ours)
        report = pytest.CollectReport(collector.nodeid, "passed", None, ours)
        config.hook.pytest_collectreport(report=report)  # or "collected N items" would not count them


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Frozen cases were asked for and none was executed: that is no pass."""
    run = session.config.stash.get(_RUN, None)
    if run is not None and run.skipped and not run.executed and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


class FrozenCases(pytest.Collector):
    """All pairs of a frozen case and a target that fits."""

    def collect(self) -> Iterator[FrozenCaseItem]:
        run = self.config.stash[_RUN]
        for frozen, adapter in run.pairs():
            name = f"{frozen.name}[{adapter.id}]"
            yield FrozenCaseItem.from_parent(self, name=name, frozen=frozen, adapter=adapter)


class FrozenCaseItem(pytest.Item):
    """One frozen case on one target."""

    def __init__(self, *, frozen: Any, adapter: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self.frozen, self.adapter = frozen, adapter
        self.add_marker(pytest.mark.specoracle)

    def runtest(self) -> None:
        self.config.stash[_RUN].check(self.frozen, self.adapter)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Divergence) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name


class Divergence(Exception):
    """Production did what the contract does not allow, or gave no verdict."""


class _Run:
    """The engine, the cases and the lists of one pytest run."""

    def __init__(self, config: pytest.Config):
        from fuzz import corpus, known, support
        from fuzz.adapter import AdapterError, select
        from fuzz.engines.spec import EngineError, parse
        from fuzz.frozen import CorpusError

        option = config.getoption
        if not re.fullmatch(r"cpu|cuda(:\d+)?", option("specoracle_device")):
            raise pytest.UsageError(f"--specoracle-device {option('specoracle_device')!r} is none of cpu, cuda, cuda:N")
        self._python = Path(option("specoracle_python")) if option("specoracle_python") else None
        self._device, self._offline = option("specoracle_device"), option("specoracle_offline")
        folder = Path(option("specoracle_corpus") or corpus.DEFAULT_CORPUS)
        try:
            self.spec = parse(option(ENGINE), has_python=self._python is not None)
            self._adapters = [
                a for a in select(self.spec.name, option("specoracle_target"))
                if fnmatchcase(a.contract, option("specoracle_contract"))
            ]  # fmt: skip
            self._cases = [frozen for _, frozen in corpus.load(folder)]
            self._known = known.load(folder, self.spec.name)
            self._listed = lambda version: support.expected(folder, self.spec.name, version, self._device)
        except (AdapterError, EngineError, CorpusError) as error:
            raise pytest.UsageError(str(error)) from None
        if not self._adapters:
            raise pytest.UsageError(f"no target of {self.spec.name} matches the globs of --specoracle-*")
        self._session: Any = None
        self.executed = self.skipped = 0

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Every frozen case with every target of its contract whose domain it fits."""
        from fuzz.executor import Columns
        from fuzz.presentation import present
        from oracle import contracts

        for frozen in self._cases:
            fitting = [a for a in self._adapters if a.contract == frozen.contract]
            if fitting:
                contract = contracts.get(frozen.contract)
                columns = Columns(contract.columns(present(contract, frozen.case, frozen.presentation)))
                yield from ((frozen, a) for a in fitting if a.accepts(columns) is None)

    def session(self) -> Any:
        """The engine's session, started when first asked for."""
        from fuzz.engines.spec import EngineError
        from fuzz.launch import launch_for
        from fuzz.supervisor import Session, SessionError

        if self._session is None:
            try:
                launch = launch_for(self.spec, device=self._device, python=self._python, offline=self._offline)
                self._session = Session(launch)
                self._session.start()
            except (EngineError, SessionError) as error:
                self.close()
                pytest.exit(f"specoracle: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def check(self, frozen: Any, adapter: Any) -> None:
        """Run one pair; raise, skip or expect the failure as its verdict asks."""
        from fuzz.replay import Result, replay
        from fuzz.verdict import Kind

        session = self.session()
        version, device = session.launch.version, session.launch.device
        answer = replay(session, adapter, frozen)
        unsupported = answer.verdict.kind is Kind.UNSUPPORTED
        self.skipped, self.executed = self.skipped + unsupported, self.executed + (not unsupported)
        if answer.result is Result.FIXED:
            return
        if unsupported:
            reason = answer.verdict.evidence["reason"]
            if adapter.id in self._listed(version):
                raise Divergence(f"support.toml lists {adapter.id} for {version}, but it did not run: {reason}")
            pytest.skip(reason)
        listed = [k for k in self._known if answer.verdict.red and k.covers(answer.verdict.identity, version, device)]
        if listed:
            pytest.xfail(f"listed as known: {listed[0].reason}")
        raise Divergence("\n".join([f"{answer.verdict.kind} {adapter.id} at {self.spec}", *answer.lines]))


_RUN: pytest.StashKey[_Run] = pytest.StashKey()
