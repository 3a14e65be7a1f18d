"""verify.tree_sampling in words: its behaviours, the trace of a walk, the claim of a
divergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from oracle.legal import Branched, describe
from oracle.trace import Trace
from oracle.verify.edges import ulp
from oracle.verify.links import reached
from oracle.verify.sampled_tree import LAST_COIN, Request, TreeSamplingCase, has_mass, hostile

BEHAVIOURS = {
    "no_drafts": "the root has no child",
    "none_accepted": "there are drafts and none is accepted",
    "accepted_to_leaf": "the path ends at a node without children",
    "rejected_below_root": "some drafts are accepted, then all children of a node are rejected",
    "width_ends_path": "the path is full although its last node has children",
    "first_sibling_accepted": "the first of several siblings is accepted",
    "later_sibling_accepted": "a sibling is accepted after another was rejected",
    "several_siblings_rejected": "two or more siblings with mass are rejected at one node",
    "draft_without_mass": "a draft token has no mass under the target",
    "draft_without_mass_at_coin_0": "the same with a coin of exactly 0",
    "repeated_sibling": "a sibling repeats a token that was rejected before it",
    "single_threshold_decides": "a token is accepted only because of the single threshold",
    "acc_threshold_decides": "a token is accepted only because of the accumulated threshold",
    "drawn_from_residual": "the bonus token is drawn without the rejected tokens",
    "drawn_from_whole_row": "the bonus token is drawn from the whole row",
    "residual_empty": "the rejected siblings held all the mass",
    "draw_at_coin_0": "the coin of the bonus token is 0 and token 0 has no mass",
    "draw_at_last_coin": "the coin of the bonus token is the largest there is",
    "last_token_drawn": "the bonus token is the last of the vocabulary",
    "drawn_behind_4096": "the bonus token lies behind the first 4096 tokens",
    "accept_coin_on_edge": "a coin lies exactly on the edge of a draft token",
    "draw_coin_on_edge": "the coin of the bonus token lies exactly on an edge",
    "near_tie": "rounding may turn a decision",
    "mass_not_one": "the masses of a row do not add up to 1 exactly",
    "unlinked_node": "a node takes no part in the tree",
    "mixed_paths": "requests of one batch take different paths",
    "hostile_row": "a row is no distribution",
    "hostile_token": "a draft token outside the vocabulary",
}
SHOWN = 4  # tokens shown on either side of the drawn one


@dataclass
class _Exactly:
    """Answers decisions exactly and remembers the distance of the last one."""

    coins: dict[Any, Fraction]
    on_edge: set[Any] = field(default_factory=set)

    def below(self, coin: Any, threshold: Fraction, within_ulp: float, at: Fraction | None = None) -> bool:
        if self.coins[coin] == threshold:
            self.on_edge.add(coin)
        return self.coins[coin] < threshold


def _coins(request: Request) -> dict[Any, Fraction]:
    return {n: Fraction(node.coin) for n, node in enumerate(request.nodes)} | {"final": Fraction(request.final_coin)}


def narrate(
    case: TreeSamplingCase, request: Request, i: int, result: dict[str, Any], walk: Callable[..., Any], trace: Trace
) -> None:
    """Trace steps and behaviours of one request, from the exact walk."""
    why = hostile(request, case.vocabulary)
    if why:
        trace.behaviour("hostile_token" if why.startswith("the token") else "hostile_row")
        trace.step("hostile input", i, why=why)
    else:
        events: list[tuple[str, dict[str, Any]]] = []
        exactly = _Exactly(_coins(request))
        found = walk(case, request.nodes, exactly, lambda name, **values: events.append((name, values)), rounding=False)
        for name, values in events:
            step = _STEPS[name](request, values)
            trace.step(step.pop("name"), i, **step)
        _behaviours(case, request, found, events, exactly.on_edge, trace)
        if any(isinstance(v, Branched) and v.excess_ulp[k] <= 0
               for v in result.values() for k in range(1, len(getattr(v, "values", ())))):  # fmt: skip
            trace.behaviour("near_tie")
    trace.step("accepted path", i, "path", value=result["path"])
    trace.step("accepted draft tokens", i, "accepted", value=result["accepted"])
    trace.step("tokens of the path", i, "accepted_tokens", value=result["accepted_tokens"])
    trace.step("bonus token", i, "bonus_token", value=result["bonus_token"])


def _passed(request: Request, v: dict[str, Any]) -> dict[str, Any]:
    why = "proposed before" if v["repeated"] else "no mass"
    return {"name": "draft token passed over", "node": v["node"], "child": v["child"], "token": v["token"], "why": why}


def _tried(request: Request, v: dict[str, Any]) -> dict[str, Any]:
    coin = Fraction(request.nodes[v["node"]].coin)
    return {
        "name": "draft token tried", "node": v["node"], "child": v["child"], "token": v["token"],
        "mass": float(v["mass"]), "coin": float(coin), "threshold": float(v["edge"]),
        "margin_ulp": margin(coin, v["edge"]), "accepted": v["accepted"],
        "rule": "single threshold" if v["single"] else "accumulated mass",
    }  # fmt: skip


def _drawn(request: Request, v: dict[str, Any]) -> dict[str, Any]:
    """The cumulated masses around the drawn token; ``from_mass`` lies before the first."""
    place, cumulated, tokens, scale = v["place"], v["cumulated"], v["tokens"], v["scale"]
    low, high = max(0, place - SHOWN), min(len(tokens), place + SHOWN + 1)
    total, coin = cumulated[-1], Fraction(request.final_coin)
    edges = [Fraction(c, total) for c in cumulated[max(0, place - 1) : place + 1]]
    return {
        "name": "bonus token drawn", "node": v["node"], "coin": float(coin), "token": tokens[place],
        "tokens": tokens[low:high], "from_mass": cumulated[low - 1] / scale if low else 0.0,
        "cumulated": [c / scale for c in cumulated[low:high]], "total": total / scale,
        "margin_ulp": min((margin(coin, e, Fraction(1)) for e in edges if e < 1), default=None),
    }  # fmt: skip


def _empty(request: Request, v: dict[str, Any]) -> dict[str, Any]:
    return {"name": "residual empty", "node": v["node"], "tokens": v["tokens"][: 2 * SHOWN]}


_STEPS = {"passed": _passed, "tried": _tried, "drawn": _drawn, "empty": _empty}


def margin(coin: Fraction, edge: Fraction, at: Fraction | None = None) -> float:
    """Distance of a coin to an edge in float32 ULP, three digits."""
    return float(f"{float(abs(coin - edge) / ulp(edge if at is None else at)):.3g}")


def _behaviours(
    case: TreeSamplingCase, request: Request, found: dict[str, Any], events: list, on_edge: set, trace: Trace
) -> None:
    nodes, path = request.nodes, found["path"]
    last, tried = path[-1], [v for name, v in events if name == "tried"]
    rejected = [v for v in tried if v["node"] == last and not v["accepted"]]
    drawn = next((v for name, v in events if name == "drawn"), None)
    accepted = [v for v in tried if v["accepted"]]
    passed = [v for name, v in events if name == "passed"]
    shown = {
        "no_drafts": nodes[0].next_child == -1,
        "none_accepted": nodes[0].next_child != -1 and len(path) == 1,
        "accepted_to_leaf": len(path) > 1 and nodes[last].next_child == -1,
        "rejected_below_root": len(path) > 1 and bool(rejected),
        "width_ends_path": len(path) == case.width and nodes[last].next_child != -1,
        "first_sibling_accepted": any(
            nodes[v["node"]].next_child == v["child"] and nodes[v["child"]].next_sibling != -1 for v in accepted
        ),
        "later_sibling_accepted": any(len(v["tried"]) > 1 for v in accepted),
        "several_siblings_rejected": len(rejected) > 1,
        "draft_without_mass": any(not v["repeated"] for v in passed),
        "draft_without_mass_at_coin_0": any(not v["repeated"] and nodes[v["node"]].coin == 0.0 for v in passed),
        "repeated_sibling": any(v["repeated"] for v in passed),
        "single_threshold_decides": any(
            v["single"] and not Fraction(nodes[v["node"]].coin) < v["edge"] for v in accepted
        ),
        "acc_threshold_decides": any(
            not v["single"] and not Fraction(nodes[v["node"]].coin) < sum(v["tried"]) for v in accepted
        ),
        "drawn_from_residual": bool(rejected) and drawn is not None,
        "drawn_from_whole_row": not rejected,
        "residual_empty": drawn is None,
        "draw_at_coin_0": request.final_coin == 0.0 and drawn is not None and drawn["tokens"][0] > 0,
        "draw_at_last_coin": request.final_coin == LAST_COIN,
        "last_token_drawn": drawn is not None and found["bonus_token"] == case.vocabulary - 1,
        "drawn_behind_4096": drawn is not None and drawn["tokens"][drawn["place"]] >= 4096,
        "accept_coin_on_edge": bool(on_edge - {"final"}),
        "draw_coin_on_edge": "final" in on_edge,
        "mass_not_one": drawn is not None and not rejected and drawn["cumulated"][-1] != drawn["scale"],
        "unlinked_node": len(reached(nodes)) < len(nodes),
    }
    for name, is_shown in shown.items():
        if is_shown:
            trace.behaviour(name)


def say(case: TreeSamplingCase, field_name: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim: what production has, what must be, and the decision behind it."""
    from oracle.verify.tree_sampling import CONTRACT

    if field_name == "outside_writes":
        return f"nothing but the outputs may change, production changed {observed} cells beside them"
    outcome, trace = CONTRACT.run(case)
    i = where[0]
    must = describe(outcome[field_name][i])
    steps = [s for s in trace.steps if s.request == i]
    claim = f"request {i}: {field_name} must be {must}, production has {observed}"
    hostile_step = next((s for s in steps if s.name == "hostile input"), None)
    if hostile_step:
        return f"{claim}; {hostile_step.values['why']}, so only safety is asked for"
    return f"{claim}; {_reason(case, i, field_name, observed, steps)}"


