"""Mutants of verify.greedy_tree: each walks another way, or writes down another thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.verify.greedy_tree import GreedyTreeCase, Node, outcome_of
from oracle.verify.links import NONE, children, greedy_path, reached

Nodes = tuple[Node, ...]
Walk = Callable[[Nodes, int], list[int]]


def _walking(walk: Walk) -> Callable[[GreedyTreeCase], dict[str, Any]]:
    """Accept along another path; counts and tokens follow from it."""
    return lambda case: outcome_of(case, [walk(r.nodes, case.width) for r in case.requests])


def _stepping(choose: Callable[[Nodes, int], int | None]) -> Walk:
    """A walk that goes from a node to the child that ``choose`` names."""

    def walk(nodes: Nodes, width: int) -> list[int]:
        path = [0]
        while len(path) < width:
            step = choose(nodes, path[-1])
            if step is None or step in path:
                break
            path.append(step)
        return path

    return walk


def _matching(nodes: Nodes, at: int, wanted: int | None = None) -> list[int]:
    wanted = nodes[at].predicted if wanted is None else wanted
    return [c for c in children(nodes, at) if nodes[c].token == wanted]


def _first(found: list[int]) -> int | None:
    return found[0] if found else None


def _last_match(nodes: Nodes, at: int) -> int | None:
    return _first(_matching(nodes, at)[::-1])


def _only_first_child(nodes: Nodes, at: int) -> int | None:
    return _first([c for c in children(nodes, at)[:1] if nodes[c].token == nodes[at].predicted])


def _two_children(nodes: Nodes, at: int) -> int | None:
    return _first([c for c in children(nodes, at)[:2] if nodes[c].token == nodes[at].predicted])


def _unverified_first(nodes: Nodes, at: int) -> int | None:
    return _first(children(nodes, at)) if at == 0 else _first(_matching(nodes, at))


def _own_prediction(nodes: Nodes, at: int) -> int | None:
    return _first([c for c in children(nodes, at) if nodes[c].token == nodes[c].predicted])


def _root_prediction(nodes: Nodes, at: int) -> int | None:
    return _first(_matching(nodes, at, nodes[0].predicted))


def _lowest_number(nodes: Nodes, at: int) -> int | None:
    return min(_matching(nodes, at), default=None)


def _any_node(nodes: Nodes, at: int) -> int | None:
    """Searches all nodes behind the current one, not its children."""
    return _first([n for n in range(at + 1, len(nodes)) if nodes[n].token == nodes[at].predicted])


def _whole_tree(nodes: Nodes, at: int) -> int | None:
    """Searches the linked nodes below the current one at any depth."""
    below = sorted(reached(nodes, children(nodes, at)[:1])) if children(nodes, at) else []
    return _first(_matching(nodes, at) or [n for n in below if nodes[n].token == nodes[at].predicted])


def _modulo(case: GreedyTreeCase) -> dict[str, Any]:
    """Token ids are wrapped into the vocabulary before they are compared."""
    wrapped = [tuple(replace(n, token=n.token % case.vocabulary) for n in r.nodes) for r in case.requests]
    return outcome_of(case, [greedy_path(nodes, case.width) for nodes in wrapped])


def _longest(nodes: Nodes, width: int) -> list[int]:
    """Of equal tokens takes the branch that leads furthest."""
    path = [0]
    while len(path) < width:
        matching = _matching(nodes, path[-1])
        if not matching:
            break
        path.append(max(matching, key=lambda c: len(greedy_path(nodes, width, c))))
    return path


def _resumes_siblings(nodes: Nodes, width: int) -> list[int]:
    """After an accepted node goes on with its sibling when it has no child."""
    path, at = [0], nodes[0].next_child
    while at != NONE and len(path) < width:
        if nodes[at].token == nodes[path[-1]].predicted:
            path.append(at)
            at = nodes[at].next_child if nodes[at].next_child != NONE else nodes[at].next_sibling
        else:
            at = nodes[at].next_sibling
    return path


def _beyond_width(case: GreedyTreeCase) -> dict[str, Any]:
    """Ignores how many columns accept_index has: writes behind its row."""
    right = outcome_of(case, [greedy_path(r.nodes, len(r.nodes)) for r in case.requests])
    over = sum(max(0, len(p) - case.width) for p in right["path"])
    return right | {"accept_index": [row[: case.width] for row in right["accept_index"]], "outside_writes": over}


def _changed(**change: Callable[[GreedyTreeCase, int, list[int], Any], Any]) -> Callable[[GreedyTreeCase], dict]:
    """The right path; a field of each row rewritten from (case, row, path, value)."""

    def observe(case: GreedyTreeCase) -> dict[str, Any]:
        paths = [greedy_path(r.nodes, case.width) for r in case.requests]
        right = outcome_of(case, paths)
        for name, rewrite in change.items():
            right[name] = [rewrite(case, i, p, v) for i, (p, v) in enumerate(zip(paths, right[name], strict=True))]
        return right

    return observe


def _other_row(case: GreedyTreeCase, row: int, path: list[int]) -> list[int]:
    """Predictions read with the row stride ``width`` in place of N."""
    flat = [n.predicted for r in case.requests for n in r.nodes]
    return [flat[(row * case.width + n) % len(flat)] for n in path]


def _first_row_predicts(case: GreedyTreeCase) -> dict[str, Any]:
    lent = [
        tuple(replace(n, predicted=p.predicted) for n, p in zip(r.nodes, case.requests[0].nodes, strict=True))
        for r in case.requests
    ]
    return outcome_of(case, [greedy_path(nodes, case.width) for nodes in lent])


def _shortest_of_batch(case: GreedyTreeCase) -> dict[str, Any]:
    paths = [greedy_path(r.nodes, case.width) for r in case.requests]
    least = min(map(len, paths))
    return outcome_of(case, [p[:least] for p in paths])


def _guard_written(case: GreedyTreeCase) -> dict[str, Any]:
    """Writes the row's padding one column further."""
    return outcome_of(case, [greedy_path(r.nodes, case.width) for r in case.requests]) | {
        "outside_writes": len(case.requests)
    }


