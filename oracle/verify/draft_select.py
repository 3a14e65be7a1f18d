"""verify.draft_select: which tokens a draft proposes, given what the draft model scored.

Four forms, each a pure selection; nothing here is accepted or committed.

* ``top1``: the token with the greatest score, or with the greatest score / divisor
  (the exponential race: dividing masses by exponential noise samples from them).
  The draft hands on mass 1 for it, advances the request's position by one and
  may store the token in its column of a draft buffer.
* ``topk``: the k greatest scores, falling, and their token ids.
* ``walk``: one candidate a slot from a lattice; the choice of a slot selects the row
  of the next one; greedy, or drawn with a coin from softmax(scores / temperature),
  which is handed on as draft distribution q (``oracle.verify.select_walk``).
* ``tree``: cumulated scores of several branches, the k best of each step, and the
  best of all kept as a tree (``oracle.verify.select_tree``).

Ties. An argmax takes the lowest id of the tied ones: torch documents it, and so do
the kernels that replace it (field ``tokens``). A top-k promises nothing: each place
may hold any token that ties for it (field ``any_tokens``), and the values still
stand in falling order. A target observes the field whose rule it documents.

Tokens behind the last column, rows that are not the request's, and cells outside
the outputs are nobody's: ``outside_writes`` counts cells that changed and are no
output. Masked tokens (minus infinity) are ordinary as long as enough others remain.
NaN anywhere, too few numbers, and divisors that are not positive are hostile; then
ids stay inside the vocabulary, a token that holds minus infinity is not chosen
while another holds more, the other requests are untouched and the call ends.
A field that a form does not have is empty.
"""

from __future__ import annotations

from typing import Any

from oracle import legal
from oracle.contract import Contract, Field, Outcome
from oracle.trace import Trace
from oracle.verify import select_behaviours, select_rows, select_second, select_tree, select_walk
from oracle.verify.rows import Mass, Row
from oracle.verify.select_behaviours import BEHAVIOURS
from oracle.verify.select_case import DraftSelectCase, Request, Slot, domain, hostile
from oracle.verify.select_columns import columns

PER_REQUEST = (
    Field("values", "request", "scores handed on beside the chosen, best first"),
    Field("massless", "request", "slots whose drawn token has mass 0 in the distribution handed on"),
    Field("tokens", "request", "chosen tokens, the lowest id of those that tie"),
    Field("any_tokens", "request", "chosen tokens, any of those that tie"),
    Field("stored", "request", "tokens in the request's column of the draft buffer"),
    Field("rows", "request", "draft distribution of each slot"),
    Field("next_position", "request", "position after the selection"),
    Field("picks", "request", "numbers of the expanded candidates, step by step"),
    Field("next_inputs", "request", "tokens of the expanded candidates"),
    Field("hidden_rows", "request", "ranks of the nodes whose hidden states are passed on"),
    Field("selected", "request", "numbers of the kept candidates, rising"),
    Field("orphans", "request", "kept candidates whose node is not kept"),
)
OUTSIDE = Field("outside_writes", "case", "cells changed outside the outputs")
EMPTY = {"massless": 0, "next_position": 0, "orphans": 0}


def reference(case: DraftSelectCase, trace: Trace) -> Outcome:
    """Request by request, in the form of the case."""
    found: list[dict[str, Any]] = []
    bad = [hostile(case, r) for r in case.requests]
    for i, (request, is_hostile) in enumerate(zip(case.requests, bad, strict=True)):
        if case.form == "walk":
            found.append(select_walk.choose(case, i, request, is_hostile, trace))
            select_behaviours.walk(case, request, is_hostile, found[-1], trace)
        else:
            module = select_tree if case.form == "tree" else select_rows
            found.append(module.choose(case, i, request, is_hostile, trace))
            reached = select_behaviours.tree if case.form == "tree" else select_behaviours.rows
            reached(case, request, is_hostile, trace)
    if any(bad) and not all(bad):
        trace.behaviour("mixed_hostile")
    if case.form == "walk" and len({r.greedy for r in case.requests}) > 1:
        trace.behaviour("walk_mixed_batch")
    trace.step("cells outside the outputs", None, "outside_writes", value=0)
    return _outcome(found)


