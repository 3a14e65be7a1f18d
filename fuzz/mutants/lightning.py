"""Mutants of recurrence.lightning.

Each attends with one thing changed: a tensor, the weight of a token at a distance, where a
request starts, or what is stored at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.mutants.beyond import beyond
from fuzz.mutants.mutant import Mutant
from oracle.recurrence.lightning import reference
from oracle.recurrence.lightning_behaviours import LARGE_BLOCK, shown
from oracle.recurrence.lightning_case import LightningCase, Request, decays, slot_state, tokens
from oracle.recurrence.lightning_walk import SMALL_BLOCK, SPLIT_DIM
from oracle.recurrence.words import POISON, UNTOUCHED
from oracle.trace import Trace

Case = LightningCase
Observed = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """How a wrong version attends.

    decay    case -> decay of each head
    start    case, request -> the state it starts from
    weight   case, decay [heads, 1, 1], distances [T, T] -> what a token's product counts then
    since    case, decay [heads, 1], token -> what the start counts for the token's output
    scale    case -> factor of the outputs
    rank     k, v -> k, v as they enter the state
    """

    decay: Callable[[Case], np.ndarray] = decays
    start: Callable[[Case, Request], np.ndarray] = lambda case, r: _start(case, r)
    weight: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda s, distance: np.exp(-s * distance)
    since: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda s, t: np.exp(-s * (t + 1))
    scale: Callable[[Case], float] = lambda case: case.scale
    rank: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] = lambda k, v: (k, v)


def _start(case: Case, r: Request) -> np.ndarray:
    return slot_state(case, r.source) if r.initial else np.zeros(case.entry)


def _mutant(
    name: str, fault: str, meaning: str, rule: Rule | None = None,
    finish: Callable[[Case, Observed], Observed] = lambda case, seen: seen,
) -> Mutant:  # fmt: skip
    """``finish`` changes what is observed in the end."""
    rule = rule or Rule()

    def observe(case: Case) -> Observed:
        outputs, states = [], []
        for r in case.requests:
            kept = {"decode": 1, "prefill": 2}.get(case.operation, r.length)
            if r.null:
                outputs.append(np.zeros((r.length, *case.entry[:2])))
                states.append(np.full((kept, *case.entry), POISON))
                continue
            output, after = _attend(case, r, rule)
            outputs.append(output)
            states.append(np.stack([after(n) for n in _kept(case, r)]))
        return finish(case, {"outside": UNTOUCHED, "kept": 0, "output": outputs, "states": states})

    return Mutant(name, fault, meaning, observe)


def _kept(case: Case, r: Request) -> list[int]:
    """After how many tokens a state is stored."""
    if case.operation == "prefill":
        return [r.track_length or r.length, r.length]
    return [r.length] if case.operation == "decode" else list(range(1, r.length + 1))


def _attend(case: Case, r: Request, rule: Rule) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Outputs, and the state after so many tokens."""
    token, decay, start = tokens(case, r), rule.decay(case), rule.start(case, r)
    k, v = rule.rank(token["k"], token["v"])
    step = np.arange(r.length)
    distance = step[:, None] - step
    weight = np.where(distance >= 0, rule.weight(decay[:, None, None], np.maximum(distance, 0)), 0.0)
    since = rule.since(decay[:, None], step).T[..., None]
    scores = np.einsum("thd,jhd->htj", token["q"], k) * weight
    output = np.einsum("htj,jhv->thv", scores, v) + since * np.einsum("thk,hkv->thv", token["q"], start)

    def after(count: int) -> np.ndarray:
        own = weight[:, count - 1, :count]
        begun = np.exp(-decay * count) if count else np.ones_like(decay)
        return np.einsum("hj,jhk,jhv->hkv", own, k[:count], v[:count]) + begun[:, None, None] * start

    return output * rule.scale(case), after


def _late(block: int) -> Rule:
    """What stands before a block has decayed by one token too little."""

    def weight(s: np.ndarray, distance: np.ndarray) -> np.ndarray:
        step = np.arange(distance.shape[0])
        before = step[:, None] // block != step // block
        return np.exp(-s * (distance - before))

    return Rule(weight=weight, since=lambda s, t: np.exp(-s * t))


def _slots(by: int) -> Rule:
    def start(case: Case, r: Request) -> np.ndarray:
        if not r.initial:
            return np.zeros(case.entry)
        return slot_state(case, r.slots[min(max(r.accepted - 1 + by, 0), len(r.slots) - 1)])

    return Rule(start=start)


def _foreign(case: Case, r: Request) -> np.ndarray:
    """With nothing accepted, a slot that is not the request's."""
    if r.accepted:
        return _start(case, r)
    return slot_state(case, next(s for s in range(case.slots) if s not in r.slots))


def _step_early(case: Case, observed: Observed) -> Observed:
    if case.operation not in ("verify", "accepted"):
        return observed
    states = list(observed["states"])
    for i, r in enumerate(case.requests):
        if not r.null:
            states[i] = np.concatenate([slot_state(case, r.source)[None], states[i][:-1]])
    return observed | {"states": states}


