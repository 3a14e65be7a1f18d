"""verify.draft_tree: two definitions over every small tree, both directions against
each other, against verify.greedy_tree's children, and the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fuzz.engines.sglang.beams import NotABeamSearch, encode
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.explain import sentence
from oracle.judgement import judge
from oracle.legal import Each
from oracle.verify.draft_tree import CONTRACT
from oracle.verify.draft_tree_behaviours import ORPHAN, beams, depths
from oracle.verify.draft_tree_case import DraftTreeCase, Request
from oracle.verify.links import children, from_parents

EXAMPLE = CONTRACT.example
TREES = [(-1, *rest) for size in range(1, 7) for rest in product(*(range(n) for n in range(1, size)))]


def of(*parents: int, pre: int = 3, given: str = "mask", mask: str = "query") -> DraftTreeCase:
    return DraftTreeCase(given, mask, 0, 0, (Request(pre, parents),))


def test_every_tree_of_up_to_six_nodes():
    assert len(TREES) == 1 + 1 + 2 + 6 + 24 + 120
    for parents in TREES:
        case = of(*parents)
        assert CONTRACT.domain(case) == FUNCTIONAL
        assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def test_by_hand():
    outcome = CONTRACT.run(EXAMPLE)[0]
    assert outcome == {
        "sees": [[0b0001, 0b0011, 0b0101, 0b1011]],
        "hidden_prefix": [0],
        "positions": [[3, 4, 4, 5]],
        "retrieve_index": [[0, 1, 2, 3]],
        "next_child": [[1, 3, -1, -1]],
        "next_sibling": [[-1, 2, -1, -1]],
        "token_nodes": [[0, 1, 2, 3]],
        "outside_writes": 0,
    }


def test_mask_and_links_determine_each_other():
    """From the mask alone: the parent of a node is the last other node that it sees."""
    for parents in TREES:
        outcome = CONTRACT.run(of(*parents))[0]
        found = [-1] + [(bits & ~(1 << n)).bit_length() - 1 for n, bits in enumerate(outcome["sees"][0]) if n]
        assert tuple(found) == parents
        assert (outcome["next_child"][0], outcome["next_sibling"][0]) == from_parents(found)


def test_links_lead_to_every_node_once_in_the_order_of_numbers():
    for parents in TREES:
        child, sibling = from_parents(parents)
        nodes = [SimpleNamespace(next_child=c, next_sibling=s) for c, s in zip(child, sibling, strict=True)]
        for parent in range(len(parents)):
            assert children(nodes, parent) == [n for n, p in enumerate(parents) if p == parent]


def test_positions_count_what_is_seen():
    for parents in TREES:
        outcome = CONTRACT.run(of(*parents, pre=7))[0]
        assert outcome["positions"][0] == [7 + bits.bit_count() - 1 for bits in outcome["sees"][0]]


def test_an_orphan_asks_for_safety_and_its_neighbour_stays_exact():
    case = DraftTreeCase("parents", "query", 3, 2, (Request(3, (-1, 0, 0, ORPHAN)), Request(5, (-1, 0, 0, 1))))
    assert CONTRACT.domain(case) == DEFENSIVE
    outcome = CONTRACT.run(case)[0]
    assert isinstance(outcome["next_child"][0], Each) and outcome["next_child"][1] == [1, 3, -1, -1]
    seen = CONTRACT.run(replace(case, requests=(Request(3, (-1, 0, 0, 0)), case.requests[1])))[0]
    assert judge(CONTRACT, outcome, seen).agrees
    for name, value in (("next_child", 4), ("next_sibling", -2), ("positions", 8), ("positions", 2), ("sees", 16)):
        wrong = judge(CONTRACT, outcome, seen | {name: [[*seen[name][0][:3], value], seen[name][1]]})
        assert (wrong.field, wrong.kind, wrong.where) == (name, "unsafe", (0,))
        assert "orphan" in sentence(CONTRACT, case, wrong)


@pytest.mark.parametrize(
    ("field", "row", "kind", "words"),
    [
        ("sees", [0b0001, 0b0011, 0b0101, 0b1111], "sees_too_much", "nodes [0, 1, 3]"),
        ("sees", [0b0001, 0b0011, 0b0101, 0b1010], "sees_too_little", "node 3"),
        ("sees", [0b0001, 0b0011, 0b0110, 0b1011], "sees_others", "node 2"),
        ("positions", [3, 4, 4, 6], "too_deep", "3 + depth 2 = 5"),
        ("positions", [3, 4, 3, 5], "too_shallow", "node 2"),
        ("next_child", [-1, 3, -1, -1], "link_missing", "children [1, 2]"),
        ("next_child", [1, 3, 3, -1], "link_added", "node 2"),
        ("next_sibling", [-1, 3, -1, -1], "wrong_node", "siblings [1, 2]"),
        ("retrieve_index", [4, 5, 6, 7], "wrong_node", "node 0"),
    ],
)
def test_the_sentence_names_the_node_and_the_rule(field, row, kind, words):
    outcome = CONTRACT.run(EXAMPLE)[0]
    wrong = judge(CONTRACT, outcome, outcome | {field: [row]})
    assert (wrong.field, wrong.kind) == (field, kind)
    assert words in sentence(CONTRACT, EXAMPLE, wrong)


def by_level(parents) -> bool:
    return depths(parents) == sorted(depths(parents))


def test_every_small_tree_survives_the_beam_search_encoding():
    """Decoded as the engine's format defines it, each tree comes back."""
    encoded = 0
    for parents in filter(by_level, TREES):
        for spare in (0, 2):
            topk, steps = (n + spare for n in beams(parents))
            case = SimpleNamespace(topk=topk, steps=steps, parents=np.array([parents, parents]))
            try:
                parent_list, selected = encode(case)
            except NotABeamSearch:
                continue
            assert parent_list.shape == (2, topk * (steps - 1) + 1 if steps > 1 else 0)
            for row in range(2):
                assert decoded(parent_list[row], selected[row], topk) == list(parents)
            encoded += 1
    assert encoded > 100


