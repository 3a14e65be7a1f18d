"""Semantic events of verify.draft_select: their names, and when a case shows them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from oracle.legal import Between, OneOf
from oracle.trace import Trace
from oracle.verify.rows import value
from oracle.verify.select_case import MAX_WIDTH, DraftSelectCase, Request
from oracle.verify.select_rows import keys, ranked
from oracle.verify.select_tree import grow, kept_sets, node_of, tied_with
from oracle.verify.select_walk import Exact, distribution, draw, scores_of

TILES = (1024, 4096, 8192)  # columns that kernels take at once

BEHAVIOURS = {
    "top1_tie": "several tokens share the greatest score",
    "top1_tie_across_tiles": "tied tokens lie in different tiles of a kernel",
    "top1_last_partial_tile": "the best token lies behind the last full tile of 4096",
    "top1_last_token": "the last token of the vocabulary is best",
    "top1_infinite": "a score of plus infinity wins",
    "top1_masked_tokens": "some tokens are masked with minus infinity",
    "top1_sixteen_bit": "scores of 16 bits",
    "top1_divided": "scores are divided",
    "top1_divisor_decides": "another token than the one with the greatest score wins by its divisor",
    "top1_quotients_tie": "different scores tie after division",
    "top1_nan": "NaN among the scores (hostile)",
    "top1_no_number": "no score above minus infinity that is a number (hostile)",
    "top1_without_numbers": "all scores are minus infinity (hostile)",
    "topk_some": "fewer tokens are chosen than there are",
    "topk_all": "every token of the vocabulary is chosen",
    "topk_tie_inside": "chosen tokens tie",
    "topk_tie_at_the_cut": "the last chosen token ties with one that is left out",
    "topk_two_of_one_tile": "two chosen tokens lie in one tile of 1024",
    "topk_last_partial_tile": "a chosen token lies behind the last full tile of 1024",
    "topk_nan": "NaN among the scores (hostile)",
    "topk_without_numbers": "fewer numbers than are asked for (hostile)",
    "walk_greedy": "a request takes the best candidates",
    "walk_sampled": "a request draws its candidates",
    "walk_mixed_batch": "greedy and drawing requests in one batch",
    "walk_greedy_tie": "candidates of a greedy choice tie",
    "walk_near_edge": "a coin lies so near an edge that rounding decides",
    "walk_coin_zero": "a coin of exactly 0",
    "walk_coin_zero_first_without_mass": "coin 0 and a first candidate without mass",
    "walk_coin_last": "the largest coin below 1",
    "walk_coin_last_without_mass": "the largest coin and a last candidate without mass",
    "walk_temperature": "a temperature other than 1",
    "walk_leaves_the_first_row": "a choice selects another row than the first",
    "walk_one_candidate": "slots with one candidate",
    "walk_repeated_candidate": "a slot names a token twice",
    "walk_hostile": "a lattice with NaN, without numbers or with an impossible temperature",
    "tree_one_branch": "a tree of one branch",
    "tree_one_step": "a tree of one step",
    "tree_keeps_all": "every candidate is kept",
    "tree_keeps_no_last_step": "nothing behind the second step is kept",
    "tree_tie_at_the_cut": "a kept candidate ties with one that is not",
    "tree_child_ties_with_its_node": "a child and its node tie at the cut",
    "tree_tie_in_a_step": "children of one step tie",
    "tree_best_child_of_a_later_node": "the best child stands under another node than the first",
    "tree_hostile": "masses that are none",
    "mixed_hostile": "a hostile request beside a healthy one",
}


def rows(case: DraftSelectCase, request: Request, is_hostile: bool, trace: Trace) -> None:
    row = request.slots[0].rows[0]
    named, rest = keys(case, request)
    held = [*named.values(), *([rest] if len(named) < case.vocabulary else [])]
    numbers = [k for k in held if k == k and k > -math.inf]
    if is_hostile:
        trace.behaviour(f"{case.form}_nan" if any(k != k for k in held) else f"{case.form}_without_numbers")
        if case.form == "top1" and not numbers:
            trace.behaviour("top1_no_number")
        return
    tokens, values, tied = ranked(case, request)
    if case.form == "topk":
        _behaviours_topk(case, tokens, values, named, rest, trace)
        return
    token = tokens[0]
    if isinstance(tied[0], OneOf | Between):
        trace.behaviour("top1_tie")
        others = tied[0].values if isinstance(tied[0], OneOf) else (tied[0].low, tied[0].high)
        if any(others[0] // tile != others[-1] // tile for tile in TILES):
            trace.behaviour("top1_tie_across_tiles")
    if token >= case.vocabulary // TILES[1] * TILES[1] > 0:
        trace.behaviour("top1_last_partial_tile")
    if token == case.vocabulary - 1 > 0:
        trace.behaviour("top1_last_token")
    if values[0] == math.inf:
        trace.behaviour("top1_infinite")
    if any(k == -math.inf for k in held):
        trace.behaviour("top1_masked_tokens")
    if case.dtype != "float32":
        trace.behaviour("top1_sixteen_bit")
    if request.divisor is not None:
        trace.behaviour("top1_divided")
        scores = {t: value(row, t) for t in named} | ({-1: row.rest} if len(named) < case.vocabulary else {})
        if scores.get(token, row.rest) < max(scores.values()):
            trace.behaviour("top1_divisor_decides")
        if isinstance(tied[0], OneOf) and len({value(row, t) for t in tied[0].values}) > 1:
            trace.behaviour("top1_quotients_tie")


def _behaviours_topk(
    case: DraftSelectCase, tokens: list[int], values: list[float], named: dict[int, float], rest: float, trace: Trace
) -> None:
    trace.behaviour("topk_all" if case.width == case.vocabulary else "topk_some")
    if len(set(values)) < len(values):
        trace.behaviour("topk_tie_inside")
    cut = sum(k >= values[-1] for k in named.values()) + (rest >= values[-1]) * min(
        case.vocabulary - len(named), MAX_WIDTH
    )
    if cut > case.width:
        trace.behaviour("topk_tie_at_the_cut")
    if len({t // TILES[0] for t in tokens}) < len(tokens) and tokens and max(tokens) >= TILES[0]:
        trace.behaviour("topk_two_of_one_tile")
    if max(tokens) >= case.vocabulary // TILES[0] * TILES[0] > 0:
        trace.behaviour("topk_last_partial_tile")


def walk(case: DraftSelectCase, request: Request, is_hostile: bool, outcome: dict[str, Any], trace: Trace) -> None:
    if is_hostile:
        trace.behaviour("walk_hostile")
        return
    trace.behaviour("walk_greedy" if request.greedy else "walk_sampled")
    if case.width == 1:
        trace.behaviour("walk_one_candidate")
    if not isinstance(outcome["tokens"], list):
        trace.behaviour("walk_near_edge")
    previous = 0
    for j, slot in enumerate(request.slots):
        if previous > 0:
            trace.behaviour("walk_leaves_the_first_row")
        scores = scores_of(slot.rows[previous], case.width)
        if len(set(slot.candidates)) < len(slot.candidates):
            trace.behaviour("walk_repeated_candidate")
        if request.greedy:
            previous = scores.index(max(scores))
            if scores.count(max(scores)) > 1:
                trace.behaviour("walk_greedy_tie")
            continue
        known = distribution(scores, request.temperature)
        previous = draw(known, j, Exact(Fraction(slot.coin)))
        if slot.coin == 0.0:
            trace.behaviour("walk_coin_zero")
            if known.masses[0] == 0:
                trace.behaviour("walk_coin_zero_first_without_mass")
        if slot.coin == 1.0 - 2.0**-24:
            trace.behaviour("walk_coin_last")
            if known.masses[-1] == 0:
                trace.behaviour("walk_coin_last_without_mass")
        if request.temperature != 1.0:
            trace.behaviour("walk_temperature")


def tree(case: DraftSelectCase, request: Request, is_hostile: bool, trace: Trace) -> None:
    if is_hostile:
        trace.behaviour("tree_hostile")
        return
    everything, picks, _ = grow(case, request)
    sure, open_, wanted = kept_sets(case, everything)
    if case.width == 1:
        trace.behaviour("tree_one_branch")
    if not picks:
        trace.behaviour("tree_one_step")
    if len(sure) + wanted == len(everything):
        trace.behaviour("tree_keeps_all")
    if wanted < len(open_):
        trace.behaviour("tree_tie_at_the_cut")
        if any(node_of(n, case, picks) in open_ for n in open_):
            trace.behaviour("tree_child_ties_with_its_node")
    if any(len(tied_with(everything, n, case)) > 1 for step in picks for n in step):
        trace.behaviour("tree_tie_in_a_step")
    if any((n - case.width) % case.width**2 // case.width for step in picks for n in step[:1]):
        trace.behaviour("tree_best_child_of_a_later_node")
    kept = sorted(sure + open_)[: case.draft_tokens - 1]
    if len(picks) > 1 and kept[-1] < case.width + case.width**2 and case.width > 1:
        trace.behaviour("tree_keeps_no_last_step")
