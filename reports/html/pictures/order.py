"""What a worker's round does, call after call, beside what it must do."""

from __future__ import annotations

from typing import Any

from reports.html.pictures import boundary
from reports.html.pictures.scene import Picture, Scene, exact
from reports.html.svg import Canvas

MEANS = {
    "prepare_tracks": "prepare slots for checkpoints",
    "verify": "verify the draft tokens",
    "commit_states": "save the recurrent states",
    "publish_lengths": "publish the new lengths",
}
WIDTH, HEIGHT, GAP, LEFT = 206, 34, 34, 110
MAX_CALLS = 8


def call_order(scene: Scene) -> Picture | None:
    """commit.call_order: the calls when they are wrong, else the token axis."""
    seen = scene.observed.get("order")
    if scene.field != "order" or not isinstance(seen, list):
        return boundary.round_of(scene)
    must = exact(scene.outcome["order"])
    seen = [str(call) for call in seen]
    missing = [MEANS.get(call, call) for call in must if call not in seen]
    extra = [MEANS.get(call, call) for call in seen if call not in must]
    wanted = ", ".join(MEANS.get(call, call) for call in must) or "do nothing"
    story = [f"One round of the worker must, in this order: {wanted}."]
    if missing:
        story.append(f"Production does not {' and does not '.join(missing)}.")
    if extra:
        story.append(f"Production does what it must not: {', '.join(extra)}.")
    if not missing and not extra:
        story.append("Production does the same things in another order.")
    return Picture(_lanes(must, seen), tuple(story))


def _lanes(must: list[str], seen: list[str]) -> Any:
    """Both lanes. When production only leaves something out, what it does stands below
    what it must do, and the gap is marked."""
    columns = [c if c in seen else None for c in must] if [c for c in must if c in seen] == seen else list(seen)
    first = next((i for i in range(max(len(must), len(columns))) if must[i : i + 1] != columns[i : i + 1]), 0)
    canvas = Canvas()
    for row, (who, calls) in enumerate((("must be", must), ("production", columns))):
        y = 10 + row * (HEIGHT + 30)
        canvas.text(0, y + 22, who, "strong")
        for i, call in enumerate(calls[:MAX_CALLS]):
            x = LEFT + i * (WIDTH + GAP)
            wrong = row == 1 and (call is None or i == first)
            look = "box rejected" if call is None else "box wrong" if wrong else "box kept"
            canvas.box(x, y, WIDTH, HEIGHT, look)
            words = "✗ not done" if call is None else MEANS.get(call, call)
            canvas.text(x + WIDTH / 2, y + 22, words, "bad" if wrong else "", "middle", 32)
            if i:
                canvas.arrow(x - GAP + 4, y + HEIGHT / 2, x - 4, y + HEIGHT / 2)
        if row == 1 and first >= len(calls):
            canvas.text(LEFT + len(calls[:MAX_CALLS]) * (WIDTH + GAP), y + 22, "✗ nothing follows", "bad")
    return canvas.markup("Calls of one round: what must happen above, what production does below")
