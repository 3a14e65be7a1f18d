"""commit.lifecycle: checkpoints stay true over whole lives of requests.

Definition. At every moment of a story, **a state filed under length L of a token
prefix is the state after exactly those L tokens, and the attention cache it is paired
with has the same length.** The same holds for what a running request owns, and every
state slot has one owner or is free. That is ``violations`` and ``slots``, and it is
asked of every engine, whatever it decides to file.

The other fields say what an engine shows that keeps checkpoints on a grid of g tokens:

* A prompt of n tokens resumes from the longest filed prefix of its first n - 1 tokens;
  the rest is prefilled, in passes of ``chunk`` grids where that is asked. A pass files
  the last multiple of g that it reaches, or, where the prompt parts from a stored one
  behind the state it resumed from, the last multiple of g before that point.
* A verify round over the running batch commits c tokens a row; when it passes a
  multiple of g, the state there is saved. What is saved and known to the scheduler
  when the request ends is filed then.
* With ``overlap`` a round is launched before the one before it is published. A request
  ends, or is retracted, with the length that is known; what it was ahead is dropped.
* A retracted request gives up all and prefills again, its last emitted token included;
  an offloaded one comes back from its copy. Eviction takes every filed state but those
  that a request resumed from or filed last and still runs.

States and attention entries carry the name of the prefix they belong to (see
``oracle.lifecycle.tokens``), so a violation names both: what it is filed under and what
it is. The case is a story; each record is a step, and each field has one entry a step.
"""

from __future__ import annotations

from typing import Any

from oracle.contract import Contract, Field, Outcome
from oracle.lifecycle.recount import recount
from oracle.lifecycle.scheduler import Scheduler
from oracle.lifecycle.story import ENTER, LifecycleCase, Step, columns, domain
from oracle.lifecycle.walk import FIELDS, launched, walk
from oracle.lifecycle.words import BEHAVIOURS, happened, kind, say
from oracle.trace import Trace

MEANING = {
    "violations": "states that are not what they are filed under: [holder or -1 for the cache, prefix, prefix of the "
    "state, right attention entries, attention entries]",
    "slots": "[state slots lost, with two owners, free and owned]",
    "states": "[request, length known, prefix of its state, attention entries] of every request that runs",
    "resumed": "[length, prefix of the state, attention entries] that a request resumed from",
    "filed": "[prefix, prefix of the state, attention entries] filed by the step",
    "dropped": "prefixes that the cache gave up in the step",
}


def reference(case: LifecycleCase, trace: Trace) -> Outcome:
    """Walk the story on the honest model."""
    lengths: dict[int, int] = {}  # that requests had reached before the step
    states: list[Any] = []

    def seen(i: int, scheduler: Scheduler, observed: dict[str, Any]) -> None:
        step = case.steps[i]
        for name in scheduler.said:
            trace.behaviour(name)
        changed = observed["states"] != states or observed["dropped"] or observed["resumed"]
        story = happened(case, step, scheduler, lengths, observed) + ("" if changed else ": nothing changes")
        trace.step(f"step {i}: {story}")
        for field in FIELDS:
            trace.step(field, i, field, value=observed[field])
        states[:] = observed["states"]
        lengths.clear()
        lengths.update((r.name, launched(scheduler, r)) for r in scheduler.requests.values() if r.slot is not None)

    return walk(case, seen=seen)


def second(case: LifecycleCase) -> Outcome:
    """The same from the tokens alone, without slots, tracks and batches."""
    return recount(case)


CONTRACT = Contract(
    name="commit.lifecycle",
    version=1,
    case_type=LifecycleCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=say,
    records="steps",
    ordered=True,
    fields=tuple(Field(name, "request", MEANING[name]) for name in FIELDS),
    behaviours=BEHAVIOURS,
    example=LifecycleCase(
        grid=64, draft_tokens=4, chunk=0, ring=0, lazy=False, overlap=False,
        steps=(Step(ENTER, request=0, tokens=10), Step("verify", committed=(2,))),
    ),
)  # fmt: skip
