"""Shared fixtures: sessions for the fake engine and for provisioned ones."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from fuzz import adapter as adapters
from fuzz import interrupt
from fuzz.engines.spec import parse
from fuzz.launch import launch_for
from fuzz.supervisor import PROJECT_ROOT, Launch, Session

adapters.BUILT_IN["fake"] = "tests.fake_modules"


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts what it puts into the background with SIGINT ignored: whoever is started here would
    inherit that, and tests of interruption would wait for nothing."""
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)


def fake_launch() -> Launch:
    """The fake engine in this interpreter, without torch."""
    env = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    targets = tuple(adapters.load("fake"))
    return Launch("fake", "1.0", sys.executable, env, {}, ("tests.fake_engine",), targets, torch=False)


@pytest.fixture(autouse=True)
def signals_stay_as_they_were() -> Iterator[None]:
    """A test that changes how this process hears a signal would change it for all that come after."""
    before = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    yield
    changed = [number for number, handler in before.items() if signal.getsignal(number) != handler]
    for number in changed:
        signal.signal(number, before[number])
    assert not changed


@pytest.fixture()
def fake_session() -> Iterator[Session]:
    """A session of the fake engine with a short deadline."""
    with Session(fake_launch(), deadline_s=5.0) as session:
        yield session


@pytest.fixture(scope="session")
def engine_session() -> Iterator[Callable[[str], Session]]:
    """``engine_session("0.5.18")`` of SGLang, ``engine_session("vllm==0.33.0")`` of another
    engine: one session a release for the whole run, because an import costs 10 to 18 s."""
    sessions: dict[str, Session] = {}

    def get(release: str) -> Session:
        if release not in sessions:
            session = Session(launch_for(parse(release if "==" in release else f"sglang=={release}")))
            session.start()
            sessions[release] = session
        return sessions[release]

    yield get
    for session in sessions.values():
        session.close()
