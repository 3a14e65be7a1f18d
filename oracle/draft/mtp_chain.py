"""draft.mtp_chain: the token and the hidden state that every draft step is fed.

Definition. A request had ``pre`` tokens; verify kept c of its tokens, the last of which is
the bonus token, and left the target's hidden state at the positions ``pre`` ..
``pre + c - 1``. Then S drafts are proposed one behind the other. The form says how.

``window``: a model of its own for every step. Each step feeds the c kept positions; at
step 0 with the token behind each position (so that the last row holds the bonus token) and
with the target's state there. The draft is proposed from the last row. One step later every
row takes the token of the row behind it, and the last row the draft. A chained model takes
the state that the step before *produced* at the same position of the same request; an
unchained one the target's again. Positions and KV locations stay.

``beam``: one model that advances, K rows a step. The first K candidates are given. Step k
feeds the rows at position ``pre + c + k``; the first step with the target's state at the
last kept position, every later one with the state that the row's own *parent* was given back.
The next rows are the K best of the K times K continuations, by the product of their
probabilities, best first. Row b of step k has a KV location of its own.

``frozen``: as ``beam``, but the model reads the target's KV and adds nothing to it: every
step runs at position ``pre + c - 1``, and the first one feeds the bonus token itself.

Graphs. A batch is replayed in the smallest captured graph that holds it and falls back to
the eager path when none does; both feed the same. Rows that only fill a graph up write
nothing into the KV of a request. States kept for the next round are this round's, of the
request they are filed under, from whichever path ran. Which of them is not asked here.

A state is observed as its stamp: round, request (its pool row, which no reordering of the
batch changes), producer (0 the target, k the k-th run) and place (position, or number of
the row).
"""

from __future__ import annotations

from oracle.commit.token_table import location
from oracle.contract import Contract, Field, Outcome
from oracle.draft.mtp_chain_case import (
    BEAM,
    FROZEN,
    NOWHERE,
    PER_ROW,
    REQUEST_FIELDS,
    ROUND,
    TABLE_WIDTH,
    WINDOW,
    MtpChainCase,
    Request,
    beams_of,
    bonus_of,
    columns,
    domain,
    graph_of,
    kept_of,
    runs_of,
)
from oracle.draft.mtp_chain_second import second
from oracle.draft.mtp_chain_words import BEHAVIOURS, MEANING, behaviours, kind, say
from oracle.draft.proposer import NOBODY, proposal, stamp
from oracle.trace import Trace

Fed = tuple[int, int, int, int]  # position, KV location, token, stamp


def reference(case: MtpChainCase, trace: Trace) -> Outcome:
    """Walk the steps of every request, carrying tokens and states forward."""
    size = graph_of(case, len(case.requests))
    outcome: Outcome = {name: [] for name in REQUEST_FIELDS}
    outcome["replayed"] = [size] * runs_of(case)
    trace.step(MEANING["replayed"], decides="replayed", value=outcome["replayed"])
    for i, r in enumerate(case.requests):
        steps, drafts = (_window if case.form == WINDOW else _beams)(case, r)
        owner = r.pool_row if case.form == WINDOW and case.captured and case.steps > 1 else NOBODY
        found = {name: [[row[n] for row in rows] for rows in steps] for n, name in enumerate(PER_ROW)}
        found |= {"drafts": drafts, "stash_owner": owner}
        for name in REQUEST_FIELDS:
            outcome[name].append(found[name])
            trace.step(MEANING[name], i, name, value=found[name])
    trace.step(MEANING["padding_inert"], decides="padding_inert", value=True)
    trace.step(MEANING["outside_untouched"], decides="outside_untouched", value=True)
    for name in behaviours(case, size):
        trace.behaviour(name)
    return outcome | {"padding_inert": True, "outside_untouched": True}


def _window(case: MtpChainCase, r: Request) -> tuple[list[list[Fed]], list[int]]:
    positions = range(r.pre, r.pre + r.committed)
    tokens = kept_of(r)
    states = [stamp(ROUND, r.pool_row, 0, p) for p in positions]
    fed, drafts = [], []
    for step in range(case.steps):
        rows = zip(positions, tokens, states, strict=True)
        fed.append([(p, location(r.pool_row, p, TABLE_WIDTH), token, state) for p, token, state in rows])
        draft = proposal(tokens[-1], step)
        drafts.append(draft)
        tokens = [*tokens[1:], draft]
        if case.chained:
            states = [stamp(ROUND, r.pool_row, step + 1, p) for p in positions]
    return fed, drafts


def _beams(case: MtpChainCase, r: Request) -> tuple[list[list[Fed]], list[int]]:
    post = r.pre + r.committed
    beams = beams_of(case, r)
    states = [stamp(ROUND, r.pool_row, 0, post - 1)] * case.width
    fed: list[list[Fed]] = []
    runs = 0
    if case.form == FROZEN:  # the run that makes the first candidates; its rows are all the same
        fed.append([(post - 1, NOWHERE, bonus_of(r), state) for state in states])
        runs = 1
        states = [stamp(ROUND, r.pool_row, runs, 0)] * case.width
    for step, rows in enumerate(beams):
        if step:
            states = [stamp(ROUND, r.pool_row, runs, parent) for _, parent in rows]
        if step == case.steps - 1:
            break
        made = []
        for b, (token, _) in enumerate(rows):
            position = post + step if case.form == BEAM else post - 1
            place = location(r.pool_row, post + b * case.steps + step, TABLE_WIDTH) if case.form == BEAM else NOWHERE
            made.append((position, place, token, states[b]))
        fed.append(made)
        runs += 1
    return fed, [rows[0][0] for rows in beams] if case.width == 1 else []


CONTRACT = Contract(
    name="draft.mtp_chain",
    version=1,
    case_type=MtpChainCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=say,
    fields=tuple(Field(name, "request" if name in REQUEST_FIELDS else "case", text) for name, text in MEANING.items()),
    behaviours=BEHAVIOURS,
    example=MtpChainCase(WINDOW, True, 2, 1, (2,), (), (Request(10, 2, 1, 1), Request(20, 1, 3, 2))),
)
