"""verify.greedy_tree: two definitions over every small tree, chains against
verify.greedy_chain, and the domain."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.explain import sentence
from oracle.judgement import judge
from oracle.verify import greedy_chain
from oracle.verify.greedy_tree import CONTRACT, NONE, GreedyTreeCase, Node, Request
from oracle.verify.links import children, from_parents

EXAMPLE = CONTRACT.example


def tree(parents, tokens, predicted) -> Request:
    child, sibling = from_parents(parents)
    return Request(tuple(Node(*fields) for fields in zip(tokens, child, sibling, predicted, strict=True)))


def run(*requests: Request, width: int, vocabulary: int = 100):
    return CONTRACT.run(GreedyTreeCase(vocabulary, width, requests))[0]


def test_every_tree_of_four_nodes_over_two_tokens():
    """All 6 trees, all drafts, all predictions, all widths."""
    trees = [(-1, *rest) for rest in product(range(1), range(2), range(3))]
    count = 0
    for parents, tokens, predicted in product(trees, product(range(2), repeat=3), product(range(2), repeat=4)):
        request = tree(parents, (0, *tokens), predicted)
        for width in (1, 2, 3, 4):
            case = GreedyTreeCase(2, width, (request,))
            assert CONTRACT.domain(case) == FUNCTIONAL
            assert CONTRACT.run(case)[0] == CONTRACT.second(case)
            count += 1
    assert count == 6 * 8 * 16 * 4


def test_a_chain_is_a_greedy_chain():
    for block, predicted in product(product(range(2), repeat=4), product(range(2), repeat=4)):
        as_tree = run(tree((-1, 0, 1, 2), block, predicted), width=4, vocabulary=2)
        as_chain = greedy_chain.CONTRACT.run(
            greedy_chain.GreedyChainCase(2, (greedy_chain.Request(0, block, predicted),))
        )[0]
        assert as_tree["accepted"] == as_chain["accepted"]
        assert as_tree["emitted"] == as_chain["emitted"]


def test_by_hand():
    outcome = run(
        tree((-1, 0, 0, 1), (9, 1, 2, 3), (1, 3, 0, 7)), tree((-1, 0, 0, 1), (8, 1, 2, 3), (2, 0, 5, 0)), width=3
    )
    assert outcome == {
        "path": [[0, 1, 3], [0, 2]],
        "accepted": [2, 1],
        "accept_index": [[0, 1, 3], [0, 2, NONE]],
        "predicts": [[1, 3, 7], [2, 5]],
        "emitted": [[1, 3, 7], [2, 5]],
        "outside_writes": 0,
    }


def test_the_first_of_equal_siblings_wins_in_link_order_not_in_node_order():
    nodes = (Node(9, 2, NONE, 4), Node(4, NONE, NONE, 5), Node(4, NONE, 1, 6))
    assert children(nodes, 0) == [2, 1]
    assert run(Request(nodes), width=2)["emitted"] == [[4, 6]]


def test_accepted_tokens_are_the_predictions_before_them():
    """Whatever the tree: emitted equals the predictions along the path."""
    for parents, tokens in product(((-1, 0, 0, 2), (-1, 0, 1, 1)), product(range(3), repeat=3)):
        outcome = run(tree(parents, (0, *tokens), (1, 2, 0, 1)), width=4, vocabulary=3)
        assert outcome["emitted"] == outcome["predicts"]


@pytest.mark.parametrize("hostile", [-1, 16, -(2**31), 2**31 - 1])
def test_a_draft_outside_the_vocabulary_is_never_accepted(hostile):
    for predicted in range(16):
        case = GreedyTreeCase(16, 3, (tree((-1, 0, 1), (9, hostile, predicted), (predicted, predicted, 5)),))
        assert CONTRACT.domain(case) == DEFENSIVE
        assert CONTRACT.run(case)[0]["accepted"] == [0] == CONTRACT.second(case)["accepted"]


def test_the_sentence_names_the_node_and_the_rule():
    case = GreedyTreeCase(16, 3, (tree((-1, 0, 0, 1), (9, 1, 2, 3), (2, 0, 5, 0)),))
    outcome = CONTRACT.run(case)[0]
    wrong = judge(CONTRACT, outcome, outcome | {"path": [[0, 1]]})
    assert (wrong.field, wrong.kind) == ("path", "wrong_node")
    words = sentence(CONTRACT, case, wrong)
    assert "predicts 2 after node 0" in words and "node 2 follows" in words and "went to 1" in words
    further = judge(CONTRACT, outcome, outcome | {"path": [[0, 2, 3]]})
    assert further.kind == "goes_too_far" and "the walk ends" in sentence(CONTRACT, case, further)


def test_padding_leaves_the_other_rows_as_they_are():
    padded = replace(EXAMPLE, requests=(*EXAMPLE.requests, CONTRACT.padding(EXAMPLE)))
    for name, value in CONTRACT.run(EXAMPLE)[0].items():
        assert name == "outside_writes" or CONTRACT.run(padded)[0][name][:1] == value


def changed(**fields) -> GreedyTreeCase:
    """The example with its second node changed."""
    nodes = list(EXAMPLE.requests[0].nodes)
    nodes[1] = replace(nodes[1], **fields)
    return replace(EXAMPLE, requests=(Request(tuple(nodes)),))


@pytest.mark.parametrize(
    ("case", "field"),
    [
        (replace(EXAMPLE, vocabulary=1), "vocabulary"),
        (replace(EXAMPLE, width=0), "width"),
        (replace(EXAMPLE, width=65), "width"),
        (replace(EXAMPLE, requests=()), "requests"),
        (replace(EXAMPLE, requests=(*EXAMPLE.requests, tree([-1], [0], [0]))), "nodes"),
        (changed(next_child=4), "next_child"),
        (changed(next_sibling=-2), "next_sibling"),
        (changed(next_child=0), "nobody's child"),
        (changed(next_child=2), "two links"),
        (changed(predicted=16), "predicted"),
        (changed(token=2**31), "token"),
        (replace(EXAMPLE, requests=(Request((Node(1, NONE, 1, 1), Node(1, NONE, NONE, 1))),)), "no sibling"),
        (replace(EXAMPLE, requests=(Request((Node(1, NONE, NONE, 1), Node(1, NONE, 1, 1))),)), "ring"),
        (
            replace(EXAMPLE, requests=(Request((Node(1, NONE, NONE, 1), Node(1, 2, NONE, 1), Node(1, NONE, 1, 1))),)),
            "ring",
        ),
    ],
)
def test_domain_names_the_field(case, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(case)
