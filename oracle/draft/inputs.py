"""draft.inputs: what a chained draft model is fed at the boundary of accepted and new tokens.

Definition. A row of the draft model at position q is fed the token behind it, the one at
q + 1, and the target's hidden state of q; it writes KV at the location of q. Requests enter
with a prompt, are verified in rounds, and leave; batches differ from round to round, and a
pool row that one request left may be another's later.

*Prefill* of the last ``chunk`` prompt tokens: their rows hold the prompt shifted by one, the
last of them the first generated token.

*A round* of a request with ``pre`` tokens verifies a block of W tokens at positions ``pre``
to ``pre + W - 1`` and commits c of them. The widened window has ``front`` rows before the
block, of the positions just before ``pre``, so that their KV is computed anew from what is
committed by now:

* a front row is known when its position was prefilled in the last chunk or committed since;
  others hold nothing: token, hidden state, position and location 0;
* the first ``warmup`` known rows exist to warm the model's short convolutions up: they
  write to location 0, which is nobody's. All others write where their position lies;
* block rows come behind, the first c as committed; rows of rejected tokens have positions
  and locations of their own too, what they hold is not said.

*A draft step* rotates the block: each committed row takes the token of the next one, the
last one takes the token drafted. Rows behind it may hold anything.

Between rounds a *stash* keeps the known ones of the last ``front`` positions, oldest first
(``stash_tokens``, ``stash_hidden``, here after the request's last round).

Fields that are observed in every round are the rounds' lists one behind the other.

Source: this project's own statement, from SGLang's widened draft-extend windows.
"""

from __future__ import annotations

from typing import Any

from oracle.contract import Contract, Field, Outcome
from oracle.draft.inputs_case import (
    NOTHING,
    InputsCase,
    Request,
    columns,
    domain,
    drafted,
    first_stamp,
    history,
    location,
)
from oracle.trace import Trace

BEHAVIOURS = {
    "prompt_longer_than_front": "a prompt fills the front rows",
    "prompt_shorter_than_front": "a prompt is shorter than the front rows",
    "chunk_shorter_than_front": "the last chunk is shorter than the front rows, the prompt is not",
    "chunk_of_one": "one token is prefilled",
    "long_chunk": "a chunk longer than eight tokens",
    "front_filled_by_rounds": "committed tokens fill what the prompt left empty",
    "commits_more_than_front": "a round commits more tokens than there are front rows",
    "commits_fewer_than_front": "a round keeps a part of the stash",
    "all_committed": "every token of a block is kept",
    "only_current_token": "every draft was rejected",
    "warmup_rows": "known rows that only warm up",
    "warmup_covers_front": "all front rows only warm up",
    "several_rounds": "a request is verified again",
    "prefilled_only": "a request that is not verified yet",
    "appended": "a request enters later",
    "filtered": "a request leaves before the last round",
    "row_of_another_before": "a pool row that a finished request left",
    "several_requests": "a request beside another in one round",
}


def reference(case: InputsCase, trace: Trace) -> Outcome:
    """Live through each request's rounds with the stash in hand."""
    outcome: dict[str, list] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    for i, r in enumerate(case.requests):
        tokens, stamp = history(case, r), first_stamp(r)
        pairs = [(q, tokens[q + 1], stamp + q) for q in range(r.prompt - r.chunk, r.prompt)]
        found: dict[str, list] = {name: [] for name in outcome}
        found["prefill_tokens"] = [token for _, token, _ in pairs]
        stash, pre = pairs[-case.front :], r.prompt
        for number, count in enumerate(r.commits):
            empty = case.front - len(stash)
            real = min(empty + case.warmup, case.front)  # rows from here on write their own KV
            found["front_tokens"] += [NOTHING] * empty + [token for _, token, _ in stash]
            found["front_hidden"] += [NOTHING] * empty + [state for _, _, state in stash]
            found["positions"] += [NOTHING] * empty + [q for q, _, _ in stash]
            found["locations"] += [NOTHING] * real + [location(r.pool_row, q) for q, _, _ in stash[real - empty :]]
            block = [(pre + j, tokens[pre + j + 1], stamp + pre + j) for j in range(case.width)]
            kept = block[:count]
            found["block_tokens"] += [token for _, token, _ in kept]
            found["block_hidden"] += [state for _, _, state in kept]
            found["positions"] += [q for q, _, _ in block]
            found["locations"] += [location(r.pool_row, q) for q, _, _ in block]
            found["rotated"] += [token for _, token, _ in kept[1:]] + [drafted(r, number)]
            stash, pre = [*stash, *kept][-case.front :], pre + count
        found["stash_tokens"] = [token for _, token, _ in stash]
        found["stash_hidden"] = [state for _, _, state in stash]
        for name, value in found.items():
            outcome[name].append(value)
            trace.step(_MEANING[name], i, name, value=value)
        _behaviours(case, r, trace)
    trace.step(_MEANING["others_changed"], decides="others_changed", value=0)
    _batch_behaviours(case, trace)
    return outcome | {"others_changed": 0}


