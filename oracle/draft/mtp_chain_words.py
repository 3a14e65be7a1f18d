"""draft.mtp_chain in words: its behaviours, the kinds of difference, the claim of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oracle.draft.mtp_chain_case import FORMS, PER_ROW, WINDOW, MtpChainCase, beams_of, runs_of
from oracle.draft.mtp_chain_second import second
from oracle.draft.proposer import NOBODY, unstamp

MEANING = {
    "replayed": "batch size of the graph of every step, 0 for the eager path",
    "positions": "positions of the rows of every step",
    "locations": "KV locations of the rows of every step",
    "tokens": "tokens of the rows of every step",
    "hidden": "stamps of the hidden states that the rows are fed",
    "drafts": "proposed tokens, for one row a step",
    "stash_owner": "pool row of the request whose states of this round are kept for the next one",
    "padding_inert": "rows that fill a graph up write no request's KV",
    "outside_untouched": "nothing outside the results was written",
}
BEHAVIOURS = {
    **{f"form_{form}": f"a chain of the form {form!r}" for form in FORMS},
    "chained": "a step takes the state that the step before produced",
    "unchained": "every step of several takes the target's state",
    "one_step": "there is nothing to hand over",
    "no_run": "the only draft is given and no model runs",
    "only_bonus": "one row is live: the bonus token",
    "all_committed": "every verified row is live",
    "prompt": "a request feeds more rows than a verify has",
    "ragged_prompts": "two prompts of a batch have different lengths",
    "only_drafts_left": "a step feeds drafts alone",
    "several_requests": "a request behind another",
    "several_rows": "a step feeds several rows a request",
    "parent_of_another_row": "a row's parent has another number than the row",
    "one_parent_for_all": "all rows of a step have one parent",
    "graph_fits": "a graph of just this batch size is replayed",
    "graph_padded": "a larger graph is replayed",
    "graph_too_small": "every captured graph is too small",
    "no_graph": "nothing was captured",
    "after_a_round": "the runner served a round before",
    "after_a_larger_round": "the round before had more requests",
    "after_a_fallback": "the round before fell back and this one is replayed",
    "fallback_after_replay": "the round before was replayed and this one falls back",
    "pool_row_again": "a request has the pool row of another one of the round before",
}


def behaviours(case: MtpChainCase, graph: int) -> Iterator[str]:
    """The events that ``case`` shows; ``graph`` is the size of its graph, 0 without."""
    batch, before = len(case.requests), len(case.earlier)
    window, largest = case.form == WINDOW, max(case.captured, default=0)
    rows = {r.pool_row for r in case.requests} & {r.pool_row for r in case.earlier}
    beams = [beams_of(case, r) for r in case.requests] if case.width > 1 else []
    parents = [[parent for _, parent in level] for found in beams for level in found[1:]]
    kept = [r.committed for r in case.requests]
    for name, reached in (
        (f"form_{case.form}", True),
        ("chained", case.chained and case.steps > 1),
        ("unchained", not case.chained and case.steps > 1),
        ("one_step", case.steps == 1),
        ("no_run", runs_of(case) == 0),
        ("only_bonus", 1 in kept),
        ("all_committed", case.steps + 1 in kept),
        ("prompt", max(kept) > case.steps + 1),
        ("ragged_prompts", max(kept) > case.steps + 1 and len(set(kept)) > 1),
        ("only_drafts_left", window and any(c < case.steps for c in kept)),
        ("several_requests", batch > 1),
        ("several_rows", case.width > 1),
        ("parent_of_another_row", any(p != list(range(case.width)) for p in parents)),
        ("one_parent_for_all", any(len(set(p)) == 1 for p in parents)),
        ("graph_fits", graph == batch),
        ("graph_padded", graph > batch),
        ("graph_too_small", 0 < largest < batch),
        ("no_graph", window and not case.captured),
        ("after_a_round", before > 0),
        ("after_a_larger_round", before > batch),
        ("after_a_fallback", before > largest and graph > 0),
        ("fallback_after_replay", 0 < before <= largest < batch),
        ("pool_row_again", bool(rows)),
    ):
        if reached:
            yield name


def kind(field: str, expected: Any, observed: Any) -> str:
    """What is wrong with the first cell that differs."""
    if field == "replayed":
        return "not_replayed" if 0 in observed else "replayed_too_small" if 0 in expected else "other_graph"
    if field == "stash_owner":
        return "not_this_round" if observed == NOBODY else "of_another"
    if field in ("padding_inert", "outside_untouched"):
        return "written_outside"
    if field == "drafts":
        return "wrong_draft"
    cell = first_difference(expected, observed)
    if cell is None:
        return "wrong_count"
    _, _, must, seen = cell
    if field == "hidden":
        return _state(must, seen)
    return {"tokens": "wrong_token", "positions": "wrong_position", "locations": "wrong_location"}[field]


def _state(must: int, seen: int) -> str:
    if seen == NOBODY:
        return "no_state"
    (round_, request, producer, _), (was_round, was_request, was_producer, _) = unstamp(must), unstamp(seen)
    if was_round != round_:
        return "state_of_an_earlier_round"
    if was_request != request:
        return "state_of_another"
    if was_producer != producer:
        return "target_state_again" if was_producer == 0 else "state_of_another_step"
    return "state_of_another_row"


def _rows(steps: Any) -> list[int | None]:
    """How many rows each step has; ``None`` for what is no list of them."""
    return [len(rows) if isinstance(rows, (list, tuple)) else None for rows in steps]


def first_difference(expected: Any, observed: Any) -> tuple[int, int, Any, Any] | None:
    """Step, row and both values of the first cell that differs; ``None`` when the two
    have different numbers of steps or rows."""
    if _rows(expected) != _rows(observed):
        return None
    for step, (must, seen) in enumerate(zip(expected, observed, strict=True)):
        for row, (m, s) in enumerate(zip(must, seen, strict=True)):
            if m != s:
                return step, row, m, s
    return None


def describe(number: int) -> str:
    """A stamp in words."""
    if number == NOBODY:
        return "something that is no state"
    round_, request, producer, place = unstamp(number)
    made = "the target's state" if producer == 0 else f"the state that run {producer} of the draft model produced"
    return f"{made} at {place}, request of pool row {request}" + ("" if round_ else " of the earlier round")


def say(case: MtpChainCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim of a divergence."""
    expected = second(case)[field]
    must = expected[where[0]] if where else expected
    place = f"request {where[0]}: " if where else ""
    cell = first_difference(must, observed) if field in PER_ROW else None
    if cell is None:
        return f"{place}{field} ({MEANING[field]}) must be {must}, production has {observed}"
    step, row, wanted, seen = cell
    if field == "hidden":
        wanted, seen = describe(wanted), describe(seen)
    return f"{place}draft step {step}, row {row}: {field} must be {wanted}, production feeds {seen}"
