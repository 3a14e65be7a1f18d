"""Cases go to a worker in batches; each still has its own verdict, and what only shows behind others is traced."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from fuzz import history
from fuzz.believe import believe
from fuzz.campaign import MAX_BATCH, Campaign, Options
from fuzz.events import Events
from fuzz.executor import execute, judged, prepare
from fuzz.presentation import PLAIN
from fuzz.supervisor import Died, Hung, Session
from fuzz.verdict import Identity, Kind
from tests.conftest import fake_launch
from tests.unit.test_isolation import CONTRACT, _choices_for, adapter, case_with

REMEMBERS = "fake/fake/commit.checkpoint_steps/remembers"
FAULTS = {1001: Died, 1002: Died, 1004: Hung, 1005: Died, 1014: dict, 5: dict}


def requests(codes, target=None):
    chosen = adapter(target) if target else adapter()
    return [prepare(FakeReady, chosen, case_with(code), PLAIN) | {"number": n} for n, code in enumerate(codes)]


class FakeReady:
    ready: dict = {}


@pytest.mark.parametrize("fault", [1001, 1002, 1004, 1005, 1014])
def test_the_answer_to_a_fault_is_its_own_and_the_rest_is_answered(fault):
    codes = [5, 6, fault, 7, fault, 8]
    with Session(fake_launch(), deadline_s=0.5) as session:
        answers = list(session.stream(requests(codes)))
        verdicts = [
            judged(session, adapter(), case_with(c), PLAIN, a).kind for c, a in zip(codes, answers, strict=True)
        ]
    assert [type(a) for a in answers] == [FAULTS.get(c, dict) for c in codes]
    assert [k is Kind.AGREE for k in verdicts] == [c < 1000 for c in codes]


def test_the_worker_goes_on_while_its_answers_are_looked_at(fake_session):
    """Three cases in one message: the second and third are done before the first is judged."""
    answers = fake_session.stream(requests([5, 6, 7]))
    worker = fake_session.worker_pid_if_any
    assert len(list(answers)) == 3 and fake_session.worker_pid_if_any == worker


def test_answers_that_nobody_read_are_not_taken_for_those_of_the_next_call(fake_session):
    answers = fake_session.stream(requests([5, 6, 1011, 8]))
    list(islice(answers, 2))
    verdict = execute(fake_session, adapter(), case_with(300))
    assert verdict.kind is Kind.AGREE, verdict


def test_a_campaign_sends_batches_and_writes_an_end_behind_each_start(fake_session, tmp_path, monkeypatch):
    sizes, stream = [], Session.stream

    def counted(self, asked, deadline_s=None):
        asked = list(asked)
        sizes.append(len(asked))
        return stream(self, asked, deadline_s)

    monkeypatch.setattr(Session, "stream", counted)
    with Events(tmp_path) as events:
        target = adapter("fake/fake/commit.checkpoint_steps/right")
        Campaign(fake_session, [target], Options(max_seconds=30, max_examples=400, bare=True), events).run()
    assert max(sizes) > 8 and max(sizes) <= MAX_BATCH
    lines = [json.loads(line) for line in (tmp_path / "events.ndjson").read_text().splitlines()]
    ends = Counter(e["case"] for e in lines if e["event"] == "end")
    assert set(ends) == {e["case"] for e in lines if e["event"] == "start"} and set(ends.values()) == {1}


def test_what_shows_only_behind_two_earlier_cases_is_traced_to_them(fake_session):
    codes = [5, 1100, 6, 7, 1101, 8, 9, 10, 11]
    past = requests(codes, REMEMBERS)
    (asked,) = requests([1200], REMEMBERS)
    wrong = lambda answer: answer["observed"]["current_step"] == [-2]  # noqa: E731
    needed = history.needed(fake_session, past, asked, wrong)
    assert [codes[r["number"]] for r in needed] == [1100, 1101]
    assert history.needed(fake_session, past[2:], asked, wrong) is None


def test_tracing_ends_when_its_time_is_over(fake_session, monkeypatch):
    past = requests([5, 1100, 6, 1101], REMEMBERS)
    (asked,) = requests([1200], REMEMBERS)
    before = fake_session.workers
    assert history.needed(fake_session, past, asked, lambda answer: True, max_seconds=0.0) == past
    assert fake_session.workers == before + 1


def test_a_flaky_find_names_the_cases_it_takes(fake_session):
    target, choices = adapter(REMEMBERS), _choices_for(1200)
    identity = Identity(CONTRACT.name, REMEMBERS, "current_step", "wrong_step")
    past = requests([5, 1101, 6, 1100], REMEMBERS)
    belief = believe(
        fake_session, target, choices, identity, lambda c, h: execute(fake_session, target, c, h), past=past
    )
    assert belief.kind is Kind.FLAKY and belief.rate.startswith("0 of")
    assert belief.verdict.evidence["behind"] == [1, 3] and "behind cases 1, 3 of this run" in belief.words
