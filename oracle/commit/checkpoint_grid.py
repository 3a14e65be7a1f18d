"""commit.checkpoint_grid: at which lengths a checkpoint may be saved.

Definition. A checkpoint can be found again only at a length that the prefix tree
can name and the recurrent kernels can resume from: a multiple of the tree's page
and of the kernels' chunk. Those lengths are the *prefill grid*. A verify saves on
the *track grid*, whose lengths are besides multiples of the interval asked for.
Each grid is the smallest positive length with its property, and every longer one
is a multiple of it.

The rule exists where an engine combines the three; engines that use the interval
alone rely on it being a multiple of the page.

Source: this project's own words (docs: "Checkpoint on grid g").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

MAX_TERM = 1024  # tokens; engines use 1 to 512


@dataclass(frozen=True)
class Setting:
    """``interval`` asked for, ``page`` of the prefix tree, ``chunk`` of the
    recurrent kernels, all in tokens."""

    interval: int
    page: int
    chunk: int


@dataclass(frozen=True)
class CheckpointGridCase:
    """Settings, each on its own."""

    settings: tuple[Setting, ...]


BEHAVIOURS = {
    "interval_alone": "the interval is a multiple of page and chunk",
    "page_widens": "the page makes the track grid wider than interval and chunk do",
    "chunk_widens": "the chunk makes the track grid wider than interval and page do",
    "interval_widens": "the track grid is wider than the prefill grid",
    "all_widen": "the grid is none of the three",
    "all_equal": "interval, page and chunk are one number",
    "one_token_page": "a page of one token",
    "no_common_factor": "interval and chunk share no factor",
}


def domain(case: CheckpointGridCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(len(case.settings) >= 1, "settings: must not be empty")
    require_size(case.settings, "settings")
    for i, s in enumerate(case.settings):
        for name in ("interval", "page", "chunk"):
            require(1 <= getattr(s, name) <= MAX_TERM, f"settings[{i}].{name}: must be 1 to {MAX_TERM}")
    return FUNCTIONAL


def reference(case: CheckpointGridCase, trace: Trace) -> Outcome:
    """Walk the lengths until one satisfies everybody."""
    prefill, track = [], []
    for i, s in enumerate(case.settings):
        length = s.chunk
        while length % s.page:
            length += s.chunk
        trace.step("smallest multiple of page and chunk", i, "prefill_grid", page=s.page, chunk=s.chunk, value=length)
        prefill.append(length)
        while length % s.interval:
            length += prefill[-1]
        trace.step("and of the interval", i, "track_grid", interval=s.interval, value=length)
        track.append(length)
        _behaviours(s, prefill[-1], length, trace)
    return {"prefill_grid": prefill, "track_grid": track}


def _behaviours(s: Setting, prefill: int, track: int, trace: Trace) -> None:
    for name, reached in (
        ("interval_alone", track == s.interval),
        ("page_widens", track > math.lcm(s.interval, s.chunk)),
        ("chunk_widens", track > math.lcm(s.interval, s.page)),
        ("interval_widens", track > prefill),
        ("all_widen", track not in (s.interval, s.page, s.chunk)),
        ("all_equal", s.interval == s.page == s.chunk),
        ("one_token_page", s.page == 1),
        ("no_common_factor", math.gcd(s.interval, s.chunk) == 1 < min(s.interval, s.chunk)),
    ):
        if reached:
            trace.behaviour(name)


def second(case: CheckpointGridCase) -> Outcome:
    """Product over greatest common divisor, pair by pair (Euclid)."""

    def together(a: int, b: int) -> int:
        x, y = a, b
        while y:
            x, y = y, x % y
        return a // x * b

    prefill = [together(s.page, s.chunk) for s in case.settings]
    track = [together(s.interval, p) for s, p in zip(case.settings, prefill, strict=True)]
    return {"prefill_grid": prefill, "track_grid": track}


def columns(case: CheckpointGridCase) -> dict[str, Any]:
    """``interval``, ``page`` and ``chunk``, int64 [S]."""
    return {n: np.array([getattr(s, n) for s in case.settings], dtype=np.int64) for n in ("interval", "page", "chunk")}


def kind(field: str, expected: Any, observed: Any) -> str:
    """A divisor of the grid is ignored, or the grid is wider than need be."""
    if not isinstance(observed, int) or observed < 1:
        return "no_grid"
    if observed % expected == 0:
        return "too_wide"
    return "too_narrow" if expected % observed == 0 else "not_a_multiple"


CONTRACT = Contract(
    name="commit.checkpoint_grid",
    version=1,
    case_type=CheckpointGridCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    records="settings",
    fields=(
        Field("prefill_grid", "request", "lengths at which prefill may save a checkpoint"),
        Field("track_grid", "request", "lengths at which a verify may save one"),
    ),
    behaviours=BEHAVIOURS,
    example=CheckpointGridCase(settings=(Setting(interval=256, page=1, chunk=64),)),
)
