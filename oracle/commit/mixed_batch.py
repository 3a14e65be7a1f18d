"""commit.mixed_batch: the rows of a batch that prefills prompts and decodes at once.

Definition. Prompts are prefilled in chunks, and requests that are decoding join the same
batch as rows of one token each. A prompt of ``length`` tokens computes its last ``chunk`` of
them; a running request of ``length`` committed tokens, the pending one among them, computes
the KV of that one. The rows are the prompts in their order, then the running requests in
theirs. A row that computes the tokens from position x to ``length - 1`` has

* prefix x and ``length - x`` tokens to extend by: a running request extends by one, from
  ``length - 1`` on;
* length ``length``, on the device and on the host;
* the KV locations that the request-to-token table has at those positions in the request's
  own pool row. Without speculation decode preparation wrote the running request's; with
  it they were reserved before.

With overlap the scheduler may not have read yet how a step in flight ended: ``in_flight`` of
the committed tokens are unknown to it. They count all the same: without speculation at most
the pending token, with it what the step in flight accepted. A request that sat out the last
step has none. The table is not written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.commit.token_table import POOL_ROWS, location, table
from oracle.contract import FUNCTIONAL, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

WIDTH = 64  # tokens of a pool row
MAX_IN_FLIGHT = 8


@dataclass(frozen=True)
class Request:
    """``length`` tokens after this pass; ``chunk`` of a prompt's are computed in it, 0 for
    a running request. ``in_flight`` of a running request's are unknown to the scheduler."""

    length: int
    chunk: int
    in_flight: int
    pool_row: int


@dataclass(frozen=True)
class MixedBatchCase:
    """``host_lengths``: the running batch has its lengths on the host; only speculation
    does without."""

    speculative: bool
    overlap: bool
    host_lengths: bool
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "plain": "a running request joins without speculation",
    "speculative": "a running request joins with speculation",
    "all_read": "without overlap every outcome is known",
    "pending_unread": "with overlap the pending token is not known yet",
    "several_unread": "several tokens of a verify in flight are not known yet",
    "nothing_in_flight": "with overlap a request sat out the last step",
    "no_host_lengths": "the running batch has no lengths on the host",
    "fresh_prompt": "a prompt starts at position 0",
    "continued_prompt": "a prompt goes on behind its prefix",
    "single_token_prompt": "a prompt's chunk is one token",
    "several_prompts": "a prompt behind another",
    "several_running": "a running request behind another",
    "full_row": "a running request fills its pool row",
    "pool_rows_out_of_order": "pool rows are not in the order of the batch",
}


