"""commit.kv_move: both definitions on every small block, and how stamped pools are read."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from fuzz.engines.sglang.kv_pools import Buffer, _agreed, _nodes, _origins
from fuzz.frozen import plain_outcome
from fuzz.strategies.kv_move import with_pages
from oracle.commit.kv_move import CONTRACT, DIVIDED, FOREIGN, OTHER, PARTS
from oracle.commit.kv_move_case import Request, block_slots
from oracle.contract import InvalidCase

EXAMPLE = CONTRACT.example
WORDS = 3


def paths(draft_tokens):
    for count in range(draft_tokens):
        for behind in combinations(range(1, draft_tokens), count):
            yield (0, *behind)


def small_cases():
    for page in (1, 2, 4):
        for draft_tokens in range(1, 6):
            for pre in range(5):
                for path in paths(draft_tokens):
                    rows = (Request(pre, path, ()), Request(pre + 1, path[:1], ()))
                    case = replace(
                        EXAMPLE, page=page, draft_tokens=draft_tokens, path_width=draft_tokens, requests=rows
                    )
                    yield with_pages(case, 1 + pre)


def test_both_definitions_agree_on_every_small_block():
    for case in small_cases():
        CONTRACT.domain(case)
        assert plain_outcome(CONTRACT.run(case)[0]) == plain_outcome(CONTRACT.second(case)), case


def test_kept_slots_and_freed_ones_are_the_block_and_kept_ones_end_a_page_or_the_block():
    for case in small_cases():
        for r, freed in zip(case.requests, CONTRACT.run(case)[0]["freed"], strict=True):
            slots = block_slots(case, r)
            kept = len(slots) - len(freed)
            assert slots[kept:] == freed and kept >= len(r.path)
            assert not freed or (r.pre + kept) % case.page == 0
            assert (r.pre + kept - 1) // case.page == (r.pre + len(r.path) - 1) // case.page


def test_no_two_committed_tokens_go_to_one_slot_and_all_sources_are_read_once():
    for case in small_cases():
        outcome = CONTRACT.run(case)[0]
        for field in ("sources", "targets"):
            slots = [s for row in outcome[field] for s in row]
            assert len(set(slots)) == len(slots) and min(slots) >= case.page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pool": "other"}, "pool: must be one of"),
        ({"page": 3}, "page: must be a power of two"),
        ({"pool": "indexer", "value_words": 0}, "page: index keys have pages of 64"),
        ({"pool": "latent"}, "value_words: 0 for a latent entry"),
        ({"window_layers": 1}, "window_layers: only a windowed pool"),
        ({"layers": 0}, "layers: the pool keeps nothing"),
        ({"key_words": 4096, "value_words": 4096, "layers": 64, "page": 256}, r"pages: the block lies in 1"),
        ({"requests": (Request(6, (0, 1), (2,)),)}, r"requests\[0\].pages: the block lies in 2"),
        ({"requests": (Request(6, (0, 1), (0, 1)),)}, r"requests\[0\].pages: must be 1"),
        ({"requests": (Request(6, (0, 1), (1, 1)),)}, "requests.pages: a page is named twice"),
        ({"requests": (Request(6, (1,), (2, 1)),)}, r"requests\[0\].path: starts at the root"),
        ({"requests": (Request(6, (0, 2, 1), (2, 1)),)}, r"requests\[0\].path: rising nodes"),
        ({"requests": ()}, "requests: must not be empty"),
        ({"requests": EXAMPLE.requests * 513}, "requests: must be at most 512"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(change, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(replace(EXAMPLE, **change))


class View:
    """As much of a tensor as reading back needs."""

    def __init__(self, numbers):
        self.numbers = numbers

    def reshape(self, *shape):
        return View(self.numbers.reshape(shape))

    def cpu(self):
        return self

    def numpy(self):
        return self.numbers


def stamped(layers=2, slots=6):
    return np.arange(1, 1 + layers * slots * WORDS).reshape(layers, slots, WORDS)


def origins(numbers):
    return _origins(Buffer("kv", WORDS, tuple(View(layer) for layer in numbers)))


def test_an_untouched_pool_holds_its_own_entries():
    assert origins(stamped()).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_whole_entry_says_where_it_came_from():
    numbers = stamped()
    numbers[:, 1] = numbers[:, 4]
    assert origins(numbers).tolist() == [0, 4, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("place", "value", "holds"),
    [
        ((slice(None), 1, 0), "of slot 4", PARTS),  # one word of each layer
        ((0, 1), "of slot 4", DIVIDED),  # one layer of two
        ((slice(None), 1), "of layer 0", DIVIDED),  # the first layer's entry in both
        ((slice(None), 1), "zero", PARTS),
        ((slice(None), 1), "beyond", FOREIGN),
    ],
)
def test_a_wrong_entry_says_how(place, value, holds):
    numbers = stamped()
    layer, slot, *word = place
    if value == "of slot 4":
        numbers[place] = numbers[(layer, 4, *word)]
    elif value == "of layer 0":
        numbers[:, slot] = numbers[0, 4]
    else:
        numbers[place] = 0 if value == "zero" else 1 + 100 * WORDS + np.arange(WORDS)
    found = origins(numbers)
    assert found[1] == holds
    assert [found[s] for s in (0, 2, 3, 4, 5)] == [0, 2, 3, 4, 5]


def test_buffers_that_disagree_are_divided_and_a_broken_row_stays_broken():
    assert _agreed([np.array([1, 2]), np.array([1, 3])]).tolist() == [1, DIVIDED]
    assert _agreed([np.array([1, PARTS]), np.array([1, 3])]).tolist() == [1, PARTS]


def test_slots_are_told_as_nodes_of_the_own_block():
    holds = np.array([0, 1, 5, 2, PARTS, FOREIGN])
    assert _nodes(holds, np.array([1, 2, 3, 4, 5])) == [0, 4, 1, PARTS, FOREIGN]
    assert _nodes(np.array([9, 9]), np.array([0, 1])) == [OTHER, OTHER]


@pytest.mark.parametrize(
    ("field", "observed", "kind", "words"),
    [
        ("kv", [0, 1, 2, 3], "not_moved", "position 7 holds node 1; must hold node 3"),
        ("kv", [0, PARTS, 2, 3], "partly_moved", "holds words of several entries; must hold node 3"),
        ("kv", [0, DIVIDED, 2, 3], "layers_disagree", "different entries in different layers"),
        ("kv", [0, OTHER, 2, 3], "entry_of_another", "not this request's"),
        ("kv", [0, 2, 2, 3], "wrong_node", "holds node 2"),
        ("kv", [0, 3, 3, 3], "rejected_overwritten", "position 8 holds node 3; must hold node 2"),
        ("kv", [1, 3, 2, 3], "root_overwritten", "position 6 holds node 1"),
        ("sources", [10], "too_few", "slots that committed tokens are read from are [10]"),
        ("targets", [10, 4], "wrong_slot", "must be [10, 11]"),
    ],
)
def test_what_is_wrong_in_words(field, observed, kind, words):
    case = replace(EXAMPLE, requests=(Request(6, (0, 3), (2, 1)),))
    expected = CONTRACT.run(case)[0][field][0]
    assert CONTRACT.kind(field, expected, observed) == kind
    assert words in CONTRACT.say(case, field, (0,), observed)


def test_counts_of_the_batch_in_words():
    assert CONTRACT.kind("stray", 0, 2) == "stray_move"
    assert CONTRACT.say(EXAMPLE, "stray", (), 2).endswith("2; must be 0")
