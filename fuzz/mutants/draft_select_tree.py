"""Mutants of verify.draft_select's trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.mutants.mutant import Mutant
from oracle.verify.select_case import DraftSelectCase, candidates_of_tree, hostile
from oracle.verify.select_columns import columns


@dataclass(frozen=True)
class Version:
    """A way to grow and cut a tree. The defaults are the right one."""

    score: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda scores, masses: scores[:, None] * masses
    expanded: Callable[[np.ndarray, int], np.ndarray] = lambda flat, k: np.argsort(-flat, kind="stable")[:k]
    number: Callable[[int, int, int], int] = lambda step, child, k: k + (step - 1) * k * k + child
    node: Callable[[int, int], int] = lambda child, k: child // k
    token: Callable[[list[int], int, int], int] = lambda tokens, child, k: tokens[child]
    passed_on: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda flat, order: flat[order]
    keep: Callable[[list[np.ndarray], int], list[int]] = lambda steps, n: sorted(_best(np.concatenate(steps), n))
    draft: Callable[[list[int], int], int] = lambda tokens, number: tokens[number]


def _best(flat: np.ndarray, n: int) -> list[int]:
    return [int(c) for c in np.argsort(-flat, kind="stable")[:n]]


def observe(version: Version) -> Callable[[DraftSelectCase], dict[str, Any] | None]:
    def run(case: DraftSelectCase) -> dict[str, Any] | None:
        if case.form != "tree" or any(hostile(case, r) for r in case.requests):
            return None
        seen = columns(case)
        rows = [_tree(version, case, seen, i) for i in range(len(case.requests))]
        return {name: [row[name] for row in rows] for name in rows[0]}

    return run


def _tree(version: Version, case: DraftSelectCase, seen: dict[str, Any], i: int) -> dict[str, Any]:
    k, scores = case.width, seen["first"][i]
    tokens = [int(t) for t in seen["first_candidates"][i]]
    steps, found = [scores], {"values": [], "picks": [], "next_inputs": [], "hidden_rows": []}
    for step in range(1, case_steps(case)):
        flat = version.score(scores, seen["scores"][i, step - 1].astype(np.float32)).reshape(-1)
        order = version.expanded(flat, k)
        scores = version.passed_on(flat, order)
        of_step = [int(t) for t in seen["candidates"][i, step - 1]]
        found["values"] += [float(v) for v in scores]
        found["picks"] += [version.number(step, int(c), k) for c in order]
        found["next_inputs"] += [version.token(of_step, int(c), k) for c in order]
        found["hidden_rows"] += [version.node(int(c), k) for c in order]
        tokens += of_step
        steps.append(flat)
    kept = version.keep(steps, case.draft_tokens - 1)
    return found | {"selected": kept, "any_tokens": [version.draft(tokens, n) for n in kept]}


def case_steps(case: DraftSelectCase) -> int:
    return len(case.requests[0].slots)


def _orphans(case: DraftSelectCase) -> dict[str, Any] | None:
    """Of a child and its node that tie at the cut, the child is kept."""
    if case.form != "tree" or any(hostile(case, r) for r in case.requests):
        return None
    from oracle.verify.select_tree import grow, kept_sets, node_of

    counts = []
    for request in case.requests:
        everything, picks, _ = grow(case, request)
        sure, open_, wanted = kept_sets(case, everything)
        kept = sorted(sure + sorted(open_, reverse=True)[:wanted])
        counts.append(sum(node_of(n, case, picks) not in (None, *kept) for n in kept))
    return {"orphans": counts}


def _behind_the_last(case: DraftSelectCase) -> dict[str, Any] | None:
    """Hostile masses are never greater than the best so far, whose number starts behind the last."""
    if case.form != "tree" or not any(hostile(case, r) for r in case.requests):
        return None
    end = candidates_of_tree(case.width, case_steps(case))
    return {"selected": [[end] * (case.draft_tokens - 1)] * len(case.requests)}


def _last_step_only(steps: list[np.ndarray], n: int) -> list[int]:
    """Ranks the newest candidates first, whatever their scores."""
    flat = np.concatenate([s + i for i, s in enumerate(steps)])
    return sorted(_best(flat, n))


MUTANTS = (
    *(
        Mutant(name, fault, meaning, observe(version))
        for name, fault, meaning, version in (
            ("scores_not_cumulated", "missing_step", "ranks by a child's own mass", Version(score=lambda s, m: m)),
            (
                "scores_added",
                "wrong_operation",
                "adds where it must multiply",
                Version(score=lambda s, m: s[:, None] + m),
            ),
            (
                "scores_of_other_node",
                "row_stride",
                "multiplies a child by the score of its own rank",
                Version(score=lambda s, m: s[None, :] * m),
            ),
            (
                "best_of_each_node",
                "wrong_operation",
                "expands the best child of every node",
                Version(expanded=lambda flat, k: np.arange(k) * k),
            ),
            (
                "number_without_first_step",
                "off_by_one",
                "numbers as if step 0 had no candidates",
                Version(number=lambda s, c, k: (s - 1) * k * k + c),
            ),
            (
                "number_inside_step",
                "off_by_one",
                "numbers every step from its own start",
                Version(number=lambda s, c, k: k + c),
            ),
            (
                "hidden_of_rank",
                "wrong_state",
                "passes on the hidden state of the child's rank",
                Version(node=lambda c, k: c % k),
            ),
            (
                "token_of_rank",
                "wrong_token",
                "feeds the token that stands at the node's rank",
                Version(token=lambda t, c, k: t[c % k]),
            ),
            (
                "scores_of_first_children",
                "wrong_value",
                "passes on the scores in order of number",
                Version(passed_on=lambda flat, order: flat[: len(order)]),
            ),
            ("keeps_newest", "wrong_operation", "keeps the deepest candidates", Version(keep=_last_step_only)),
            (
                "kept_by_score",
                "order",
                "lists the kept candidates by falling score",
                Version(keep=lambda steps, n: _best(np.concatenate(steps), n)),
            ),
            (
                "keeps_lowest_numbers",
                "wrong_operation",
                "keeps the first candidates",
                Version(keep=lambda steps, n: list(range(n))),
            ),
            (
                "draft_token_shifted",
                "off_by_one",
                "gathers the token behind",
                Version(draft=lambda t, n: t[(n + 1) % len(t)]),
            ),
        )
    ),
    Mutant("behind_the_last", "nan", "keeps the number behind the last candidate", _behind_the_last),
    Mutant("child_before_its_node", "tie", "keeps a child whose node ties and is dropped", _orphans),
)
