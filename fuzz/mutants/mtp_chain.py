"""Mutants of draft.mtp_chain."""

from __future__ import annotations

from fuzz.mutants.mtp_chain_changes import (
    bonus_again,
    cells,
    chained_anyway,
    earlier,
    eight_rotate,
    fell_back,
    first_row,
    graph,
    greedy_rows,
    in_graph,
    larger,
    late_draft,
    neighbour,
    neighbours_draft,
    next,
    own_row,
    padding,
    place,
    rejected_at_last,
    row_before,
    stash,
    states,
    target_again,
    two_old,
    unrotated,
)
from fuzz.mutants.mutant import Mutant
from oracle.draft.mtp_chain_case import BEAM, FROZEN, WINDOW
from oracle.draft.mtp_chain_second import second
from oracle.draft.proposer import NOBODY

ADVANCING, ANY = (BEAM, FROZEN), (WINDOW, BEAM, FROZEN)

MUTANTS = (
    Mutant(
        "target_state_every_step",
        "not_handed_over",
        "feeds the target's state again",
        states(ANY, target_again),
    ),
    Mutant(
        "graph_reads_another_buffer",
        "stale_buffer",
        "refreshes a buffer that the graph does not read",
        states((WINDOW,), in_graph(target_again)),
    ),
    Mutant(
        "graph_keeps_the_earlier_round",
        "stale_buffer",
        "feeds the states of the round before",
        states((WINDOW,), in_graph(earlier)),
    ),
    Mutant(
        "chains_always",
        "missing_check",
        "chains a model that is not chained",
        states((WINDOW,), chained_anyway),
    ),
    Mutant(
        "state_of_the_next_request",
        "wrong_row",
        "feeds the state of the next request",
        states(ANY, neighbour),
    ),
    Mutant(
        "state_two_steps_old",
        "off_by_one",
        "feeds the state of the step before the last",
        states(ANY, two_old),
    ),
    Mutant(
        "state_of_the_row_before",
        "off_by_one",
        "feeds the state of the position before",
        states((WINDOW,), row_before),
    ),
    Mutant(
        "state_of_the_own_row",
        "parent_ignored",
        "keeps each row's state, not its parent's",
        states(ADVANCING, own_row),
    ),
    Mutant(
        "state_of_the_best_row",
        "parent_ignored",
        "feeds every row the best row's state",
        states(ADVANCING, first_row),
    ),
    Mutant(
        "only_last_row_rotates",
        "wrong_token",
        "leaves the tokens of all but the last row",
        cells((WINDOW,), tokens=unrotated),
    ),
    Mutant(
        "eight_rows_rotate",
        "wrong_block",
        "moves the tokens of the first eight rows on",
        cells((WINDOW,), tokens=eight_rotate),
    ),
    Mutant(
        "bonus_again",
        "wrong_token",
        "feeds the bonus token at every step",
        cells((WINDOW,), tokens=bonus_again),
    ),
    Mutant(
        "draft_behind_rejected",
        "wrong_row",
        "puts the draft behind the rejected tokens",
        cells((WINDOW,), tokens=rejected_at_last),
    ),
    Mutant(
        "draft_one_step_late", "off_by_one", "feeds the draft of the step before", cells((WINDOW,), tokens=late_draft)
    ),
    Mutant(
        "draft_of_the_request_before",
        "wrong_row",
        "feeds the draft of the request before",
        cells((WINDOW,), tokens=neighbours_draft),
    ),
    Mutant(
        "rows_go_on_alone",
        "parent_ignored",
        "continues every row with its own best",
        cells(ADVANCING, tokens=greedy_rows),
    ),
    Mutant(
        "window_moves",
        "off_by_one",
        "moves the window on by one a step",
        cells((WINDOW,), positions=lambda c, i, k, b, p: p + k),
    ),
    Mutant(
        "beam_stands",
        "stale_length",
        "leaves the rows at the first position",
        cells((BEAM,), positions=lambda c, i, k, b, p: p - k),
    ),
    Mutant(
        "beam_late", "off_by_one", "positions one too large", cells(ADVANCING, positions=lambda c, i, k, b, p: p + 1)
    ),
    Mutant(
        "first_steps_place",
        "stale_location",
        "writes every step to the location of the first",
        cells((BEAM,), locations=place(lambda c, k, b: b * c.steps)),
    ),
    Mutant(
        "places_by_step",
        "wrong_index",
        "numbers the locations by step and then by row",
        cells((BEAM,), locations=place(lambda c, k, b: k * c.width + b)),
    ),
    Mutant(
        "never_falls_back",
        "missing_check",
        "replays the largest graph for a larger batch",
        graph(lambda c, was: was or max(c.captured, default=0)),
    ),
    Mutant(
        "takes_a_larger_graph",
        "off_by_one",
        "takes the graph behind the right one",
        graph(larger),
    ),
    Mutant(
        "never_replays",
        "missing_path",
        "always takes the eager path",
        graph(lambda c, was: 0),
    ),
    Mutant(
        "stash_from_idle_graph",
        "stale_buffer",
        "keeps the states of a graph that was not replayed",
        stash(lambda c, i, right: NOBODY if fell_back(c) else right),
    ),
    Mutant(
        "stash_of_the_next_request",
        "wrong_row",
        "files each state under the next request",
        stash(lambda c, i, right: next(c, i)),
    ),
    Mutant(
        "padding_writes",
        "stale_padding",
        "rows that fill the graph up write KV",
        padding,
    ),
    Mutant(
        "writes_outside",
        "outside",
        "writes behind its results",
        lambda case: second(case) | {"outside_untouched": False},
    ),
    Mutant(
        "last_draft_lost",
        "off_by_one",
        "proposes the last draft twice",
        lambda case: (
            second(case) | {"drafts": [d[:-1] + d[-2:-1] if len(d) > 1 else d for d in second(case)["drafts"]]}
        ),
    ),
)
