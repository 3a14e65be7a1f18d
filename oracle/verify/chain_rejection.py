"""verify.chain_rejection: which drafts of a chain a sampling target keeps, and what it emits after them.

Definition. A request has drafts x_1 .. x_k, proposal rows q_1 .. q_k that they were drawn from, target rows
p_1 .. p_(k+1) and a coin u_j in [0, 1) for each draft. With r_j = p_j(x_j) / q_j(x_j), a drafts are accepted:

* token rule: draft j is accepted when all before it were and u_j < r_j. The last token comes from
  max(p_(a+1) - q_(a+1), 0) for a < k, and from p_(k+1) for a = k.
* block rule (Sun et al. 2024, arXiv 2403.10444): w_0 = 1, w_j = min(1, w_(j-1) r_j); for j < k,
  S_j = sum over x of max(w_j p_(j+1)(x) - q_(j+1)(x), 0) and h_j = S_j / (S_j + 1 - w_j), 1 where w_j = 1; h_k = w_k.
  a is the largest j with u_j < h_j, 0 without one. The last token comes from max(w_a p_(a+1) - q_(a+1), 0) for
  a < k, and from p_(k+1) for a = k. All prefixes are looked at: a draft behind a rejected one may be accepted.

Both are lossless: over coins and drafts, what is emitted is distributed as the target; the tests integrate it.

The last token is drawn in one of two forms, each a field of its own:

* ``bonus_token``: by one coin, the smallest token whose cumulated mass is above the coin times the total mass;
* ``race_token``: by a race, the first token with the largest mass / e, e an exponential variable a token.

Where no mass is left (p = q up to rounding) any token that the target row gives mass is legal. A token without mass is
never drawn and a draft without target mass never accepted, also at coin 0; a draft at r_j >= 1 always is.

* q absent (n-gram drafts): all proposal mass lies on the draft, so it is accepted below p(x), and the last token after
  a rejection comes from p without x.
* A placeholder (-1) ends the chain: nothing from it on is accepted, k is what stands before it, and p_(k+1) is the row
  of its position, in which no proposal mass is taken off.
* A greedy request uses no coin: a draft is accepted when all before it were and it is the target row's largest mass,
  the first of equals; the last token is the largest mass of its row. Both rules and both forms mean the same there.

``path`` are the places in the verify block (the current token, then the drafts) of the tokens kept: 0 .. a.
``outside_writes`` counts cells that a target changed outside what it may write: for a request the accepted drafts, the
last token and the path; nothing behind them and nothing around the buffers.

Equal coin and edge: legal both ways, because ``coin * q < p``, ``coin < p / q`` and ``p / q >= coin`` are all in use.
Rounding is that of ``chain_rejection_rounding``. Defensive requests (see ``chain_rejection_case``) must end, stay
inside their buffers and the vocabulary, and emit only tokens that their target row gives mass whenever it gives any;
the other requests of the batch keep their exact answer.
"""

from __future__ import annotations

from fractions import Fraction

from oracle.contract import Contract, Field, Outcome
from oracle.trace import Trace
from oracle.verify import chain_rejection_greedy as greedy
from oracle.verify import chain_rejection_second as regions
from oracle.verify.chain_rejection_behaviours import BEHAVIOURS, note, note_batch, note_greedy, note_hostile
from oracle.verify.chain_rejection_case import ChainRejectionCase, Draft, Request, columns, domain, is_functional
from oracle.verify.chain_rejection_masses import Chain
from oracle.verify.chain_rejection_safe import safe
from oracle.verify.chain_rejection_walk import walk
from oracle.verify.chain_rejection_words import kind, say, steps
from oracle.verify.edges import Branch, branched, explore
from oracle.verify.rows import Mass, Row

REQUEST_FIELDS = ("accepted", "path", "accepted_drafts", "bonus_token", "race_token")


def reference(case: ChainRejectionCase, trace: Trace) -> Outcome:
    """Walk each request; at an edge, also the other way."""
    parts = []
    functional = [is_functional(r, case.vocabulary) for r in case.requests]
    for i, r in enumerate(case.requests):
        if not functional[i]:
            part = safe(r, case.vocabulary)
            note_hostile(r, case.vocabulary, trace)
        elif r.greedy:
            ways = _ordered(explore(lambda d, r=r: greedy.walk(r, case.vocabulary, d), {"half": Fraction(1, 2)}))
            part = branched(ways)
            note_greedy(r, ways[0].result, trace)
        else:
            chain = Chain(r, case.vocabulary, case.rule)
            ways = _ordered(explore(lambda d, c=chain: walk(c, d), chain.coins))
            part = branched(ways)
            note(chain, ways[0].result, trace)
            steps(i, chain, ways[0].result, trace)
        for field in CONTRACT.fields[:-1]:
            trace.step(field.meaning, i, field.name, value=part[field.name])
        parts.append(part)
    note_batch(case, functional, trace)
    trace.step("cells changed outside", None, "outside_writes", value=0)
    return {name: [p[name] for p in parts] for name in REQUEST_FIELDS} | {"outside_writes": 0}


def second(case: ChainRejectionCase) -> Outcome:
    """By regions of coins, and for greedy requests by the sorted row."""
    parts = []
    for r in case.requests:
        if not is_functional(r, case.vocabulary):
            parts.append(safe(r, case.vocabulary))
        elif r.greedy:
            parts.append(branched(_ordered(greedy.second(r, case.vocabulary))))
        else:
            parts.append(branched(_ordered(regions.branches(r, case.vocabulary, case.rule))))
    return {name: [p[name] for p in parts] for name in REQUEST_FIELDS} | {"outside_writes": 0}


def _ordered(ways: list[Branch]) -> list[Branch]:
    """The exact way, then the others by distance: the order in which they were found says nothing."""
    return [ways[0], *sorted(ways[1:], key=lambda w: (w.margin_ulp, w.excess_ulp, repr(w.result)))]


def _example() -> ChainRejectionCase:
    p = Row((Mass(1, 0.25), Mass(2, 0.75)))
    q = Row((Mass(1, 0.5), Mass(3, 0.5)))
    drafts = (Draft(1, p, q, 0.25), Draft(3, p, q, 0.5))
    return ChainRejectionCase(4, "token", (Request(drafts, Row((Mass(0, 0.5), Mass(3, 0.5))), 0.25, 7, False),))


CONTRACT = Contract(
    name="verify.chain_rejection",
    version=1,
    case_type=ChainRejectionCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    say=say,
    fields=(
        Field("accepted", "request", "accepted draft tokens"),
        Field("path", "request", "places in the verify block of the tokens kept"),
        Field("accepted_drafts", "request", "draft tokens emitted"),
        Field("bonus_token", "request", "last token, drawn by cumulated mass"),
        Field("race_token", "request", "last token, drawn by a race"),
        Field("outside_writes", "case", "cells changed outside what may be written"),
    ),
    behaviours=BEHAVIOURS,
    example=_example(),
)
