"""Mutants of commit.call_order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.call_order import COMMIT, NONE, PREPARE, PUBLISH, VERIFY, CallOrderCase
from oracle.commit.call_order import second as right

ROUND = [PREPARE, VERIFY, COMMIT, PUBLISH]


def _order(rearrange: Callable[[list[str]], list[str]]) -> Callable[[CallOrderCase], dict[str, Any]]:
    """Do the right things in another order."""

    def observe(case: CallOrderCase) -> dict[str, Any]:
        outcome = right(case)
        commits = bool(case.requests) and case.recurrent and case.hook
        events = [PREPARE, VERIFY, COMMIT, PUBLISH] if commits else [PREPARE, VERIFY, PUBLISH]
        events = rearrange(events if case.requests else [])
        if COMMIT not in events:
            outcome |= {"current_step": [], "checkpoint_step": []}
        return outcome | {"order": events}

    return observe


def _lengths(change: Callable[[CallOrderCase, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    def observe(case: CallOrderCase) -> dict[str, Any]:
        outcome = _order(lambda events: events)(case)
        return outcome | (change(case, outcome) if outcome["current_step"] or not case.recurrent else {})

    return observe


def _swap(first: str, second: str) -> Callable[[list[str]], list[str]]:
    names = {first: second, second: first}
    return lambda events: [names.get(e, e) for e in events] if {first, second} <= set(events) else events


def _commits_when_idle(case: CallOrderCase) -> dict[str, Any]:
    return _order(lambda events: events)(case) | ({} if case.requests else {"order": ROUND})


def _post_as_pre(case: CallOrderCase, outcome: dict[str, Any]) -> dict[str, Any]:
    steps = zip(outcome["checkpoint_step"], case.requests)
    return {"checkpoint_step": [s - r.committed if s != NONE else s for s, r in steps]}


def _saves_without_slot(case: CallOrderCase, outcome: dict[str, Any]) -> dict[str, Any]:
    if not outcome["checkpoint_step"]:
        return {}
    boundary = [(r.pre + r.committed) // case.grid * case.grid for r in case.requests]
    return {"checkpoint_step": [b - r.pre - 1 if b > r.pre else NONE for b, r in zip(boundary, case.requests)]}


MUTANTS = (
    Mutant("no_commit", "missing_commit", "never commits the states", _order(lambda e: [x for x in e if x != COMMIT])),
    Mutant(
        "no_preparation",
        "missing_commit",
        "never prepares the track slots",
        _order(lambda e: [x for x in e if x != PREPARE]),
    ),
    Mutant(
        "commits_without_state",
        "nothing_case",
        "commits for a model without recurrent state",
        _order(lambda e: e and ROUND),
    ),
    Mutant("commits_when_idle", "nothing_case", "runs the whole round for an idle batch", _commits_when_idle),
    Mutant("commit_before_verify", "order", "commits before the verify forward", _order(_swap(VERIFY, COMMIT))),
    Mutant("prepares_after_verify", "order", "prepares the track slots after verify", _order(_swap(PREPARE, VERIFY))),
    Mutant(
        "publishes_before_commit", "order", "publishes the lengths before the commit", _order(_swap(COMMIT, PUBLISH))
    ),
    Mutant(
        "pre_for_post",
        "stale_length",
        "hands over pre-verify lengths as post",
        _lengths(lambda c, o: {"checkpoint_step": [NONE] * len(o["checkpoint_step"])}),
    ),
    Mutant("post_for_pre", "stale_length", "hands over post-verify lengths as pre", _lengths(_post_as_pre)),
    Mutant(
        "current_one_early",
        "off_by_one",
        "hands over accepted drafts minus one",
        _lengths(lambda c, o: {"current_step": [s - 1 for s in o["current_step"]]}),
    ),
    Mutant(
        "published_without_bonus",
        "dropped_bonus",
        "publishes pre + accepted drafts",
        _lengths(lambda c, o: {"published": [p - 1 for p in o["published"]]}),
    ),
    Mutant(
        "published_full_block",
        "dropped_length",
        "publishes pre + N",
        _lengths(lambda c, o: {"published": [r.pre + c.draft_tokens for r in c.requests]}),
    ),
    Mutant(
        "slotless_saved", "sentinel", "saves checkpoints for requests without a slot", _lengths(_saves_without_slot)
    ),
)
