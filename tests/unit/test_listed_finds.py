"""A find of a campaign that is listed as known is frozen too, as it was drawn, so that a
report can show what a reader would otherwise have to believe."""

from __future__ import annotations

from fuzz import freeze
from fuzz.campaign import Campaign, Options
from fuzz.events import Events
from fuzz.frozen import CorpusError, read
from fuzz.known import Known
from fuzz.verdict import Identity
from reports import html
from reports.events import read as read_events
from tests.unit.test_isolation import adapter

CONTRACT = "commit.checkpoint_steps"
TARGET = f"fake/fake/{CONTRACT}/two_bugs"
LISTED = Identity(CONTRACT, TARGET, "checkpoint_step", "missing")


def run(session, out) -> Campaign:
    known = [Known(LISTED, ">=0", "a.py:1", "Reachable: every round.", "bounded later", "none filed")]
    options = Options(max_seconds=20, max_examples=300, continue_on_failure=True)
    with Events(out) as events:
        events.emit("run_started", engine="fake", version="1", device="cpu")
        done = Campaign(session, [adapter(TARGET)], options, events, known)
        done.run()
    return done


def test_a_listed_find_is_frozen_as_it_was_drawn_and_drawn_in_the_report(fake_session, tmp_path):
    done = run(fake_session, tmp_path / "run")
    found = done.states[0].found[LISTED]
    assert found.known is not None and found.belief.calls == 0
    frozen = read(found.frozen)
    assert frozen.provenance["listed"] == "as it was drawn, not shrunk" and frozen.case == found.belief.case
    (event,) = [e for e in read_events(tmp_path / "run") if e["event"] == "found" and e["known"]]
    assert event["frozen"] == str(found.frozen.relative_to(tmp_path / "run"))
    report = html.write([tmp_path / "run"], tmp_path / "report").parent
    pages = [p.read_text() for p in (report / "divergences").iterdir()]
    page = next(p for p in pages if "| missing</dd>" in p)
    assert "See it again" in page and "<svg" in page


def test_other_finds_say_nothing_of_a_list(fake_session, tmp_path):
    others = [f for i, f in run(fake_session, tmp_path / "run").states[0].found.items() if i != LISTED]
    assert others and all("listed" not in read(f.frozen).provenance for f in others)


def test_a_listed_find_that_no_file_can_hold_ends_no_campaign(fake_session, tmp_path, monkeypatch):
    def full(frozen, folder):
        if "listed" in frozen.provenance:
            raise CorpusError("would be larger")
        return write(frozen, folder)

    write = freeze.write
    monkeypatch.setattr(freeze, "write", full)
    done = run(fake_session, tmp_path / "run")
    assert done.states[0].found[LISTED].frozen is None
    assert len(done.states[0].found) == 2
