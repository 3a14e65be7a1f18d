"""Mutants of verify.tree_sampling: one plain walk with rules that can be replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.legal import OneOf
from oracle.verify.links import children
from oracle.verify.sampled_tree import Node, Request, TreeSamplingCase, hostile, masses_of
from oracle.verify.tree_safety import safe_outcome

Masses = dict[int, Fraction]


def _draw(coin: Fraction, masses: Masses) -> int:
    """The smallest token whose cumulated mass exceeds coin x total."""
    total = sum(masses.values())
    return next(t for t, c in zip(masses, accumulate(masses.values()), strict=True) if coin * total < c)


@dataclass(frozen=True)
class Rules:
    """What the walk asks for; each default is right."""

    siblings: Callable = lambda nodes, at: children(nodes, at)
    coin: Callable = lambda nodes, at, child: nodes[at].coin
    row: Callable = lambda nodes, path, child: nodes[path[-1]].row
    mass_so_far: Callable = lambda tried, carried: sum(tried)
    accept: Callable = lambda case, coin, so_far, mass: (
        mass > 0 and (coin < so_far / Fraction(case.threshold_acc) or mass >= case.threshold_single)
    )
    repeated_counts: bool = False
    limit: Callable = lambda case: case.width
    cut: Callable = lambda used, before: used
    final_coin: Callable = lambda request, path: request.final_coin
    final_row: Callable = lambda nodes, path: nodes[path[-1]].row
    draw: Callable = _draw
    empty: Callable = lambda case, masses: next(iter(masses))
    tokens: Callable = lambda nodes, path: [nodes[n].token for n in path[1:]]


RIGHT = Rules()


def _walk(case: TreeSamplingCase, request: Request, rules: Rules) -> dict[str, Any]:
    nodes, path, used, before, carried = request.nodes, [0], [], [], Fraction(0)
    while len(path) < rules.limit(case):
        at, used, tried = path[-1], [], []
        for child in rules.siblings(nodes, at):
            token = nodes[child].token
            if token in used and not rules.repeated_counts:
                continue
            mass = masses_of(rules.row(nodes, path, child), case.vocabulary).get(token, Fraction(0))
            tried.append(mass)
            so_far = rules.mass_so_far(tried, carried)
            if rules.accept(case, Fraction(rules.coin(nodes, at, child)), so_far, mass):
                path.append(child)
                carried, before, used = so_far, used, []
                break
            used.append(token)
        if path[-1] == at:
            break
    masses = masses_of(rules.final_row(nodes, path), case.vocabulary)
    cut = set(rules.cut(used, before))
    left = {t: m for t, m in masses.items() if t not in cut}
    coin = Fraction(rules.final_coin(request, path))
    bonus = rules.draw(coin, left) if left else rules.empty(case, masses)
    tokens = rules.tokens(nodes, path)
    return {"path": path, "accepted": len(path) - 1, "accepted_tokens": tokens, "bonus_token": bonus}


def _safely(case: TreeSamplingCase, request: Request) -> dict[str, Any]:
    bonus = safe_outcome(case, request)["bonus_token"]
    bonus = bonus.values[0] if isinstance(bonus, OneOf) else bonus.low
    return {"path": [0], "accepted": 0, "accepted_tokens": [], "bonus_token": bonus}


def _observed(rows: list[dict[str, Any]], outside: int = 0) -> dict[str, Any]:
    return {name: [r[name] for r in rows] for name in rows[0]} | {"outside_writes": outside}


def _with(**changes: Any) -> Callable[[TreeSamplingCase], dict[str, Any]]:
    rules = replace(RIGHT, **changes)

    def observe(case: TreeSamplingCase) -> dict[str, Any]:
        sound = [not hostile(r, case.vocabulary) for r in case.requests]
        return _observed(
            [_walk(case, r, rules) if s else _safely(case, r) for r, s in zip(case.requests, sound, strict=True)]
        )

    return observe


def _acc_rule(decides: Callable[..., bool]) -> Callable[[TreeSamplingCase], dict[str, Any]]:
    return _with(accept=lambda case, coin, so_far, mass: mass > 0 and decides(case, coin, so_far, mass))


def _draw_at_or_below(coin: Fraction, masses: Masses) -> int:
    total = sum(masses.values())
    return next(t for t, c in zip(masses, accumulate(masses.values()), strict=True) if coin * total <= c)


def _unnormalised(coin: Fraction, masses: Masses) -> int:
    found = (t for t, c in zip(masses, accumulate(masses.values()), strict=True) if coin < c)
    return next(found, list(masses)[-1])


def _by_mass(coin: Fraction, masses: Masses) -> int:
    return _draw(coin, dict(sorted(masses.items(), key=lambda item: -item[1])))


def _without_tail(block: int) -> Callable[[TreeSamplingCase], dict[str, Any]]:
    """The draw sees whole blocks of the vocabulary only."""

    def observe(case: TreeSamplingCase) -> dict[str, Any]:
        end = case.vocabulary // block * block

        def draw(coin: Fraction, masses: Masses) -> int:
            seen = {t: m for t, m in masses.items() if t < end}
            return _draw(coin, seen or masses)

        return _with(draw=draw)(case) if end else None

    return observe


def _zero_coin_takes_token_0(case: TreeSamplingCase) -> dict[str, Any]:
    return _with(draw=lambda coin, masses: 0 if coin == 0 else _draw(coin, masses))(case)


def _zero_mass_at_zero(case: TreeSamplingCase, coin: Fraction, so_far: Fraction, mass: Fraction) -> bool:
    return coin <= so_far / Fraction(case.threshold_acc) if coin == 0 else RIGHT.accept(case, coin, so_far, mass)


def _of_another_row(change: Callable[[TreeSamplingCase, int], Request]) -> Callable[[TreeSamplingCase], dict[str, Any]]:
    """Every request is walked with something of another request."""

    def observe(case: TreeSamplingCase) -> dict[str, Any]:
        if any(hostile(r, case.vocabulary) for r in case.requests):
            return None
        return _observed([_walk(case, change(case, i), RIGHT) for i in range(len(case.requests))])

    return observe


def _rows_of_first(case: TreeSamplingCase, i: int) -> Request:
    own, first = case.requests[i], case.requests[0]
    nodes = tuple(replace(n, row=f.row) for n, f in zip(own.nodes, first.nodes, strict=True))
    return replace(own, nodes=nodes)


def _coins_of_first(case: TreeSamplingCase, i: int) -> Request:
    own, first = case.requests[i], case.requests[0]
    nodes = tuple(replace(n, coin=f.coin) for n, f in zip(own.nodes, first.nodes, strict=True))
    return replace(own, nodes=nodes)


def _writes(changes: Callable[[TreeSamplingCase], int]) -> Callable[[TreeSamplingCase], dict[str, Any]]:
    def observe(case: TreeSamplingCase) -> dict[str, Any]:
        return _with()(case) | {"outside_writes": changes(case)}

    return observe


def _hostile(wrong: Callable[[TreeSamplingCase, Request], dict[str, Any]]) -> Callable[[TreeSamplingCase], Any]:
    """Right on sound requests, ``wrong`` on hostile ones."""

    def observe(case: TreeSamplingCase) -> dict[str, Any]:
        rows = [
            _safely(case, r) | wrong(case, r) if hostile(r, case.vocabulary) else _walk(case, r, RIGHT)
            for r in case.requests
        ]
        return _observed(rows)

    return observe


def _takes_bad_token(case: TreeSamplingCase, request: Request) -> dict[str, Any]:
    nodes: tuple[Node, ...] = request.nodes
    bad = next((c for c in children(nodes, 0) if not 0 <= nodes[c].token < case.vocabulary), None)
    if bad is None or case.width < 2:
        return {}
    return {"path": [0, bad], "accepted": 1, "accepted_tokens": [nodes[bad].token]}


def _massless(case: TreeSamplingCase, request: Request) -> dict[str, Any]:
    """The last token of the vocabulary when the row is not to be trusted."""
    return {"bonus_token": case.vocabulary - 1}


def _final_at_root(case: TreeSamplingCase) -> TreeSamplingCase:
    requests = (
        replace(r, nodes=(replace(r.nodes[0], coin=r.final_coin), *r.nodes[1:])) for r in case.requests
    )  # fmt: skip
    return replace(case, requests=tuple(requests))


def _width_cuts(case: TreeSamplingCase) -> dict[str, Any]:
    def final_masses(request: Request) -> dict[str, Any]:
        found, nodes = _walk(case, request, RIGHT), request.nodes
        last = found["path"][-1]
        if len(found["path"]) < case.width:
            return found
        untried = {nodes[c].token for c in children(nodes, last)}
        left = {t: m for t, m in masses_of(nodes[last].row, case.vocabulary).items() if t not in untried}
        return found | ({"bonus_token": _draw(Fraction(request.final_coin), left)} if left else {})

    return _observed(
        [_safely(case, r) if hostile(r, case.vocabulary) else final_masses(r) for r in case.requests]
    )  # fmt: skip


MUTANTS = (
    Mutant(
        "coin_at_edge_accepts", "comparison", "accepts a coin that equals the threshold",
        _acc_rule(lambda c, coin, s, m: coin <= s / Fraction(c.threshold_acc) or m >= c.threshold_single),
    ),
    Mutant(
        "coin_0_accepts_no_mass", "comparison", "a draft token without mass is accepted at coin 0",
        _with(accept=_zero_mass_at_zero),
    ),
    Mutant(
        "single_threshold_0_accepts_no_mass", "missing_check", "a token without mass reaches a single threshold of 0",
        _with(accept=lambda c, coin, s, m: coin < s / Fraction(c.threshold_acc) and m > 0 or m >= c.threshold_single),
    ),
    Mutant("draw_at_edge", "comparison", "the draw takes a token whose edge the coin equals",
           _with(draw=_draw_at_or_below)),
    Mutant("draw_takes_token_0_at_coin_0", "comparison", "coin 0 draws token 0 whatever its mass",
           _zero_coin_takes_token_0),
    Mutant("accept_coin_reused", "coin", "the coin of the last node is used again for the bonus token",
           _with(final_coin=lambda r, path: r.nodes[path[-1]].coin)),
    Mutant("final_coin_accepts", "coin", "the coin of the bonus token decides at the root",
           lambda case: _with()(_final_at_root(case))),
    Mutant("root_coin_everywhere", "coin", "the coin of the root decides at every node",
           _with(coin=lambda nodes, at, child: nodes[0].coin)),
    Mutant("coin_of_child", "coin", "every sibling is tried with its own coin",
           _with(coin=lambda nodes, at, child: nodes[child].coin)),
    Mutant("siblings_not_added", "sum", "a sibling is compared with its own mass only",
           _with(mass_so_far=lambda tried, carried: tried[-1])),
    Mutant("mass_carried_down", "sum", "the mass of the level above is not reset",
           _with(mass_so_far=lambda tried, carried: sum(tried) + carried)),
    Mutant("mass_before_only", "sum", "the mass of the token itself is not added",
           _with(mass_so_far=lambda tried, carried: sum(tried[:-1]))),
    Mutant("siblings_reversed", "order", "siblings are tried from the last",
           _with(siblings=lambda nodes, at: children(nodes, at)[::-1])),
    Mutant("siblings_by_number", "order", "siblings are tried by node number instead of by their links",
           _with(siblings=lambda nodes, at: sorted(children(nodes, at)))),
    Mutant("first_child_only", "missing_sibling", "the siblings of the first child are never tried",
           _with(siblings=lambda nodes, at: children(nodes, at)[:1])),
    Mutant("repeated_token_counts_twice", "sum", "a repeated sibling adds its mass again",
           _with(repeated_counts=True)),
    Mutant("row_of_root", "wrong_row", "every node is judged by the target's row of the root",
           _with(row=lambda nodes, path, child: nodes[0].row)),
    Mutant("row_of_child", "wrong_row", "a draft token is judged by the row after it",
           _with(row=lambda nodes, path, child: nodes[child].row)),
    Mutant("row_of_previous_node", "wrong_row", "the row of the node before, by number",
           _with(row=lambda nodes, path, child: nodes[max(path[-1] - 1, 0)].row)),
    Mutant("bonus_row_of_root", "wrong_row", "the bonus token comes from the root's row",
           _with(final_row=lambda nodes, path: nodes[0].row)),
    Mutant("bonus_row_before", "off_by_one", "the bonus token comes from the row one node earlier on the path",
           _with(final_row=lambda nodes, path: nodes[path[-2] if len(path) > 1 else 0].row)),
    Mutant("residual_not_cut", "residual", "rejected tokens stay in the residual", _with(cut=lambda used, before: [])),
    Mutant("residual_cuts_first_only", "residual", "only the first rejected sibling leaves the residual",
           _with(cut=lambda used, before: used[:1])),
    Mutant("residual_cuts_last_only", "residual", "only the last rejected sibling leaves the residual",
           _with(cut=lambda used, before: used[-1:])),
    Mutant("residual_cuts_level_above", "residual", "siblings rejected one level above leave the residual too",
           _with(cut=lambda used, before: [*used, *before])),
    Mutant("residual_not_normalised", "residual", "the coin meets the residual without its total",
           _with(draw=_unnormalised)),
    Mutant("empty_residual_last_token", "residual", "an empty residual yields the last token of the vocabulary",
           _with(empty=lambda case, masses: case.vocabulary - 1)),
    Mutant("draw_by_mass", "order", "the draw goes through the tokens from the most likely one", _with(draw=_by_mass)),
    Mutant("tail_of_4_lost", "tail", "tokens behind the last whole four are never drawn", _without_tail(4)),
    Mutant("tail_of_4096_lost", "tail", "tokens behind the last whole 4096 are never drawn", _without_tail(4096)),
    Mutant("single_threshold_ignored", "threshold", "the single threshold is ignored",
           _acc_rule(lambda c, coin, s, m: coin < s / Fraction(c.threshold_acc))),
    Mutant("single_threshold_strict", "threshold", "a mass that equals the single threshold does not reach it",
           _acc_rule(lambda c, coin, s, m: coin < s / Fraction(c.threshold_acc) or m > c.threshold_single)),
    Mutant("single_threshold_of_sum", "threshold", "the single threshold is compared with the accumulated mass",
           _acc_rule(lambda c, coin, s, m: coin < s / Fraction(c.threshold_acc) or s >= c.threshold_single)),
    Mutant("acc_threshold_ignored", "threshold", "the accumulated threshold is ignored",
           _acc_rule(lambda c, coin, s, m: coin < s or m >= c.threshold_single)),
    Mutant("acc_threshold_multiplies", "threshold", "the mass is multiplied by the accumulated threshold",
           _acc_rule(lambda c, coin, s, m: coin < s * Fraction(c.threshold_acc) or m >= c.threshold_single)),
    Mutant("path_one_too_long", "off_by_one", "the path may hold one node more than its width",
           _with(limit=lambda case: case.width + 1)),
    Mutant("path_one_too_short", "off_by_one", "the path ends one node before its width",
           _with(limit=lambda case: max(case.width - 1, 1))),
    Mutant("width_cuts_residual", "residual", "a full path loses the tokens of children that were not tried",
           _width_cuts),
    Mutant("tokens_shifted", "off_by_one", "each accepted token is written one node late",
           _with(tokens=lambda nodes, path: [nodes[n].token for n in path[:-1]])),
    Mutant("accepts_everything", "missing_check", "the first child is always accepted",
           _with(accept=lambda case, coin, so_far, mass: True)),
    Mutant("accepts_nothing", "missing_commit", "no draft token is ever accepted",
           _with(accept=lambda case, coin, so_far, mass: False)),
    Mutant("rows_of_first_request", "wrong_row", "all requests see the rows of the first",
           _of_another_row(_rows_of_first)),
    Mutant("coins_of_first_request", "wrong_row", "all requests see the coins of the first",
           _of_another_row(_coins_of_first)),
    Mutant("writes_beside", "out_of_bounds", "a cell behind the outputs is written when a path is full",
           _writes(lambda case: int(any(len(p) == case.width for p in _with()(case)["path"])))),
    Mutant("bad_token_accepted", "defensive", "a draft token outside the vocabulary is accepted",
           _hostile(_takes_bad_token)),
    Mutant("hostile_row_last_token", "defensive", "a row that is no distribution yields the last token",
           _hostile(_massless)),
    Mutant("hostile_row_beyond", "defensive", "a row that is no distribution yields the size of the vocabulary",
           _hostile(lambda case, request: {"bonus_token": case.vocabulary})),
)  # fmt: skip
