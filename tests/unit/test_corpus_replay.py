"""A replay says FIXED or FAILED about the outcome that its file shows, else ERROR."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fuzz import corpus
from fuzz import replay as replay_
from fuzz.replay import Result, choose, replay
from fuzz.verdict import Identity, Kind, Verdict
from oracle.commit.checkpoint_steps import CONTRACT

ADAPTERS = [SimpleNamespace(id=f"fake/m/{CONTRACT.name}/{n}", contract=CONTRACT.name) for n in "ab"]
FROZEN = corpus.make(CONTRACT.name, CONTRACT.example, slug="a-case", reason="a reason in words")


def answer(monkeypatch, frozen, kind, evidence=None, identity=None):
    verdict = Verdict(kind, ADAPTERS[0].id, CONTRACT.name, identity, evidence or {})
    monkeypatch.setattr(replay_, "execute", lambda *_: verdict)
    return replay(None, ADAPTERS[0], frozen)


def test_an_agreeing_target_is_fixed(monkeypatch):
    assert answer(monkeypatch, FROZEN, Kind.AGREE).result is Result.FIXED


@pytest.mark.parametrize("change", [None, [5], [0.0]])
@pytest.mark.parametrize("kind", [Kind.AGREE, Kind.CRASH])
def test_another_outcome_than_the_frozen_one_is_an_error(monkeypatch, change, kind):
    frozen = replace(
        FROZEN, legal=dict.fromkeys(FROZEN.legal) if change is None else FROZEN.legal | {"current_step": change}
    )
    seen = answer(monkeypatch, frozen, kind, identity=Identity(CONTRACT.name, ADAPTERS[0].id, "call", "raised"))
    assert seen.result is Result.ERROR and seen.verdict.kind is Kind.ORACLE_SUSPECT
    assert "the reference no longer gives the frozen outcome" in seen.lines[0]


def test_a_target_that_cannot_be_asked_stays_unsupported(monkeypatch):
    frozen = replace(FROZEN, legal=dict.fromkeys(FROZEN.legal))
    seen = answer(monkeypatch, frozen, Kind.UNSUPPORTED, {"reason": "no such symbol"})
    assert seen.verdict.kind is Kind.UNSUPPORTED and "no such symbol" in seen.lines[0]


def test_what_a_worker_said_can_be_printed(monkeypatch):
    identity = Identity(CONTRACT.name, ADAPTERS[0].id, "call", "raised")
    seen = answer(monkeypatch, FROZEN, Kind.CRASH, {"traceback": "a\n\udcffb"}, identity)
    "\n".join(seen.lines).encode("utf-8")


def test_the_file_names_one_target_and_no_pattern():
    named = replace(FROZEN, provenance={"target": ADAPTERS[1].id})
    assert choose(ADAPTERS, named, None) == [ADAPTERS[1]]
    assert choose(ADAPTERS, named, "*") == ADAPTERS
    assert choose(ADAPTERS, FROZEN, None) == ADAPTERS
    assert choose(ADAPTERS, replace(FROZEN, provenance={"target": "fake/*"}), None) == []