def domain(case: MixedBatchCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require_size(case.requests, "requests", WIDTH)
    require(any(r.chunk for r in case.requests), "requests: there must be a prompt")
    require(any(not r.chunk for r in case.requests), "requests: there must be a running request")
    require(case.host_lengths or case.speculative, "host_lengths: without speculation they are always there")
    rows = [r.pool_row for r in case.requests]
    require(len(set(rows)) == len(rows), "requests.pool_row: two requests share a pool row")
    for i, r in enumerate(case.requests):
        require(1 <= r.pool_row < POOL_ROWS, f"requests[{i}].pool_row: must be 1 to {POOL_ROWS - 1}")
        low = 1 if r.chunk else 2
        require(low <= r.length <= WIDTH, f"requests[{i}].length: must be {low} to {WIDTH}")
        require(0 <= r.chunk <= r.length, f"requests[{i}].chunk: must be 0 to length")
        most = 0 if r.chunk or not case.overlap else min(MAX_IN_FLIGHT if case.speculative else 1, r.length - 1)
        require(0 <= r.in_flight <= most, f"requests[{i}].in_flight: must be 0 to {most}")
    return FUNCTIONAL


def order(case: MixedBatchCase) -> list[int]:
    """The requests in the order of their rows."""
    prompts = [i for i, r in enumerate(case.requests) if r.chunk]
    return prompts + [i for i, r in enumerate(case.requests) if not r.chunk]


def reference(case: MixedBatchCase, trace: Trace) -> Outcome:
    """Fill one row after the other."""
    outcome: Outcome = {f.name: [None] * len(case.requests) for f in CONTRACT.fields if f.axis == "request"}
    rows = order(case)
    trace.step("the batch has a row for each request", decides="rows", value=len(rows))
    total = 0
    for i in rows:
        r = case.requests[i]
        extend = r.chunk or 1
        total += extend
        found = {
            "owner": r.pool_row,
            "pool_row": r.pool_row,
            "length": r.length,
            "host_length": r.length,
            "prefix": r.length - extend,
            "extend": extend,
            "locations": [location(r.pool_row, p, WIDTH) for p in range(r.length - extend, r.length)],
        }
        for field in CONTRACT.fields:
            if field.axis == "request":
                outcome[field.name][i] = found[field.name]
                trace.step(field.meaning, i, field.name, value=found[field.name])
        _behaviours(case, r, trace)
    trace.step("tokens of all rows", decides="extend_tokens", value=total)
    trace.step("the table is not written", decides="table_changed")
    for name, several in (("several_prompts", True), ("several_running", False)):
        if sum(bool(r.chunk) is several for r in case.requests) > 1:
            trace.behaviour(name)
    places = [case.requests[i].pool_row for i in rows]
    if places != sorted(places):
        trace.behaviour("pool_rows_out_of_order")
    return outcome | {"rows": len(rows), "extend_tokens": total, "table_changed": 0}


def _behaviours(case: MixedBatchCase, r: Request, trace: Trace) -> None:
    running = not r.chunk
    for name, reached in (
        ("plain", running and not case.speculative),
        ("speculative", running and case.speculative),
        ("all_read", not case.overlap),
        ("pending_unread", r.in_flight == 1),
        ("several_unread", r.in_flight > 1),
        ("nothing_in_flight", running and case.overlap and not r.in_flight),
        ("no_host_lengths", not case.host_lengths),
        ("fresh_prompt", r.chunk == r.length),
        ("continued_prompt", 0 < r.chunk < r.length),
        ("single_token_prompt", r.chunk == 1),
        ("full_row", running and r.length == WIDTH),
    ):
        if reached:
            trace.behaviour(name)


def second(case: MixedBatchCase) -> Outcome:
    """By the cells that the pass computes: those of the table at which a KV entry of the
    request is missing before it and there after it."""
    before = np.array([r.length - r.chunk if r.chunk else r.length - 1 for r in case.requests])
    after = np.array([r.length for r in case.requests])
    position = np.arange(WIDTH)
    missing = (position >= before[:, None]) & (position < after[:, None])
    own = table(WIDTH)[[r.pool_row for r in case.requests]]
    owners = ((own[:, 0] - 1) // WIDTH).tolist()
    lengths = (missing * (position + 1)).max(axis=1).tolist()
    return {
        "rows": len(case.requests),
        "owner": owners,
        "pool_row": owners,
        "length": lengths,
        "host_length": lengths,
        "prefix": missing.argmax(axis=1).tolist(),
        "extend": missing.sum(axis=1).tolist(),
        "locations": [own[i][missing[i]].tolist() for i in range(len(own))],
        "extend_tokens": int(missing.sum()),
        "table_changed": 0,
    }


def columns(case: MixedBatchCase) -> dict[str, Any]:
    """``speculative``, ``overlap``, ``host_lengths``; int64 [B] ``length``, ``chunk``,
    ``in_flight``, ``pool_row``; ``table`` int32 [POOL_ROWS, WIDTH]; ``order``: the
    requests in the order of their rows."""
    names = ("length", "chunk", "in_flight", "pool_row")
    return {
        "speculative": case.speculative,
        "overlap": case.overlap,
        "host_lengths": case.host_lengths,
        "table": table(WIDTH),
        "order": order(case),
        **{n: np.array([getattr(r, n) for r in case.requests], dtype=np.int64) for n in names},
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """Which way a number is off, or that a row is another's."""
    if field == "table_changed":
        return "written_outside"
    if field in ("owner", "pool_row"):
        return "wrong_row"
    if field == "locations":
        return "wrong_count" if len(observed) != len(expected) else "wrong_location"
    return "too_many" if observed > expected else "too_few"


CONTRACT = Contract(
    name="commit.mixed_batch",
    version=1,
    case_type=MixedBatchCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("rows", "case", "rows of the batch"),
        Field("owner", "request", "pool row of the request that stands at the row"),
        Field("pool_row", "request", "pool row that the batch has there"),
        Field("length", "request", "length of the row"),
        Field("host_length", "request", "length of the row on the host"),
        Field("prefix", "request", "tokens whose KV is there already"),
        Field("extend", "request", "tokens that the row computes"),
        Field("locations", "request", "KV locations of those tokens"),
        Field("extend_tokens", "case", "tokens that the batch computes"),
        Field("table_changed", "case", "cells of the request-to-token table that changed"),
    ),
    behaviours=BEHAVIOURS,
    example=MixedBatchCase(False, False, True, (Request(4, 4, 0, 1), Request(6, 0, 0, 2))),
)
