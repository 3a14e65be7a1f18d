"""The semantic events of verify.chain_rejection."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle.legal import Legal
from oracle.trace import Trace
from oracle.verify.chain_rejection_case import ChainRejectionCase, LastWithMass, Request, drafted
from oracle.verify.chain_rejection_masses import Chain
from oracle.verify.rows import is_distribution

LAST_COIN = 1.0 - 2.0**-24
LARGE = 4096

BEHAVIOURS = {
    "no_drafts": "a request without drafts: its last token comes from its only row",
    "first_rejected": "the first draft is rejected",
    "some_accepted": "some but not all drafts are accepted",
    "last_rejected": "only the last draft is rejected",
    "all_accepted": "every draft is accepted; the last token comes from the row behind them",
    "placeholder_reached": "all before a placeholder is accepted; the last token comes from the placeholder's row",
    "q_absent_accepted": "a draft without a proposal row is accepted",
    "q_absent_rejected": "a draft without a proposal row is rejected; the last token comes from p without it",
    "impossible_draft": "a draft without target mass is rejected",
    "certain_draft": "a draft with p >= q is accepted whatever its coin",
    "disjoint_supports": "p and q of the rejected draft share no token: the residual is p",
    "nothing_left": "a draft is rejected and no residual mass is left",
    "coin_zero": "an accept coin of 0",
    "coin_last": "an accept coin of 1 - 2^-24",
    "final_coin_zero": "a last coin of 0",
    "final_coin_last": "a last coin of 1 - 2^-24",
    "coin_on_edge": "an accept coin lies exactly on its edge",
    "draw_on_edge": "the last coin lies exactly between two tokens",
    "leading_gap": "the first token with mass is drawn, and it is not token 0",
    "trailing_gap": "the last token with mass is drawn, and it is not the last of the vocabulary",
    "last_of_vocabulary": "the last token of the vocabulary is drawn",
    "large_vocabulary": f"more than {LARGE} tokens",
    "block_longer": "the block rule accepts more than the token rule would with the same coins",
    "block_shorter": "the block rule accepts less than the token rule would with the same coins",
    "block_scaled": "the block rule draws from a residual whose target row is scaled down",
    "block_clamped": "the joint ratio of a prefix is cut to 1 after it was below 1",
    "greedy_rejected": "a greedy request rejects a draft",
    "greedy_accepted": "a greedy request accepts all its drafts",
    "ragged": "requests of one batch have different numbers of drafts",
    "hostile_row": "a row holds values that are no distribution",
    "hostile_draft": "a draft outside the vocabulary or without proposal mass",
    "healthy_beside_hostile": "a functional request shares a batch with a defensive one",
}


def note(chain: Chain, exact: dict[str, Any], trace: Trace) -> None:
    """Events of a functional, sampled request with its exact result."""
    r, accepted = chain.request, exact["accepted"]
    _note_count(chain.count, accepted, trace)
    _note_drafts(chain, accepted, trace)
    _note_draw(chain, accepted, exact["bonus_token"], trace)
    if chain.count < len(r.drafts) and accepted == chain.count:
        trace.behaviour("placeholder_reached")
    if chain.block:
        _note_block(chain, accepted, trace)


def _note_count(count: int, accepted: int, trace: Trace) -> None:
    if count == 0:
        trace.behaviour("no_drafts")
        return
    trace.behaviour("first_rejected" if accepted == 0 else "all_accepted" if accepted == count else "some_accepted")
    if accepted == count - 1:
        trace.behaviour("last_rejected")


def _note_drafts(chain: Chain, accepted: int, trace: Trace) -> None:
    for j in range(chain.count if chain.block else min(accepted + 1, chain.count)):
        d, kept = chain.request.drafts[j], j < accepted
        if d.q is None:
            trace.behaviour("q_absent_accepted" if kept else "q_absent_rejected")
        if d.coin in (0.0, LAST_COIN):
            trace.behaviour("coin_zero" if d.coin == 0.0 else "coin_last")
        if chain.coins[j] == chain.accepting[j].exact:
            trace.behaviour("coin_on_edge")
        if chain.ratio(j) == 0:
            trace.behaviour("impossible_draft")
        if kept and chain.ratio(j) >= 1:
            trace.behaviour("certain_draft")
    if accepted < chain.count:
        if not chain.target(accepted).keys() & chain.proposal(accepted).keys():
            trace.behaviour("disjoint_supports")
        if chain.residual(accepted).total == 0:
            trace.behaviour("nothing_left")


def _note_draw(chain: Chain, accepted: int, token: Any, trace: Trace) -> None:
    coin, left = chain.request.final_coin, chain.residual(accepted)
    if chain.vocabulary > LARGE:
        trace.behaviour("large_vocabulary")
    if coin in (0.0, LAST_COIN):
        trace.behaviour("final_coin_zero" if coin == 0.0 else "final_coin_last")
    token = token.values[0] if isinstance(token, LastWithMass) else token
    if isinstance(token, Legal):
        return
    if coin > 0 and Fraction(coin) * left.total in left.cumulated:
        trace.behaviour("draw_on_edge")
    live = [t for t, w in zip(left.tokens, left.weights, strict=True) if w]
    if token == live[0] > 0:
        trace.behaviour("leading_gap")
    if token == live[-1] < chain.vocabulary - 1:
        trace.behaviour("trailing_gap")
    if token == chain.vocabulary - 1:
        trace.behaviour("last_of_vocabulary")


def _note_block(chain: Chain, accepted: int, trace: Trace) -> None:
    by_token = 0
    while by_token < chain.count and chain.coins[by_token] < chain.ratio(by_token):
        by_token += 1
    if accepted != by_token:
        trace.behaviour("block_longer" if accepted > by_token else "block_shorter")
    if 0 < accepted < chain.count and chain.prefixes[accepted][0] < 1:
        trace.behaviour("block_scaled")
    for j in range(chain.count):
        if chain.prefixes[j][0] < 1 < chain.prefixes[j][0] * chain.ratio(j):
            trace.behaviour("block_clamped")


def note_greedy(r: Request, exact: dict[str, Any], trace: Trace) -> None:
    """Events of a greedy request with its exact result."""
    if drafted(r):
        trace.behaviour("greedy_accepted" if exact["accepted"] == drafted(r) else "greedy_rejected")


def note_hostile(r: Request, vocabulary: int, trace: Trace) -> None:
    """Events of a defensive request."""
    rows = [r.bonus, *(d.p for d in r.drafts), *(d.q for d in r.drafts if d.q is not None)]
    if not all(map(is_distribution, rows)):
        trace.behaviour("hostile_row")
    drafts = r.drafts[: drafted(r)]
    if any(not 0 <= d.token < vocabulary or (d.q is not None and not _proposed(d)) for d in drafts):
        trace.behaviour("hostile_draft")


def _proposed(draft: Any) -> bool:
    return next((m.value for m in draft.q.masses if m.token == draft.token), draft.q.rest) != 0.0


def note_batch(case: ChainRejectionCase, functional: list[bool], trace: Trace) -> None:
    """Events between the requests of a batch; ``functional`` says it of each."""
    if len({len(r.drafts) for r in case.requests}) > 1:
        trace.behaviour("ragged")
    if len(set(functional)) > 1:
        trace.behaviour("healthy_beside_hostile")
