"""Pool slots: where each state comes from, what a slot must hold and what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.commit import stamps
from oracle.commit.state_case import destinations
from reports.html.pictures.scene import Picture, Scene
from reports.html.svg import Canvas

MAX_SLOTS = 6
SOURCE, SLOT, LINE = 290, 470, 78
STRIDE = SOURCE + 120


def state_scatter(scene: Scene) -> Picture | None:
    """commit.state_scatter: one line a slot, the wrong one first."""
    case = scene.case
    if scene.field not in ("state", "windows") or len(scene.where) != 3:
        return Picture(None, (_outside(scene),))
    layer, wrong, cell = scene.where
    shape = scene.outcome[scene.field].shape
    if not (layer < shape[0] and wrong < shape[1] and cell < shape[2]):
        return None
    sources = dict(destinations(case))
    slots = [wrong, *(s for s in sources if s != wrong)]
    canvas = Canvas()
    canvas.text(0, 14, f"{_name(scene.field)}, layer {layer} of {case.layers}", "strong")
    canvas.text(0, 40, "copied from", "note")
    canvas.text(STRIDE, 40, f"slot of the pool ({case.slots} slots)", "note")
    for row, slot in enumerate(slots[:MAX_SLOTS]):
        _line(canvas, scene, layer, slot, cell if slot == wrong else 0, sources.get(slot), 52 + row * LINE)
    if len(slots) > MAX_SLOTS:
        canvas.text(STRIDE, 60 + MAX_SLOTS * LINE, f"… {len(slots) - MAX_SLOTS} more slots are written", "note")
    return Picture(canvas.markup(f"Slots of the state pool; slot {wrong} is wrong"), _story(scene, sources))


def _story(scene: Scene, sources: dict[int, Any]) -> tuple[str, ...]:
    layer, slot, cell = scene.where
    what, source = _name(scene.field).lower(), sources.get(slot)
    said = [f"After verify, states are copied into numbered slots of a pool ({len(sources)} slots in this case)."]
    if source is None:
        said.append(f"Nothing may be copied into slot {slot}: it belongs to somebody else and must keep its contents.")
    else:
        said.append(f"Slot {slot} must receive {_origin(scene, source)}.")
    said.append(f"It holds {_holds(scene, layer, slot, cell)} instead (cell {cell} of its {what}, layer {layer}).")
    return tuple(said)


def _line(canvas: Canvas, scene: Scene, layer: int, slot: int, cell: int, source: Any, y: float) -> None:
    wrong = slot == scene.where[1]
    if source is None:
        canvas.text(0, y + 30, "nothing: this slot must not change", "note")
    else:
        canvas.box(0, y, SOURCE, 46, "box kept")
        canvas.text(10, y + 28, _origin(scene, source), "", most=44)
        canvas.arrow(SOURCE + 4, y + 23, STRIDE - 6, y + 23)
        canvas.text(SOURCE + 18, y + 17, _why(scene, slot), "note")
    canvas.box(STRIDE, y, SLOT, 66, "box wrong" if wrong else "box")
    canvas.text(STRIDE + 10, y + 26, slot, "big")
    must = _said(scene, layer, int(scene.outcome[scene.field][layer, slot, cell]))
    canvas.text(STRIDE + 62, y + 26, f"must hold {must}", "good" if wrong else "", most=54)
    mark, look = ("✗ ", "bad") if wrong else ("", "note")
    canvas.text(STRIDE + 62, y + 50, f"{mark}holds {_holds(scene, layer, slot, cell)}", look, most=54)


def _holds(scene: Scene, layer: int, slot: int, cell: int) -> str:
    """What production left in a cell, in words."""
    if (layer, slot, cell) == scene.where and type(scene.seen) is int:
        return _said(scene, layer, scene.seen)
    observed = scene.observed.get(scene.field)
    if not isinstance(observed, np.ndarray) or observed.shape != scene.outcome[scene.field].shape:
        return "(not recorded)"
    return _said(scene, layer, int(observed[layer, slot, cell]))


def _said(scene: Scene, layer: int, number: int) -> str:
    """A cell's contents in words; the layer is named only when it is another one."""
    return stamps.describe(scene.case, scene.field, number).removesuffix(f" in layer {layer}")


def _origin(scene: Scene, source: Any) -> str:
    if scene.case.operation == "pool":
        return f"what slot {source} holds"
    return f"the state of row {source[0]} after verify step {source[1]}"


def _why(scene: Scene, slot: int) -> str:
    tracks = {r.track_slot for r in scene.case.rows}
    return "checkpoint" if slot in tracks else "current state"


def _name(field: str) -> str:
    return "Recurrent state" if field == "state" else "Convolution windows"


def _outside(scene: Scene) -> str:
    seen = scene.observed.get(scene.field, scene.seen)
    if scene.field == "source_changed":
        return f"The scratch of the verify pass is only read; production changed {seen} of its cells."
    return f"Nothing outside the pool's slots may be written; production did: {seen}."