def _reason(case: TreeSamplingCase, i: int, field_name: str, observed: Any, steps: list) -> str:
    """The step at which a path leaves the right one, or the draw."""
    if field_name == "bonus_token":
        step = next(s for s in steps if s.name in ("bonus token drawn", "residual empty"))
        v = step.values
        nodes = case.requests[i].nodes
        if isinstance(observed, int) and not (
            0 <= observed < case.vocabulary and has_mass(nodes[v["node"]].row, observed)
        ):
            return f"token {observed} has no mass at node {v['node']}"
        if step.name == "residual empty":
            return f"the rejected siblings of node {v['node']} held all the mass"
        return (
            f"at node {v['node']} the coin {v['coin']!r} of the draw falls on token {v['token']}"
            + ("" if v["margin_ulp"] is None else f", {v['margin_ulp']} ULP from the nearest edge")
        )  # fmt: skip
    tried = [s.values for s in steps if s.name in ("draft token tried", "draft token passed over")]
    path = observed if field_name == "path" and isinstance(observed, list) else []
    for v in tried:
        taken = v["node"] in path and path.index(v["node"]) + 1 < len(path) and path[path.index(v["node"]) + 1]
        if v["node"] in path and v.get("accepted", False) != (taken == v["child"]):
            return _decision(v)
    return _decision(tried[-1]) if tried else "no draft token may be accepted here"


def _decision(v: dict[str, Any]) -> str:
    place = f"at node {v['node']} draft token {v['token']} (node {v['child']})"
    if "why" in v:
        return f"{place} is passed over: {v['why']}"
    if v["rule"] == "single threshold":
        return f"{place} is accepted by the single threshold, its mass is {v['mass']!r}"
    side = "below" if v["accepted"] else "not below"
    verdict = "accepted" if v["accepted"] else "rejected"
    return f"{place} is {verdict}: coin {v['coin']!r} is {side} {v['threshold']!r}, {v['margin_ulp']} ULP from it"