def _last_missing(case: Case, observed: Observed) -> Observed:
    states = [s.copy() for s in observed["states"]]
    for s in states:
        s[-1] = POISON
    return observed | {"states": states}


def _tracks_last(case: Case, observed: Observed) -> Observed:
    """The track slot gets the slot's own state."""
    states = [s[[-1, -1]] if case.operation == "prefill" else s for s in observed["states"]]
    return observed | {"states": states}


def _transposed(case: Case, observed: Observed) -> Observed:
    return observed | {"states": [s.swapaxes(-1, -2) for s in observed["states"]]}


def _first_keys(case: Case, observed: Observed) -> Observed:
    """The state's keys behind the first block of them are never stored."""
    states = [s.copy() for s in observed["states"]]
    for s in states:
        s[:, :, SPLIT_DIM:] = POISON
    return observed | {"states": states}


def _changed(when: Callable[[Case], int]) -> Callable[[Case, Observed], Observed]:
    """So many cells changed that had to stay."""
    return lambda case, observed: observed | {"kept": when(case)}


def _pool_advanced(case: Case) -> int:
    return case.cells * sum(not r.null for r in case.requests) if case.operation == "verify" else 0


def _null_stored(case: Case) -> int:
    return case.cells * sum(r.null for r in case.requests)


def _wrapped(behaviour: str, where: str) -> Callable[[Case, Observed], Observed]:
    def finish(case: Case, observed: Observed) -> Observed:
        return observed | {"outside": f"{where}: written before the buffer"} if behaviour in shown(case) else observed

    return finish


def _beyond(field: str) -> Callable[[Case, Observed], Observed]:
    """One cell of the field, moved away by a little more than its bound."""
    return lambda case, observed: observed | {field: beyond(reference(case, Trace())[field], observed[field])}


MUTANTS = (
    _mutant("nothing_decays", "missing_term", "states are never forgotten", Rule(decay=lambda c: 0.0 * decays(c))),
    _mutant("one_decay_for_all", "wrong_head", "every head decays like the first",
            Rule(decay=lambda c: np.repeat(decays(c)[:1], c.heads))),
    _mutant("growing", "wrong_sign", "the decay's sign is lost", Rule(decay=lambda c: -decays(c))),
    _mutant("reads_before_update", "wrong_order", "the output reads the state before the token is in it",
            Rule(weight=lambda s, d: np.where(d > 0, np.exp(-s * d), 0.0))),
    _mutant("history_decays_late", "off_by_one", f"what stands before a block of {LARGE_BLOCK} decays one token late",
            _late(LARGE_BLOCK)),
    _mutant("small_history_decays_late", "off_by_one", f"the same for blocks of {SMALL_BLOCK}", _late(SMALL_BLOCK)),
    _mutant("unscaled", "missing_term", "queries are not scaled", Rule(scale=lambda c: 1.0)),
    _mutant("scaled_twice", "twice", "queries are scaled twice", Rule(scale=lambda c: c.scale**2)),
    _mutant("keys_for_values", "wrong_tensor", "keys and values change places", Rule(rank=lambda k, v: (v, k))),
    _mutant("stale_state", "missing_check", "what the slot held before is taken for a state",
            Rule(start=lambda c, r: slot_state(c, r.source))),
    _mutant("forgets_history", "missing_term", "the state before is not read",
            Rule(start=lambda c, r: np.zeros(c.entry))),
    _mutant("accepted_one_early", "off_by_one", "starts one step before the accepted one", _slots(-1)),
    _mutant("accepted_one_late", "off_by_one", "starts one step behind the accepted one", _slots(1)),
    _mutant("nothing_accepted_unchecked", "missing_check", "reads another request's slot", Rule(start=_foreign)),
    _mutant("states_one_step_early", "off_by_one", "a step stores the state it started from", finish=_step_early),
    _mutant("last_state_missing", "not_stored", "the last state is not stored", finish=_last_missing),
    _mutant("tracks_the_end", "step_for_step", "the track slot gets the slot's state", finish=_tracks_last),
    _mutant("states_transposed", "wrong_stride", "key and value axes are exchanged", finish=_transposed),
    _mutant("first_keys_only", "tail", f"only {SPLIT_DIM} keys of a state are stored", finish=_first_keys),
    _mutant("verify_advances_pool", "neighbour", "a verify stores into the pool", finish=_changed(_pool_advanced)),
    _mutant("null_row_stored", "sentinel", "a null row is stored into the last slot", finish=_changed(_null_stored)),
    _mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements",
            finish=_wrapped("slot_offset_beyond_int32", "pool")),
    _mutant("row_offset_in_32_bits", "wrap", "scratch row times stride wraps at 2^31 elements",
            finish=_wrapped("row_offset_beyond_int32", "scratch")),
    _mutant("output_beyond_bound", "rounding", "one output is off by 1.5 times its bound", finish=_beyond("output")),
    _mutant("state_beyond_bound", "rounding", "one state is off by 1.5 times its bound", finish=_beyond("states")),
)  # fmt: skip
