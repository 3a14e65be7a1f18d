"""The semantic events that a case of commit.kv_move can show."""

from __future__ import annotations

from oracle.commit.kv_move_case import LAUNCH_SLOTS, POOLS, TILE_BYTES, KvMoveCase, Request, kept_end
from oracle.trace import Trace

BEHAVIOURS = {
    "nothing_moves": "every committed token lies where it belongs",
    "path_leaves_chain": "a committed token has to move",
    "source_is_target": "a slot is read for one token and written for another",
    "only_current_token": "every draft was rejected",
    "all_committed": "every node was committed",
    "several_requests": "a request behind another",
    "pages_out_of_order": "a request's pages lie below those of the one before it",
    "page_of_one": "every token has a page of its own",
    "block_crosses_a_page": "the block lies in several pages",
    "move_crosses_a_page": "a token moves from one page to another",
    "committed_ends_a_page": "the last committed token is the last of its page",
    "page_freed": "a whole page behind the committed tokens is handed back",
    "rest_of_page_kept": "slots behind the last committed token stay with the request",
    "nothing_freed": "the block ends in the page of the last committed token",
    "narrow_below_first_row": "accept_index is narrower than the block, and a request behind the first",
    "uncovered_entries": "accepted entries that nothing is committed for",
    "several_layers": "more than one layer",
    "window_layers_only": "no layer keeps all tokens",
    "long_rows": "an entry is longer than one program copies",
    "values_shorter": "values are shorter than keys",
    "values_longer": "values are longer than keys",
    "more_than_one_launch": "more slots than one launch takes",
    **{f"pool_{pool}": f"a pool of the kind {pool!r}" for pool in POOLS},
}


def request_behaviours(case: KvMoveCase, r: Request, i: int, trace: Trace) -> None:
    """Note what one request of the batch shows."""
    post, end = r.pre + len(r.path), r.pre + case.draft_tokens
    moved = [(j, n) for j, n in enumerate(r.path) if j != n]
    across = any((r.pre + j) // case.page != (r.pre + n) // case.page for j, n in moved)
    for name, reached in (
        ("path_leaves_chain", moved),
        ("source_is_target", {j for j, _ in moved} & {n for _, n in moved}),
        ("only_current_token", len(r.path) == 1 < case.draft_tokens),
        ("all_committed", len(r.path) == case.draft_tokens > 1),
        ("several_requests", i > 0),
        ("pages_out_of_order", i > 0 and r.pages[0] < case.requests[i - 1].pages[0]),
        ("page_of_one", case.page == 1),
        ("block_crosses_a_page", len(r.pages) > 1 < case.page),
        ("move_crosses_a_page", case.page > 1 and across),
        ("committed_ends_a_page", case.page > 1 and post % case.page == 0),
        ("page_freed", 1 < case.page <= end - kept_end(case, r)),
        ("rest_of_page_kept", kept_end(case, r) > post),
        ("nothing_freed", kept_end(case, r) == end),
        ("narrow_below_first_row", i > 0 and case.path_width < case.draft_tokens),
    ):
        if reached:
            trace.behaviour(name)


def batch_behaviours(case: KvMoveCase, trace: Trace) -> None:
    """Note what the batch and its pool show."""
    heads = case.value_words > 0
    for name, reached in (
        ("nothing_moves", all(r.path[-1] == len(r.path) - 1 for r in case.requests)),
        ("uncovered_entries", case.uncovered),
        ("several_layers", case.layers > 1 or case.window_layers > 1),
        ("window_layers_only", not case.layers),
        ("long_rows", 4 * max(case.key_words, case.value_words) > TILE_BYTES),
        ("values_shorter", heads and case.value_words < case.key_words),
        ("values_longer", heads and case.value_words > case.key_words),
        ("more_than_one_launch", len(case.requests) * case.path_width > LAUNCH_SLOTS),
        (f"pool_{case.pool}", True),
    ):
        if reached:
            trace.behaviour(name)
