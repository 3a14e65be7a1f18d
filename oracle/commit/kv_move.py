"""commit.kv_move: where accepted KV entries are moved to, and what every slot then holds.

Definition. Verify wrote the KV entry of node n of a request into the slot of position
``pre + n``, for all N nodes of its block, in every layer. Of the nodes the c on ``path``
are committed, and the token of path step j belongs at position ``pre + j``. Committing
means, for every request and every buffer of the pool alike (keys, values, latent entries,
scales, index keys, and the window layers under their own slot numbers):

* the slot of position ``pre + j`` receives what the slot of node ``path[j]`` held before
  the commit, for j < c; sources are slots of ``path``, targets those of ``pre + j``;
* nothing else changes: no slot of a rejected node, none of another request.

A slot may be a source and a target at once: all sources count as read before any target
is written. Page 0 belongs to nobody and may be written: fixed-size launches are filled up
with moves to slot 0. A move beyond the committed ones must go there.

The slots behind the page that holds the last committed token are handed back
(``freed``); what is left of that page stays with the request.

``kv``, ``index`` and ``window`` name, for each position of the block, the node whose entry
the slot holds afterwards; OTHER is an entry that is no node's of this request, PARTS words
of several entries, DIVIDED one entry in one layer or buffer and another in the next,
FOREIGN something no slot ever held.

Source: this project's own statement; SGLang issues 26335 (uninitialised targets) and
26866 (row stride of accepted indices) made the moves beyond the committed ones part of it.
"""

from __future__ import annotations

from typing import Any

from oracle.commit.kv_move_behaviours import BEHAVIOURS, batch_behaviours, request_behaviours
from oracle.commit.kv_move_case import (
    HEADS,
    INDEXER,
    WINDOWED,
    KvMoveCase,
    Request,
    block_slots,
    columns,
    domain,
    kept_end,
)
from oracle.contract import Contract, Field, Outcome
from oracle.trace import Trace

OTHER, PARTS, DIVIDED, FOREIGN = -1, -2, -3, -4


def reference(case: KvMoveCase, trace: Trace) -> Outcome:
    """Copy token by token from a picture of the pool taken before."""
    outcome: dict[str, list] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    for i, r in enumerate(case.requests):
        slots = block_slots(case, r)
        before = {slot: node for node, slot in enumerate(slots)}
        after, sources, targets = dict(before), [], []
        for j, node in enumerate(r.path):
            sources.append(slots[node])
            targets.append(slots[j])
            after[slots[j]] = before[slots[node]]
        held = [after[slot] for slot in slots]
        found = {
            "sources": sources,
            "targets": targets,
            "freed": [slots[p - r.pre] for p in range(kept_end(case, r), r.pre + case.draft_tokens)],
            "kv": held if case.layers else [],
            "index": held if case.pool == INDEXER else [],
            "window": held if case.window_layers else [],
        }
        for field in CONTRACT.fields:
            if field.axis == "request":
                outcome[field.name].append(found[field.name])
                trace.step(field.meaning, i, field.name, value=found[field.name])
        request_behaviours(case, r, i, trace)
    for name in ("stray", "read_beyond", "neighbours"):
        trace.step(_MEANING[name], decides=name, value=0)
    batch_behaviours(case, trace)
    return outcome | {"stray": 0, "read_beyond": 0, "neighbours": 0}


def second(case: KvMoveCase) -> Outcome:
    """By position, without copying: position j holds path[j], or its own node."""
    c = columns(case)
    outcome: dict[str, Any] = {"stray": 0, "read_beyond": 0, "neighbours": 0}
    counts = [int(n) for n in c["committed"]]
    held = [[int(n) for n in c["path"][i][:k]] + [*range(k, case.draft_tokens)] for i, k in enumerate(counts)]
    last_page = [(int(p) + k - 1) // case.page for p, k in zip(c["pre"], counts, strict=True)]
    behind = [
        [(int(p) + n) // case.page > last for n in range(case.draft_tokens)]
        for p, last in zip(c["pre"], last_page, strict=True)
    ]  # noqa: E501
    nothing = [[] for _ in counts]
    return outcome | {
        "sources": [c["block"][i][c["path"][i][:k]].tolist() for i, k in enumerate(counts)],
        "targets": [c["block"][i][:k].tolist() for i, k in enumerate(counts)],
        "freed": [c["block"][i][mask].tolist() for i, mask in enumerate(behind)],
        "kv": held if case.layers else nothing,
        "index": held if case.pool == INDEXER else nothing,
        "window": held if case.pool == WINDOWED and case.window_layers else nothing,
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """What is wrong, by what the first wrong slot holds and should hold."""
    if field in _CASE_KINDS:
        return _CASE_KINDS[field]
    if len(observed) != len(expected):
        return "too_few" if len(observed) < len(expected) else "too_many"
    if field in ("sources", "targets", "freed"):
        return "wrong_slot"
    at, must, holds = _first_wrong(expected, observed)
    if holds < 0:
        return KINDS[holds]
    if must == at:
        return "rejected_overwritten" if at else "root_overwritten"
    return "not_moved" if holds == at else "wrong_node"


KINDS = {OTHER: "entry_of_another", PARTS: "partly_moved", DIVIDED: "layers_disagree", FOREIGN: "foreign_contents"}
_CASE_KINDS = {"stray": "stray_move", "read_beyond": "reads_beyond", "neighbours": "neighbour_overwritten"}


def _first_wrong(expected: list[int], observed: list[int]) -> tuple[int, int, int]:
    return next((at, e, o) for at, (e, o) in enumerate(zip(expected, observed, strict=True)) if e != o)


def explain(case: KvMoveCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """A first illegal value in words."""
    if field in _CASE_KINDS:
        return f"{_MEANING[field]}: {observed}; must be 0"
    (i,) = where
    expected = reference(case, Trace())[field][i]
    if field not in ("kv", "index", "window") or len(observed) != len(expected):
        return f"request {i}: {_MEANING[field]} are {observed}; must be {expected}"
    at, must, holds = _first_wrong(expected, observed)
    words = {
        OTHER: "an entry that is not this request's",
        PARTS: "words of several entries",
        DIVIDED: "different entries in different layers or buffers",
        FOREIGN: "something no slot held",
    }
    position = case.requests[i].pre + at
    return (
        f"request {i}: the slot of position {position} holds {words.get(holds, f'node {holds}')}; must hold node {must}"
    )


FIELDS = (
    Field("sources", "request", "slots that committed tokens are read from"),
    Field("targets", "request", "slots that they are written to"),
    Field("stray", "case", "moves beyond the committed tokens that do not go to nobody's slot"),
    Field("read_beyond", "case", "slots read for nothing that was accepted"),
    Field("freed", "request", "slots handed back"),
    Field("kv", "request", "the node whose entry each slot of the block holds"),
    Field("index", "request", "the same for index keys"),
    Field("window", "request", "the same in the window layers"),
    Field("neighbours", "case", "slots outside the blocks that changed"),
)
_MEANING = {f.name: f.meaning for f in FIELDS}

CONTRACT = Contract(
    name="commit.kv_move",
    version=1,
    case_type=KvMoveCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=explain,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=KvMoveCase(
        pool=HEADS, layers=2, window_layers=0, page=4, draft_tokens=4, path_width=4, uncovered=0, key_words=2,
        value_words=2, requests=(Request(pre=6, path=(0, 1), pages=(2, 1)),),
    ),
)  # fmt: skip
