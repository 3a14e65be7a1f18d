"""Mutants of commit.mixed_batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.mixed_batch import WIDTH, MixedBatchCase, Request, order, second
from oracle.commit.token_table import location

Observed = dict[str, Any]


def _running(**fields: Callable[[MixedBatchCase, Request, Any], Any]) -> Callable[[MixedBatchCase], Observed]:
    """The right outcome, with fields of the running requests recomputed: (case, request, right value)."""

    def observe(case: MixedBatchCase) -> Observed:
        right = second(case)
        for name, change in fields.items():
            pairs = zip(case.requests, right[name], strict=True)
            right[name] = [value if r.chunk else change(case, r, value) for r, value in pairs]
        return right

    return observe


def _running_first(case: MixedBatchCase) -> Observed:
    """What stands at each request's row when the running requests come first."""
    right = second(case)
    there = order(case)
    prompts = sum(bool(r.chunk) for r in case.requests)
    placed = dict(zip(there, there[prompts:] + there[:prompts], strict=True))
    names = ("owner", "pool_row", "length", "host_length", "prefix", "extend", "locations")
    return right | {name: [right[name][placed[i]] for i in range(len(case.requests))] for name in names}


def _counts_prompts(case: MixedBatchCase) -> Observed:
    return second(case) | {"extend_tokens": sum(r.chunk for r in case.requests)}


def _as_known(case: MixedBatchCase, r: Request, right: Any) -> int:
    return r.length - r.in_flight


MUTANTS = (
    Mutant("prefix_is_length", "off_by_one", "takes the length for the prefix", _running(prefix=lambda c, r, v: v + 1)),
    Mutant(
        "location_behind",
        "off_by_one",
        "looks the location up at the length",
        _running(locations=lambda c, r, v: [location(r.pool_row, r.length % WIDTH, WIDTH)]),
    ),
    Mutant(
        "location_of_first_row",
        "wrong_row",
        "looks the location up in the pool row of the batch's first request",
        _running(locations=lambda c, r, v: [location(c.requests[order(c)[0]].pool_row, r.length - 1, WIDTH)]),
    ),
    Mutant(
        "length_at_base",
        "stale_length",
        "leaves speculative rows at the length without the pending token",
        _running(length=lambda c, r, v: v - int(c.speculative)),
    ),
    Mutant(
        "unread_left_out", "stale_length", "takes the length that the scheduler knows", _running(host_length=_as_known)
    ),
    Mutant(
        "always_one_unread",
        "stale_length",
        "assumes that with overlap one token of every request is unknown",
        _running(prefix=lambda c, r, v: r.length - r.in_flight - (0 if c.overlap else 1)),
    ),
    Mutant(
        "host_lengths_lost",
        "missing_check",
        "has no length on the host where the running batch has none",
        _running(host_length=lambda c, r, v: v if c.host_lengths else -1),
    ),
    Mutant("running_first", "wrong_order", "puts the running requests first", _running_first),
    Mutant("extends_anew", "wrong_count", "extends by all tokens", _running(extend=lambda c, r, v: r.length)),
    Mutant("counts_prompts", "wrong_count", "counts the tokens of the prompts only", _counts_prompts),
    Mutant(
        "writes_table", "outside", "writes the table", lambda case: second(case) | {"table_changed": len(case.requests)}
    ),
)