MUTANTS = (
    Mutant("last_match_wins", "tie", "of equal tokens takes the last sibling", _walking(_stepping(_last_match))),
    Mutant("longest_match_wins", "tie", "of equal tokens takes the one that leads further", _walking(_longest)),
    Mutant(
        "lowest_number_wins",
        "sibling_order",
        "of equal tokens takes the smallest node number",
        _walking(_stepping(_lowest_number)),
    ),
    Mutant("only_first_child", "sibling_order", "looks at first children only", _walking(_stepping(_only_first_child))),
    Mutant("only_two_children", "sibling_order", "looks at two children only", _walking(_stepping(_two_children))),
    Mutant(
        "unverified_first_child",
        "missing_check",
        "accepts the root's first child unseen",
        _walking(_stepping(_unverified_first)),
    ),
    Mutant(
        "own_prediction", "off_by_one", "compares a node with its own prediction", _walking(_stepping(_own_prediction))
    ),
    Mutant(
        "root_prediction",
        "wrong_row",
        "compares every level with the root's prediction",
        _walking(_stepping(_root_prediction)),
    ),
    Mutant(
        "any_later_node", "wrong_topology", "looks for the token on all later nodes", _walking(_stepping(_any_node))
    ),
    Mutant("any_depth", "wrong_topology", "skips a level when no child matches", _walking(_stepping(_whole_tree))),
    Mutant(
        "resumes_siblings",
        "wrong_topology",
        "goes on with the siblings of an accepted leaf",
        _walking(_resumes_siblings),
    ),
    Mutant("accepts_none", "missing_commit", "accepts nothing", _walking(lambda nodes, width: [0])),
    Mutant(
        "width_less_one",
        "off_by_one",
        "stops a column too early",
        _walking(lambda nodes, width: greedy_path(nodes, max(1, width - 1))),
    ),
    Mutant("beyond_width", "bounds", "goes on when accept_index is full", _beyond_width),
    Mutant("modulo_vocabulary", "defensive", "wraps token ids into the vocabulary", _modulo),
    Mutant("first_row_predicts", "wrong_row", "every row uses the first row's predictions", _first_row_predicts),
    Mutant("shortest_of_batch", "wrong_row", "the shortest path decides for all rows", _shortest_of_batch),
    Mutant(
        "counts_bonus",
        "off_by_one",
        "counts the bonus token as accepted",
        _changed(accepted=lambda case, row, path, value: value + 1),
    ),
    Mutant(
        "index_without_root",
        "off_by_one",
        "accept_index starts with the first accepted draft",
        _changed(accept_index=lambda case, row, path, value: [*value[1:], NONE]),
    ),
    Mutant(
        "index_padded_with_last",
        "padding",
        "accept_index repeats its last node",
        _changed(accept_index=lambda case, row, path, value: path + [path[-1]] * (case.width - len(path))),
    ),
    Mutant(
        "index_is_step",
        "wrong_topology",
        "accept_index counts steps, as in a chain",
        _changed(accept_index=lambda case, row, path, value: [*range(len(path)), *value[len(path) :]]),
    ),
    Mutant(
        "index_of_first_row",
        "wrong_row",
        "accept_index lacks the row's offset",
        _changed(
            accept_index=lambda case, row, path, value: [
                n if n == NONE else n - row * len(case.requests[row].nodes) for n in value
            ]
        ),
    ),
    Mutant(
        "predicts_by_width",
        "row_stride",
        "reads predictions with accept_index's row stride",
        _changed(predicts=lambda case, row, path, value: _other_row(case, row, path)),
    ),
    Mutant(
        "predicts_at_child",
        "off_by_one",
        "writes the token to the accepted node, not to its parent",
        _changed(predicts=lambda case, row, path, value: [case.requests[row].nodes[n].token for n in path]),
    ),
    Mutant(
        "bonus_of_root",
        "wrong_token",
        "the bonus token is what follows the root",
        _changed(emitted=lambda case, row, path, value: [*value[:-1], case.requests[row].nodes[0].predicted]),
    ),
    Mutant(
        "bonus_dropped",
        "dropped_bonus",
        "emits the accepted drafts only",
        _changed(emitted=lambda case, row, path, value: value[:-1]),
    ),
    Mutant(
        "emits_root",
        "off_by_one",
        "emits the current token again",
        _changed(emitted=lambda case, row, path, value: [case.requests[row].nodes[0].token, *value[:-1]]),
    ),
    Mutant("writes_behind_the_row", "bounds", "writes a cell behind every row", _guard_written),
)
