"""The gate over the shipped corpus, on every supported release."""

from __future__ import annotations

import tomllib

import pytest

from fuzz import adapter as adapters
from fuzz import corpus, known, support
from fuzz.events import Events
from fuzz.gate import GateResult, gate
from fuzz.verdict import Kind, exit_code

pytestmark = pytest.mark.engine

VERSIONS = ["0.5.10", "0.5.12", "0.5.14", "0.5.16", "0.5.18", "0.5.20", "0.5.22", "0.5.23"]
NEWEST = "0.5.23"


@pytest.fixture(scope="module")
def results(engine_session, tmp_path_factory):
    """Gate result per version, computed once."""
    cache = {}

    def get(version):
        if version not in cache:
            adapters_ = adapters.select("sglang")
            listed = known.load(corpus.DEFAULT_CORPUS, "sglang")
            with Events(tmp_path_factory.mktemp(version)) as events:
                cases, result = list(corpus.load()), GateResult()
                cache[version] = gate(engine_session(version), adapters_, cases, events, listed, result)
        return cache[version]

    return get


def test_the_newest_release_passes_and_every_known_entry_fires(results):
    result = results(NEWEST)
    assert not result.red, list(result.red)
    assert not result.suspects
    assert not result.silent_known
    assert result.verdicts[Kind.AGREE] > 300


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_the_harness_s_own_fault(results, version):
    verdicts = results(version).verdicts
    assert not verdicts[Kind.HARNESS_ERROR] and not verdicts[Kind.INVALID_CASE] and not verdicts[Kind.ORACLE_SUSPECT]


@pytest.mark.parametrize("version", VERSIONS)
def test_supported_targets_are_exactly_those_that_run(results, version):
    listed = set(support.expected(corpus.DEFAULT_CORPUS, "sglang", version, "cpu"))
    assert set(results(version).executed) == listed


@pytest.mark.parametrize("version", VERSIONS)
def test_each_release_is_red_with_exactly_the_recorded_faults(results, version):
    """A new red or a vanished one is a change to look at, in either direction."""
    faults = tomllib.loads((corpus.DEFAULT_CORPUS / "faults.toml").read_text(encoding="utf-8"))["fault"]
    here = [f for f in faults if version in f["versions"] and f.get("device", "cpu") == "cpu"]
    recorded = sorted((f["target"], f["field"], f["kind"]) for f in here)
    assert sorted((i.target, i.field, i.kind) for i in results(version).red) == recorded


def test_a_red_release_fails_the_gate(results):
    result = results("0.5.18")
    assert exit_code(result.verdicts, len(result.red)) == 1
