"""How far correct kernels may be from recurrence.replay: the arithmetic that a ring of records allows.

``every``     The state is advanced in float32, token by token, and stored after each commit.
``circular``  The state stays where it was folded last. A ring holds a record (update d, normalised key k, gate g) for
              each committed token since then, d and k in the input type. A verify pass reads state, records and window
              at once (``replay_records``). Products of vectors may go through tensor cores, which take float32 as
              tfloat32, and everything as the input type when the state is stored in 16 bits. A fold reads each
              record in two parts of the input type.
``decode``    The same with one token at a time, except that beta and the records of a fold may be of the input type.

The values are those of the records' closed form: another definition than ``replay_walk``, and the two are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.recurrence.approximate import Approximate, U, concatenate, dot, exact, stack
from oracle.recurrence.replay_case import ReplayCase, Request, inputs, spans, tracked
from oracle.recurrence.replay_records import Tokens, decoded, folded, joined, window
from oracle.recurrence.replay_walk import EPSILON, SOFTPLUS_THRESHOLD


@dataclass(frozen=True)
class Outcome:
    """Like ``replay_walk.Outcome``, with bounds."""

    output: Approximate
    tracks: Approximate
    state: Approximate


def tokens(case: ReplayCase, request: Request, shared: dict[str, np.ndarray]) -> Tokens:
    """Keys and queries normalised and scaled, gates computed, laid out [layers, heads, tokens, ...]."""
    x = inputs(case, request)
    group = case.value_heads // case.key_heads
    k, q = (exact(x[name].transpose(0, 2, 1, 3)) for name in ("k", "q"))
    if case.normalise:
        k, q = (y * (1.0 / (dot(y, y) + EPSILON).sqrt())[..., None] for y in (k, q))
    scale = case.key_size**-0.5
    q = q * Approximate(np.array(scale), np.array(scale * U))
    gates = exact(x["a"]) + shared["dt_bias"][:, None]
    gates = (gates if case.gate == "channel" else gates[..., None]).transpose(0, 2, 1, 3)
    g = -exact(shared["A_log"]).exp()[:, :, None, None] * gates.softplus(SOFTPLUS_THRESHOLD)
    beta = exact(x["b"].transpose(0, 2, 1)).sigmoid()
    if case.operation == "decode":
        beta = beta.stored(case.input_dtype)
    return Tokens(k.repeat(group, 1), q.repeat(group, 1), exact(x["v"].transpose(0, 2, 1, 3)), g, beta)


def bounded(case: ReplayCase, request: Request, shared: dict[str, np.ndarray]) -> Outcome:
    """Every output, saved state and the last state of a request, with bounds."""
    every = tokens(case, request, shared)
    step = {"every": _advanced, "circular": window, "decode": decoded}[case.operation]
    state, records = exact(inputs(case, request)["state"]), None
    outputs, tracks = [], []
    for j, (first, end) in enumerate(spans(request)):
        turn, saves = request.rounds[j], j in tracked(request)
        if case.operation == "every":
            states, output = step(state, every.part(first, end))
            state = states[turn.accepted - 1].stored(case.state_dtype)
            if saves:
                tracks.append(states[turn.track_step].stored(case.state_dtype))
        else:
            output, new = step(case, state, records, every.part(first, end))
            if saves:
                tracks.append(folded(case, state, joined(records, new, turn.track_step + 1)))
            records = joined(records, new, turn.accepted)
            if folds(case, records.g.shape[2], saves):
                state, records = folded(case, state, records), None
        outputs.append(output.stored(case.input_dtype))
    state = folded(case, state, records) if records is not None else state
    none = exact(np.zeros((0, *state.shape)))
    output = concatenate(outputs, 2).transpose(0, 2, 1, 3)
    return Outcome(output, stack(tracks) if tracks else none, state)


def folds(case: ReplayCase, history: int, saves: bool) -> bool:
    """Whether a commit that leaves ``history`` records folds them: before a window could overflow the ring; when
    decoding, with the token that would fill it or whose state is saved."""
    if case.operation == "decode":
        return history == case.ring or saves
    return case.fold == "every" or history + 2 * case.window > case.ring


def _advanced(state: Approximate, x: Tokens) -> tuple[list[Approximate], Approximate]:
    states, outputs = [], []
    for t in range(x.k.shape[2]):
        k = x.k[:, :, t]
        state = state * x.g[:, :, t].exp()[..., None]
        change = (x.v[:, :, t] - dot(state, k[..., None], 2)) * x.beta[:, :, t, None]
        state = state + k[..., None] * change[..., None, :]
        states.append(state)
        outputs.append(dot(state, x.q[:, :, t, :, None], 2))
    return states, stack(outputs, 2)
