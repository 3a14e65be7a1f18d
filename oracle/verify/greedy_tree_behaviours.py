"""verify.greedy_tree: the semantic events that a case can show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.trace import Trace
from oracle.verify.links import NONE, children, greedy_path, reached

MAX_NODES = 64

BEHAVIOURS = {
    "root_only": "a block without draft nodes",
    "root_is_a_leaf": "there are draft nodes, none is linked to the root",
    "none_accepted": "the root has children and none matches",
    "stops_inside": "drafts are accepted, then no child of the last one matches",
    "ends_at_a_leaf": "the walk accepts its way to a leaf",
    "chain": "three nodes or more, each the only child of the one before",
    "star": "three nodes or more, all children of the root",
    "later_sibling_accepted": "the accepted child is not the first of its siblings",
    "first_of_equal_tokens": "two children carry the accepted token and the first one is taken",
    "equal_token_goes_deeper": "the sibling that lost to an equal token would have led further",
    "siblings_not_in_node_order": "a sibling has a smaller node number than the one before it",
    "unused_nodes": "nodes that no link reaches",
    "unused_node_matches": "a node that no link reaches carries the wanted token",
    "match_in_another_branch": "the wanted token stands on a node that is no child of the last one",
    "path_skips_nodes": "the accepted nodes are not numbered one after another",
    "cut_by_width": "the walk would go on, but accept_index is full",
    "width_beyond_path": "accept_index has columns left",
    "width_is_not_n": "accept_index has another number of columns than the block has nodes",
    "block_of_64": "the largest block",
    "mixed_acceptance": "rows of one batch accept different numbers",
    "draft_outside_vocabulary": "a linked draft token is no id of the vocabulary",
}


def note(vocabulary: int, width: int, nodes: Sequence[Any], path: list[int], trace: Trace) -> None:
    """Name what one request shows: its nodes and the accepted path through them."""
    linked, last, size = reached(nodes), path[-1], len(nodes)
    below, wanted = children(nodes, last), nodes[last].predicted
    goes_on = any(nodes[c].token == wanted for c in below)
    holds = {
        "root_only": size == 1,
        "root_is_a_leaf": size > 1 and nodes[0].next_child == NONE,
        "none_accepted": last == 0 and bool(below) and not goes_on,
        "stops_inside": last != 0 and bool(below) and not goes_on,
        "ends_at_a_leaf": last != 0 and not below,
        "chain": size > 2 and all(children(nodes, n) == [n + 1] for n in range(size - 1)),
        "star": size > 2 and len(children(nodes, 0)) == size - 1,
        "unused_nodes": len(linked) < size,
        "unused_node_matches": any(nodes[n].token == wanted for n in range(1, size) if n not in linked),
        "match_in_another_branch": not goes_on
        and any(nodes[n].token == wanted for n in linked - set(below) - set(path)),
        "path_skips_nodes": any(b != a + 1 for a, b in zip(path, path[1:], strict=False)),
        "cut_by_width": len(path) == width and goes_on,
        "width_beyond_path": len(path) < width,
        "width_is_not_n": width != size,
        "block_of_64": size == MAX_NODES,
        "draft_outside_vocabulary": any(not 0 <= nodes[n].token < vocabulary for n in linked),
    }
    for name, so in holds.items():
        if so:
            trace.behaviour(name)
    if any(nodes[n].next_sibling != NONE and nodes[n].next_sibling < n for n in linked):
        trace.behaviour("siblings_not_in_node_order")
    for step, (at, taken) in enumerate(zip(path, path[1:], strict=False)):
        siblings = children(nodes, at)
        if siblings[0] != taken:
            trace.behaviour("later_sibling_accepted")
        losers = [c for c in siblings[siblings.index(taken) + 1 :] if nodes[c].token == nodes[taken].token]
        if losers:
            trace.behaviour("first_of_equal_tokens")
        room = width - step - 1
        further = len(path) - step - 1
        if any(len(greedy_path(nodes, room, start=c)) > further for c in losers):
            trace.behaviour("equal_token_goes_deeper")
