"""A database of finds that runs share: each begins with what the others found, and a
server that is not there is said before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import fakeredis
import pytest
import redis
from click.testing import CliRunner

from fuzz import database as database_
from fuzz.campaign import Campaign, Options
from fuzz.cli import _command
from fuzz.commands import fuzz as command
from fuzz.database import PREFIX, DatabaseError, Store, open_store
from fuzz.events import Events
from fuzz.known import Known
from fuzz.supervisor import Session
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.unit.test_isolation import adapter

CONTRACT = "commit.checkpoint_steps"
TWO_BUGS, RIGHT = (f"fake/fake/{CONTRACT}/{name}" for name in ("two_bugs", "right"))


@pytest.fixture()
def server(monkeypatch):
    """A Redis server in this process; ``connected`` false takes it away."""
    made = fakeredis.FakeServer()

    def from_url(url: str, **options):
        return fakeredis.FakeRedis(server=made, socket_timeout=options["socket_timeout"])

    monkeypatch.setattr(redis.Redis, "from_url", from_url)
    return made


@pytest.fixture(params=["folder", "redis"])
def where(request, tmp_path, server) -> str:
    return str(tmp_path / "shared") if request.param == "folder" else "redis://localhost:6379/3"


def run(out: Path, store: Store | None, *targets: str, known=(), **options) -> tuple[Campaign, list[dict]]:
    options = {"max_examples": 40, "max_seconds": 20.0} | options
    with Session(fake_launch()) as session, Events(out) as events:
        events.emit("run_started")
        campaign = Campaign(
            session, [adapter(t) for t in targets], Options(**options), events, list(known), store=store
        )
        campaign.run()
    return campaign, event_reader.read(out)


def shown(events: list[dict], target: str) -> list[list[int]]:
    return [e["choices"] for e in events if e["event"] == "start" and e["target"] == target]


def test_a_later_run_begins_with_what_an_earlier_one_found_on_every_target_of_the_contract(tmp_path, where):
    first, _ = run(tmp_path / "1", open_store(where, tmp_path / "own"), TWO_BUGS)
    assert first.states[0].found and first.states[0].raw > 1, "this seed needs a few cases"
    second, events = run(tmp_path / "2", open_store(where, tmp_path / "own"), RIGHT, TWO_BUGS, seed=9)
    assert shown(events, RIGHT)[0] == shown(events, TWO_BUGS)[0]
    assert second.states[1].found.keys() == first.states[0].found.keys() and second.states[1].raw == 0
    assert second.states[0].stored == second.states[1].stored == 1


def test_behind_it_the_cases_are_those_of_the_seed(tmp_path, where):
    store = open_store(where, tmp_path / "own")
    _, alone = run(tmp_path / "1", None, RIGHT, max_examples=30)
    store.save(CONTRACT, [3, 1, 4])
    campaign, events = run(tmp_path / "2", store, RIGHT, max_examples=31)
    assert campaign.states[0].stored == 1
    assert [c for c in shown(events, RIGHT) if c in shown(alone, RIGHT)] == shown(alone, RIGHT)


def test_a_find_of_this_run_is_not_handed_to_its_other_targets(tmp_path):
    """When it comes depends on time; what a target is shown must not."""
    _, events = run(tmp_path / "1", open_store(None, tmp_path / "1" / "examples"), TWO_BUGS, RIGHT)
    (_, alone) = run(tmp_path / "2", None, RIGHT)
    assert shown(events, RIGHT) == shown(alone, RIGHT)
    assert list(open_store(None, tmp_path / "1" / "examples").stored(CONTRACT)), "but the next run can have it"


def test_what_is_listed_is_not_kept(tmp_path, where):
    first, _ = run(tmp_path / "1", None, TWO_BUGS)
    (identity,) = first.states[0].found

    class Listed(Known):
        def __init__(self):
            pass

        def covers(self, *_):
            return True

    store = open_store(where, tmp_path / "own")
    again, _ = run(tmp_path / "2", store, TWO_BUGS, known=[Listed()])
    assert identity in again.states[0].found and not list(store.stored(CONTRACT))


def test_what_stands_in_it_may_be_anything(tmp_path, where):
    from hypothesis.database import choices_to_bytes

    store = open_store(where, tmp_path / "own")
    for junk in (b"\xff\xff", choices_to_bytes(["x", 1.5]), choices_to_bytes([10**30] * 40), choices_to_bytes([])):
        store.database.save(PREFIX + CONTRACT.encode(), junk)
    campaign, _ = run(tmp_path / "1", store, RIGHT, max_examples=5)
    assert (campaign.states[0].stored, campaign.states[0].raw) == (2, 3)


def test_the_shortest_are_shown_and_not_more_than_the_most(tmp_path, where, monkeypatch):
    monkeypatch.setattr(database_, "MAX_STORED", 2)
    store = open_store(where, tmp_path / "own")
    for choices in ([1] * 9, [2], [3, 3]):
        store.save(CONTRACT, choices)
    assert list(store.stored(CONTRACT)) == [[2], [3, 3]] and not list(store.stored("verify.greedy_chain"))


def test_a_server_that_goes_away_costs_the_database_and_not_the_run(tmp_path, server):
    store = open_store("redis://localhost", tmp_path)
    server.connected = False
    campaign, _ = run(tmp_path / "1", store, TWO_BUGS)
    assert campaign.states[0].found and "ConnectionError" in store.lost


def test_it_expires_after_months_and_not_after_a_week(tmp_path, server):
    store = open_store("redis://localhost", tmp_path)
    store.save(CONTRACT, [1])
    (key,) = store.database.redis.keys()
    assert key == PREFIX + CONTRACT.encode() and store.database.redis.ttl(key) > 80 * 24 * 3600


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("redis://:secret@127.0.0.1:1/0", "redis://127.0.0.1:1/0 cannot be used: Error 111"),
        ("redis://user:12/secret@host", "is a folder or redis://HOST:PORT"),
        ("redis://127.0.0.1:1/0?nosuchoption=1", "is a folder or redis://HOST:PORT"),
        ("redis://127.0.0.1:1/0?socket_timeout=9999", "is a folder or redis://HOST:PORT"),
        ("redis://127.0.0.1:notaport", "is a folder or redis://HOST:PORT"),
        ("redis://", "is a folder or redis://HOST:PORT"), ("http://localhost", "is a folder or redis://HOST:PORT"),
        ("file", "file is no folder and cannot be made one"), ("a\0b", "cannot be made one"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_before_the_engine_is_started(tmp_path, monkeypatch, capsys, where, says):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    monkeypatch.setattr(command, "open_session", lambda *_: pytest.fail("the engine was started"))
    monkeypatch.setattr(sys, "argv", ["specoracle", "fuzz", "--database", where])
    code = _command()  # main would leave this process deaf to signals
    said = capsys.readouterr().err
    assert code == 2 and says in said and "secret" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(DatabaseError, match=r"pip install 'specoracle\[redis\]'"):
        open_store("redis://localhost", tmp_path)


def test_the_option_is_of_comparisons_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    options = ["--engine", "sglang==0.5.22", "--against", "sglang==0.5.23", "--database", "file"]
    done = CliRunner().invoke(command.fuzz, options)
    assert isinstance(done.exception, DatabaseError)
