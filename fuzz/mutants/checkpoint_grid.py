"""Mutants of commit.checkpoint_grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.checkpoint_grid import CheckpointGridCase, Setting


def _rule(prefill: Callable[[Setting], int], track: Callable[[Setting], int]) -> Callable[[Any], dict[str, Any]]:
    def observe(case: CheckpointGridCase) -> dict[str, Any]:
        return {"prefill_grid": [prefill(s) for s in case.settings], "track_grid": [track(s) for s in case.settings]}

    return observe


def _prefill(s: Setting) -> int:
    return math.lcm(s.page, s.chunk)


def _track(s: Setting) -> int:
    return math.lcm(s.page, s.chunk, s.interval)


def _first_for_all(case: CheckpointGridCase) -> dict[str, Any]:
    return {
        "prefill_grid": [_prefill(case.settings[0])] * len(case.settings),
        "track_grid": [_track(case.settings[0])] * len(case.settings),
    }


MUTANTS = (
    Mutant(
        "interval_alone", "term_ignored", "takes the interval as it is asked for", _rule(_prefill, lambda s: s.interval)
    ),
    Mutant(
        "page_ignored", "term_ignored", "forgets the page", _rule(_prefill, lambda s: math.lcm(s.interval, s.chunk))
    ),
    Mutant(
        "chunk_ignored", "term_ignored", "forgets the chunk", _rule(_prefill, lambda s: math.lcm(s.interval, s.page))
    ),
    Mutant("interval_ignored", "term_ignored", "tracks on the prefill grid", _rule(_prefill, _prefill)),
    Mutant(
        "largest",
        "wrong_combination",
        "takes the largest of the three",
        _rule(lambda s: max(s.page, s.chunk), lambda s: max(s.page, s.chunk, s.interval)),
    ),
    Mutant(
        "product",
        "wrong_combination",
        "multiplies them",
        _rule(lambda s: s.page * s.chunk, lambda s: s.page * s.chunk * s.interval),
    ),
    Mutant(
        "common_divisor",
        "wrong_combination",
        "takes what they have in common",
        _rule(lambda s: math.gcd(s.page, s.chunk), lambda s: math.gcd(s.page, s.chunk, s.interval)),
    ),
    Mutant(
        "rounded_up",
        "wrong_combination",
        "rounds the interval up to the prefill grid",
        _rule(_prefill, lambda s: -(-s.interval // _prefill(s)) * _prefill(s)),
    ),
    Mutant("prefill_by_interval", "wrong_combination", "holds prefill to the interval as well", _rule(_track, _track)),
    Mutant("settings_kept", "wrong_row", "answers with the first settings it saw", _first_for_all),
)
