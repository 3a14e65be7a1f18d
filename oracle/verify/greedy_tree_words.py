"""verify.greedy_tree in words: kinds of difference, and the claim of one."""

from __future__ import annotations

from typing import Any

from oracle.verify.links import NONE, children, greedy_path


def kind(field: str, expected: Any, observed: Any) -> str:
    """Words for how a path, a count or a token is wrong."""
    if field == "outside_writes":
        return "written_outside"
    if field == "accepted":
        return "too_many" if observed > expected else "too_few"
    if field in ("path", "accept_index"):
        observed, expected = [n for n in observed if n != NONE], [n for n in expected if n != NONE]
        if observed[: len(expected)] == expected and len(observed) > len(expected):
            return "goes_too_far"
        if expected[: len(observed)] == observed and len(observed) < len(expected):
            return "stops_early"
        return "wrong_node" if field == "path" or observed != expected else "wrong_padding"
    return "wrong_token"


def say(case: Any, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words: at which node the observation leaves the rule."""
    if field == "outside_writes":
        return f"{observed} cells outside the outputs of the walk were changed; none may be"
    row = where[0]
    nodes = case.requests[row].nodes
    path = greedy_path(nodes, case.width)
    place = f"request {row}: "
    if field in ("path", "accept_index"):
        seen = [n for n in observed if n != NONE]
        same = 0
        while same < min(len(path), len(seen)) and path[same] == seen[same]:
            same += 1
        at = path[max(same - 1, 0)]
        offered = ", ".join(f"node {c} (token {nodes[c].token})" for c in children(nodes, at)) or "no node"
        must = f"node {path[same]} follows" if same < len(path) else "the walk ends"
        if same >= len(path) == case.width:
            must = f"the walk ends, because accept_index has {case.width} columns"
        got = f"went to {seen[same]}" if same < len(seen) else "ended there"
        return (
            f"{place}the target predicts {nodes[at].predicted} after node {at}, whose children in order are {offered}; "
            f"so {must}, production {got}"
        )
    if field == "accepted":
        return f"{place}{len(path) - 1} draft tokens are accepted along nodes {path}, production counts {observed}"
    tokens = [nodes[n].predicted for n in path]
    what = "predictions along the path" if field == "predicts" else "emitted tokens"
    return f"{place}the {what} (nodes {path}) must be {tokens}, production has {observed}"
