"""Shrinking a crash where each death costs an import of the engine: so many and no more,
and the find says so."""

from __future__ import annotations

import pytest

from fuzz import believe as believe_
from fuzz.believe import believe, sibling_of
from fuzz.campaign import Campaign, Options
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.strategies.case import shown_case
from fuzz.strategies.source import ReplaySource
from fuzz.supervisor import Session
from fuzz.verdict import Identity, Kind
from oracle.commit.checkpoint_steps import CONTRACT
from reports import events as event_reader
from tests.conftest import fake_launch
from tests.unit.test_isolation import MISBEHAVES, _choices_for, adapter, case_with

DIES = Identity(CONTRACT.name, MISBEHAVES, "process", "died:exit 7")
REQUESTS = 6
SHRINK_S = 3.0


@pytest.fixture(params=[False, True], ids=["forks", "direct"])
def session(request):
    """``direct``: no zygote that forks, as with a GPU."""
    made = Session(fake_launch(), deadline_s=1.0)
    made.direct = request.param
    with made:
        yield made


def investigated(session: Session):
    choices = _choices_for(1001, REQUESTS)
    case, _ = shown_case(CONTRACT.name)(ReplaySource(choices))
    assert [r.pre for r in case.requests] == [1001] * REQUESTS
    return believe(session, adapter(), choices, DIES, lambda c, h: execute(session, adapter(), c, h), SHRINK_S)


def test_the_most_allowed_is_a_bound_only_where_a_process_costs_an_import(session, monkeypatch):
    monkeypatch.setattr(believe_, "MAX_FRESH_PROCESSES", 3)
    belief = investigated(session)
    left = len(belief.case.requests)
    assert belief.kind is Kind.CRASH and belief.case.requests[0].pre == 1001
    if session.direct:
        assert (belief.fresh_processes, belief.capped) == (3, True)
        assert 1 < left < REQUESTS, "smaller than what was found, and not yet the smallest"
        assert belief.shrink_words == f"{belief.calls} calls, 3 fresh processes (the most allowed)"
    else:
        assert left == 1 and belief.fresh_processes > 3 and not belief.capped
        assert belief.shrink_words == f"{belief.calls} calls, {belief.fresh_processes} fresh processes"


def test_a_sibling_is_not_looked_for_over_any_number_of_processes(session, monkeypatch):
    """A target that dies of every case."""
    monkeypatch.setattr(believe_, "MAX_FRESH_PROCESSES", 3)
    monkeypatch.setattr(believe_, "SIBLING_DRAWS", 40)
    call = session.call
    exits = CONTRACT.columns(case_with(1001))
    monkeypatch.setattr(session, "call", lambda request: call(request | {"case": exits}))
    before = session.workers
    assert sibling_of(session, adapter(), case_with(5), []) is None
    assert (session.workers - before == 3) is session.direct


def test_the_event_of_a_find_says_what_shrinking_took(session, monkeypatch, tmp_path):
    monkeypatch.setattr(believe_, "MAX_FRESH_PROCESSES", 2)
    with Events(tmp_path) as events:
        events.emit("run_started")
        campaign = Campaign(session, [adapter()], Options(max_seconds=SHRINK_S), events)
        (state,) = campaign.states
        choices = _choices_for(1001, REQUESTS)
        campaign._one(state, *shown_case(CONTRACT.name)(ReplaySource(choices)), choices)
    (found,) = [e for e in event_reader.read(tmp_path) if e["event"] == "found"]
    belief = state.found[DIES].belief
    assert (found["shrink_processes"], found["shrink_capped"]) == (belief.fresh_processes, session.direct)
    assert found["shrink_calls"] == belief.calls and (not session.direct or found["shrink_processes"] == 2)