def _behaviours(case: InputsCase, r: Request, trace: Trace) -> None:
    last = max(o.enters + len(o.commits) for o in case.requests)
    known = [min(case.front, r.chunk + sum(r.commits[:n])) for n in range(len(r.commits) + 1)]
    for name, reached in (
        ("prompt_longer_than_front", r.prompt > case.front),
        ("prompt_shorter_than_front", r.prompt < case.front),
        ("chunk_shorter_than_front", r.chunk < case.front <= r.prompt),
        ("chunk_of_one", r.chunk == 1 < r.prompt),
        ("long_chunk", r.chunk > 8),
        ("front_filled_by_rounds", len(r.commits) > 1 and known[0] < case.front == known[-2]),
        ("commits_more_than_front", any(c > case.front for c in r.commits)),
        ("commits_fewer_than_front", any(c < case.front for c in r.commits)),
        ("all_committed", case.width > 1 and case.width in r.commits),
        ("only_current_token", case.width > 1 and 1 in r.commits),
        ("warmup_rows", case.warmup and r.commits),
        ("warmup_covers_front", case.warmup == case.front and r.commits),
        ("several_rounds", len(r.commits) > 1),
        ("prefilled_only", not r.commits),
        ("appended", r.enters > 0),
        ("filtered", r.commits and r.enters + len(r.commits) < last),
        ("row_of_another_before", any(o.pool_row == r.pool_row and o.enters < r.enters for o in case.requests)),
    ):
        if reached:
            trace.behaviour(name)


def _batch_behaviours(case: InputsCase, trace: Trace) -> None:
    rounds = [t for r in case.requests for t in range(r.enters, r.enters + len(r.commits))]
    if len(set(rounds)) < len(rounds):
        trace.behaviour("several_requests")


def second(case: InputsCase) -> Outcome:
    """Row by row from the position alone, without a stash."""
    outcome: dict[str, Any] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    for r in case.requests:
        tokens, start = history(case, r), r.prompt - r.chunk
        pres = [r.prompt + sum(r.commits[:n]) for n in range(len(r.commits) + 1)]
        window = lambda pre: range(pre - case.front, pre)  # noqa: E731
        state = lambda q: first_stamp(r) + q  # noqa: E731, B023
        row: dict[str, list[int]] = {
            "prefill_tokens": tokens[start + 1 : r.prompt + 1],
            "front_tokens": [tokens[q + 1] if q >= start else 0 for p in pres[:-1] for q in window(p)],
            "front_hidden": [state(q) if q >= start else 0 for p in pres[:-1] for q in window(p)],
            "block_tokens": tokens[r.prompt + 1 : pres[-1] + 1],
            "block_hidden": [state(q) for q in range(r.prompt, pres[-1])],
            "positions": [q if q >= start else 0 for p in pres[:-1] for q in range(p - case.front, p + case.width)],
            "locations": [
                location(r.pool_row, q) if q >= min(max(start, p - case.front) + case.warmup, p) else 0
                for p in pres[:-1]
                for q in range(p - case.front, p + case.width)
            ],
            "rotated": [t for n, p in enumerate(pres[:-1]) for t in [*tokens[p + 2 : pres[n + 1] + 1], drafted(r, n)]],
            "stash_tokens": [tokens[q + 1] for q in window(pres[-1]) if q >= start],
            "stash_hidden": [state(q) for q in window(pres[-1]) if q >= start],
        }
        for name, value in row.items():
            outcome[name].append(value)
    return outcome | {"others_changed": 0}


def kind(field: str, expected: Any, observed: Any) -> str:
    """Of the first wrong row: it should hold nothing, or holds nothing, or the wrong thing."""
    if field == "others_changed":
        return "written_outside"
    if len(observed) != len(expected):
        return "too_few" if len(observed) < len(expected) else "too_many"
    must, holds = next((e, o) for e, o in zip(expected, observed, strict=True) if e != o)
    if must == NOTHING:
        return "stale_row" if field != "locations" else "written_besides"
    return "row_lost" if holds == NOTHING else "wrong_row"


FIELDS = (
    Field("prefill_tokens", "request", "tokens of the prefilled rows"),
    Field("front_tokens", "request", "tokens of the rows before the block"),
    Field("front_hidden", "request", "their hidden states"),
    Field("block_tokens", "request", "tokens of the committed rows"),
    Field("block_hidden", "request", "their hidden states"),
    Field("positions", "request", "positions of the window's rows"),
    Field("locations", "request", "KV locations that they write"),
    Field("rotated", "request", "tokens of the committed rows after a draft step"),
    Field("stash_tokens", "request", "tokens kept for the next window"),
    Field("stash_hidden", "request", "hidden states kept for it"),
    Field("others_changed", "case", "kept rows of nobody in the batch that changed"),
)
_MEANING = {f.name: f.meaning for f in FIELDS}

CONTRACT = Contract(
    name="draft.inputs",
    version=1,
    case_type=InputsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=InputsCase(front=2, warmup=0, width=4, requests=(Request(5, 5, 0, (2, 1), 1, 1),)),
)
