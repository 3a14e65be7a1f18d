"""Values beside each other: the picture of a contract that has none of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.legal import Within, describe
from reports.html.pictures.scene import NOT_OBSERVED, Picture, Scene, exact
from reports.html.svg import Canvas
from reports.html.text import short

WIDTH, HEIGHT, LEFT = 78, 34, 110
MAX_CELLS = 12
AROUND = 4  # cells in front of the first difference
MAX_VALUE = 200


def values(scene: Scene) -> Picture | None:
    """The first illegal value and the legal one, cell by cell when they are lists."""
    must, seen = pair(scene)
    if must is NOT_OBSERVED or seen is NOT_OBSERVED:
        return None
    must = exact(must)
    both_lists = isinstance(must, (list, tuple)) and isinstance(seen, list)
    return Picture(_cells(list(must), seen) if both_lists else None, tuple(sentences(scene)))


def pair(scene: Scene) -> tuple[Any, Any]:
    """Legal and observed value where they first differ."""
    must = scene.outcome.get(scene.field, NOT_OBSERVED)
    if isinstance(must, np.ndarray):
        inside = len(scene.where) == must.ndim and all(w < n for w, n in zip(scene.where, must.shape, strict=True))
        return (int(must[scene.where]) if inside else NOT_OBSERVED), scene.seen
    if scene.kind == "wrong_shape":
        return must, scene.observed.get(scene.field, NOT_OBSERVED)
    if isinstance(must, list) and _by_request(scene):
        legal, saw = scene.expected(scene.field, scene.request), scene.saw(scene.field, scene.request)
        if isinstance(legal, Within):
            return _number(legal, scene)
        return legal, scene.seen if saw is NOT_OBSERVED and scene.seen is not None else saw
    return must, scene.observed.get(scene.field, NOT_OBSERVED)


def _number(legal: Within, scene: Scene) -> tuple[Any, Any]:
    """The first cell of an array of numbers that is outside its bound."""
    cell = scene.where[1:]
    inside = len(cell) == legal.value.ndim and all(c < n for c, n in zip(cell, legal.value.shape, strict=True))
    return (legal.cell(cell), scene.seen) if inside and scene.seen is not None else (NOT_OBSERVED, NOT_OBSERVED)


def _by_request(scene: Scene) -> bool:
    return any(f.name == scene.field and f.axis == "request" for f in scene.contract.fields)


def sentences(scene: Scene) -> list[str]:
    """What the field means, what it must be and what it is."""
    must, seen = pair(scene)
    if must is NOT_OBSERVED or seen is NOT_OBSERVED:
        return []
    meaning = next((f.meaning for f in scene.contract.fields if f.name == scene.field), "")
    place = f" of {scene.contract.records.removesuffix('s')} {scene.request}" if _by_request(scene) else ""
    return [
        f"Wrong is “{scene.field}”{place}: {meaning}.",
        f"It must be {short(describe(must), MAX_VALUE)}; production has {short(str(seen), MAX_VALUE)}.",
    ]


def _cells(must: list[Any], seen: list[Any]) -> Any:
    size = max(len(must), len(seen))
    first = next((i for i in range(size) if must[i : i + 1] != seen[i : i + 1]), 0)
    start = max(0, min(first - AROUND, size - MAX_CELLS))
    canvas = Canvas()
    for y, word in ((44, "must be"), (92, "production")):
        canvas.text(0, y + 22, word, "strong")
    for column, i in enumerate(range(start, min(size, start + MAX_CELLS))):
        x = LEFT + column * (WIDTH + 6)
        canvas.text(x + WIDTH / 2, 34, f"[{i}]", "note", "middle")
        for y, whole in ((44, must), (92, seen)):
            if i >= len(whole):
                canvas.text(x + WIDTH / 2, y + 22, "–", "note", "middle")
                continue
            wrong = whole is seen and must[i : i + 1] != seen[i : i + 1]
            canvas.box(x, y, WIDTH, HEIGHT, "box wrong" if wrong else "box")
            canvas.text(x + WIDTH / 2, y + 22, whole[i], "bad" if wrong else "", "middle", 9)
    if start or start + MAX_CELLS < size:
        canvas.text(LEFT, 148, f"entries {start} to {min(size, start + MAX_CELLS) - 1} of {size}", "note")
    return canvas.markup("What must be above, what production has below")
