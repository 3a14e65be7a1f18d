"""Mutants of verify.ngram_tree: a plain drafter, and what goes wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuzz.mutants.mutant import Mutant
from oracle.verify.ngram_paths import FILLER, continuations, examine
from oracle.verify.ngram_tree import NgramTreeCase, Request

Tree = tuple[list[int], list[int]]  # tokens and parents


def drafted(case: NgramTreeCase, last: int) -> Tree:
    """The shortest continuations first, then fillers."""
    tokens, parents, place = [last], [-1], {(): 0}
    for path in sorted(continuations(case, last), key=lambda p: (len(p), p))[: case.draft_tokens - 1]:
        place[path] = len(tokens)
        parents.append(place[path[:-1]])
        tokens.append(path[-1])
    short = case.draft_tokens - len(tokens)
    return tokens + [FILLER] * short, parents + [0] * short


def mask_of(parents: list[int]) -> np.ndarray:
    mask = np.eye(len(parents), dtype=np.int64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def _observe(
    change: Callable[[NgramTreeCase, Request, list[int], list[int], np.ndarray], Any] = lambda *_: None,
    draft: Callable[[NgramTreeCase, Request], Tree] = lambda case, r: drafted(case, r.context[-1]),
    unsteady: Callable[[NgramTreeCase], int] = lambda case: 0,
) -> Callable[[NgramTreeCase], dict[str, Any]]:
    """Draft, let ``change`` spoil tokens, parents or mask in place, and look at the result."""

    def observe(case: NgramTreeCase) -> dict[str, Any]:
        rows = []
        for r in case.requests:
            tokens, parents = draft(case, r)
            mask = mask_of(parents)
            change(case, r, tokens, parents, mask)
            found = examine(continuations(case, r.context[-1]), tokens, mask)
            rows.append({"root_token": tokens[0], **found, "unsteady": unsteady(case)})
        return {name: [row[name] for row in rows] for name in rows[0]}

    return observe


def _set(values: Any, index: Any, value: Any) -> None:
    values[index] = value


def _last_real(case: NgramTreeCase, r: Request, tokens: list[int]) -> int:
    return min(len(continuations(case, r.context[-1])), len(tokens) - 1)


def _invented(case: NgramTreeCase, r: Request, tokens: list[int], parents: list[int], mask: np.ndarray) -> None:
    last = _last_real(case, r, tokens)
    if last:
        tokens[last] = 7_777_777


def _too_long(case: NgramTreeCase, r: Request) -> Tree:
    """Continues a token further than the corpus remembers."""
    longer = NgramTreeCase(case.order, 64, case.depth + 1, case.breadth, case.capacity + 1, case.corpus, case.requests)
    tokens, parents = drafted(longer, r.context[-1])
    return tokens, parents


def _across(case: NgramTreeCase, r: Request) -> Tree:
    """Reads the corpus as one text, over the ends of its sequences."""
    from oracle.verify.ngram_tree import Text

    joined = Text(tuple(t for x in case.corpus for t in x.tokens))
    one = NgramTreeCase(
        case.order, case.draft_tokens, case.depth, case.breadth, case.capacity, (joined,), case.requests
    )
    return drafted(one, r.context[-1])


def _doubled(case: NgramTreeCase, r: Request) -> Tree:
    tokens, parents = drafted(case, r.context[-1])
    if len(tokens) > 2 and continuations(case, r.context[-1]):
        tokens[2], parents[2] = tokens[1], parents[1]
        tokens[3:], parents[3:] = [FILLER] * len(tokens[3:]), [0] * len(parents[3:])
    return tokens, parents


MUTANTS = (
    Mutant(
        "root_is_first_of_context",
        "wrong_token",
        "the root is the oldest token of the context",
        _observe(lambda case, r, tokens, parents, mask: _set(tokens, 0, r.context[0])),
    ),
    Mutant(
        "root_is_filler",
        "wrong_token",
        "the root is token 0",
        _observe(lambda case, r, tokens, parents, mask: _set(tokens, 0, FILLER)),
    ),
    Mutant(
        "matches_token_before",
        "off_by_one",
        "continues the token before the last one",
        _observe(
            lambda case, r, tokens, parents, mask: _set(tokens, 0, r.context[-1]),
            lambda case, r: drafted(case, r.context[max(0, len(r.context) - 2)]),
        ),
    ),
    Mutant("invents_a_token", "wrong_token", "a draft that was never seen", _observe(_invented)),
    Mutant("reads_over_sequence_ends", "bounds", "continues into the next sequence", _observe(draft=_across)),
    Mutant("one_token_too_deep", "off_by_one", "remembers one token more than depth", _observe(draft=_too_long)),
    Mutant("draws_a_token_twice", "tie", "two children with the same token", _observe(draft=_doubled)),
    Mutant(
        "never_drafts",
        "missing_commit",
        "fills up every tree",
        _observe(
            draft=lambda case, r: (
                [r.context[-1]] + [FILLER] * (case.draft_tokens - 1),
                [-1] + [0] * (case.draft_tokens - 1),
            )
        ),
    ),
    Mutant(
        "node_does_not_see_itself",
        "mask",
        "the last node's own cell is empty",
        _observe(lambda case, r, tokens, parents, mask: _set(mask, (len(tokens) - 1, len(tokens) - 1), 0)),
    ),
    Mutant(
        "root_not_seen",
        "mask",
        "the last node does not see the root",
        _observe(lambda case, r, tokens, parents, mask: len(tokens) > 1 and _set(mask, (len(tokens) - 1, 0), 0)),
    ),
    Mutant(
        "causal_mask",
        "mask",
        "every node sees all before it",
        _observe(lambda case, r, tokens, parents, mask: _set(mask, slice(None), np.tril(np.ones_like(mask)))),
    ),
    Mutant(
        "unfilled_rows",
        "padding",
        "the rows of fillers stay empty",
        _observe(lambda case, r, tokens, parents, mask: _set(mask, slice(_last_real(case, r, tokens) + 1, None), 0)),
    ),
    Mutant(
        "answers_differ", "state", "the second answer differs", _observe(unsteady=lambda case: int(bool(case.corpus)))
    ),
)
