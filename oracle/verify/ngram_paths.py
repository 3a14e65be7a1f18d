"""verify.ngram_tree: what may be drafted, what a drafted tree shows, and the events of a case."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Any

import numpy as np

from oracle.trace import Trace

FILLER = 0  # token of a node that was not needed
ROOTLESS = -1

BEHAVIOURS = {
    "nothing_follows": "the last token is followed by nothing in the corpus",
    "one_continuation": "one token follows the last one",
    "several_continuations": "two or more tokens follow the last one",
    "longer_match": "the last two tokens stand in the corpus and go on",
    "tree_full": "there are more continuations than nodes",
    "nodes_left": "there are fewer continuations than nodes",
    "cut_by_depth": "a sequence goes on further than the corpus remembers",
    "token_zero_follows": "the token that fills up nodes is a continuation",
    "repeated_context": "two requests ask the same",
    "root_only": "a tree without draft nodes",
    "empty_corpus": "nothing was put in",
    "may_have_forgotten": "more was put in than the corpus holds",
    "by_frequency": "frequent continuations come first",
    "context_of_full_depth": "the context is as long as the corpus remembers",
}


def continuations(case: Any, last: int) -> set[tuple[int, ...]]:
    """All that follows ``last`` anywhere in the corpus, up to ``depth`` tokens with it."""
    found = set()
    for text in case.corpus:
        for at, token in enumerate(text.tokens):
            if token == last:
                behind = text.tokens[at + 1 : at + case.depth]
                found |= {behind[:n] for n in range(1, len(behind) + 1)}
    return found


def inserted(case: Any) -> int:
    """Tokens put in, counted once for every window of ``depth`` tokens: what is kept at most."""
    return sum(min(len(t.tokens) - at, case.depth) for t in case.corpus for at in range(len(t.tokens)))


def examine(paths: set[tuple[int, ...]], tokens: Tokens[int], mask: np.ndarray) -> dict[str, int]:
    """What a tree shows: ``tokens`` [N], ``mask`` integers [N, N], and the paths that may be drafted."""
    size = len(tokens)
    parents = [ROOTLESS] + [max((j for j in range(i) if mask[i, j]), default=ROOTLESS) for i in range(1, size)]
    broken, twins, unfounded = 0, 0, 0
    trail: list[tuple[int, ...]] = [()]
    drafted: set[tuple[int, ...]] = set()
    for node in range(size):
        row = np.zeros(size, dtype=np.int64) if parents[node] == ROOTLESS else np.array(mask[parents[node]])
        row[node] = 1
        broken += (node > 0 and parents[node] == ROOTLESS) or not np.array_equal(row, mask[node])
        if node == 0:
            continue
        path = (*trail[max(parents[node], 0)], int(tokens[node]))
        fills_up = parents[node] == 0 and tokens[node] == FILLER
        twins += path in trail and not fills_up
        trail.append(path)
        if path in paths:
            drafted.add(path)
        else:
            unfounded += not fills_up
    return {"broken_rows": broken, "twins": twins, "unfounded": unfounded, "drafts": len(drafted)}


def note(case: Any, r: Any, paths: set[tuple[int, ...]], trace: Trace) -> None:
    """Name what one request shows."""
    first = {p[0] for p in paths}
    pairs = {t.tokens[n : n + 2] for t in case.corpus for n in range(len(t.tokens) - 2)}
    holds = {
        "nothing_follows": not paths,
        "one_continuation": len(first) == 1,
        "several_continuations": len(first) > 1,
        "longer_match": len(r.context) > 1 and case.depth > 2 and r.context[-2:] in pairs,
        "tree_full": len(paths) > case.draft_tokens - 1,
        "nodes_left": 0 < len(paths) < case.draft_tokens - 1,
        "cut_by_depth": any(
            t == r.context[-1] and len(x.tokens) - n > case.depth for x in case.corpus for n, t in enumerate(x.tokens)
        ),
        "token_zero_follows": FILLER in first,
        "root_only": case.draft_tokens == 1,
        "empty_corpus": not any(t.tokens for t in case.corpus),
        "may_have_forgotten": inserted(case) >= case.capacity,
        "by_frequency": case.order == "frequency",
        "context_of_full_depth": len(r.context) == case.depth,
    }
    for name, so in holds.items():
        if so:
            trace.behaviour(name)
