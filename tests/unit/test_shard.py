"""Parts of a campaign: together they are the whole, no two are the same, and each is a function of its own values."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from fuzz.campaign import Campaign, Options
from fuzz.cli import cli
from fuzz.events import Events
from fuzz.shard import Shard
from tests.unit.test_isolation import adapter
from tests.unit.test_runs import fake

RIGHT = "fake/fake/commit.checkpoint_steps/right"


@pytest.mark.parametrize("targets", [1, 2, 5, 12])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
def test_parts_are_disjoint_and_together_the_whole(targets, count):
    names = [f"target {i}" for i in range(targets)]
    parts = [Shard(number, count).share(names, 100) for number in range(1, count + 1)]
    shown = [(name, seed) for part, seed in parts for name in part]
    assert all(part for part, _ in parts) and len(set(shown)) == len(shown)
    assert {name for name, seed in shown if seed == 100} == set(names)
    seeds = [seed for name, seed in shown if name == names[0]]
    assert seeds == list(range(100, 100 + len(seeds)))


def test_a_whole_campaign_is_its_only_part():
    assert Shard().share(["a", "b"], 7) == (["a", "b"], 7)


def test_a_part_shows_a_target_what_the_campaign_with_its_seed_shows(fake_session, tmp_path):
    def sent(name: str, options: Options) -> list[list[int]]:
        with Events(tmp_path / name) as events:
            Campaign(fake_session, [adapter(RIGHT)], options, events).run()
        lines = (tmp_path / name / "events.ndjson").read_text().splitlines()
        return [e["choices"] for e in map(json.loads, lines) if e["event"] == "start"]

    third = sent("third", Options(4, 30, 20, shard=Shard(3, 3)))
    assert len(third) > 5 and third == sent("alone", Options(6, 30, 20)) != sent("first", Options(4, 30, 20))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_a_part_that_is_none_is_a_usage_error(text):
    run = CliRunner().invoke(cli, ["fuzz", "--shard", text])
    assert run.exit_code == 2 and "is no part like 1/4" in run.output


def test_a_run_says_which_part_it_was(tmp_path):
    run = fake("fuzz", "--target", "*right", "--max-examples", "5", "--shard", "2/3", "--out", str(tmp_path / "run"))
    output, error = run.communicate(timeout=60)
    assert run.returncode == 0, error
    assert "seed 0, part 2/3" in output
    first = json.loads((tmp_path / "run" / "events.ndjson").read_text().splitlines()[0])
    assert first["shard"] == "2/3" and first["seed"] == 0
