"""Bisection: few steps, gaps that never count as good, both directions, and a history
of several changes that is said."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from click.testing import CliRunner

from fuzz import corpus
from fuzz.bisect import Answer, Bisection, EndsError, Probe, bisect, look_again, spread
from fuzz.cli import cli
from fuzz.commands.bisect import _words
from fuzz.engines import releases
from fuzz.engines.spec import EngineError
from fuzz.worker.record import Record
from oracle.commit.checkpoint_steps import CONTRACT, Request
from tests import fake_releases

GOOD, BAD, SKIP = Answer.GOOD, Answer.BAD, Answer.SKIP


def asker(history: str):
    """Versions ``0, 1, …`` and how they answer: ``g``, ``b`` or ``s`` each."""
    answers = {"g": GOOD, "b": BAD, "s": SKIP}
    return [str(i) for i in range(len(history))], lambda v: Probe(v, answers[history[int(v)]], "gap")


@pytest.mark.parametrize("size", [2, 3, 4, 7, 18, 100])
def test_every_single_change_is_found_in_logarithmic_steps(size):
    for turn in range(1, size):
        versions, ask = asker("g" * turn + "b" * (size - turn))
        found = bisect(versions, ask)
        assert (found.good, found.bad, found.between) == (str(turn - 1), str(turn), [])
        assert found.steps <= 2 + math.ceil(math.log2(size - 1))
        assert found.contradictions == []


def test_a_gap_never_counts_as_good_and_gives_a_range():
    versions, ask = asker("ggssbb")
    found = bisect(versions, ask)
    assert (found.good, found.bad, found.between) == ("1", "4", ["2", "3"])


def test_a_gap_elsewhere_costs_a_neighbour_and_no_range():
    versions, ask = asker("ggggssssgbbb")
    found = bisect(versions, ask)
    assert (found.good, found.bad, found.between) == ("8", "9", [])


def test_random_gaps_leave_only_gaps_between_the_ends():
    draw = random.Random(5)
    for _ in range(300):
        size = draw.randint(2, 30)
        turn = draw.randint(1, size - 1)
        history = "".join("s" if 0 < i < size - 1 and draw.random() < 0.4 else "gb"[i >= turn] for i in range(size))
        versions, ask = asker(history)
        found = bisect(versions, ask)
        low, high = int(found.good), int(found.bad)
        assert history[low] == "g" and history[high] == "b" and set(history[low + 1 : high]) <= {"s"}


@pytest.mark.parametrize(
    ("history", "words"),
    [("gg", "1 was named as the bad end, but does not show it"), ("bb", "0 was named as the good end, but shows it"),
     ("sb", "0 was named as the good end, but says nothing: gap"), ("gs", "1 was named as the bad end, but says n")],
)  # fmt: skip
def test_the_ends_are_verified_first(history, words):
    versions, ask = asker(history)
    with pytest.raises(EndsError, match=words):
        bisect(versions, ask)


def test_a_history_that_goes_back_and_forth_is_noticed_by_the_extra_look():
    versions, ask = asker("gbbggggggbbb")
    found = bisect(versions, ask)
    assert found.bad in ("1", "9")
    look_again(found, versions, ask, lambda probe: None)
    assert {p.version for p in found.contradictions} in ({"1", "2"}, set("345678"))
    assert found.steps == len(versions)


def test_the_extra_look_is_spread_and_bounded():
    versions = [str(i) for i in range(20)]
    asked = {"0": None, "10": None, "19": None}
    assert spread(versions, asked, versions, 3) == ["3", "9", "16"]
    assert spread(versions, asked, ["4", "10", "77"], 3) == ["4"]
    assert spread(versions, asked, versions, 0) == []


def test_a_bisection_counts_what_it_asked():
    assert Bisection(["0", "1"], "0", "1", {"0": Probe("0", GOOD)}).steps == 1


@pytest.fixture
def command(monkeypatch, tmp_path):
    """``bisect`` on a case that lands on 256, over the releases of the fake engine."""
    fake_releases.put_in_place(monkeypatch.setattr)
    case = replace(CONTRACT.example, grid=256, requests=(Request(255, 1, 0),))
    path = corpus.write(corpus.make("commit.checkpoint_steps", case, slug="lands", reason="lands on 256"), tmp_path)

    def run(*arguments: str):
        named = ["--engine", "history", "--target", fake_releases.TARGET, *arguments]
        return CliRunner().invoke(cli, ["bisect", str(path), *named], catch_exceptions=False)

    return run


def test_the_first_bad_release_is_printed(command):
    done = command("--good", "1.0", "--bad", "1.6", "--check", "none")
    assert done.exit_code == 0, done.output
    assert "first bad release: 1.3 (last good: 1.2)" in done.output
    assert "checkpoint_step | missing" in done.output and "monotone" not in done.output


def test_the_other_direction_finds_the_fix(command):
    done = command("--good", "1.9", "--bad", "1.4", "--check", "none")
    assert done.exit_code == 0, done.output
    assert "first fixed release: 1.7 (last bad: 1.6)" in done.output


def test_a_release_without_the_target_is_skipped_and_a_range_is_said(command, monkeypatch):
    monkeypatch.setattr(fake_releases, "RELEASES", ["1.4", "1.5", "1.8"])
    done = command("--good", "1.8", "--bad", "1.4")
    assert done.exit_code == 3, done.output
    assert "1.5: skip (UNSUPPORTED: not in this release)" in done.output
    assert "first fixed release: one of 1.5, 1.8 (last bad: 1.4); 1.5 cannot say" in done.output


def test_releases_at_hand_are_asked_too_and_a_second_change_is_said(command):
    """Bad from 1.3 to 1.6 between a good 1.0 and 1.9: an end that is bad is needed, so
    the history is looked at from 1.6 back to the good 1.9."""
    done = command("--good", "1.9", "--bad", "1.3", "--check", "all")
    assert done.exit_code == 0, done.output
    assert "first fixed release: 1.7" in done.output and "not monotone" not in done.output
    assert done.output.count(": bad") == 3 and done.output.count(": good") == 3 and done.output.count(": skip") == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--good", "1.3", "--bad", "1.4"), 3, "1.3 was named as the good end, but shows it"),
        (("--good", "1.0", "--bad", "1.1"), 2, "--bad 1.1: " + fake_releases.TARGET + ": AGREE"),
        (("--good", "1.0", "--bad", "1.5"), 2, "--bad 1.5: " + fake_releases.TARGET + ": UNSUPPORTED: not in this"),
        (("--good", "1.4", "--bad", "1.4"), 2, "name the same release"),
        (("--good", "1.4", "--bad", "1.4.0"), 2, "name the same release"),
    ],
)
def test_ends_that_cannot_be_bisected_say_why(command, arguments, code, words):
    done = command(*arguments)
    assert done.exit_code == code and words in done.output, done.output


def test_a_local_engine_is_no_end_of_a_bisection(tmp_path):
    path = corpus.write(
        corpus.make("commit.checkpoint_steps", CONTRACT.example, slug="a", reason="an example"), tmp_path
    )
    for ends in (("local", "0.5.18"), ("0.5.18", "local")):
        named = ["bisect", str(path), "--offline", "--good", ends[0], "--bad", ends[1]]
        done = CliRunner().invoke(cli, named, catch_exceptions=False)
        assert done.exit_code == 2 and "--good and --bad name releases" in done.output, done.output


def test_an_end_that_is_written_otherwise_is_the_release_as_published(command):
    done = command("--good", "1.2.0", "--bad", "1.3.0", "--check", "none")
    assert done.exit_code == 0, done.output
    assert "first bad release: 1.3 (last good: 1.2)" in done.output and "1.3.0" not in done.output


def test_a_release_that_cannot_be_had_is_skipped(command, monkeypatch):
    real = fake_releases.launch

    def launch_for(spec, **_):
        if spec.version == "1.3":
            raise EngineError("1.3 has no wheel for this platform")
        return real(spec.name, spec.version)

    monkeypatch.setattr("fuzz.commands.session.launch_for", launch_for)
    done = command("--good", "1.0", "--bad", "1.4", "--check", "none")
    assert done.exit_code == 3, done.output
    assert "first bad release: one of 1.3, 1.4 (last good: 1.2); 1.3 cannot say" in done.output


def test_releases_between_two_keep_the_ends_and_the_order():
    listed = ["1.10", "1.9", "1.9.post1", "2.0"]
    assert releases.between(listed, "1.9", "1.11") == ["1.9", "1.9.post1", "1.10", "1.11"]
    assert releases.between(listed, "1.11", "1.9") == ["1.9", "1.9.post1", "1.10", "1.11"]


def test_pip_is_asked_for_the_releases_and_only_those_with_data_are_offered(monkeypatch, tmp_path):
    said = ["sglang (0.5.23)", "Available versions: 9.0.0, 0.5.23, 0.5.22rc1, 0.5.13.post1, 0.5.13, 0.5.9, x", "LATEST"]
    monkeypatch.setattr(releases.tools, "run", lambda command, **_: said)
    assert releases.published("sglang", home=tmp_path) == ["0.5.13", "0.5.13.post1", "0.5.23"]
    assert [str(s) for s in releases.expand("sglang==0.5.12..0.5.14")] == ["sglang==0.5.13", "sglang==0.5.13.post1"]
    assert [str(s) for s in releases.expand("sglang==0.5.12")] == ["sglang==0.5.12"]
    with pytest.raises(EngineError, match="write the older release first"):
        releases.expand("sglang==0.5.14..0.5.12")
    with pytest.raises(EngineError, match="no release is published"):
        releases.expand("sglang==0.5.14..0.5.15")


def test_offline_only_what_is_provisioned_is_offered(monkeypatch):
    monkeypatch.setattr(releases, "provisioned", lambda name, home=None: ["0.5.12", "0.5.18"])
    monkeypatch.setattr(releases, "_from_index", None)
    assert releases.published("sglang", offline=True) == ["0.5.12", "0.5.18"]


def test_an_index_that_cannot_be_asked_is_said(monkeypatch, tmp_path):
    def run(command, **_):
        raise releases.tools.ToolFailed(1, ["ERROR: Failed to establish a new connection"])

    monkeypatch.setattr(releases.tools, "run", run)
    with pytest.raises(EngineError, match="no network"):
        releases.published("sglang", home=tmp_path)
    monkeypatch.setattr(releases.tools, "run", lambda command, **_: ["something else"])
    with pytest.raises(EngineError, match="pip lists no releases of sglang"):
        releases.published("sglang", home=tmp_path)


def test_a_post_release_takes_the_data_of_its_release_and_not_the_newest():
    record = Record({"symbol": {}, "fact": {"f": {"1.2": "old", "1.3": "new"}}}, "1.2.post1")
    assert record.fact("f") == "old"
    assert (
        Record({"symbol": {}, "fact": {"f": {"1.2": "old", "1.2.post1": "post", "1.3": "new"}}}, "1.2.post2").fact("f")
        == "post"
    )


def test_a_history_of_several_changes_is_said():
    versions, ask = asker("gbbg" + "g" * 5 + "bbb")
    found = bisect(versions, ask)
    look_again(found, versions, ask, lambda probe: None)
    text = "\n".join(_words(found, 5))
    assert "the history is not monotone: " in text and "more than one change" in text
    assert "5 of 12 releases asked while halving, 7 more to check" in text
