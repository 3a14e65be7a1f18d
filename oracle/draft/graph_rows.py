"""draft.graph_rows: what a captured graph reads when it is replayed for fewer requests.

Definition. A graph was captured for ``bucket`` requests of W tokens each. Its buffers hold
``capacity`` requests and are shared by all graphs; the batch ``before`` was replayed from
them, now b <= bucket rows are. Then

* row i of the batch stands in place i with everything that it hands over: W tokens with
  positions, KV locations and hidden states, its length, pool row, committed count, state
  slot and track slot;
* its draft is sampled from the last committed of its own rows, row ``front + committed -
  1`` counted from 0 (``front`` rows before the block are of earlier tokens);
* a padding row, b to bucket - 1, is inert whatever the batch before left there: its length
  is the ``fill`` that the graph was captured with, its tokens are written to location 0,
  which is nobody's, its state slot is -1, it samples from its own rows, and it belongs to
  nobody: its pool row is 0 or nothing is committed for it (``padding_rows`` names the pool
  row of each padding row that something is committed for, else 0);
* the rows start W tokens apart; padding rows have none, they all start at the end;
* what is handed out for the replay has ``bucket`` rows and not the whole buffer.

A request may be as short as ``fill``: that does not make it padding.

Source: this project's own statement; SGLang issues 22958 (padding rows keep stale indices)
and 32555 (the whole track buffer handed out) are of this kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.contract import Contract, Field, Outcome
from oracle.draft.graph_rows_case import (
    BEHAVIOURS,
    NO_SLOT,
    NOBODY,
    GraphRowsCase,
    Row,
    batch_behaviours,
    columns,
    domain,
    hidden_of,
    location,
    row_behaviours,
    state_slot,
    tokens_of,
)
from oracle.trace import Trace


def reference(case: GraphRowsCase, trace: Trace) -> Outcome:
    """Fill place by place."""
    outcome: dict[str, Any] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    starts = [0]
    for i, r in enumerate(case.rows):
        positions = [r.length - case.front + j for j in range(case.width)]
        found = {
            "tokens": tokens_of(r, case.width),
            "positions": positions,
            "locations": [location(r, p) for p in positions],
            "hidden": hidden_of(r, case.width),
            "lengths": r.length,
            "pool_rows": r.pool_row,
            "committed": r.committed,
            "selected": case.front + r.committed - 1,
            "state_slots": state_slot(r.pool_row),
            "track_slots": r.track_slot,
        }
        starts.append(starts[-1] + case.width)
        for name, value in found.items():
            outcome[name].append(value)
            trace.step(_MEANING[name], i, name, value=value)
        row_behaviours(case, r, i, trace)
    padding: dict[str, list[int]] = {name: [] for name in _PADDING}
    for _ in range(len(case.rows), case.bucket):
        starts.append(starts[-1])
        padding["padding_lengths"].append(case.fill)
        padding["padding_writes"] += [NOBODY] * case.width
        padding["padding_rows"].append(NOBODY)
        padding["padding_states"].append(NO_SLOT)
    outcome |= padding | {"row_starts": starts, "padding_selected": 0, "rows_handed_out": case.bucket}
    for name in _CASE_FIELDS:
        trace.step(_MEANING[name], decides=name, value=outcome[name])
    batch_behaviours(case, trace)
    return outcome


def second(case: GraphRowsCase) -> Outcome:
    """From whole columns: real rows in front, constants behind."""
    c = columns(case)
    b, pads = len(case.rows), case.bucket - len(case.rows)
    per_row = ("tokens", "positions", "locations", "hidden", "lengths", "pool_rows", "committed")
    return {name: c[name].tolist() for name in per_row} | {
        "selected": (c["committed"] + case.front - 1).tolist(),
        "state_slots": c["state_slots"].tolist(),
        "track_slots": c["track_slots"].tolist(),
        "row_starts": (np.minimum(np.arange(case.bucket + 1), b) * case.width).tolist(),
        "padding_lengths": [case.fill] * pads,
        "padding_writes": [NOBODY] * (pads * case.width),
        "padding_rows": [NOBODY] * pads,
        "padding_selected": 0,
        "padding_states": [NO_SLOT] * pads,
        "rows_handed_out": case.bucket,
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """Values of a request are wrong; padding keeps something, or is too much or too little."""
    if field == "rows_handed_out":
        return "stale_tail" if observed > expected else "rows_missing"
    if field == "padding_selected":
        return "foreign_row_sampled"
    if isinstance(expected, list) and len(observed) != len(expected):
        return "wrong_count"
    if field.startswith("padding_"):
        return "stale_padding"
    if field == "state_slots":
        return "request_taken_for_padding" if observed == NO_SLOT else "wrong_slot"
    return "wrong_value"


_PADDING = ("padding_lengths", "padding_writes", "padding_rows", "padding_states")
FIELDS = (
    Field("tokens", "request", "tokens of the request's rows"),
    Field("positions", "request", "their positions"),
    Field("locations", "request", "their KV locations"),
    Field("hidden", "request", "the hidden states they come with"),
    Field("lengths", "request", "the request's length"),
    Field("pool_rows", "request", "its pool row"),
    Field("committed", "request", "tokens committed for it"),
    Field("selected", "request", "its own row that a draft is sampled from"),
    Field("state_slots", "request", "its state slot"),
    Field("track_slots", "request", "its track slot"),
    Field("row_starts", "case", "the first token of each row, and the end"),
    Field("padding_lengths", "case", "lengths of padding rows"),
    Field("padding_writes", "case", "KV locations that padding rows write"),
    Field("padding_rows", "case", "pool rows that something is committed for in padding rows"),
    Field("padding_selected", "case", "padding rows that sample from a row of another"),
    Field("padding_states", "case", "state slots of padding rows"),
    Field("rows_handed_out", "case", "rows of the buffer handed out"),
)
_MEANING = {f.name: f.meaning for f in FIELDS}
_CASE_FIELDS = tuple(f.name for f in FIELDS if f.axis == "case")

CONTRACT = Contract(
    name="draft.graph_rows",
    version=1,
    case_type=GraphRowsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    records="rows",
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=GraphRowsCase(
        capacity=4, bucket=2, width=4, front=0, fill=1, before=(),
        rows=(Row(10, 2, 1, 3, 1), Row(20, 1, 2, 4, 2)),
    ),
)  # fmt: skip
