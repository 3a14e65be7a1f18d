"""The tree that a draft of several branches keeps.

Step 0 gives k candidates with masses, numbered 0 to k - 1; all of them are
expanded. In each later step every expanded node r (by rank) has k children with
masses; the score of child c is the score of node r times its mass, rounded once to
float32, and its number is k + (step - 1) k^2 + r k + c. The k best children are
expanded next, best first, with the hidden state of their node. At the end the
N - 1 best of *all* candidates are kept, in order of their numbers.

Which of equal scores is taken is nobody's promise, so each place may hold any that
tie, with one restriction: what is kept must be a tree, so a kept candidate's node
is kept. (A mass of 1 makes a child tie with its node.) Scores do not depend on how
ties fall: the masses of a step belong to ranks.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, islice
from typing import Any

from oracle.legal import Between, Each, OneOf, Real
from oracle.trace import Trace
from oracle.verify.rows import dense
from oracle.verify.select_case import DraftSelectCase, Request, candidates_of_tree
from oracle.verify.select_rows import nearest_float32

MAX_WAYS = 200  # kept sets that are written down when ties at the cut allow several


def _masses(request: Request, step: int, width: int) -> list[list[float]]:
    return [[float(v) for v in dense(row, width)] for row in request.slots[step].rows]


def product(a: float, b: float) -> float:
    return nearest_float32(Fraction(a) * Fraction(b))


def grow(case: DraftSelectCase, request: Request) -> tuple[list[float], list[list[int]], list[list[float]]]:
    """Scores of all candidates by number; per later step the numbers of the expanded
    children (the lower of a tie first) and their scores."""
    k = case.width
    everything = _masses(request, 0, k)[0]
    scores, picks, expanded = list(everything), [], []
    for step in range(1, len(request.slots)):
        offset = k + (step - 1) * k * k
        children = [product(s, m) for s, row in zip(scores, _masses(request, step, k), strict=True) for m in row]
        order = sorted(range(k * k), key=lambda c: (-children[c], c))[:k]
        everything = everything + children
        scores = [children[c] for c in order]
        picks.append([offset + c for c in order])
        expanded.append(scores)
    return everything, picks, expanded


def tokens_of(case: DraftSelectCase, request: Request) -> list[int]:
    """Token of each candidate by number."""
    return [t for slot in request.slots for t in slot.candidates]


def tied_with(everything: list[float], pick: int, case: DraftSelectCase) -> list[int]:
    """Candidates of the same step with the same score."""
    k = case.width
    start = k + (pick - k) // (k * k) * k * k
    return [n for n in range(start, start + k * k) if everything[n] == everything[pick]]


def either(values: list[int]) -> Any:
    distinct = tuple(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else OneOf(distinct)


def each(values: list[Any], distinct: bool = False) -> Any:
    """A plain list where nothing is open."""
    return Each(tuple(values), distinct) if any(not isinstance(v, int) for v in values) else values


def kept_sets(case: DraftSelectCase, everything: list[float]) -> tuple[list[int], list[int], int]:
    """Candidates certainly kept, candidates that tie at the cut, and how many of these."""
    order = sorted(range(len(everything)), key=lambda n: (-everything[n], n))
    cut = everything[order[case.draft_tokens - 2]]
    sure = [n for n in order if everything[n] > cut]
    return sure, [n for n in order if everything[n] == cut], case.draft_tokens - 1 - len(sure)


def node_of(number: int, case: DraftSelectCase, picks: list[list[int]]) -> int | None:
    """The candidate under which ``number`` stands; ``None`` for the root."""
    k = case.width
    if number < k:
        return None
    step, rank = 1 + (number - k) // (k * k), (number - k) % (k * k) // k
    return rank if step == 1 else picks[step - 2][rank]


def choose(case: DraftSelectCase, i: int, request: Request, is_hostile: bool, trace: Trace) -> dict[str, Any]:
    """Fields of one request of ``tree``."""
    if is_hostile:
        trace.step("hostile masses", i, "picks", rule="every number is that of a candidate")
        return _unsafe(case, request)
    everything, picks, expanded = grow(case, request)
    for step, (numbers, scores) in enumerate(zip(picks, expanded, strict=True), 1):
        trace.step("expanded", i, step=step, candidates=numbers, scores=scores)
    found = _fields(case, request, everything, picks, expanded)
    trace.step("scores of expanded candidates", i, "values", value=found["values"])
    trace.step("expanded candidates", i, "picks", value=found["picks"])
    trace.step("kept candidates", i, "selected", value=found["selected"])
    return found


def _fields(
    case: DraftSelectCase,
    request: Request,
    everything: list[float],
    picks: list[list[int]],
    expanded: list[list[float]],
) -> dict[str, Any]:
    k, tokens = case.width, tokens_of(case, request)
    tied = [tied_with(everything, n, case) for step in picks for n in step]
    sure, open_, wanted = kept_sets(case, everything)
    ways = list(islice(combinations(sorted(open_), wanted), MAX_WAYS + 1))
    if len(ways) <= MAX_WAYS:
        kept = [sorted([*sure, *way]) for way in ways]
        selected: Any = kept[0] if len(kept) == 1 else OneOf(tuple(kept))
        drafts: Any = (
            [tokens[n] for n in kept[0]] if len(kept) == 1 else OneOf(tuple([tokens[n] for n in way] for way in kept))
        )
    else:
        selected = Each((Between(0, len(everything) - 1),) * (case.draft_tokens - 1), True)
        drafts = Each((OneOf(tuple(dict.fromkeys(tokens))),) * (case.draft_tokens - 1))
    return {
        "values": Each(tuple(Real(s, s) for step in expanded for s in step)),
        "picks": each([either(t) for t in tied], True),
        "next_inputs": each([either([tokens[n] for n in t]) for t in tied]),
        "hidden_rows": each([either([(n - k) % (k * k) // k for n in t]) for t in tied]),
        "selected": selected,
        "any_tokens": drafts,
        "orphans": 0,
    }


def _unsafe(case: DraftSelectCase, request: Request) -> dict[str, Any]:
    """Each step's numbers inside that step; tokens are candidates; nothing on order."""
    k, steps = case.width, len(request.slots)
    inside = [Between(k + (s - 1) * k * k, k + s * k * k - 1) for s in range(1, steps) for _ in range(k)]
    token = [either(list(request.slots[s].candidates)) for s in range(1, steps) for _ in range(k)]
    total = candidates_of_tree(k, steps)
    return {
        "values": Each((Real(float("-inf"), float("inf"), True),) * (k * (steps - 1))),
        "picks": Each(tuple(inside)),
        "next_inputs": each(token),
        "hidden_rows": Each((Between(0, k - 1),) * (k * (steps - 1))),
        "selected": Each((Between(0, total - 1),) * (case.draft_tokens - 1)),
        "any_tokens": each([either(tokens_of(case, request))] * (case.draft_tokens - 1)),
        "orphans": Between(0, case.draft_tokens - 1),
    }