def _outcome(found: list[dict[str, Any]]) -> Outcome:
    fields = {f.name: [f_.get(f.name, EMPTY.get(f.name, [])) for f_ in found] for f in PER_REQUEST}
    return fields | {"outside_writes": 0}


def second(case: DraftSelectCase) -> Outcome:
    """Each form by an independent definition, see ``select_second``."""
    by_form = {"walk": select_second.walk, "tree": select_second.tree}.get(case.form, select_second.rows)
    return _outcome([by_form(case, r) for r in case.requests])


def padding(case: DraftSelectCase) -> Request:
    """An inert request, as graphs are padded with: a copy of the first one."""
    return case.requests[0]


def kind(field: str, expected: Any, observed: Any) -> str:
    """``unsafe`` where only safety was asked for; else what is wrong."""
    if field == "outside_writes":
        return "written_outside"
    if field == "massless":
        return "without_mass"
    if field == "orphans":
        return "not_a_tree"
    if field == "next_position":
        return "wrong_position"
    if field in ("tokens", "any_tokens", "stored") and _only_safety(expected):
        return "unsafe_token"
    words = {
        "values": "wrong_value",
        "rows": "wrong_distribution",
        "picks": "wrong_candidate",
        "selected": "wrong_candidate",
    }
    return words.get(field, "wrong_token")


def _only_safety(expected: Any) -> bool:
    """A hostile request's outcome, told by what a healthy one never has: an open
    choice in ``tokens`` or ``stored``, a range over the whole vocabulary."""
    return isinstance(expected, legal.Each) and not expected.distinct


def say(case: DraftSelectCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words, with the rule."""
    outcome, trace = CONTRACT.run(case)
    meaning = next(f.meaning for f in CONTRACT.fields if f.name == field)
    if not where:
        return f"{field} ({meaning}) must be {legal.describe(outcome[field])}, production has {observed}"
    i = where[0]
    must, request = outcome[field][i], case.requests[i]
    text = f"request {i}: {field} ({meaning}) must be {legal.describe(must)}, production has {observed}"
    if hostile(case, request):
        return f"{text}; the scores are hostile, and the ids must still be safe"
    if case.form == "walk" and not request.greedy:
        return text + _near(trace, i, observed, must)
    rule = {
        "top1": "the greatest quotient" if request.divisor else "the greatest score",
        "topk": f"the {case.width} greatest scores, falling",
        "walk": "the first candidate with the greatest score of the row that the slot before selects",
        "tree": f"the {case.width} best children of a step, and the {case.draft_tokens - 1} best of all are kept",
    }[case.form]
    return f"{text}; the rule is {rule}" + ("; of tied tokens the lowest id" if field == "tokens" else "")


def _near(trace: Trace, i: int, observed: Any, must: Any) -> str:
    """Slot, coin and masses of the first token that is not the exact one."""
    exact = must.values[0] if isinstance(must, legal.Branched) else must
    drawn = [s.values for s in trace.steps if s.name == "drawn candidate" and s.request == i]
    if isinstance(exact, list) and isinstance(observed, list) and len(observed) == len(exact):
        drawn = drawn[next((j for j, (a, b) in enumerate(zip(exact, observed, strict=True)) if a != b), 0) :]
    d = drawn[0]
    return (
        f"; slot {d['slot']}: coin {d['coin']:.9g} lies in [{d['below']:.9g}, {d['up_to']:.9g}) of candidate "
        f"{d['candidate']}, {d['margin_ulp']:.3g} ULP from its nearest edge"
    )


CONTRACT = Contract(
    name="verify.draft_select",
    version=1,
    case_type=DraftSelectCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(*PER_REQUEST, OUTSIDE),
    behaviours=BEHAVIOURS,
    padding=padding,
    say=say,
    example=DraftSelectCase(
        form="top1", dtype="float32", vocabulary=8, width=1, draft_tokens=0,
        requests=(Request((Slot((), (Row((Mass(3, 2.0), Mass(5, 1.0))),)),), position=7),),
    ),
)  # fmt: skip
