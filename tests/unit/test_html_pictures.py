"""Pictures: each mutant of each contract can be drawn, and nothing observed breaks one."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest

from fuzz.mutants.mutant import mutants_of
from oracle import contracts, explain
from reports.html.pictures import draw
from reports.html.pictures.scene import Scene, fitting
from reports.html.svg import Canvas
from tests.mutant_run import killing

JUNK = (None, True, -1, 2**70, 1.5, float("nan"), "<b>", [], [[]], [None], {"a": 1}, [-5] * 3, [2**70], [[1, "x"]])


def scene_of(contract: str, case, evidence: dict, field: str, kind: str) -> Scene:
    known = contracts.get(contract)
    outcome, _ = known.run(case)
    observed = fitting(known, outcome, evidence.get("all_observed"))
    return Scene(known, case, outcome, observed, field, kind, tuple(evidence["where"]), evidence["observed"])


@cache
def killed(contract: str) -> dict[str, Scene]:
    found = {m.name: killing(contract, m) for m in mutants_of(contract)}
    return {
        name: scene_of(contract, case, v.evidence, v.identity.field, v.identity.kind)
        for name, (case, v) in ((n, f) for n, f in found.items() if f is not None)
        if "where" in v.evidence
    }


def words(picture) -> str:
    return " ".join(picture.story)


@pytest.mark.parametrize("contract", list(contracts.all_contracts()))
def test_every_mutant_has_a_story(contract):
    scenes = killed(contract)
    assert scenes
    for name, scene in scenes.items():
        picture = draw(scene)
        assert picture is not None, name
        assert words(picture), name
        if picture.drawing is not None:
            assert re.match(r"<svg [^>]*>.*</svg>\Z", str(picture.drawing), re.S), name


@pytest.mark.parametrize("contract", list(contracts.all_contracts()))
def test_nothing_that_was_observed_breaks_a_picture(contract):
    rng = random.Random(contract)
    for scene in killed(contract).values():
        for _ in range(6):
            observed = {f.name: rng.choice(JUNK) for f in scene.contract.fields if rng.random() < 0.8}
            for name, value in scene.observed.items():
                if rng.random() < 0.3 and isinstance(value, list):
                    observed[name] = [rng.choice([*JUNK, *value]) for _ in range(rng.randrange(4))]
            where = tuple(rng.choice((0, 1, 7, 10**9)) for _ in range(rng.randrange(4)))
            field = rng.choice(scene.contract.fields).name
            legal = fitting(scene.contract, scene.outcome, observed)
            explain.side_by_side(scene.contract, scene.case, legal)
            draw(Scene(scene.contract, scene.case, scene.outcome, legal, field, "kind", where, rng.choice(JUNK)))


def test_a_boundary_that_is_missed_is_told_with_its_length():
    scene = killed("commit.checkpoint_steps")["stale_length"]
    text = words(draw(scene))
    r = scene.case.requests[scene.request]
    boundary = (r.pre + r.committed) // scene.case.grid * scene.case.grid
    assert f"It reaches length {boundary:,}" in text
    assert "Production saves nothing" in text
    assert "production saves nothing" in str(draw(scene).drawing)


def test_a_slot_is_told_with_what_it_holds_and_must_hold():
    scene = next(s for s in killed("commit.state_scatter").values() if s.kind == "wrong_source")
    picture = draw(scene)
    assert f"Slot {scene.where[1]} must receive" in words(picture)
    assert "✗ holds" in str(picture.drawing)


def test_a_tree_shows_where_the_paths_part():
    scene = next(s for s in killed("verify.greedy_tree").values() if s.kind == "wrong_node")
    assert "production goes to node" in words(draw(scene))
    assert "line bad dashed" in str(draw(scene).drawing)


def test_a_draw_shows_the_coin_and_both_tokens():
    scene = next(s for s in killed("verify.tree_sampling").values() if s.field == "bonus_token")
    drawing = str(draw(scene).drawing)
    assert "coin " in drawing
    assert "must be token" in drawing


def test_text_of_a_picture_is_escaped_and_cut():
    canvas = Canvas()
    canvas.text(0, 0, "<script>" * 50 + "\u202e")
    assert "<script" not in canvas.markup("<x>")
    assert "&lt;x&gt;" in canvas.markup("<x>")
    assert len(canvas.markup("")) < 1500