def decoded(parent_list, selected, topk) -> list[int]:
    places = {int(c): n + 1 for n, c in enumerate(selected)}
    beams_ = [int(c) // topk for c in selected]
    return [-1] + [0 if b == 0 else places.get(int(parent_list[b]), ORPHAN) for b in beams_]


@pytest.mark.parametrize(
    ("parents", "needs"),
    [
        ((-1,), (1, 1)),
        ((-1, 0, 0, 0), (3, 1)),
        ((-1, 0, 1, 2), (1, 3)),
        ((-1, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6), (4, 3)),  # four nodes of one level are expanded
        ((-1, 0, 0, ORPHAN), (3, 2)),  # a third candidate of step 1 was not selected
    ],
)
def test_what_a_tree_asks_of_the_beam_search(parents, needs):
    assert beams(parents) == needs


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize(
    "parents", [(-1, 0, 0, ORPHAN), (-1, 0, ORPHAN, 2), (-1, 0, 1, ORPHAN), (-1, 0, 0, 1, 2, 3, ORPHAN, 4)]
)
def test_an_orphan_is_encoded_as_a_candidate_whose_parent_is_missing(parents, spare):
    topk, steps = beams(parents)
    topk += spare
    parent_list, selected = encode(SimpleNamespace(topk=topk, steps=steps, parents=np.array([parents])))
    assert decoded(parent_list[0], selected[0], topk) == list(parents)


def test_padding_leaves_the_other_rows_as_they_are():
    for case in (EXAMPLE, of(-1, 0, 1, 0)):
        padded = replace(case, requests=(*case.requests, CONTRACT.padding(case)))
        CONTRACT.domain(padded)
        for name, value in CONTRACT.run(case)[0].items():
            assert name == "outside_writes" or CONTRACT.run(padded)[0][name][:1] == value


@pytest.mark.parametrize(
    ("case", "field"),
    [
        (replace(EXAMPLE, given="links"), "given"),
        (replace(EXAMPLE, mask="sparse"), "mask"),
        (replace(of(-1, 0), mask="bits"), "mask"),
        (replace(of(-1, 0), topk=1), "topk"),
        (replace(EXAMPLE, topk=0), "topk"),
        (replace(EXAMPLE, topk=1), "topk: this tree needs 2"),
        (replace(EXAMPLE, steps=1), "steps: this tree needs 2"),
        (replace(EXAMPLE, requests=()), "requests"),
        (replace(EXAMPLE, requests=(Request(-1, (-1, 0)),)), "pre"),
        (replace(EXAMPLE, requests=(Request(2**31 - 64, (-1, 0)),)), "pre"),
        (replace(EXAMPLE, requests=(Request(2**22, (-1, 0)),)), "too many cells"),
        (replace(EXAMPLE, requests=(Request(3, (0, 0)),)), "the root"),
        (replace(EXAMPLE, requests=(Request(3, (-1, 1)),)), "smaller node"),
        (replace(EXAMPLE, requests=(Request(3, (-1, -1)),)), "smaller node"),
        (replace(EXAMPLE, requests=(Request(3, (-1, 0)), Request(3, (-1,)))), "one number of nodes"),
        (DraftTreeCase("parents", "bits", 64, 1, (Request(3, (-1, *[0] * 32)),)), "in a word"),
    ],
)
def test_domain_names_the_field(case, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(case)
