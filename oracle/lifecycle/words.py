"""The words of a story: its steps, its prefixes, and how an observation of it is wrong."""

from __future__ import annotations

from typing import Any

from oracle.lifecycle import story
from oracle.lifecycle.scheduler import Scheduler
from oracle.lifecycle.story import LifecycleCase, Step
from oracle.lifecycle.tokens import REWRITES, author_of, length_of, request_of
from oracle.lifecycle.walk import TREE, launched

BEHAVIOURS = {
    "nothing_to_resume_from": "a prompt of which no prefix is filed",
    "resumed_from_a_state": "a prompt that resumes from a filed state",
    "fork_of_a_running_request": "a prompt that shares tokens with a request that runs",
    "prompt_parts_from_a_stored_one": "a prompt that leaves a stored prefix behind its last filed state",
    "prefill_crosses_a_boundary": "a prefill that saves a checkpoint on its way",
    "prefill_ends_on_a_boundary": "a prefill that ends exactly on the checkpoint it saves",
    "prefilled_in_passes": "a prompt that takes several prefill passes",
    "filed_while_running": "a checkpoint filed for a request that goes on",
    "filed_at_the_end": "a checkpoint of a verify round, filed when the request ends",
    "filed_already": "a checkpoint whose prefix is filed already",
    "finished_without_checkpoint": "a request that ends with nothing to file",
    "boundary_on_the_last_step": "a round whose last committed token reaches a boundary",
    "boundary_inside_a_round": "a round that goes past a boundary",
    "second_slot_taken_lazily": "a second track slot taken because a boundary is near",
    "state_in_the_ring": "a round whose inputs wait beside the dense state",
    "published_late": "lengths published after the next round was launched, or later",
    "finished_with_a_round_in_flight": "a request that ends while a round of it is in flight",
    "retracted_with_a_round_in_flight": "a request retracted while a round of it is in flight",
    "retracted": "a request that gives up what it holds and waits",
    "offloaded": "a request copied out to the host",
    "restored_by_prefill": "a request that comes back by prefilling again",
    "restored_from_copy": "a request that comes back from its copy",
    "evicted": "filed states given up",
    "held_state_survives_eviction": "a filed state that a request holds while others are given up",
    "slot_used_again": "a slot handed out that had an owner before",
    "batches_merged": "new requests merged behind running ones",
    "batch_filtered": "a row taken out of a batch that goes on",
}


def prefix_words(name: int) -> str:
    """``255 tokens of request 2``; of a request that chose anew, the how manieth choice."""
    if name <= 0:
        return "no tokens" if name == 0 else f"no prefix ({name})"
    again = author_of(name) % REWRITES
    return f"{length_of(name)} tokens of request {request_of(name)}" + (f" (rewritten {again} times)" if again else "")


def step_words(case: LifecycleCase, step: Step) -> str:
    """The step as a line of a story."""
    who = f"request {step.request}"
    if step.action == story.ENTER:
        shares = f", the first {step.shared} of request {step.source}" if step.source >= 0 and step.shared else ""
        return f"{who} enters with {step.tokens} tokens{shares}"
    if step.action == story.VERIFY:
        given = ", ".join(map(str, step.committed))
        return f"a round of {case.draft_tokens} is verified, its rows commit {given or '1 each'}"
    return {
        story.PREFILL: f"{who} is prefilled further",
        story.PUBLISH: "the lengths of the round in flight are published",
        story.FINISH: f"{who} finishes",
        story.RETRACT: f"{who} is retracted",
        story.OFFLOAD: f"{who} is copied out",
        story.RESTORE: f"{who} is restored",
        story.EVICT: "the cache is asked for everything that nobody holds",
    }[step.action]


def happened(case: LifecycleCase, step: Step, scheduler: Scheduler, before: dict[int, int], observed: Any) -> str:
    """The step and what came of it: ``request 2 finishes; files 256``."""
    parts = [step_words(case, step)]
    for name, length in before.items():
        r = scheduler.requests[name]
        now = launched(scheduler, r)
        if step.action == story.VERIFY and now != length:
            known = "" if now == r.length else f" (known: {r.length})"
            parts.append(f"request {name} commits {now - length} of {case.draft_tokens}, {length} → {now}{known}")
    if observed["resumed"]:
        parts.append(f"resumes from {observed['resumed'][0]}")
    parts += [f"files {prefix_words(p)}" for p, *_ in observed["filed"]]
    parts += [f"gives up {prefix_words(p)}" for p in observed["dropped"]]
    return "; ".join(parts)


def kind(field: str, expected: Any, observed: Any) -> str:
    """What is wrong with a step's observation, by its first wrong line."""
    if field == "violations":
        holder, prefix, state, right, entries = observed[0]
        return f"{'filed' if holder == TREE else 'running'}_{_wrong(prefix, state, right, entries)}"
    if field == "slots":
        return ("slot_lost", "slot_of_two_owners", "slot_free_and_owned")[next(i for i, n in enumerate(observed) if n)]
    if field == "resumed":
        if not observed or not expected:
            return "resumption_missing" if expected else "resumption_spurious"
        if observed[0] != expected[0]:
            return "resumed_too_far" if observed[0] > expected[0] else "resumed_too_early"
        return "resumed_" + _wrong(expected[1], observed[1], expected[2], observed[2])
    if field == "states":
        return "wrong_requests" if [s[0] for s in observed] != [s[0] for s in expected] else "wrong_length"
    missing = [line for line in expected if line not in observed]
    if field == "filed":
        return "checkpoint_not_filed" if missing else "checkpoint_spurious"
    return "not_evicted" if missing else "evicted_while_held"


def _wrong(prefix: int, state: int, right: int, entries: int) -> str:
    if state == prefix:
        return "attention_cache_wrong" if right != entries else "attention_cache_of_another_length"
    if author_of(state) != author_of(prefix):
        return "state_of_other_tokens"
    return "state_ahead" if state > prefix else "state_behind"


def say(case: LifecycleCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words, with the step at which it shows."""
    i = where[0]
    at = f"step {i}, {step_words(case, case.steps[i])}: "
    if field == "violations":
        holder, prefix, state, right, entries = observed[0]
        who = "the prefix cache files" if holder == TREE else f"request {holder} has"
        what = f"{who} under {prefix_words(prefix)} the state after {prefix_words(state)}"
        cache = f"its attention cache has {entries} entries, the first {right} of them right"
        return at + what + (f"; {cache}" if not right == entries == length_of(prefix) else "")
    if field == "slots":
        lost, shared, both = observed
        return at + f"{lost} slots are lost, {shared} have two owners, {both} are free and owned at once"
    if field == "resumed" and observed:
        length, state, entries = observed
        return at + f"resumes from {length} with the state after {prefix_words(state)} and {entries} attention entries"
    if field == "filed":
        return at + "filed: " + (", ".join(prefix_words(p) for p, *_ in observed) or "nothing")
    if field == "dropped":
        return at + "given up: " + (", ".join(map(prefix_words, observed)) or "nothing")
    return at + f"{field} are {observed}"
