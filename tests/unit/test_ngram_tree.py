"""verify.ngram_tree: what follows a token by two definitions, and the look at a tree."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fuzz.mutants.ngram_tree import drafted, mask_of
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.verify.ngram_paths import continuations, examine
from oracle.verify.ngram_tree import CONTRACT, NgramTreeCase, Request, Text

EXAMPLE = CONTRACT.example


def of(*texts: tuple[int, ...], ask: tuple[int, ...], **changes) -> NgramTreeCase:
    return replace(EXAMPLE, corpus=tuple(map(Text, texts)), requests=(Request(ask),), **changes)


def test_every_pair_of_short_texts_over_two_tokens():
    texts = [t for n in range(4) for t in product(range(2), repeat=n)]
    for first, other in product(texts, texts):
        for depth in (2, 3):
            case = of(first, other, ask=(0,), depth=depth, draft_tokens=16)
            assert CONTRACT.run(case)[0] == CONTRACT.second(case)


def test_continuations_by_hand():
    assert continuations(of((1, 2, 3), (4, 2, 5), ask=(2,)), 2) == {(3,), (5,)}
    assert continuations(of((1, 2, 3, 4, 5), ask=(1,), depth=3), 1) == {(2,), (2, 3)}
    assert continuations(of((1, 2), (3,), ask=(2,)), 2) == set()


def test_a_plain_drafter_is_right():
    case = of((1, 2, 3, 4), (1, 3, 3), ask=(1,), draft_tokens=6)
    tokens, parents = drafted(case, 1)
    seen = examine(continuations(case, 1), tokens, mask_of(parents))
    assert seen == {"broken_rows": 0, "twins": 0, "unfounded": 0, "drafts": 5}


PATHS = {(2,), (2, 3), (0,)}
GOOD = ([1, 2, 3, 0], mask_of([-1, 0, 1, 0]))


@pytest.mark.parametrize(
    ("tokens", "mask", "field", "count"),
    [
        ([1, 2, 4, 0], GOOD[1], "unfounded", 1),
        ([1, 3, 3, 0], GOOD[1], "unfounded", 2),
        ([1, 2, 2, 0], mask_of([-1, 0, 0, 0]), "twins", 1),
        ([1, 2, 3, 0], np.eye(4, dtype=np.int64), "broken_rows", 3),
        ([1, 2, 3, 0], np.tril(np.ones((4, 4), dtype=np.int64)) - np.eye(4, k=-3, dtype=np.int64), "broken_rows", 1),
        ([1, 2, 3, 0], GOOD[1] * 2, "broken_rows", 4),
        ([1, 2, 3, 0], GOOD[1] + np.eye(4, k=1, dtype=np.int64), "broken_rows", 4),
    ],
)
def test_the_look_counts_what_is_wrong(tokens, mask, field, count):
    assert examine(PATHS, *GOOD) == {"broken_rows": 0, "twins": 0, "unfounded": 0, "drafts": 3}
    assert examine(PATHS, tokens, mask)[field] == count


def test_something_is_owed_unless_the_corpus_may_have_forgotten():
    case = of((1, 2, 3, 4), ask=(1,))
    nothing = {"root_token": [1], "broken_rows": [0], "twins": [0], "unfounded": [0], "drafts": [0], "unsteady": [0]}
    wrong = judge(CONTRACT, CONTRACT.run(case)[0], nothing)
    assert (wrong.field, wrong.kind) == ("drafts", "nothing_drafted")
    assert judge(CONTRACT, CONTRACT.run(replace(case, capacity=6))[0], nothing).agrees


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"order": "best"}, "order"),
        ({"draft_tokens": 0}, "draft_tokens"),
        ({"depth": 1}, "depth"),
        ({"breadth": 0}, "breadth"),
        ({"capacity": 5}, "capacity"),
        ({"corpus": (Text((-1,)),)}, "corpus"),
        ({"corpus": (Text((1,) * 5000),)}, "corpus"),
        ({"requests": ()}, "requests"),
        ({"requests": (Request(()),)}, "context"),
        ({"requests": (Request((1,) * 5),)}, "context"),
        ({"requests": (Request((-1,)),)}, "context"),
    ],
)
def test_domain_names_the_field(changes, field):
    with pytest.raises(InvalidCase, match=field):
        CONTRACT.domain(replace(EXAMPLE, **changes))
