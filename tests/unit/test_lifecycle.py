"""commit.lifecycle: the model against the recount, on every short story, and its words."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest

from fuzz.lifecycle.long import hits, long_story
from fuzz.mutants.mutant import mutants_of
from fuzz.presentation import Presentation, present, undo
from fuzz.strategies.lifecycle import structure
from fuzz.strategies.source import RandomSource
from oracle.commit.lifecycle import CONTRACT
from oracle.contract import InvalidCase
from oracle.judgement import judge
from oracle.lifecycle.recount import recount
from oracle.lifecycle.story import LifecycleCase, Step, long_stories
from oracle.lifecycle.tokens import Tokens, length_of, request_of, stamp
from oracle.lifecycle.walk import walk
from oracle.lifecycle.words import prefix_words

SETTINGS = LifecycleCase(4, 2, 0, 0, False, False, (Step("evict"),))
ALPHABET = (
    Step("enter", 0, tokens=3),
    Step("enter", 1, tokens=6, source=0, shared=5),
    Step("verify", committed=(2, 1)),
    Step("publish"),
    Step("finish", 0),
    Step("retract", 0),
    Step("offload", 0),
    Step("restore", 0),
    Step("prefill", 1),
    Step("evict"),
)
MODES = (
    {},
    {"overlap": True},
    {"lazy": True, "overlap": True},
    {"chunk": 1},
    {"ring": 4},
)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_two_definitions_agree_on_every_short_story(mode):
    """All stories of four steps that begin with a request, in every mode."""
    for rest in product(ALPHABET, repeat=4):
        case = replace(SETTINGS, steps=(ALPHABET[0], *rest), **mode)
        assert walk(case) == recount(case), case.steps


@pytest.mark.parametrize("seed", range(4))
def test_two_definitions_agree_on_long_stories(seed):
    case = long_story(f"unit:{seed}", 60, 4, 8, overlap=seed % 2 == 0, lazy=seed == 0)
    CONTRACT.domain(case)
    assert walk(case) == recount(case)
    assert min(hits(case)) > 10


def test_the_invariant_holds_for_the_model_always():
    for i in range(2000):
        outcome = walk(structure(RandomSource(f"unit:{i}")))
        assert not any(outcome["violations"])
        assert set(map(tuple, outcome["slots"])) == {(0, 0, 0)}


def test_a_story_without_some_steps_is_a_story():
    rng = random.Random(5)
    for i in range(200):
        case = structure(RandomSource(f"unit:{i}"))
        steps = tuple(s for s in case.steps if rng.random() < 0.6) or case.steps[:1]
        fewer = replace(case, steps=steps)
        CONTRACT.domain(fewer)
        assert CONTRACT.run(fewer)[0] == CONTRACT.second(fewer)


def test_stamps_are_equal_exactly_where_texts_are():
    """Against texts written out: a stamp names a prefix."""
    rng = random.Random(7)
    tokens, texts = Tokens(), {}
    for name in range(12):
        source = rng.choice(list(texts)) if texts and rng.random() < 0.8 else None
        shared = rng.randint(0, 9) if source is not None else 0
        author = tokens.begin(name, source, shared)
        taken = texts[source][:shared] if source is not None else ()
        texts[author] = taken + tuple((author, p) for p in range(len(taken), 12))
    for one, other in product(texts, repeat=2):
        for i, j in product(range(13), repeat=2):
            same = texts[one][:i] == texts[other][:j]
            assert (tokens.prefix(one, i) == tokens.prefix(other, j)) == same
        common = next((n for n in range(12) if texts[one][n] != texts[other][n]), 12)
        assert min(12, tokens.common(one, other)) == common
        assert tokens.entries(one, 3, 9) == [tokens.prefix(one, n) for n in range(4, 10)]


def test_a_rewritten_text_is_another_one():
    tokens = Tokens()
    first = tokens.begin(3, None, 0)
    again = tokens.begin(3, first, 5)
    assert tokens.prefix(first, 5) == tokens.prefix(again, 5)
    assert tokens.prefix(first, 6) != tokens.prefix(again, 6)
    assert (request_of(tokens.prefix(again, 6)), length_of(tokens.prefix(again, 6))) == (3, 6)
    assert prefix_words(tokens.prefix(again, 6)) == "6 tokens of request 3 (rewritten 1 times)"


def test_the_order_of_a_story_is_never_changed():
    case = structure(RandomSource("order"))
    how = Presentation(order=3, padding=2)
    assert present(CONTRACT, case, how) == case
    outcome = CONTRACT.run(case)[0]
    assert undo(CONTRACT, case, how, outcome) == outcome


def crossing(**changes):
    steps = (Step("enter", 0, tokens=254), Step("verify", committed=(4,)), Step("finish", 0))
    return replace(SETTINGS, grid=256, draft_tokens=4, steps=steps, **changes)


def test_a_story_reads_like_one():
    lines = [s.name for s in CONTRACT.run(crossing())[1].steps if s.decides is None]
    assert lines[1:] == [
        "step 1: a round of 4 is verified, its rows commit 4; request 0 commits 4 of 4, 254 → 258",
        "step 2: request 0 finishes; files 256 tokens of request 0",
    ]


def judged(name, case):
    (mutant,) = (m for m in mutants_of("commit.lifecycle") if m.name == name)
    judgement = judge(CONTRACT, CONTRACT.run(case)[0], mutant.observe(case))
    return judgement, CONTRACT.say(case, judgement.field, judgement.where, judgement.observed)


@pytest.mark.parametrize(
    ("name", "field", "kind", "words"),
    [
        ("checkpoint_of_the_last_step", "violations", "running_state_ahead",
         "step 1, a round of 4 is verified, its rows commit 4: "
         "request 0 has under 256 tokens of request 0 the state after 258 tokens of request 0"),
        ("filed_one_boundary_early", "violations", "running_state_ahead",
         "step 1, a round of 4 is verified, its rows commit 4: "
         "request 0 has under 255 tokens of request 0 the state after 256 tokens of request 0"),
        ("attention_one_token_short", "violations", "filed_attention_cache_of_another_length",
         "step 2, request 0 finishes: the prefix cache files under 256 tokens of request 0 the state after 256 "
         "tokens of request 0; its attention cache has 255 entries, the first 255 of them right"),
        ("checkpoint_lost_at_the_end", "filed", "checkpoint_not_filed", "step 2, request 0 finishes: filed: nothing"),
        ("track_slots_not_released", "slots", "slot_lost",
         "step 2, request 0 finishes: 1 slots are lost, 0 have two owners, 0 are free and owned at once"),
    ],
)  # fmt: skip
def test_a_violation_names_what_is_filed_and_what_it_is(name, field, kind, words):
    judgement, said = judged(name, crossing())
    assert (judgement.field, judgement.kind, said) == (field, kind, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": 7, "overlap": True}, "grid: must be 8"),
        ({"ring": 5}, "ring"),
        ({"chunk": -1}, "chunk"),
        ({"draft_tokens": 1}, "draft_tokens"),
        ({"steps": ()}, "steps"),
        ({"steps": (Step("enter", 0, tokens=250000), *(Step("verify"),) * 200)}, "steps: 201 of 250200 tokens"),
        (
            {"steps": (*(Step("enter", i) for i in range(100)), *(Step("verify"),) * 1000)},
            "steps: 1100 of 106400 tokens",
        ),
        ({"steps": (Step("leave", 0),)}, r"steps\[0\].action"),
        ({"steps": (Step("enter", 5000),)}, r"steps\[0\].request"),
        ({"steps": (Step("verify", committed=(5,)),)}, r"steps\[0\].committed"),
    ],
)
def test_a_case_outside_the_domain_names_its_field(changes, words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(replace(crossing(), **changes))


def test_states_are_named_in_words():
    assert prefix_words(0) == "no tokens"
    assert prefix_words(stamp(128, 255)) == "255 tokens of request 2"


def test_the_soak_may_tell_what_a_file_may_not():
    """A thousand lives are minutes of work: a stranger's file must not ask for them."""
    case = long_story("soak:4:128", 1024, 4, 128, overlap=True, lazy=False)
    with pytest.raises(InvalidCase, match="too many together"):
        CONTRACT.domain(case)
    with long_stories():
        assert CONTRACT.domain(case) == "functional"
    with pytest.raises(InvalidCase):
        CONTRACT.domain(case)
