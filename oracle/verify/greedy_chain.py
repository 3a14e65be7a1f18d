"""verify.greedy_chain: how many draft tokens of a chain the target accepts.

Definition. A verify block holds N tokens: ``block[0]`` is the current token
(emitted earlier) and ``block[1:]`` are draft tokens. The target predicts one
token after each: ``predicted[j]`` is its choice after ``block[j]``. Draft j + 1
is accepted when it and all drafts before it equal the predictions that precede
them. With ``a`` accepted drafts:

* ``committed = a + 1`` (the current token and the accepted drafts),
* ``post = pre + committed``,
* the bonus token is ``predicted[a]``,
* the emitted tokens are the accepted drafts followed by the bonus token.

What stands behind the first ``committed`` emitted tokens is nobody's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, INT32_MAX, MAX_LENGTH, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

MAX_BLOCK = 64


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before verify; ``block`` and ``predicted`` hold N tokens each."""

    pre: int
    block: tuple[int, ...]
    predicted: tuple[int, ...]


@dataclass(frozen=True)
class GreedyChainCase:
    """One greedy verify of a batch of chains; token ids are below ``vocabulary``."""

    vocabulary: int
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "none_accepted": "the first draft token is rejected",
    "some_accepted": "some but not all draft tokens are accepted",
    "all_accepted": "every draft token is accepted; the bonus comes from the last row",
    "block_of_one": "a block without draft tokens",
    "block_of_64": "the largest block",
    "matches_after_mismatch": "a draft token equals its prediction behind the first mismatch",
    "repeated_tokens": "the block repeats a token",
    "current_token_equals_prediction": "the current token equals the target's first prediction",
    "last_draft_rejected": "only the last draft token is rejected",
    "bonus_equals_rejected_neighbour": "the bonus token equals a draft token of another position",
    "mixed_acceptance": "rows of one batch accept different numbers",
}


def domain(case: GreedyChainCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(2 <= case.vocabulary <= INT32_MAX, "vocabulary: must be 2 to 2^31 - 1")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests")
    width = len(case.requests[0].block)
    require(1 <= width <= MAX_BLOCK, f"requests[0].block: must hold 1 to {MAX_BLOCK} tokens")
    for i, r in enumerate(case.requests):
        require(0 <= r.pre <= MAX_LENGTH, f"requests[{i}].pre: must be 0 to 2^62")
        for name in ("block", "predicted"):
            tokens = getattr(r, name)
            require(len(tokens) == width, f"requests[{i}].{name}: all rows of a batch have one width")
            require(all(0 <= t < case.vocabulary for t in tokens), f"requests[{i}].{name}: token outside vocabulary")
    return FUNCTIONAL


def reference(case: GreedyChainCase, trace: Trace) -> Outcome:
    """Compare draft token by draft token until the first mismatch."""
    accepted_all, bonus_all, emitted_all = [], [], []
    for i, r in enumerate(case.requests):
        emitted: list[int] = []
        accepted = 0
        for draft, prediction in zip(r.block[1:], r.predicted, strict=False):
            if draft != prediction:
                trace.step("first mismatch", i, position=accepted, draft=draft, predicted=prediction)
                break
            accepted += 1
            emitted.append(draft)
        bonus = r.predicted[accepted]
        emitted.append(bonus)
        _behaviours(r, accepted, bonus, trace)
        trace.step("accepted draft tokens", i, "accepted", value=accepted)
        trace.step("committed tokens", i, "committed", value=accepted + 1)
        trace.step("length after verify", i, "post", value=r.pre + accepted + 1)
        trace.step("bonus token", i, "bonus_token", value=bonus)
        trace.step("emitted tokens", i, "emitted", value=emitted)
        accepted_all.append(accepted)
        bonus_all.append(bonus)
        emitted_all.append(emitted)
    if len(set(accepted_all)) > 1:
        trace.behaviour("mixed_acceptance")
    return _outcome(case, accepted_all, bonus_all, emitted_all)


def _outcome(case: GreedyChainCase, accepted: list[int], bonus: list[int], emitted: list[list[int]]) -> Outcome:
    return {
        "accepted": accepted,
        "committed": [a + 1 for a in accepted],
        "post": [r.pre + a + 1 for r, a in zip(case.requests, accepted, strict=True)],
        "bonus_token": bonus,
        "emitted": emitted,
    }


def _behaviours(r: Request, accepted: int, bonus: int, trace: Trace) -> None:
    drafts = len(r.block) - 1
    if drafts == 0:
        trace.behaviour("block_of_one")
    elif accepted == 0:
        trace.behaviour("none_accepted")
    elif accepted == drafts:
        trace.behaviour("all_accepted")
    else:
        trace.behaviour("some_accepted")
    if drafts and accepted == drafts - 1:
        trace.behaviour("last_draft_rejected")
    if len(r.block) == MAX_BLOCK:
        trace.behaviour("block_of_64")
    if any(r.block[j + 1] == r.predicted[j] for j in range(accepted + 1, drafts)):
        trace.behaviour("matches_after_mismatch")
    if len(set(r.block)) < len(r.block):
        trace.behaviour("repeated_tokens")
    if r.block[0] == r.predicted[0]:
        trace.behaviour("current_token_equals_prediction")
    if bonus in r.block[accepted + 2 :]:
        trace.behaviour("bonus_equals_rejected_neighbour")


def second(case: GreedyChainCase) -> Outcome:
    """By counting: a is the length of the run of ones in the match vector."""
    block = np.array([r.block for r in case.requests], dtype=np.int64)
    predicted = np.array([r.predicted for r in case.requests], dtype=np.int64)
    matches = (block[:, 1:] == predicted[:, :-1]).astype(np.int64)
    accepted = np.cumprod(matches, axis=1).sum(axis=1)
    bonus = predicted[np.arange(len(block)), accepted]
    emitted = [[int(t) for t in predicted[i, : a + 1]] for i, a in enumerate(accepted)]
    return _outcome(case, [int(a) for a in accepted], [int(b) for b in bonus], emitted)


def columns(case: GreedyChainCase) -> dict[str, Any]:
    """``pre`` int64 [B], ``block`` and ``predicted`` int64 [B, N], ``vocabulary``."""
    return {
        "vocabulary": case.vocabulary,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "block": np.array([r.block for r in case.requests], dtype=np.int64),
        "predicted": np.array([r.predicted for r in case.requests], dtype=np.int64),
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """too_many / too_few for counts and lengths, wrong_token for tokens."""
    if field in ("accepted", "committed", "post"):
        return "too_many" if observed > expected else "too_few"
    return "wrong_token"


CONTRACT = Contract(
    name="verify.greedy_chain",
    version=1,
    case_type=GreedyChainCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("accepted", "request", "matched draft tokens"),
        Field("committed", "request", "accepted drafts + 1"),
        Field("post", "request", "length after verify"),
        Field("bonus_token", "request", "the target's token after the last accepted draft"),
        Field("emitted", "request", "accepted drafts, then the bonus token"),
    ),
    behaviours=BEHAVIOURS,
    example=GreedyChainCase(vocabulary=16, requests=(Request(pre=10, block=(5, 1, 2, 3), predicted=(1, 2, 9, 4)),)),
)
