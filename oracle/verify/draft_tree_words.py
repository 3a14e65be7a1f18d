"""verify.draft_tree in words: kinds of difference, and the claim of one."""

from __future__ import annotations

from typing import Any

from oracle import legal
from oracle.verify.links import NONE


def kind(field: str, expected: Any, observed: Any) -> str:
    """Words for how a mask, a position or a link is wrong, by the first wrong node."""
    if field == "outside_writes":
        return "written_outside"
    if field == "hidden_prefix":
        return "prefix_hidden"
    expected = _entries(expected)
    if len(expected) != len(observed):
        return "wrong_shape"
    must, seen = next((e, o) for e, o in zip(expected, observed, strict=True) if not legal.admits(e, o))
    if isinstance(must, legal.Legal):
        return "unsafe"
    if field == "sees":
        return "sees_too_much" if seen & must == must else "sees_too_little" if seen | must == must else "sees_others"
    if field == "positions":
        return "too_deep" if seen > must else "too_shallow"
    if field.startswith("next_"):
        return "link_missing" if seen == NONE else "link_added" if must == NONE else "wrong_node"
    return "wrong_node"


def say(case: Any, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim in words: which node, which rule."""
    if field == "outside_writes":
        return f"{observed} cells outside the outputs were changed; none may be"
    from oracle.verify.draft_tree import CONTRACT

    row = where[0]
    r = case.requests[row]
    expected = CONTRACT.run(case)[0][field][row]
    if field == "hidden_prefix":
        return f"request {row}: every node sees all {r.pre} prefix tokens; {observed} cells hide one"
    expected = _entries(expected)
    if len(expected) != len(observed):
        return f"request {row}: {field} has {len(observed)} entries for {len(expected)} nodes"
    pairs = enumerate(zip(expected, observed, strict=True))
    node, must, seen = next((n, e, o) for n, (e, o) in pairs if not legal.admits(e, o))
    if isinstance(must, legal.Legal):
        return f"request {row} has an orphan: {field} of node {node} must be {must.describe()}, production has {seen}"
    path = _upwards(r.parents, node)
    if field == "sees":
        rule = f"sees itself and its ancestors, nodes {_nodes(must)}; production lets it see {_nodes(seen)}"
    elif field == "positions":
        rule = f"lies at {r.pre} + depth {len(path) - 1} = {must} (path {path}), production has {seen}"
    elif field == "next_child":
        kids = [n for n, p in enumerate(r.parents) if p == node]
        rule = f"has the children {kids}, the smallest is {must}; production links {seen}"
    elif field == "next_sibling":
        family = [n for n, p in enumerate(r.parents) if n and p == r.parents[node]]
        rule = f"is one of the siblings {family}, after it comes {must}; production links {seen}"
    else:
        rule = f"must stand for itself in {field}, production has {seen}"
    return f"request {row}: node {node} {rule}"


def _entries(expected: Any) -> Any:
    return expected.values if isinstance(expected, legal.Each) else expected


def _upwards(parents: tuple[int, ...], node: int) -> list[int]:
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


def _nodes(bits: int) -> list[int]:
    return [n for n in range(max(bits, 0).bit_length()) if bits >> n & 1]
